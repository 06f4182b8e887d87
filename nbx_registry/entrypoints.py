"""Where plugins come from: the entry points of installed distributions. Reading them imports nothing of a plugin."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from nbx_registry.hookspecs import GROUP
from nbx_registry.items import told

_VALUE = re.compile(
    r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(\s*:\s*[A-Za-z_]\w*(\.[A-Za-z_]\w*)*)?\s*(\[[^]]*\])?\s*\Z", re.ASCII
)


@dataclass(kw_only=True)
class Source:
    """A plugin that was found and not yet imported."""

    name: str
    load: Callable[[], Any]
    distribution: str | None = None
    version: str | None = None
    module: str = ""
    wrong: str = ""
    """Why there is nothing to import."""
    copies: list[str] = field(default_factory=list[str])
    """Other versions of its distribution further down ``sys.path``, which are not used: version and place."""


def canonical(name: str) -> str:
    """Return the name by which distributions and plugins are told apart: ``NBX_Acme`` is ``nbx-acme``."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed() -> list[Source]:
    """Return a source for every entry point of the group, and for every distribution whose own cannot be read.

    Of a distribution that is there several times the first on ``sys.path`` counts, as for imports.
    """
    found: list[Source] = []
    first: dict[str, list[Source]] = {}
    for distribution in importlib.metadata.distributions():
        # Not `entry_points(group=...)`: there, one distribution that cannot be read keeps all others from being found.
        name = version = None
        try:
            text = distribution.read_text("entry_points.txt")
            if text is None or GROUP not in text:
                continue
            name, version = _identity(distribution)
            sources = list(_sources(distribution, name, version))
        except Exception as error:  # noqa: BLE001 - metadata may hold anything; it becomes the report
            place = str(distribution.locate_file(""))
            why = f"the entry points of {name or place} cannot be read ({told(error)})"
            sources = [Source(name=name or place, load=_nothing, distribution=name, version=version, wrong=why)]
        key = canonical(name) if name is not None else None
        if key is not None and key in first:
            # An editable install beside its own build metadata is there twice, and the same.
            for source in first[key]:
                if version != source.version:
                    source.copies.append(f"{version} in {distribution.locate_file('')}")
            continue
        if key is not None:
            first[key] = sources
        found += sources
    return found


def _identity(distribution: importlib.metadata.Distribution) -> tuple[str | None, str | None]:
    # Read here: parsing it as the message it is, with the README for a body, costs milliseconds.
    text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
    head = [line.partition(": ") for line in text.partition("\n\n")[0].splitlines()]
    fields = {name: value for name, colon, value in reversed(head) if colon}
    return fields.get("Name"), fields.get("Version")


def _sources(distribution: importlib.metadata.Distribution, name: str | None, version: str | None) -> Iterator[Source]:
    seen: set[tuple[str, str]] = set()
    for point in distribution.entry_points:
        if point.group != GROUP or (point.name, point.value) in seen:
            continue
        seen.add((point.name, point.value))
        wrong = "" if _VALUE.match(point.value) else f"the entry point {point.name} = {point.value!r} names no module"
        yield Source(
            name=point.name, load=point.load, distribution=name, version=version, module=point.value, wrong=wrong
        )


def _nothing() -> None:
    return None
