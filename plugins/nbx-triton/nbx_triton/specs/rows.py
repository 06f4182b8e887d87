"""Specs of kernels that treat tensors row by row: sum, softmax, layer_norm, embedding, paged_kv_append, layouts."""

from __future__ import annotations

from nbx_registry.kernel import Workspace
from nbx_triton.specs.common import FLOATS, HALVES, kernel

_ROW_KEY = ("x.dtype", "x.shape", "x.strides")
_SPLITS = "clamp(cdiv(x.size // max(out.size, 1), 8192), 1, 1024)"
_SINGLE = "(float16, bfloat16, float32)"
_EXACT = "(bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64)"

KERNELS = (
    kernel(
        "sum@1",
        "rows",
        "reduction:bind",
        when=(
            "x.dtype in (bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64,"
            " float16, bfloat16, float32, float64)",
        ),
        key=(*_ROW_KEY, "axis", "keepdims"),
        doc="One program adds up a block of rows, in 1024 running sums that are then added as a tree.",
    ),
    *(
        kernel(
            "sum@1",
            f"split-{partial}",
            "reduction:bind_split",
            # Few rows, each long enough for several programs.
            when=(f"x.dtype in {dtypes}", "out.size <= 256", "x.size >= 65536 * out.size"),
            key=(*_ROW_KEY, "axis", "keepdims"),
            workspace=(Workspace(name="partial", dtype=partial, shape=(_SPLITS, "out.size"), lifetime=(0, 1)),),
            preference=1,
            doc="Up to 1024 programs a row write partial sums, which a second launch adds as a tree.",
        )
        for partial, dtypes in (("float32", _SINGLE), ("float64", "(float64,)"), ("int64", _EXACT))
    ),
    kernel(
        "softmax@1",
        "rows",
        "normalization:bind_softmax",
        when=(f"x.dtype in {FLOATS}",),
        key=(*_ROW_KEY, "axis"),
        batch_invariant=True,
        doc="One program normalises a block of rows: read once up to 16384 elements, else twice.",
    ),
    kernel(
        "layer_norm@1",
        "rows",
        "normalization:bind_layer_norm",
        when=(f"x.dtype in {FLOATS}",),
        key=(*_ROW_KEY, "weight.given", "weight.strides", "bias.given", "bias.strides"),
        batch_invariant=True,
        doc="One program normalises a block of rows: read once up to 16384 elements, else three times.",
    ),
    kernel(
        "embedding@1",
        "rows",
        "rows:bind_embedding",
        when=("bits(w.dtype) in (8, 16, 32, 64)",),
        key=("w.dtype", "w.shape", "w.strides", "index.dtype", "index.shape", "index.strides"),
        batch_invariant=True,
        doc="One program copies up to 1024 elements of a row; an index outside the table gives zeros.",
    ),
    kernel(
        "paged_kv_append@1",
        "rows",
        "rows:bind_paged_kv_append",
        when=(f"new.dtype in {HALVES}", f"pool.dtype in {HALVES}"),
        key=(
            "new.dtype",
            "new.shape",
            "new.strides",
            "slot.strides",
            "pool.dtype",
            "pool.shape",
            "pool.strides",
            "saturate",
        ),
        batch_invariant=True,
        doc="One program stores one token's vector of one head; a slot outside the pool writes nothing.",
    ),
    kernel(
        "permute_dims@1",
        "tiles",
        "layout:bind_permute_dims",
        when=("copy", "bits(x.dtype) in (8, 16, 32, 64)"),
        key=(*_ROW_KEY, "axes"),
        batch_invariant=True,
        doc="One program copies a tile of the two axes that are densest in the input and in the output.",
    ),
    kernel(
        "pixel_shuffle@1",
        "runs",
        "layout:bind_pixel_shuffle",
        when=("bits(x.dtype) in (8, 16, 32, 64)", "r <= 64"),
        key=(*_ROW_KEY, "r"),
        batch_invariant=True,
        doc="One program writes about 1024 consecutive elements, in runs of r read from r channels.",
    ),
)
