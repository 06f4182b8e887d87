"""What a schema string cannot say about shapes and dtypes: broadcasting, promotion, reductions, permutations, products.

Pure functions over shapes and dtypes, for the ``infer=`` rules that stand beside contracts. Each raises
`SignatureError` naming what does not fit, the values, and the way out.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod
from typing import TYPE_CHECKING

from nbx_registry import dtypes
from nbx_registry.dtypes import DType
from nbx_registry.errors import SignatureError
from nbx_registry.spec import MAX_EXTENT, MAX_RANK, TensorSpec

if TYPE_CHECKING:
    from nbx_registry.signature import Signature

Shape = tuple[int, ...]


def broadcast(shapes: Sequence[Shape], names: Sequence[str]) -> Shape:
    """Return the shape that ``shapes`` broadcast to: axes align at the right, extents agree or are 1.

    Raises `SignatureError` naming the two tensors, the axis (counted from the right) and both extents.
    """
    rank = max(map(len, shapes), default=0)
    extents = [1] * rank
    owner = [""] * rank
    for shape, name in zip(shapes, names, strict=True):
        for axis, extent in enumerate(shape, start=rank - len(shape)):
            if extent == 1 or extent == extents[axis]:
                continue
            if extents[axis] != 1:
                raise SignatureError(
                    f"{owner[axis]} and {name} do not broadcast: axis {axis - rank} is {extents[axis]} in "
                    f"{owner[axis]} and {extent} in {name}; the extents must be equal, or one of them 1"
                )
            extents[axis] = extent
            owner[axis] = name
    return tuple(extents)


def promote(first: DType, second: DType, names: Sequence[str] = ("x1", "x2")) -> DType:
    """Return the dtype that two arrays combine in: the Array API standard's table (2024.12, Type Promotion Rules).

    The table is extended where the standard has no such dtype: float16 and bfloat16 promote to float32 and float64
    (never with each other), and every floating dtype but float64 promotes to complex64. Formats of 8 bits and less
    that are not the standard's (float8, float4, int4, uint4), and dtypes of plugins, combine with themselves alone.

    Raises `SignatureError` naming both dtypes and `astype` as the way out: for mixed kinds (integer and floating, bool
    and anything else), a signed integer with uint64, float16 with bfloat16.
    """
    if first is second:
        return first
    found = _promoted(first, second)
    if found is None:
        raise SignatureError(
            f"{names[0]} is {first.name} and {names[1]} is {second.name}: {_why(first, second)}; "
            f"convert one of them with astype",
            code="DTYPE",
        )
    return found


_FLOATS: dict[frozenset[str], str] = {
    frozenset(("float16", "float32")): "float32",
    frozenset(("float16", "float64")): "float64",
    frozenset(("bfloat16", "float32")): "float32",
    frozenset(("bfloat16", "float64")): "float64",
    frozenset(("float32", "float64")): "float64",
    frozenset(("float16", "complex64")): "complex64",
    frozenset(("bfloat16", "complex64")): "complex64",
    frozenset(("float32", "complex64")): "complex64",
}
_INTEGERS = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))


@cache
def _promoted(first: DType, second: DType) -> DType | None:
    if first.name in _INTEGERS and second.name in _INTEGERS:
        if first.kind == second.kind:
            return max(first, second, key=lambda dtype: dtype.bits)
        signed, unsigned = (first, second) if first.kind == "int" else (second, first)
        bits = max(signed.bits, 2 * unsigned.bits)
        return dtypes.get(f"int{bits}") if bits <= 64 else None
    name = _FLOATS.get(frozenset((first.name, second.name)))
    return dtypes.get(name) if name else None


def _why(first: DType, second: DType) -> str:
    if first.kind != second.kind and {first.kind, second.kind} != {"int", "uint"}:
        if {first.kind, second.kind} == {"float", "complex"}:
            return "no complex dtype of the table holds both"
        return "dtypes of different kinds are not promoted"
    if {first.kind, second.kind} == {"int", "uint"} and "uint64" in (first.name, second.name):
        return "no integer dtype holds both"
    if {first.name, second.name} == {"float16", "bfloat16"}:
        return "neither holds the other"
    return "such a format combines only with itself"


_WEAK: dict[str, tuple[str, ...]] = {
    "bool": ("bool",),
    "int": ("int", "uint", "float", "complex"),
    "float": ("float", "complex"),
    "complex": ("complex",),
}


def weak_dtype(kind: str, dtype: DType, names: Sequence[str] = ("the scalar", "the array")) -> DType:
    """Return the dtype a Python scalar of ``kind`` (bool, int, float or complex) takes beside an array of ``dtype``.

    It is the array's own: a bool beside bool, an int beside any numeric dtype, a float beside floating and complex
    ones, a complex number beside complex ones. Beside a floating array a complex number makes both complex64, or is
    refused where that does not hold the array's numbers. Raises `SignatureError` for another pairing. That an int fits
    the dtype's range is a matter of values and is not looked at here.
    """
    if kind == "complex" and dtype.floating:
        found = _promoted(dtypes.get("complex64"), dtype)
        if found is None:
            raise SignatureError(
                f"{names[0]} is a Python complex and {names[1]} is {dtype.name}: no complex dtype holds both;"
                " convert the array with astype",
                code="DTYPE",
            )
        return found
    if dtype.kind not in _WEAK[kind]:
        raise SignatureError(
            f"{names[0]} is a Python {kind} and {names[1]} is {dtype.name}: a Python {kind} does not combine with "
            f"{dtype.kind} arrays; convert the array with astype, or give another scalar",
            code="DTYPE",
        )
    return dtype


def scalar_dtype(signature: Signature, name: str) -> DType:
    """Return the dtype that the Python scalar given for parameter ``name`` takes.

    It is what the arrays that stand in parameters of the same class (``N1`` and ``N2``) combine in.
    """
    letter = next(p.dtype[0] for p in signature.op.tensors if p.name == name)
    arrays = [
        (spec, param.name)
        for param, spec in zip(signature.op.tensors, signature.tensors, strict=True)
        if param.broadcast and param.dtype[0] == letter and isinstance(spec, TensorSpec) and not spec.weak
    ]
    if not arrays:
        raise SignatureError(f"{name} is a Python scalar beside no array; give an array", code="DTYPE")
    found, first = arrays[0][0].dtype, arrays[0][1]
    for spec, other in arrays[1:]:
        found = promote(found, spec.dtype, (first, other))
    return weak_dtype(scalar_kind(signature.tensor(name)), found, (name, first))


def scalar_kind(spec: TensorSpec) -> str:
    """Return the kind of the Python scalar that a weak spec stands for: bool, int, float or complex."""
    return "int" if spec.dtype.integral else spec.dtype.kind


def result_dtype(first: TensorSpec, second: TensorSpec, names: Sequence[str] = ("x1", "x2")) -> DType:
    """Return the dtype two operands combine in, Python scalars (weak specs) adopting the array's.

    Raises `SignatureError` as `promote` and `weak_dtype` do, and for two Python scalars.
    """
    if first.weak and second.weak:
        raise SignatureError(
            f"{names[0]} and {names[1]} are both Python scalars; give at least one array", code="DTYPE"
        )
    if first.weak:
        return weak_dtype(scalar_kind(first), second.dtype, names)
    if second.weak:
        return weak_dtype(scalar_kind(second), first.dtype, (names[1], names[0]))
    return promote(first.dtype, second.dtype, names)


def normalise_axis(axis: int, rank: int, name: str = "axis") -> int:
    """Return ``axis`` counted from the front. Raises `SignatureError` where the tensor has no such axis."""
    if not -rank <= axis < rank:
        allowed = f"{-rank}..{rank - 1}" if rank else "none: it has no axes"
        raise SignatureError(
            f"{name}={axis} is out of range for a tensor of rank {rank} (allowed: {allowed})", code="AXIS"
        )
    return axis % rank


def reduced_axes(axis: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Return the axes a reduction runs over, from the front, ascending; None means all of them.

    Raises `SignatureError` for an axis out of range and for one named twice (-1 and the last, for one).
    """
    if axis is None:
        return tuple(range(rank))
    given = (axis,) if isinstance(axis, int) else tuple(axis)
    axes = [normalise_axis(a, rank) for a in given]
    if len(set(axes)) != len(axes):
        raise SignatureError(f"axis={given} names an axis of a tensor of rank {rank} twice", code="AXIS")
    return tuple(sorted(axes))


def reduced_shape(shape: Shape, axes: Sequence[int], keepdims: bool) -> Shape:
    """Return ``shape`` without ``axes`` (as `reduced_axes` gives them), or with 1 in their place."""
    if keepdims:
        return tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
    return tuple(extent for axis, extent in enumerate(shape) if axis not in axes)


def sum_dtype(dtype: DType) -> DType:
    """Return what a sum or product is in: uint64 for unsigned, int64 for bool and signed integers, else ``dtype``."""
    if dtype.kind == "uint":
        return dtypes.get("uint64")
    return dtypes.get("int64") if dtype.kind in ("int", "bool") else dtype


def given_shape(shape: Sequence[int]) -> Shape:
    """Return the shape that an attribute names. Raises `SignatureError` where no tensor has it."""
    for axis, extent in enumerate(shape):
        if extent < 0:
            raise SignatureError(
                f"shape={tuple(shape)}: axis {axis} is {extent}; an extent is an integer of at least 0", code="SHAPE"
            )
    if len(shape) > MAX_RANK:
        raise SignatureError(f"shape={tuple(shape)} has {len(shape)} axes; at most {MAX_RANK}", code="SHAPE")
    if prod(shape) > MAX_EXTENT:
        raise SignatureError(f"shape={tuple(shape)} has more than 2**62 elements", code="SHAPE")
    return tuple(shape)


def permutation(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return ``axes`` as a permutation counted from the front. Raises `SignatureError` where it is none."""
    if len(axes) != rank:
        raise SignatureError(
            f"axes={tuple(axes)} has {len(axes)} entries for a tensor of rank {rank}; name every axis once", code="AXIS"
        )
    order = tuple(normalise_axis(axis, rank, "an entry of axes") for axis in axes)
    if len(set(order)) != rank:
        raise SignatureError(f"axes={tuple(axes)} names an axis twice; name every axis once", code="AXIS")
    return order


def matmul_shape(
    first: Shape, second: Shape, names: Sequence[str] = ("x1", "x2")
) -> tuple[Shape, Shape, int, int, int]:
    """Return (out shape, broadcast leading axes, M, K, N) of a matrix product.

    As the Array API standard has it: matrices in the last two axes, leading axes broadcast; a first operand of rank 1
    is a row whose axis leaves the result, a second one a column. Raises `SignatureError` for rank 0, for differing
    contracted extents, and for leading axes that do not broadcast.
    """
    for shape, name in zip((first, second), names, strict=True):
        if not shape:
            raise SignatureError(f"{name} has rank 0; matmul takes at least rank 1", code="SHAPE")
    m, k = (1, *first)[-2:]
    k2, n = second[-2:] if len(second) > 1 else (*second, 1)
    if k != k2:
        raise SignatureError(
            f"matmul contracts the last axis of {names[0]}, {k}, with axis {-min(len(second), 2)} of {names[1]}, {k2};"
            f" they must be equal",
            code="SHAPE",
        )
    lead = broadcast((first[:-2], second[:-2]), names)
    out = lead + ((m,) if len(first) > 1 else ()) + ((n,) if len(second) > 1 else ())
    return out, lead, m, k, n


def broadcast_to(shape: Shape, target: Shape, name: str, what: str) -> None:
    """Check that ``shape`` broadcasts to ``target`` without enlarging it. Raises `SignatureError` naming both."""
    fits = len(shape) <= len(target) and all(
        extent in (1, wanted) for extent, wanted in zip(reversed(shape), reversed(target), strict=False)
    )
    if not fits:
        raise SignatureError(
            f"{name} of shape {list(shape)} does not broadcast to {what}, {list(target)}: extents must be equal or 1",
            code="SHAPE",
        )
