"""Ops of the namespace ``made`` whose shapes the core's first ops do not have, with kernels on the host for them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from making import host_kernel, plugin

from nbx_registry.kernel import Backend, Kernel
from nbx_registry.launch import BindContext, Launch
from nbx_registry.op import Signature, op
from nbx_registry.spec import TensorSpec


def _joined(signature: Signature) -> TensorSpec:
    first, *rest = signature.tensors[0]
    axis = signature.attributes["axis"]
    shape = list(first.shape)
    shape[axis] += sum(spec.shape[axis] for spec in rest)
    return TensorSpec(first.dtype, tuple(shape))


@op("made::concat@1(xs: list[F[*X]], scale: F[*S]? = None, *, axis: int = 0) -> F[*Y]", infer=_joined)
def concat(xs: Any, scale: Any, *, axis: int) -> Any:
    """Join along an axis, then scale."""
    return np.concatenate(xs, axis) * (1 if scale is None else scale)


@op("made::spread@1(x: F[N, M], low: F[M]? = None, high: F[M]? = None) -> (least: F[N], most: F[N])")
def spread(x: Any, low: Any, high: Any) -> Any:
    """Least and most of each row, no less than low and no more than high."""
    x = x if low is None else np.maximum(x, low)
    x = x if high is None else np.minimum(x, high)
    return x.min(1), x.max(1)


@op("made::accumulate@1(x: F1[N], total: mut F2[N]) -> ()")
def accumulate(x: Any, total: Any) -> Any:
    """Add x to total, in place."""
    return total + x


OPS = (concat, spread, accumulate)


def bind_concat(context: BindContext) -> Launch:
    """Bind numpy.concatenate over every tensor of the list."""
    axis = context.signature.attributes["axis"]

    def run(*operands: Any) -> None:
        *xs, out = operands
        np.concatenate(xs, axis, out=out)

    return Launch(function=run, args=context.signature.names)


def bind_spread(context: BindContext) -> Launch:
    """Bind spread over whichever bounds are given."""
    names = context.signature.names

    def run(*operands: Any) -> None:
        given = dict(zip(names, operands, strict=True))
        given["least"][...], given["most"][...] = spread.oracle(given["x"], given.get("low"), given.get("high"))

    return Launch(function=run, args=names)


def add_in_place(x: Any, total: Any) -> None:
    """Add x to total."""
    total += x


KERNELS = (
    host_kernel("made/concat/numpy", np.concatenate, op="made::concat@1", bind=bind_concat, when=("not scale.given",)),
    host_kernel("made/spread/numpy", spread.oracle, op="made::spread@1", bind=bind_spread),
    host_kernel("made/accumulate/numpy", add_in_place, op="made::accumulate@1"),
)


def made_ops(*kernels: Kernel) -> SimpleNamespace:
    """Return a plugin with these ops, their kernels on the host, and ``kernels``."""
    return plugin("made", ops=OPS, backends=[Backend(name="made")], kernels=[*KERNELS, *kernels])
