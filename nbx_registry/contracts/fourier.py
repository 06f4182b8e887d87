"""Ops of fourier."""
