"""Ops of creation."""
