"""NumPy kernels, one module a family: loaded when the first of them is bound."""
