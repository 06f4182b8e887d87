"""The group, with one module for each of its commands."""

from __future__ import annotations

import click

from nbx_conformance.cli.lint import lint
from nbx_conformance.cli.merge import merge
from nbx_conformance.cli.report import report
from nbx_conformance.cli.run import run
from nbx_conformance.cli.verify import verify


@click.group()
def conformance() -> None:
    """Check kernels against their contracts, and verify what others found."""


for _command in (run, merge, verify, report, lint):
    conformance.add_command(_command)
