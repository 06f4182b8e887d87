"""Specs of sum, prod, mean, max, argmax: `rows` or `columns` by what is dense, each also with work shared out."""

from __future__ import annotations

from collections.abc import Iterator

from nbx_registry.kernel import Kernel, Workspace
from nbx_triton.specs.common import ALL, kernel

_LENGTH = "x.size // max(out.size, 1)"
_RUNS = "cdiv(out.size * max(bits(x.dtype) // 8, 1), 256)"
"""Runs of 256 bytes in one element of each row."""
_SETTINGS = {"settings": "nbx_triton.kernels.reduction_plans:SETTINGS", "defaults": {"vectors": 4, "warps": 8}}
_ALONG = "x.contiguous or x.strides[-1] == 1"
_KEY = ("x.dtype", "x.shape", "x.strides", "axis", "keepdims", "out.strides")


def _workspace(op: str, most: str) -> tuple[Workspace, ...]:
    """Return memory for ``most`` partial results a row, 8 bytes each: their dtype is that of running results."""
    shape = (f"clamp({most})", "out.size")
    partial = Workspace(name="partial", dtype="int64", shape=shape, lifetime=(0, 1))
    places = Workspace(name="places", dtype="int64", shape=shape, lifetime=(0, 1))
    return (partial, places) if op == "argmax" else (partial,)


def _kernels(op: str, *, exact: bool) -> Iterator[Kernel]:
    """Yield the kernels of an op; ``exact``: its results do not depend on the order."""
    last = "axis == -1 or axis == x.rank - 1" if op == "argmax" else "-1 in axis or x.rank - 1 in axis"
    dense = (f"x.dtype in {ALL}", f"axis == None or {last}", _ALONG)
    yield kernel(
        f"{op}@1",
        "rows",
        "reduction_plans:bind_rows",
        when=dense,
        key=_KEY,
        batch_invariant=True,
        preference=2,
        doc="The last axis goes: one program reduces several short rows or one, 64 bytes a thread at a time.",
    )
    yield kernel(
        f"{op}@1",
        "split-rows",
        "reduction_plans:bind_split_rows",
        when=(*dense, "out.size <= 64", "x.size >= 32768 * out.size"),
        key=_KEY,
        workspace=_workspace(op, f"cdiv({_LENGTH}, 16384), 1, cdiv(4096, max(out.size, 1))"),
        batch_invariant=exact,
        preference=3,
        **_SETTINGS,
        doc="Few long rows: several programs reduce 16384 elements or more of each, a second launch combines them.",
    )
    yield kernel(
        f"{op}@1",
        "columns",
        "reduction_plans:bind_columns",
        when=(f"x.dtype in {ALL}",),
        key=_KEY,
        batch_invariant=exact,
        doc="Whichever axes go: one program reduces runs of 128 bytes or more of many rows, or tiles of dense rows.",
    )
    yield kernel(
        f"{op}@1",
        "split-columns",
        "reduction_plans:bind_split_columns",
        when=(f"x.dtype in {ALL}", f"{_RUNS} <= 48", "x.size >= 1024 * out.size"),
        key=_KEY,
        workspace=_workspace(op, f"cdiv({_LENGTH}, 256), 1, cdiv(4096, max({_RUNS}, 1))"),
        batch_invariant=exact,
        preference=1,
        **_SETTINGS,
        doc="The same with several programs a run, of 256 elements or more of each row, and a launch to combine them.",
    )


KERNELS = (
    *_kernels("sum", exact=False),
    *_kernels("prod", exact=False),
    *_kernels("mean", exact=False),
    *_kernels("max", exact=True),
    *_kernels("argmax", exact=True),
)
