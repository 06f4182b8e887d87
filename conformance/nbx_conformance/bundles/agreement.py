"""Agreement: where two descriptions of what should be one run differ first."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from nbx_registry import jsonfile


class Difference(NamedTuple):
    """The first key that differs, ``runtime.versions.driver``, and both values as JSON; ``absent`` where it is not."""

    key: str
    first: str
    second: str


def difference(first: object, second: object, where: str = "") -> Difference | None:
    """Return where two pieces of plain data differ, or None."""
    if jsonfile.is_object(first) and jsonfile.is_object(second):
        for key in sorted({*first, *second}):
            inner = f"{where}.{key}" if where else key
            found = difference(first.get(key, _ABSENT), second.get(key, _ABSENT), inner)
            if found is not None:
                return found
        return None
    return None if first == second else Difference(where, _shown(first), _shown(second))


_ABSENT = object()
_DIGEST: Final = re.compile('"[0-9a-f]{64}"')
"""Of one, the first 16 digits are enough to tell it from another."""


def _shown(value: object) -> str:
    if value is _ABSENT:
        return "absent"
    text = jsonfile.canonical(value).decode()
    if _DIGEST.fullmatch(text):
        return f'{text[:17]}..."'
    return text if len(text) <= 100 else f"{text[:100]}..."
