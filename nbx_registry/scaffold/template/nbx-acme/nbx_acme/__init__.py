"""The Acme One for nbx-registry."""
