"""``nbx new-plugin``: a complete small plugin, to be changed into one's own."""

from __future__ import annotations

from pathlib import Path

import click

from nbx_registry.cli.console import json_option, lines, print_json, stop
from nbx_registry.cli.main import USAGE, registry
from nbx_registry.errors import NbxError
from nbx_registry.scaffold import collision, name_of, write


@click.command("new-plugin", short_help="Write a complete small plugin.")
@click.argument("name")
@click.option(
    "--folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path(),
    metavar="DIR",
    help="Write it in this folder; by default here.",
)
@json_option
@click.pass_context
def new_plugin(context: click.Context, name: str, folder: Path, as_json: bool) -> None:
    """Write the distribution NAME (nbx-acme): runtime, device file, kernels, conformance, CI.

    It works as it is, over host memory; docs/how-to/write-a-plugin.md goes through it file by file.
    """
    try:
        names = name_of(name)
        taken = collision(names, registry(context).catalog)
        if taken is not None:
            stop(taken, USAGE)
        written = write(names, folder)
    except NbxError as error:
        if error.code != "NAME":
            raise
        stop(str(error), USAGE)
    root = folder / names.distribution
    if as_json:
        print_json({"folder": str(root), "files": [path.relative_to(root).as_posix() for path in written]})
        return
    lines(f"{root}: {len(written)} files")
    for path in written:
        lines(f"    {path.relative_to(root).as_posix()}")
    lines("next:")
    lines(f"    pip install -e '{root}[test]'")
    lines("    nbx doctor")
    lines(f"    pytest {root}")
