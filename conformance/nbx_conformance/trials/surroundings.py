"""Surroundings: state of the whole process that a kernel could change under others, seen before a run and after it."""

from __future__ import annotations

import os
import random
import sys
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

_SUBNORMAL: Final = np.full(1, 2.0**-140, np.float32)
"""Gone where a library built for speed has the processor flush them."""


@contextmanager
def watched(changes: dict[str, None]) -> Generator[None]:
    """Add to ``changes``, in words, what a block changes."""
    before = _seen()
    yield
    changes.update(dict.fromkeys(_told(before, _seen())))


def _functions() -> Mapping[str, int]:
    return {name: id(value) for name, value in vars(np).items() if callable(value)}


def _drawn() -> tuple[Any, ...]:
    name, keys, *rest = cast("tuple[Any, ...]", np.random.get_state(legacy=True))
    return (name, np.asarray(keys).tobytes(), *rest)


_SHARED: Final[Mapping[str, Callable[[], Any]]] = {
    "how NumPy treats errors": np.geterr,
    "functions of NumPy": _functions,
    "the state of NumPy's random numbers": _drawn,
    "the state of Python's random numbers": random.getstate,
    "the limit of recursion": sys.getrecursionlimit,
    "the filters of warnings": lambda: list(warnings.filters),
    "environment variables": lambda: dict(os.environ),
    "the working directory": Path.cwd,
    "whether subnormal numbers are flushed to zero": lambda: not (_SUBNORMAL * np.float32(1)).any(),
}
"""What is looked at, by its name in a record."""


def _seen() -> Mapping[str, Any]:
    return {what: look() for what, look in _SHARED.items()}


def _told(before: Mapping[str, Any], after: Mapping[str, Any]) -> Generator[str]:
    for what, value in before.items():
        found = after[what]
        if value == found:
            continue
        if isinstance(value, dict):
            old, new = cast("dict[str, Any]", value), cast("dict[str, Any]", found)
            # NumPy loads some of its modules when they are first asked for: only what is replaced counts there.
            added: set[str] = set() if what == "functions of NumPy" else set(new) - set(old)
            names = sorted(added | {name for name in old if old[name] != new.get(name)})
            if names:
                yield f"{what} ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})"
        elif isinstance(value, bool | int | Path):
            yield f"{what} (from {value} to {found})"
        else:
            yield what
