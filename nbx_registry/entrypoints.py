"""Where plugins come from: the entry points of installed distributions. Reading them imports nothing of a plugin."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any

from nbx_registry import distributions
from nbx_registry.distributions import canonical
from nbx_registry.hookspecs import GROUP
from nbx_registry.items import told


@dataclass(kw_only=True, eq=False)
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


def installed() -> list[Source]:
    """Return a source for every entry point of the group, and for every distribution whose own cannot be read.

    Of a distribution that is there several times the first on ``sys.path`` counts, as for imports.
    """
    found: list[Source] = []
    first: dict[str, list[Source]] = {}
    for distribution in distributions.installed():
        name = version = None
        try:
            content = distribution.read("entry_points.txt")
            if content is None or GROUP.encode() not in content:
                continue
            name, version = distribution.identity()
            sources = list(_sources(content.decode("utf-8-sig"), name, version))
        except Exception as error:  # noqa: BLE001 - metadata may hold anything; it becomes the report
            why = f"the entry points of {name or distribution.place} cannot be read ({told(error)})"
            place = distribution.place
            sources = [Source(name=name or place, load=_nothing, distribution=name, version=version, wrong=why)]
        key = canonical(name) if name is not None else None
        if key is not None and key in first:
            # An editable install beside its own build metadata is there twice, and the same.
            for source in first[key]:
                if version != source.version:
                    source.copies.append(f"{version} in {distribution.place}")
            continue
        if key is not None:
            first[key] = sources
        found += sources
    return found


def _sources(text: str, name: str | None, version: str | None) -> Iterator[Source]:
    for point, value in dict.fromkeys(_points(text)):
        named = _named(value)
        wrong = "" if named else f"the entry point {point} = {value!r} names no module"
        load = partial(_load, *named) if named else _nothing
        yield Source(name=point, load=load, distribution=name, version=version, module=value, wrong=wrong)


def _points(text: str) -> Iterator[tuple[str, str]]:
    """Yield name and value of every entry point of the group."""
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            section = line.strip("[]")
        elif line and not line.startswith("#") and section == GROUP:
            name, equals, value = line.partition("=")
            if not equals:
                raise ValueError(f"{line!r} has no '='")
            yield name.strip(), value.strip()


def _named(value: str) -> tuple[str, str] | None:
    """Return the module and the attribute, if any, that an entry point names; None where it names none."""
    reference, bracket, extras = value.partition("[")
    module, colon, attribute = (part.strip() for part in reference.partition(":"))
    names = [*module.split("."), *(attribute.split(".") if colon else ())]
    good = reference.isascii() and all(map(str.isidentifier, names))
    return (module, attribute) if good and (not bracket or extras.find("]") == len(extras) - 1) else None


def _load(module: str, attribute: str) -> Any:
    return reduce(getattr, filter(None, attribute.split(".")), importlib.import_module(module))


def _nothing() -> None:
    return None
