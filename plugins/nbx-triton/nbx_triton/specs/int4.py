"""Specs of kernels on int4 weights."""

from __future__ import annotations

from nbx_registry.kernel import Workspace
from nbx_triton.specs.common import kernel

# Columns enough for programs on all of a device; or for two programs at the most, however they share the rows.
_MANY = "N >= 8192 or N < 128"
_PACKED_KEY = ("w.shape", "w.strides", "scale.strides", "zero_min.strides")


def _partial(programs: str, tiles: str, shape: tuple[str, ...], lifetime: tuple[int, int]) -> Workspace:
    """Return the sums of those that share a tile's groups, none where one program has all: see `share_groups`."""
    splits = f"cdiv(G, cdiv(G, clamp({programs} // ({tiles}), 1, min(G, 16))))"
    return Workspace(name="partial", dtype="float32", shape=(f"({splits} > 1) * {splits}", *shape), lifetime=lifetime)


KERNELS = (
    kernel(
        "quantize_int4@1",
        "groups",
        "int4:bind_quantize",
        key=("w.dtype", "w.shape", "w.strides"),
        batch_invariant=True,
        doc="One program packs 64 columns of a group: read for the range, and once more from the cache.",
    ),
    kernel(
        "dequant_int4@1",
        "groups",
        "int4:bind_dequant",
        key=_PACKED_KEY,
        batch_invariant=True,
        doc="One program unpacks 64 columns of a group, an exact product and one sum a weight.",
    ),
    kernel(
        "dequant_gemv_int4@1",
        "ordered",
        "int4_ordered:bind",
        key=("x.dtype", "x.strides", *_PACKED_KEY),
        defaults={"block_n": 32, "warps": 4, "stages": 5},
        settings="nbx_triton.kernels.int4_ordered:SETTINGS",
        doc="One program adds up some columns, group after group: the bits of dequantising first, in a stated order.",
    ),
    kernel(
        "dequant_gemv_int4@1",
        "split",
        "int4_gemv:bind",
        # A group at the least.
        when=("K >= 128", "N < 8192"),
        key=("x.dtype", "x.strides", *_PACKED_KEY),
        defaults={"programs": 128, "strips": 1, "rows": 4, "warps": 8, "stages": 3},
        settings="nbx_triton.kernels.int4_gemv:SETTINGS",
        preference=2,
        doc="One program adds up a few columns, its threads sharing the rows; sums are scaled, not weights.",
    ),
    kernel(
        "dequant_gemv_int4@1",
        "strips",
        "int4_gemv:bind",
        when=("K >= 128", _MANY),
        key=("x.dtype", "x.strides", *_PACKED_KEY),
        defaults={"programs": 512, "strips": 2, "rows": 4, "warps": 4, "stages": 1},
        settings="nbx_triton.kernels.int4_gemv:SETTINGS",
        preference=1,
        doc="One program adds up two strips of columns, its threads sharing the rows; sums are scaled, not weights.",
    ),
    kernel(
        "dequant_gemv_int4@1",
        "matrix",
        "int4_matrix:bind",
        when=(
            "x.dtype == float16",
            "x.contiguous",
            "x.align >= 4",
            "K >= 8192 and N >= 24576 or K >= 128 and N <= 128",
            "device.matrix_unit.m16n8k16",
        ),
        key=("x.dtype", "x.strides", *_PACKED_KEY),
        defaults={"warps": 8, "across": 4, "deep": 4, "ahead": 2},
        settings="nbx_triton.kernels.int4_matrix:SETTINGS",
        preference=3,
        doc="One program adds up some columns on the matrix unit, nibbles as they lie; sums are scaled, not weights.",
    ),
    kernel(
        "dequant_matmul_int4@1",
        "groups",
        "int4_matmul:bind_groups",
        when=("x.dtype in (float16, bfloat16)", "K >= 8", "device.matrix_unit.m16n8k16"),
        key=("x.dtype", "x.shape", "x.strides", *_PACKED_KEY),
        workspace=(
            Workspace(name="sums", dtype="float32", shape=("M", "G"), lifetime=(0, 1)),
            _partial("256", "cdiv(max(M, 1), block_m) * cdiv(max(N, 1), block_n)", ("M", "N"), (1, -1)),
        ),
        defaults={"block_m": 64, "block_n": 64, "stages": 3},
        settings="nbx_triton.kernels.int4_matmul:GROUPS",
        preference=1,
        doc="Nibbles on the matrix unit, a group's sum then scaled; where tiles are few, programs share groups.",
    ),
    kernel(
        "dequant_matmul_int4@1",
        "tiles",
        "int4_matmul:bind_tiles",
        key=("x.dtype", "x.shape", "x.strides", *_PACKED_KEY),
        doc="One program computes a tile in float32, of weights made in float32, along K in order.",
    ),
)
