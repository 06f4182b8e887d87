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
        How to reach it; `nbx_conformance.route.VIAS`, or an emulator's name.
    size
        ``smoke`` or ``full``.
    extra
        Plugin objects of this process, beside the installed ones. They do not reach a process of its own.
    """

    device: str | None = None
    via: str = "auto"
    size: str = "smoke"
    plugins: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    extra: tuple[Any, ...] = field(default=(), hash=False)
