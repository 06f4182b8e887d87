"""Inference: broadcasting, the whole promotion table, weak Python scalars, axes, products."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from running import outputs, sign, spec_of

from nbx_registry import dtypes, infer
from nbx_registry.dtypes import DType
from nbx_registry.errors import SignatureError

# The Array API standard's tables (2024.12, Type Promotion Rules), row by row; "-" is undefined there, refused here.
SIGNED = """
        int8   int16  int32  int64
int8    int8   int16  int32  int64
int16   int16  int16  int32  int64
int32   int32  int32  int32  int64
int64   int64  int64  int64  int64
"""
UNSIGNED = """
        uint8   uint16  uint32  uint64
uint8   uint8   uint16  uint32  uint64
uint16  uint16  uint16  uint32  uint64
uint32  uint32  uint32  uint32  uint64
uint64  uint64  uint64  uint64  uint64
"""
MIXED = """
        uint8   uint16  uint32  uint64
int8    int16   int32   int64   -
int16   int16   int32   int64   -
int32   int32   int32   int64   -
int64   int64   int64   int64   -
"""
# The standard has float32, float64 and complex64 of these.
FLOATING = """
          float16    bfloat16   float32    float64    complex64
float16   float16    -          float32    float64    complex64
bfloat16  -          bfloat16   float32    float64    complex64
float32   float32    float32    float32    float64    complex64
float64   float64    float64    float64    float64    -
complex64 complex64  complex64  complex64  -          complex64
"""


def table(*texts: str) -> dict[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}
    for text in texts:
        head, *rows = (line.split() for line in text.strip().splitlines())
        for name, *cells in rows:
            for other, cell in zip(head, cells, strict=True):
                found[name, other] = found[other, name] = cell
    return found


PROMOTIONS = table(SIGNED, UNSIGNED, MIXED, FLOATING)
PAIRS = list(itertools.product(dtypes.TABLE, repeat=2))


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=["-".join(pair) for pair in PAIRS])
def test_promotion_of_every_pair_of_the_table(first: str, second: str) -> None:
    expected = first if first == second else PROMOTIONS.get((first, second), "-")
    if expected == "-":
        with pytest.raises(SignatureError) as caught:
            infer.promote(dtypes.get(first), dtypes.get(second))
        message = str(caught.value)
        assert first in message
        assert second in message
        assert "astype" in message
        assert caught.value.code == "DTYPE"
    else:
        assert infer.promote(dtypes.get(first), dtypes.get(second)).name == expected


def test_promotion_agrees_with_numpy_where_numpy_keeps_the_kind() -> None:
    agreed = 0
    for first, second in PAIRS:
        a, b = dtypes.get(first), dtypes.get(second)
        standard = all((d.numpy_name or "").startswith("numpy:") for d in (a, b))
        numpys = np.promote_types(a.numpy, b.numpy) if standard else None
        if numpys is None or a.kind == "bool" or b.kind == "bool" or numpys == np.complex128:
            continue
        if {a.kind, b.kind} <= {"int", "uint"} and numpys.kind == "f":
            continue
        if ({"int", "uint"} & {a.kind, b.kind}) and {"float", "complex"} & {a.kind, b.kind}:
            continue
        assert infer.promote(a, b).numpy == numpys
        agreed += 1
    assert agreed == 8 * 8 - 2 * 4 + 3 * 3 + 2 * 2 + 1


def test_a_dtype_of_a_plugin_combines_with_itself_alone() -> None:
    theirs = DType(name="acme6", kind="float", bits=8, key="acme6")
    assert infer.promote(theirs, theirs) is theirs
    with pytest.raises(SignatureError, match="acme6 and x2 is float32"):
        infer.promote(theirs, dtypes.get("float32"))


@pytest.mark.parametrize("dtype", dtypes.TABLE)
@pytest.mark.parametrize("kind", ["bool", "int", "float", "complex"])
def test_a_python_scalar_takes_the_arrays_dtype_or_is_refused(kind: str, dtype: str) -> None:
    allowed = {
        "bool": {"bool"},
        "int": {"int", "uint", "float", "complex"},
        "float": {"float", "complex"},
        "complex": {"complex"},
    }
    array = dtypes.get(dtype)
    if kind == "complex" and dtype in ("float16", "bfloat16", "float32"):
        assert infer.weak_dtype(kind, array).name == "complex64"
    elif kind == "complex" and array.floating:
        with pytest.raises(SignatureError, match=f"Python complex .*{dtype}: no complex dtype.*astype"):
            infer.weak_dtype(kind, array)
    elif array.kind in allowed[kind]:
        assert infer.weak_dtype(kind, array) is array
    else:
        with pytest.raises(SignatureError, match=f"Python {kind} .*{dtype}.*astype"):
            infer.weak_dtype(kind, array)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("float16[3]", 2, "float16"),
        (2.5, "bfloat16[3]", "bfloat16"),
        ("uint8[3]", 2, "uint8"),
        ("complex64[3]", 1.5, "complex64"),
        ("int8[3]", "uint8[3]", "int16"),
    ],
)
def test_result_dtype(first: str | float, second: str | float, expected: str) -> None:
    assert infer.result_dtype(spec_of(first), spec_of(second)).name == expected


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ("int32[3]", 2.5, "x2 is a Python float and x1 is int32"),
        (True, "int32[3]", "x1 is a Python bool and x2 is int32"),
        (1, 2, "both Python scalars"),
    ],
)
def test_result_dtype_refuses(first: str | float, second: str | float, words: str) -> None:
    with pytest.raises(SignatureError, match=words):
        infer.result_dtype(spec_of(first), spec_of(second))


def test_a_scalar_is_rounded_to_the_dtype_of_the_arrays_beside_it() -> None:
    signature = sign("add", "float16[2]", 0.1)
    assert infer.scalar_dtype(signature, "x2").name == "float16"
    (result,) = signature.op.run_oracle(signature, [np.zeros(2, np.float16), 0.1])
    assert result.tolist() == [float(np.float16(0.1))] * 2


def test_a_scalar_looks_at_the_parameters_of_its_own_class() -> None:
    params = [SimpleNamespace(name=n, dtype=d, broadcast=True) for n, d in (("cond", "B"), ("x1", "T1"), ("x2", "T2"))]
    tensors = (spec_of("bool[3]"), spec_of("float16[3]"), spec_of(2.0))
    signature = SimpleNamespace(op=SimpleNamespace(tensors=params), tensors=tensors, tensor=lambda _: tensors[2])
    assert infer.scalar_dtype(signature, "x2").name == "float16"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        (((2, 3), (3,)), (2, 3)),
        (((2, 1, 3), (5, 1)), (2, 5, 3)),
        (((), (4,)), (4,)),
        (((0,), (1,)), (0,)),
        (((1, 0), (5, 1)), (5, 0)),
        (((), ()), ()),
    ],
)
def test_broadcast(shapes: tuple[tuple[int, ...], ...], expected: tuple[int, ...]) -> None:
    assert infer.broadcast(shapes, ("x1", "x2")) == expected


def test_broadcast_names_both_tensors_the_axis_and_both_extents() -> None:
    with pytest.raises(SignatureError, match=r"x1 and x2 do not broadcast: axis -2 is 3 in x1 and 4 in x2"):
        infer.broadcast(((3, 5), (4, 1)), ("x1", "x2"))
    with pytest.raises(SignatureError, match="axis -1 is 0 in x1 and 2 in x2"):
        infer.broadcast(((0,), (2,)), ("x1", "x2"))


extents = st.lists(st.sampled_from([0, 1, 2, 3]), max_size=4).map(tuple)


@given(st.lists(extents, min_size=1, max_size=3))
def test_broadcast_agrees_with_numpy(shapes: list[tuple[int, ...]]) -> None:
    names = [f"x{i}" for i in range(len(shapes))]
    try:
        expected = np.broadcast_shapes(*shapes)
    except ValueError:
        with pytest.raises(SignatureError):
            infer.broadcast(shapes, names)
    else:
        assert infer.broadcast(shapes, names) == expected


@pytest.mark.parametrize(
    ("axis", "rank", "expected"),
    [
        (None, 3, (0, 1, 2)),
        (None, 0, ()),
        (1, 3, (1,)),
        (-1, 3, (2,)),
        ((2, 0), 3, (0, 2)),
        ((-1, 0), 2, (0, 1)),
        ((), 2, ()),
    ],
)
def test_reduced_axes(axis: int | tuple[int, ...] | None, rank: int, expected: tuple[int, ...]) -> None:
    assert infer.reduced_axes(axis, rank) == expected


@pytest.mark.parametrize(
    ("axis", "rank", "words"),
    [
        (3, 3, r"axis=3 is out of range for a tensor of rank 3 \(allowed: -3..2\)"),
        (-4, 3, "axis=-4"),
        (0, 0, "rank 0"),
        ((1, -2), 3, r"axis=\(1, -2\) names an axis of a tensor of rank 3 twice"),
    ],
)
def test_reduced_axes_refuses(axis: int | tuple[int, ...], rank: int, words: str) -> None:
    with pytest.raises(SignatureError, match=words):
        infer.reduced_axes(axis, rank)


@given(st.lists(st.integers(0, 4), max_size=4).map(tuple), st.data(), st.booleans())
def test_reduced_shape_agrees_with_numpy(shape: tuple[int, ...], data: st.DataObject, keepdims: bool) -> None:
    axes = (
        data.draw(st.lists(st.integers(-len(shape), len(shape) - 1), unique_by=lambda a: a % len(shape)))
        if shape
        else []
    )
    found = infer.reduced_shape(shape, infer.reduced_axes(axes, len(shape)), keepdims)
    assert found == np.sum(np.zeros(shape), axis=tuple(axes), keepdims=keepdims).shape


@pytest.mark.parametrize(
    ("axes", "rank", "words"),
    [((0, 1), 3, "has 2 entries"), ((0, 0), 2, "twice"), ((0, -2), 2, "twice"), ((0, 2), 2, "out of range")],
)
def test_permutation_refuses(axes: tuple[int, ...], rank: int, words: str) -> None:
    with pytest.raises(SignatureError, match=words):
        infer.permutation(axes, rank)


def test_permutation_counts_from_the_end() -> None:
    assert infer.permutation((-1, 0, -2), 3) == (2, 0, 1)
    assert infer.permutation((), 0) == ()


matrices = st.lists(st.sampled_from([0, 1, 2, 3]), min_size=1, max_size=4).map(tuple)


@given(matrices, matrices)
def test_matmul_shape_agrees_with_numpy(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    try:
        expected = np.matmul(np.zeros(first), np.zeros(second)).shape
    except ValueError:
        with pytest.raises(SignatureError):
            infer.matmul_shape(first, second)
    else:
        assert infer.matmul_shape(first, second)[0] == expected


def test_matmul_names_the_contracted_extents() -> None:
    with pytest.raises(SignatureError, match=r"last axis of x1, 63, with axis -2 of x2, 64"):
        infer.matmul_shape((5, 63), (64, 7))
    with pytest.raises(SignatureError, match="x2 has rank 0"):
        infer.matmul_shape((5,), ())


@pytest.mark.parametrize(
    ("shape", "fits"), [((), True), ((1, 3), True), ((2, 1), True), ((3, 3), False), ((1, 2, 3), False)]
)
def test_broadcast_to_never_enlarges(shape: tuple[int, ...], fits: bool) -> None:
    if fits:
        infer.broadcast_to(shape, (2, 3), "mask", "the scores")
    else:
        with pytest.raises(SignatureError, match=r"mask of shape .* does not broadcast to the scores, \[2, 3\]"):
            infer.broadcast_to(shape, (2, 3), "mask", "the scores")


def test_one_python_scalar_is_welcome_where_arrays_broadcast_and_nowhere_else() -> None:
    assert outputs("multiply", "float16[2, 3]", 2) == "float16[2, 3]"
    for op in ("sqrt", "sum", "gelu"):
        with pytest.raises(SignatureError, match="only arrays are taken there"):
            sign(op, 2.0)
