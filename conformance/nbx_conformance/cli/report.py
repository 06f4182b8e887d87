"""``nbx conformance report``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

import nbx_registry as nbx
from nbx_conformance.cli.codes import NOT_PASSED, PASSED, USAGE
from nbx_conformance.cli.files import Output, line
from nbx_registry import jsonfile


@click.command()
@click.argument("bundle", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--html", type=Output(), help="Write a page that needs nothing else.")
@click.option("--markdown", type=Output(), help="Write the support matrix alone.")
@click.pass_context
def report(context: click.Context, bundle: tuple[Path, ...], html: Path | None, markdown: Path | None) -> None:
    """Show what bundles say: the support matrix, error profiles, and how to see each failure again.

    Exit codes: 0 written, whatever the bundles say; 3 a bundle is malformed or was changed, or nothing could be
    written; 2 wrong usage.
    """
    from nbx_conformance.bundles import matrix as matrices

    if html is None and markdown is None:
        click.echo("error: say what to write: --html OUT, --markdown OUT, or both", err=True)
        context.exit(USAGE)
    taken = {path.resolve(): f"the bundle {path}" for path in bundle}
    for option, path in (("--html", html), ("--markdown", markdown)):
        if path is None:
            continue
        if path.resolve() in taken:
            raise click.UsageError(f"{option} {path} would replace {taken[path.resolve()]}; name another file")
        taken[path.resolve()] = f"what {option} writes"
    try:
        matrix = matrices.gather(bundle)
        if html is not None:
            from nbx_conformance.page import page

            jsonfile.replace(html, page(matrix, _verified(bundle)).encode())
            click.echo(f"written to {html}")
        if markdown is not None:
            jsonfile.replace(markdown, matrices.markdown(matrix).encode())
            click.echo(f"written to {markdown}")
    except nbx.NbxError as error:
        click.echo(line(f"error: {error}"), err=True)
        context.exit(NOT_PASSED)
    context.exit(PASSED)


def _verified(paths: Sequence[Path]) -> dict[str, Sequence[str]]:
    from nbx_conformance.bundles.verify import verify
    from nbx_conformance.runs import runner

    registry = nbx.load()
    cases = runner.case_table(registry)
    found = [verify(path, registry, cases) for path in paths]
    return {
        result.bundle.digest: (
            result.label,
            *result.problems,
            *(f"stale: {line}" for line in result.stale),
            *(f"note: {line}" for line in result.notes),
        )
        for result in found
        if result.bundle is not None
    }
