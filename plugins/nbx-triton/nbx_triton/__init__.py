"""Portable Triton kernels and their torch-free compiler."""
