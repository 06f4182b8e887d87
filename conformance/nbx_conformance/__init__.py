"""The conformance suite that every kernel plugin must pass, its cases and its bundles."""

from nbx_conformance.pytest_suite import suite

__all__ = ["suite"]
