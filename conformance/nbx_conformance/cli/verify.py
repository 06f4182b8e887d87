"""``nbx conformance verify``."""

from __future__ import annotations

import json
from pathlib import Path

import click

import nbx_registry as nbx
from nbx_conformance import runner


@click.command()
@click.argument("bundle", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Plain data, for programs.")
@click.pass_context
def verify(context: click.Context, bundle: tuple[Path, ...], as_json: bool) -> None:
    """Check that bundles are whole, consistent, and about what is installed here.

    Exit codes: 0 all verify, 3 one does not, 2 wrong usage.
    """
    from nbx_conformance.verify import verify as check

    registry = nbx.load()
    cases = runner.case_table(registry)
    found = [check(path, registry, cases) for path in bundle]
    if as_json:
        click.echo(json.dumps([result.to_dict() for result in found], indent=1))
    else:
        for result in found:
            click.echo(f"{result.path}: {'verified (self-reported, unsigned)' if not result.code else 'NOT verified'}")
            for label, lines in (("", result.problems), ("stale: ", result.stale), ("note: ", result.notes)):
                for line in lines:
                    click.echo(f"  {label}{line}")
    context.exit(max(result.code for result in found))
