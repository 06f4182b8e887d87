"""Ops of convolution."""
