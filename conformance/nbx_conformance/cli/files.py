"""Files that commands write, and lines that they tell of what others wrote."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from nbx_registry import jsonfile


class Output(click.Path):
    """A file that can be written, as far as can be told before the work is done that it is for."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path; a usage error where nothing can be written."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        problem = jsonfile.obstacle(path)
        if problem:
            self.fail(f"{line(str(path))}: {problem}" if str(path) not in problem else problem, param, ctx)
        return path


def line(text: str) -> str:
    """Return a text as one line that a terminal shows as it stands: what it cannot show is escaped.

    Bundles are written by others: an escape sequence or a newline in a name would forge a verdict.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)
