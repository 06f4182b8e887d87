"""The command ``nbx``. The only package of the core that imports click and rich."""

from nbx_registry.cli.main import main

__all__ = ["main"]
