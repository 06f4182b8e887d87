"""Choosing among elements: maximum, minimum, clip, where."""

from __future__ import annotations

from typing import Any

import numpy as np

from nbx_registry.contracts.elementwise import cost_binary
from nbx_registry.cost import Cost, default_cost, distinct_positions, inputs
from nbx_registry.errors import SignatureError
from nbx_registry.infer import broadcast, result_dtype
from nbx_registry.op import op
from nbx_registry.signature import Signature
from nbx_registry.spec import TensorSpec

Array = np.ndarray[Any, np.dtype[Any]]


def refuse_complex(signature: Signature, name: str) -> None:
    """Raise `SignatureError` where a tensor is complex: such numbers have no order."""
    spec = signature.tensor(name)
    if spec is not None and spec.dtype.kind == "complex":
        raise SignatureError(
            f"{signature.op.name}: {name} is complex, and complex numbers have no order; take their magnitude (abs)",
            code="DTYPE",
        )


def infer_ordered(signature: Signature) -> TensorSpec:
    """Infer the output of two real operands that broadcast and promote."""
    x1, x2 = signature.operands
    for name in ("x1", "x2"):
        refuse_complex(signature, name)
    return TensorSpec(result_dtype(x1, x2), broadcast((x1.shape, x2.shape), ("x1", "x2")))


@op(
    "maximum@1(x1: N1[*A], x2: N2[*B]) -> N3[*C]",
    infer=infer_ordered,
    cost=cost_binary,
    ulp=0,
    signed_zeros=False,
)
def maximum(x1: Array, x2: Array) -> Array:
    """Take the larger of two elements, broadcasting.

    Parameters
    ----------
    x1, x2 : integer or floating, shapes that broadcast
        Either may be a Python scalar, which takes the other's dtype.

    Returns
    -------
    integer or floating, the broadcast shape
        In the dtype the two promote to, exact. NaN where either is NaN; of zeros of both signs either.

    Raises
    ------
    SignatureError
        As `add` does, and for complex64, which has no order.

    Notes
    -----
    Python array API standard 2024.12, ``maximum``.
    """
    return np.maximum(x1, x2)


@op(
    "minimum@1(x1: N1[*A], x2: N2[*B]) -> N3[*C]",
    infer=infer_ordered,
    cost=cost_binary,
    ulp=0,
    signed_zeros=False,
)
def minimum(x1: Array, x2: Array) -> Array:
    """Take the smaller of two elements, broadcasting.

    Parameters
    ----------
    x1, x2 : integer or floating, shapes that broadcast
        Either may be a Python scalar, which takes the other's dtype.

    Returns
    -------
    integer or floating, the broadcast shape
        In the dtype the two promote to, exact. NaN where either is NaN; of zeros of both signs either.

    Raises
    ------
    SignatureError
        As `maximum` does.

    Notes
    -----
    Python array API standard 2024.12, ``minimum``.
    """
    return np.minimum(x1, x2)


def infer_clip(signature: Signature) -> TensorSpec:
    """Infer the output: the dtype of ``x``, the shape all that are given broadcast to."""
    x = signature.tensor("x")
    if x.weak:
        raise SignatureError("clip: x is a Python scalar; give an array", code="DTYPE")
    given = [name for name in ("x", "min", "max") if signature.tensor(name) is not None]
    for name in given:
        refuse_complex(signature, name)
        result_dtype(x, signature.tensor(name), ("x", name))
    return TensorSpec(x.dtype, broadcast([signature.tensor(name).shape for name in given], given))


def cost_clip(signature: Signature) -> Cost:
    """One comparison an element for each bound."""
    (out,) = signature.outputs
    bounds = sum(signature.tensor(name) is not None for name in ("min", "max"))
    least = distinct_positions([spec for spec, _ in inputs(signature)], out.shape)
    return default_cost(signature, flops=bounds * out.size, least_flops=bounds * least)


@op(
    "clip@1(x: N[*A], min: N[*B]? = None, max: N[*C]? = None) -> N[*D]",
    infer=infer_clip,
    cost=cost_clip,
    ulp=0,
    signed_zeros=False,
)
def clip(x: Array, min: Array | None, max: Array | None) -> Array:
    """Keep each element between two bounds, broadcasting.

    Parameters
    ----------
    x : integer or floating
    min, max : the dtype of ``x``, shapes that broadcast with its own, optional
        Either may be a Python scalar, which takes the dtype of ``x``. Left out: no bound on that side.

    Returns
    -------
    the dtype of ``x``, the broadcast shape
        ``minimum(maximum(x, min), max)``, exact: where min > max it is max. NaN where any of them is NaN; of zeros of
        both signs either.

    Raises
    ------
    SignatureError
        For bounds of another dtype (convert them with `astype`), shapes that do not broadcast, a Python scalar for
        ``x``, and complex64, which has no order.

    Notes
    -----
    Python array API standard 2024.12, ``clip``; the order of the bounds is that of ``numpy.clip``.
    """
    if min is not None:
        x = np.maximum(x, min)
    if max is not None:
        x = np.minimum(x, max)
    return x


def infer_where(signature: Signature) -> TensorSpec:
    """Infer the output: the dtype the two branches promote to, the shape all three broadcast to."""
    condition, x1, x2 = signature.operands
    if condition.weak:
        raise SignatureError("where: condition is a Python bool; give an array of bool", code="DTYPE")
    shape = broadcast((condition.shape, x1.shape, x2.shape), ("condition", "x1", "x2"))
    return TensorSpec(result_dtype(x1, x2), shape)


def cost_where(signature: Signature) -> Cost:
    """No arithmetic. At the least every condition is read, and of the branches the one with less to read, if any."""
    condition, x1, x2 = signature.operands
    (out,) = signature.outputs
    chosen = min(0 if spec.weak else spec.distinct_bytes for spec in (x1, x2))
    return default_cost(signature, least_bytes=condition.distinct_bytes + chosen + out.nbytes if out.size else 0)


@op(
    "where@1(condition: bool[*A], x1: T1[*B], x2: T2[*C]) -> T3[*D]",
    infer=infer_where,
    cost=cost_where,
    exact=True,
)
def where(condition: Array, x1: Array, x2: Array) -> Array:
    """Take elements of one tensor where a condition holds, of another where it does not, broadcasting.

    Parameters
    ----------
    condition : bool
    x1, x2 : any dtype, shapes that broadcast with that of ``condition``
        Either may be a Python scalar, which takes the other's dtype.

    Returns
    -------
    any dtype, the broadcast shape
        In the dtype that ``x1`` and ``x2`` promote to: exact copies where that is their own.

    Raises
    ------
    SignatureError
        As `add` does, and for a condition that is no tensor of bool.

    Notes
    -----
    Python array API standard 2024.12, ``where``.
    """
    return np.where(condition, x1, x2)
