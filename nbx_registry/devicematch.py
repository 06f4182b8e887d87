"""How a live device is recognised: the ``match`` rules of device files, and how they are told apart unread."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbx_registry import yamlfile
from nbx_registry.errors import NbxError

if TYPE_CHECKING:
    from nbx_registry.runtime import LiveDevice

_GLANCE = 2**16
"""How many bytes of a file a glance takes in."""
_LINE = re.compile(rb"^match:[ \t]*\{[^\n]*$", re.MULTILINE)


def matches(rule: Mapping[str, Any], live: LiveDevice, count: object) -> bool:
    """Return whether a rule takes a live device with that many multiprocessors; what a rule leaves out, any has."""
    return (
        live.name in rule.get("names", (live.name,))
        and live.arch in rule.get("archs", (live.arch,))
        and count == rule.get("multiprocessors", count)
    )


def overlap(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether some live device of one runtime would be taken by both rules."""
    return all(
        key not in one or key not in other or bool(_values(one[key]) & _values(other[key]))
        for key in ("names", "archs", "multiprocessors")
    )


def rules_out(path: Path, live: LiveDevice, count: object) -> bool:
    """Return whether a glance at a file shows that it matches another device: reading all of it costs milliseconds."""
    try:
        with path.open("rb") as stream:
            line = _LINE.search(stream.read(_GLANCE))
        if line is None:
            return False
        return _names_others(line[0], live.name) or not matches(yamlfile.parse(line[0])["match"], live, count)
    except (OSError, NbxError, TypeError, AttributeError):
        # Whatever is wrong with it, reading the file tells.
        return False


def _names_others(line: bytes, name: str) -> bool:
    """Return whether a rule written plainly on one line has names, and not this one anywhere."""
    plain = line.rstrip().endswith(b"}") and b"#" not in line and b"\\" not in line and "'" not in name
    return plain and b"names:" in line and name.encode() not in line


def _values(value: Any) -> set[Any]:
    return set(value) if isinstance(value, tuple) else {value}  # pyright: ignore[reportUnknownArgumentType]
