"""Layout: views and exact copies of any dtype."""

from __future__ import annotations

import numpy as np

from nbx_registry import views
from nbx_registry.host.kernels.blocks import Array
from nbx_registry.infer import permutation
from nbx_registry.launch import BindContext, Launch, View


def permute_view(context: BindContext) -> View:
    """Bind the view: nothing runs, on any runtime."""
    (x,) = context.signature.operands
    order = permutation(context.signature.attributes["axes"], x.rank)
    return View(of="x", shape=tuple(x.shape[axis] for axis in order), strides=tuple(x.strides[axis] for axis in order))


def permute_copy(context: BindContext) -> Launch:
    """Bind the copy in the new order."""
    (x,) = context.signature.operands
    order = permutation(context.signature.attributes["axes"], x.rank)

    def run(array: Array, out: Array) -> None:
        np.copyto(out, array.transpose(order))

    return Launch(function=run, args=("x", "out"))


def broadcast_view(context: BindContext) -> View:
    """Bind the view: nothing runs, on any runtime."""
    (x,) = context.signature.operands
    layout = views.expand(x.shape, x.strides, context.signature.attributes["shape"])
    return View(of="x", shape=layout.shape, strides=layout.strides)


def broadcast_copy(context: BindContext) -> Launch:
    """Bind the copy, every repetition written out."""

    def run(array: Array, out: Array) -> None:
        np.copyto(out, array)

    return Launch(function=run, args=context.signature.names)


def concat(context: BindContext) -> Launch:
    """Bind numpy.concatenate into the output, whose dtype it converts to."""
    axis = context.signature.attributes["axis"]

    def run(*operands: Array) -> None:
        *arrays, out = operands
        np.concatenate(arrays, axis, out=out)

    return Launch(function=run, args=context.signature.names)


def pixel_shuffle(context: BindContext) -> Launch:
    """Bind the shuffle: one strided copy; for [N, P, B, H, W] whose B does not divide up, one a channel."""
    (x,) = context.signature.operands
    r = context.signature.attributes["r"]
    if x.rank == 4:
        n, c, h, w = x.shape
        split, order = (n, c // r**2, r, r, h, w), (0, 1, 4, 2, 5, 3)
    else:
        n, p, b, h, w = x.shape
        if b % r**2:
            return Launch(function=_by_channel(r), args=("x", "out"))
        split, order = (n, p, b // r**2, r, r, h, w), (0, 1, 2, 5, 3, 6, 4)

    def run(array: Array, out: Array) -> None:
        # Splitting axes needs no copy, whatever the strides.
        source = array.reshape(split, copy=False).transpose(order)
        np.copyto(out.reshape(source.shape, copy=False), source)

    return Launch(function=run, args=("x", "out"))


def pixel_unshuffle(context: BindContext) -> Launch:
    """Bind the inverse of `pixel_shuffle`: one strided copy."""
    (x,) = context.signature.operands
    r = context.signature.attributes["r"]
    n, c, h, w = x.shape
    split = (n, c, h // r, r, w // r, r)

    def run(array: Array, out: Array) -> None:
        source = array.reshape(split, copy=False).transpose(0, 1, 3, 5, 2, 4)
        np.copyto(out.reshape(source.shape, copy=False), source)

    return Launch(function=run, args=("x", "out"))


def _by_channel(r: int):
    def run(array: Array, out: Array) -> None:
        _, p, b, _, _ = array.shape
        for channel in range(p * b):
            target, place = divmod(channel, r * r)
            i, j = divmod(place, r)
            np.copyto(out[:, target, i::r, j::r], array[:, channel // b, channel % b])

    return run
