"""Promotion against the consortium's own strict implementation of the Array API standard."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import array_api_strict as strict
import numpy as np
import pytest
from running import OPS, sign

import nbx_registry as nbx
from nbx_registry import dtypes, infer
from nbx_registry.errors import SignatureError
from nbx_registry.op import Op
from nbx_registry.rounding import integer_range
from nbx_registry.schema import REQUIRED
from nbx_registry.spec import TensorSpec, weak_spec

# The standard's dtypes, of which the table lacks complex128.
NAMES = [name for name in dtypes.TABLE if hasattr(strict, name)]
BEYOND = [name for name in dtypes.TABLE if name not in NAMES]
PAIRS = list(itertools.product(NAMES, repeat=2))
SCALARS: list[Any] = [True, 1, 1.5, 1j]

WIDER = {
    "argmax": "bool is ordered: False before True",
    "argmin": "bool is ordered: False before True",
    "max": "bool is ordered: False before True",
    "min": "bool is ordered: False before True",
    "sum": "of bool it counts",
    "prod": "of bool it is a conjunction",
    "cumulative_sum": "of bool it counts",
    "cumulative_prod": "of bool it is a conjunction",
    "mean": "of integers and bool it is in float32",
    "var": "of integers and bool it is in float32",
    "std": "of integers and bool it is in float32",
}
"""Ops that take more than the standard says, with what it means there."""

ONE_FLOATING_DTYPE = {"matmul", "vecdot", "outer", "matvec"}
"""Products, which take floating tensors of one dtype: accumulation is stated for those."""


@pytest.fixture(scope="module", autouse=True)
def version() -> Iterator[None]:
    before = strict.get_array_api_strict_flags()["api_version"]
    strict.set_array_api_strict_flags(api_version="2024.12")
    yield
    strict.set_array_api_strict_flags(api_version=before)


def theirs(compute: Callable[[], Any]) -> str | None:
    """Return the name of the dtype that the standard's implementation gives, or None where it refuses."""
    try:
        found = compute()
    except (TypeError, AttributeError):
        return None
    dtype = found.dtype if hasattr(found, "dtype") else found
    return str(dtype).rpartition(".")[2]


def ours(compute: Callable[[], Any]) -> str | None:
    try:
        return str(compute())
    except SignatureError:
        return None


def ones(name: str) -> Any:
    return strict.ones(3, dtype=getattr(strict, name))


def spec(value: Any) -> TensorSpec:
    found = TensorSpec(dtypes.get(value), (3,)) if isinstance(value, str) else weak_spec(value)
    assert found is not None
    return found


def agrees(found: str | None, expected: str | None) -> bool:
    # complex128, which float64 with a complex number needs, is not in the table.
    return found == (None if expected == "complex128" else expected)


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=["-".join(pair) for pair in PAIRS])
def test_two_arrays(first: str, second: str) -> None:
    expected = theirs(lambda: strict.result_type(getattr(strict, first), getattr(strict, second)))
    assert agrees(ours(lambda: infer.result_dtype(spec(first), spec(second))), expected)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scalar", SCALARS, ids=lambda s: type(s).__name__)
def test_an_array_and_a_python_scalar(name: str, scalar: Any) -> None:
    expected = theirs(lambda: strict.result_type(ones(name), scalar))
    assert agrees(ours(lambda: infer.result_dtype(spec(name), spec(scalar))), expected)
    assert agrees(ours(lambda: infer.result_dtype(spec(scalar), spec(name))), expected)


@pytest.mark.parametrize(("first", "second"), list(itertools.product(BEYOND, dtypes.TABLE)))
def test_dtypes_beyond_the_standard(first: str, second: str) -> None:
    """As stated in `infer.promote`: the two of 16 bits join the floating ones, the rest stand alone."""
    expected = first if first == second else None
    if first in ("float16", "bfloat16") and second in ("float32", "float64", "complex64"):
        expected = second
    assert ours(lambda: infer.result_dtype(spec(first), spec(second))) == expected
    assert ours(lambda: infer.result_dtype(spec(second), spec(first))) == expected


@pytest.mark.parametrize("name", BEYOND)
def test_python_scalars_beside_dtypes_beyond_the_standard(name: str) -> None:
    floating = dtypes.get(name).floating
    wide = {"float16": "complex64", "bfloat16": "complex64"}.get(name)
    for scalar, expected in zip(SCALARS, (None, name, name if floating else None, wide), strict=True):
        assert ours(lambda s=scalar: infer.result_dtype(spec(name), spec(s))) == expected, scalar


def shared() -> list[tuple[Op, Callable[..., Any]]]:
    """The ops that the standard has too, of one or two arrays and nothing else that must be given."""
    found: list[tuple[Op, Callable[..., Any]]] = []
    for name, op in OPS.items():
        function = getattr(strict, name, None) or getattr(strict.linalg, name, None)
        required = [param for param in op.tensors if not param.optional]
        attributes = [attribute for attribute in op.attributes if attribute.default is REQUIRED]
        # Indices are of fewer dtypes than the standard has integers: int32 and int64.
        indexed = any(high is not None for _, high in op.index_bounds.values())
        apart = attributes or indexed or any(p.is_list for p in required)
        if function and 1 <= len(required) <= 2 and not apart:
            found.append((op, function))
    return found


def requests(op: Op) -> list[tuple[Any, ...]]:
    if sum(not param.optional for param in op.tensors) == 1:
        return [(name,) for name in NAMES]
    mixed = list(itertools.product(NAMES, SCALARS)) if op.schema.scalars else []
    return [*PAIRS, *mixed, *(pair[::-1] for pair in mixed)]


SHARED = shared()


@pytest.mark.parametrize(("op", "function"), SHARED, ids=[op.name for op, _ in SHARED])
def test_an_op_gives_the_dtype_that_the_standard_says(op: Op, function: Callable[..., Any]) -> None:
    agreed = 0
    for given in requests(op):
        arrays = [ones(value) if isinstance(value, str) else value for value in given]
        expected = theirs(lambda a=arrays: function(*a))
        operands = [f"{value}[3]" if isinstance(value, str) else value for value in given]
        found = ours(lambda o=operands: sign(op, *o).outputs[0].dtype.name)
        if found is None:
            # What the standard has and we have not: complex results of ops on real numbers, mixed products.
            assert expected is None or expected.startswith("complex") or op.name in ONE_FLOATING_DTYPE, given
        elif expected is None:
            assert op.name in WIDER, given
        else:
            assert found == expected, given
            agreed += 1
    assert agreed >= 2


def test_what_is_said_to_be_wider_is() -> None:
    named = {op.name for op, _ in SHARED}
    assert {"add", "multiply", "divide", "pow", "maximum", "sum", "prod", "mean", "argmax"} <= named


@pytest.fixture(scope="module")
def reg() -> nbx.Registry:
    return nbx.load(require="any")


def taken(name: str) -> np.ndarray:
    return np.array([1, 2, 3]).astype(dtypes.get(name).numpy)


@pytest.mark.parametrize("name", ["add", "multiply", "subtract", "maximum", "pow"])
def test_the_host_computes_in_the_promoted_dtype(name: str, reg: nbx.Registry) -> None:
    function, ran = getattr(strict, name), 0
    for given in requests(OPS[name]):
        operands = [taken(value) if isinstance(value, str) else value for value in given]
        if ours(lambda o=operands: sign(name, *o).outputs[0].dtype) is None:
            continue
        found = reg.call(name, *operands)
        expected = np.asarray(function(*(strict.asarray(x) if isinstance(x, np.ndarray) else x for x in operands)))
        assert found.dtype == expected.dtype, given
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        ran += 1
    assert ran > 80


@pytest.mark.parametrize("name", [name for name in NAMES if dtypes.get(name).integral])
def test_a_python_integer_out_of_range_is_refused_by_both(name: str, reg: nbx.Registry) -> None:
    low, high = integer_range(dtypes.get(name))
    for scalar in (low, high):
        strict.add(strict.zeros(3, dtype=getattr(strict, name)), scalar)
        assert reg.call("add", np.zeros(3, name), scalar).tolist() == [scalar] * 3
    for scalar in (low - 1, high + 1):
        with pytest.raises(OverflowError):
            strict.add(strict.zeros(3, dtype=getattr(strict, name)), scalar)
        with pytest.raises(SignatureError, match=f"{scalar} is outside the range of {name}"):
            reg.call("add", np.zeros(3, name), scalar)


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=["-".join(pair) for pair in PAIRS])
def test_where_promotes_its_branches(first: str, second: str) -> None:
    mask = strict.asarray([True, False, True])
    expected = theirs(lambda: strict.where(mask, ones(first), ones(second)))
    found = ours(lambda: sign("where", "bool[3]", f"{first}[3]", f"{second}[3]").outputs[0].dtype.name)
    assert agrees(found, expected)


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=["-".join(pair) for pair in PAIRS])
def test_concat_promotes_what_it_joins(first: str, second: str) -> None:
    expected = theirs(lambda: strict.concat([ones(first), ones(second)]))
    pair = (TensorSpec(dtypes.get(first), (3,)), TensorSpec(dtypes.get(second), (3,)))
    found = ours(lambda: OPS["concat"].signature([pair], {}).outputs[0].dtype.name)
    assert agrees(found, expected)


@pytest.mark.parametrize("name", NAMES)
def test_every_pair_of_dtypes_converts_as_the_standard_allows(name: str) -> None:
    for target in NAMES:
        expected = theirs(lambda t=target: strict.astype(ones(name), getattr(strict, t)))
        found = ours(lambda t=target: sign("astype", f"{name}[3]", dtype=t).outputs[0].dtype.name)
        assert found == expected or (name == "complex64" and target == "bool"), target
