"""Sparse delta memory: ops and kernels."""
