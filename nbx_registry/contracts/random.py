"""Ops of random."""
