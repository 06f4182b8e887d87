"""The command group ``nbx conformance``. The only package here that imports click."""

from nbx_conformance.cli.group import conformance

__all__ = ["conformance"]
