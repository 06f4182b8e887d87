"""Ops of quantized."""
