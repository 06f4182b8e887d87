"""Runs: what is asked for, where and how it is tried, and what comes of it."""
