"""Triton kernels and their binders: the only modules, with the compiler's, that import Triton."""
