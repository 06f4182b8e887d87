"""Shards: parts of a run that machines share. What is in a part is the same on each of them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Final

from nbx_conformance.runs.runner import Item
from nbx_registry.errors import NbxError

MAX_PARTS: Final = 10_000


def parse(text: str) -> tuple[int, int]:
    """Return part and number of parts from ``2/3``. Raises `NbxError` for anything else."""
    found = re.fullmatch(r"([0-9]{1,5})/([0-9]{1,5})", text)
    part, of = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= part <= of <= MAX_PARTS:
        raise NbxError(f"{text!r} is no shard: write part/parts, as 1/3, 2/3 and 3/3 for three machines")
    return part, of


def share(items: Sequence[Item], part: int, of: int) -> list[Item]:
    """Return the items of one part, in their order.

    Kernels that meet one case stay together, since they share its oracle. The cases of an op are dealt out in turn,
    from a part that the op's name gives: which part a case is in depends on nothing but its op's cases, so that
    machines with other plugins beside agree.
    """
    found: list[Item] = []
    turns: dict[str, dict[str, int]] = {}
    for item in items:
        op = item.case.op
        seen = turns.setdefault(op, {})
        turn = seen.setdefault(item.case.id, len(seen))
        if (_first(op) + turn) % of == part - 1:
            found.append(item)
    return found


def _first(op: str) -> int:
    return int.from_bytes(hashlib.sha256(op.encode()).digest()[:4])
