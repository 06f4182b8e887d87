"""Specs of kernels that move elements: pixel_shuffle, pixel_unshuffle, concat, take."""

from __future__ import annotations

from nbx_triton.specs.common import kernel

_ROW_KEY = ("x.dtype", "x.shape", "x.strides")

KERNELS = (
    kernel(
        "pixel_shuffle@1",
        "rows",
        "pixels:bind_shuffle",
        when=("bits(x.dtype) in (8, 16, 32, 64)",),
        key=(*_ROW_KEY, "r"),
        batch_invariant=True,
        doc="One program writes about 4096 elements of rows of the image, joined in registers from r rows of planes.",
    ),
    kernel(
        "pixel_unshuffle@1",
        "rows",
        "pixels:bind_unshuffle",
        when=("bits(x.dtype) in (8, 16, 32, 64)",),
        key=(*_ROW_KEY, "r"),
        batch_invariant=True,
        doc="One program reads about 4096 elements of rows of the image, split in registers into r rows of planes.",
    ),
    kernel(
        "concat@1",
        "parts",
        "concat:bind",
        when=("bits(out.dtype) in (8, 16, 32, 64)",),
        key=("arrays", "axis"),
        batch_invariant=True,
        doc="One program copies about 4096 elements of one tensor, converted where dtypes promote; 8 tensors a launch.",
    ),
    kernel(
        "take@1",
        "tiles",
        "take:bind",
        when=("bits(x.dtype) in (8, 16, 32, 64)",),
        key=(*_ROW_KEY, "indices.dtype", "indices.shape", "indices.strides", "axis", "out.strides"),
        batch_invariant=True,
        doc="One program copies about 4096 bytes of the places named; an index outside the axis gives zeros.",
    ),
)
