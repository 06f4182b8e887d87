"""Printing: one console, tables that lose nothing when they are narrow, JSON, figures with their units."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NoReturn, TypeVar

import click
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

PIPED_WIDTH = 160
"""Columns when the output is no terminal and COLUMNS is not set: wide enough that ids stay whole for grep."""

Function = TypeVar("Function", bound=Callable[..., Any])


def console(*, error: bool = False) -> Console:
    """Return a console on the current standard output (or error), which tests may have replaced."""
    stream = sys.stderr if error else sys.stdout
    width = PIPED_WIDTH if not stream.isatty() and "COLUMNS" not in os.environ else None
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False, soft_wrap=False)


def json_option(function: Function) -> Function:
    """Add ``--json``; the choice is kept where the error handler finds it."""

    def remember(context: click.Context, _: click.Parameter, value: bool) -> bool:
        context.find_root().meta["nbx.json"] = value
        return value

    return click.option(
        "--json", "as_json", is_flag=True, callback=remember, is_eager=True, help="Print JSON instead of tables."
    )(function)


def wants_json(context: click.Context) -> bool:
    """Whether the running command was given ``--json``."""
    return bool(context.find_root().meta.get("nbx.json"))


def print_json(data: object) -> None:
    """Print plain data as JSON."""
    click.echo(json.dumps(data, indent=2, default=str, ensure_ascii=False))


def table(
    headings: Iterable[str],
    rows: Iterable[Sequence[object]],
    *,
    right: Collection[str] = (),
    whole: Collection[str] = (),
) -> None:
    """Print a table; the columns named in ``right`` hold figures.

    Long cells are folded, never cut; figures and the columns named in ``whole`` are the last to be.
    """
    built = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in headings:
        built.add_column(
            heading,
            justify="right" if heading in right else "left",
            overflow="fold",
            header_style="bold",
            no_wrap=heading in right or heading in whole,
        )
    for row in rows:
        built.add_row(*(Text(str(cell)) for cell in row))
    out = console()
    with out.capture() as printed:
        out.print(built)
    # rich fills the last column with spaces, which would end every piped line.
    out.file.write("".join(line.rstrip() + "\n" for line in printed.get().splitlines()))


def lines(text: str, style: Callable[[str], str] = lambda _: "", *, error: bool = False) -> None:
    """Print indented lines; one that is too long continues two columns deeper than it began."""
    out = console(error=error)
    for line in text.splitlines():
        bare = line.lstrip()
        indent = len(line) - len(bare)
        body = Text(bare, style=style(line))
        if indent + len(bare) <= out.width:
            out.print(_indented(body, indent))
            continue
        first, *rest = body.wrap(out, out.width - indent - 2)
        out.print(_indented(first, indent))
        for piece in rest:
            out.print(_indented(piece, indent + 2))


def _indented(text: Text, indent: int) -> Padding:
    # Not expanded: a piped line shall not end in spaces.
    text.rstrip()
    return Padding(text, (0, 0, 0, indent), expand=False)


def stop(message: str, code: int = 1) -> NoReturn:
    """End with a message on standard error (or as JSON on standard output) and an exit code."""
    context = click.get_current_context()
    if wants_json(context):
        print_json({"error": {"code": "USAGE" if code == 2 else "ERROR", "message": message}})
    else:
        lines(f"error: {message}", lambda _: "red", error=True)
    context.exit(code)


def figure_bytes(count: int) -> str:
    """Bytes in decimal units, as bandwidths are given: ``33.55 MB``."""
    return _scaled(count, 1000, ("B", "kB", "MB", "GB", "TB", "PB"))


def figure_flops(count: int) -> str:
    """Operations in decimal units: ``4.19 Gflop``."""
    return _scaled(count, 1000, ("flop", "kflop", "Mflop", "Gflop", "Tflop", "Pflop"))


def figure_seconds(seconds: float) -> str:
    """A duration: ``15.8 us``."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def _scaled(count: int, step: int, units: Sequence[str]) -> str:
    value, index = float(count), 0
    while value >= step and index < len(units) - 1:
        value /= step
        index += 1
    return f"{count} {units[0]}" if index == 0 else f"{value:.2f} {units[index]}"
