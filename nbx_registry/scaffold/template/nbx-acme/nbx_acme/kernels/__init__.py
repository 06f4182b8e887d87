"""Kernels of the Acme One: the only modules that would import its toolkit."""
