"""The conformance suite that every kernel plugin must pass, its cases and its bundles.

The way of a case, package by package, each of which knows those before it: cases, problems, trials, checks, runs,
plugin_checks, bundles. Above them are pytest's plugin, a page and the commands. Why they are as they are is in
``docs/explanation/conformance.md``.
"""

from nbx_conformance.pytest_suite import suite

__all__ = ["suite"]
