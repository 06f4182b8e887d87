"""Specs of kernels on int4 weights."""

from __future__ import annotations

from nbx_triton.specs.common import kernel

_PACKED_KEY = ("w.shape", "w.strides", "scale.strides", "zero_min.strides")

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
)
