"""Specs of kernels that treat tensors row by row: embedding, paged_kv_append, permute_dims."""

from __future__ import annotations

from nbx_triton.specs.common import HALVES, kernel

_ROW_KEY = ("x.dtype", "x.shape", "x.strides")

KERNELS = (
    kernel(
        "embedding@1",
        "rows",
        "take:bind_embedding",
        when=("bits(w.dtype) in (8, 16, 32, 64)",),
        key=("w.dtype", "w.shape", "w.strides", "index.dtype", "index.shape", "index.strides", "out.strides"),
        batch_invariant=True,
        doc="One program copies about 4096 bytes of the rows named; an index outside the table gives zeros.",
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
)
