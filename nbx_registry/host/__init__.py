"""The built-in plugin ``nbx-host``: the runtime of the machine itself and NumPy kernels. The core never imports it."""
