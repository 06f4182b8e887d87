"""How the Acme One is driven."""

from nbx_acme.runtime.driver import create

__all__ = ["create"]
