"""Kernels of this hardware: the only modules that would import its toolkit."""
