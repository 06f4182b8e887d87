"""A simulated runtime and loopback kernels over it, for tests."""
