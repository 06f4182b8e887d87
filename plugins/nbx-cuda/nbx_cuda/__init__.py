"""The NVIDIA runtime, on cuda-core."""
