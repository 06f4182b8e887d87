"""The conformance suite that every kernel plugin must pass, its cases and its bundles.

The way of a case, module by module: cases, problem, trial, checks, runner (a record), session (a run), bundle. What
stands beside that way, and why, is in ``docs/explanation/conformance.md``.
"""

from nbx_conformance.pytest_suite import suite

__all__ = ["suite"]
