"""What a run is asked for. Light: it is read while pytest starts, and by every plugin's tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is asked for. Empty tuples mean everything.

    Attributes
    ----------
    device
        A live handle or a product; None: the first live device of each runtime that the kernels are for.
    via
        How to reach it; `nbx_conformance.runs.route.VIAS`, or an emulator's name.
    size
        ``smoke``, ``full`` or ``large``.
    keyword
        What pytest's ``-k`` was given: only trials whose id matches.
    shard
        Part and number of parts, ``(2, 3)``: only the cases of that part; `nbx_conformance.runs.shards`.
    isolated
        Whether trials run in a process of their own, so that one that ends its process is a record.
    waivers
        Files of waivers, beside those of the plugins whose kernels are tried.
    extra
        Plugin objects of this process, beside the installed ones. They do not reach a process of its own.
    """

    device: str | None = None
    via: str = "auto"
    size: str = "smoke"
    plugins: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    keyword: str | None = None
    shard: tuple[int, int] | None = None
    isolated: bool = False
    waivers: tuple[str, ...] = ()
    extra: tuple[Any, ...] = field(default=(), hash=False)

    @property
    def narrowed(self) -> bool:
        """Whether kernels are not tried on all their cases."""
        return self.keyword is not None or self.shard is not None

    def selection(self) -> dict[str, Any]:
        """Return what of the registry is asked for, as a bundle states it."""
        return {
            "size": self.size,
            "plugins": list(self.plugins),
            "ops": list(self.ops),
            "kernels": list(self.kernels),
            "keyword": self.keyword,
            "shards": None if self.shard is None else {"of": self.shard[1], "parts": [self.shard[0]]},
        }
