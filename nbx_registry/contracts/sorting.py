"""Ops of sorting."""
