"""Specs of topk."""

from __future__ import annotations

from nbx_registry.kernel import Workspace
from nbx_triton.specs.common import ALL, kernel

_KEY = ("x.dtype", "x.shape", "x.strides", "k", "axis", "largest")
_NARROW = "(bool, int8, int16, int32, uint8, uint16, uint32, float16, bfloat16, float32)"
_ROWS = "x.size // max(L, 1)"

KERNELS = (
    kernel(
        "topk@1",
        "rows",
        "topk:bind_rows",
        when=(f"x.dtype in {_NARROW}", "L <= 4096"),
        key=_KEY,
        batch_invariant=True,
        preference=1,
        doc="One program sorts rows in registers, as far as their k best need.",
    ),
    *(
        kernel(
            "topk@1",
            f"select-{most}",
            "topk_select:bind",
            when=(f"x.dtype in {_NARROW}", f"k <= {most}", f"k > {over}", f"L > {longer}", "L < 2**30"),
            key=_KEY,
            workspace=(
                Workspace(
                    name="lists",
                    dtype="int32",
                    shape=(_ROWS, f"clamp(cdiv(1056, max({_ROWS}, 1)), 1, cdiv(L, {segment}))", str(room)),
                    lifetime=(0, 1),
                ),
                Workspace(
                    name="counts",
                    dtype="int32",
                    shape=(_ROWS, f"clamp(cdiv(1056, max({_ROWS}, 1)), 1, cdiv(L, {segment}))"),
                    lifetime=(0, 1),
                ),
            ),
            batch_invariant=True,
            preference=2,
            doc="One program lists what can be among a segment's k best; those of a second launch sort what is listed.",
        )
        # As `nbx_triton.kernels.topk_select.SIZES` has them.
        for most, over, longer, room, segment in (
            (64, 0, 2048, 128, 8192),
            (256, 64, 4096, 512, 8192),
            (1024, 256, 4096, 2048, 16384),
        )
    ),
    kernel(
        "topk@1",
        "passes",
        "topk:bind_passes",
        # What none of the others takes.
        when=(f"x.dtype in {ALL}", "bits(x.dtype) == 64 or (k > 1024 and L > 4096) or L >= 2**30"),
        key=_KEY,
        batch_invariant=True,
        doc="One program goes over a row k times, each time for the best of those that come after the one before.",
    ),
)
