"""``nbx conformance lint``."""

from __future__ import annotations

import json

import click

import nbx_registry as nbx
from nbx_conformance.cli.codes import NOT_PASSED
from nbx_conformance.runs import profiles, runner


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Plain data, for programs.")
@click.pass_context
def lint(context: click.Context, as_json: bool) -> None:
    """Check the cases of every op against its contract, and the profiles against the cases.

    Exit codes: 0 nothing found, 3 something is wrong.
    """
    from nbx_conformance.lint import lint as check

    registry = nbx.load()
    table = runner.case_table(registry)
    problems = [
        *check(table, registry.ops.values()),
        *profiles.lint(table, {op.id: op for op in registry.ops.values()}),
    ]
    count = sum(len(table.of(op)) for op in table.ops)
    if as_json:
        click.echo(json.dumps({"cases": count, "ops": len(table.ops), "problems": problems}, indent=1))
    else:
        for problem in problems:
            click.echo(problem)
        problems_found = f"{len(problems)} problem{'' if len(problems) == 1 else 's'}"
        click.echo(f"{count} cases of {len(table.ops)} op{'' if len(table.ops) == 1 else 's'}, {problems_found}")
    context.exit(NOT_PASSED if problems else 0)
