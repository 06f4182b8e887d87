"""Fuzz: expressions, schema strings and spec strings give values or errors of ours, soon, and run no code."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from nbx_registry import dtypes, expr, schema, spec
from nbx_registry.errors import ExpressionError, NbxError, SchemaError, SpecError
from nbx_registry.op import op
from nbx_registry.spec import TensorSpec

SOON = 1.0
WORDS = [
    "C", "H", "x.dtype", "x.shape", "stride", "float16", "and", "or", "not", "in", "min", "max", "cdiv", "clamp",
    "prod", "len", "bits", "(", ")", "[", "]", ",", "+", "-", "*", "/", "//", "%", "**", "<", "<=", "==", "!=", "'a'",
    "0", "1", "2", "7", "63", "1.5", "10**9", "True", "None", ".", "__class__", "lambda", "é", "\x00", "\n", "9" * 30,
]  # fmt: skip
NAMES = {"C": 63, "H": 17, "x.dtype": dtypes.get("float16"), "x.shape": (3, 63), "stride": (1, 2)}


def soon(call: Callable[[], Any], *errors: type[NbxError]) -> Any:
    """Return what ``call`` gives, None where it raises one of ``errors``; it must not take long."""
    began = time.perf_counter()
    found = None
    with contextlib.suppress(*errors):
        found = call()
    assert time.perf_counter() - began < SOON
    return found


@given(st.lists(st.sampled_from(WORDS), max_size=60).map(" ".join) | st.text(max_size=200))
@example("((2**126)**2)**(2**126)")
@example("'%9999999999d' % C")
@settings(max_examples=300, deadline=None)
def test_expression_text_gives_a_value_or_our_error(text: str) -> None:
    parsed = soon(lambda: expr.parse(text), ExpressionError)
    if parsed is None:
        return
    value = soon(lambda: parsed.evaluate(NAMES), ExpressionError)
    assert not isinstance(value, int) or value.bit_length() <= expr.MAX_BITS
    soon(lambda: parsed.explain({name: NAMES.get(name) for name in parsed.names}))
    soon(parsed.constant)
    assert " and ".join(clause.text for clause in parsed.clauses())


_NUMBERS = st.integers(0, 2**40).map(str)
_TREES = st.recursive(
    _NUMBERS | st.sampled_from(["C", "H", "stride[1]", "x.shape[0]"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        inner.map(lambda t: f"-({t})"),
        st.tuples(st.sampled_from(["min", "max", "cdiv"]), inner, inner).map(lambda t: f"{t[0]}({t[1]}, {t[2]})"),
    ),
    max_leaves=12,
)


@given(_TREES)
@settings(max_examples=300, deadline=None)
def test_integer_arithmetic_is_pythons(text: str) -> None:
    scope = {"C": 63, "H": 17, "stride": (1, 2), "cdiv": lambda a, b: -(-a // b)}
    try:
        expected = eval(text.replace("x.shape", "(3, 63)"), scope)
    except ZeroDivisionError:
        with pytest.raises(ExpressionError, match="zero"):
            expr.parse(text).evaluate(NAMES)
        return
    assume(expected.bit_length() <= expr.MAX_BITS)
    assert expr.parse(text).evaluate(NAMES) == expected


SCHEMA_WORDS = [
    "f@1(", "x", "y", ":", "F", "F1", "T", "float16", "[", "]", "N", "C", "*B", "3", ",", "?", "=", "None", "*", "mut",
    "list", "int", "int[2]", "dtype", "str", "bool", "->", "(", ")", "out", "device", "C // 2", "'a'", "1e-5", "-1",
    "é",
]  # fmt: skip


@given(st.lists(st.sampled_from(SCHEMA_WORDS), max_size=60).map(lambda w: "f@1(" + " ".join(w)) | st.text(max_size=200))
@settings(max_examples=300, deadline=None)
def test_schema_text_gives_a_schema_or_our_error(text: str) -> None:
    parsed = soon(lambda: schema.parse(text), SchemaError)
    if parsed is not None:
        assert schema.parse(str(parsed)) == parsed


_AXIS = st.sampled_from(["N", "C", "H", "1", "7"])
_PARAMS = st.lists(st.tuples(st.sampled_from(["F", "F1", "T", "int32"]), st.lists(_AXIS, max_size=4)), max_size=4)


@given(_PARAMS, st.data())
@settings(max_examples=200, deadline=None)
def test_any_schema_checks_any_specs(params: list[tuple[str, list[str]]], data: st.DataObject) -> None:
    text = ", ".join(f"p{i}: {dtype}[{', '.join(axes)}]" for i, (dtype, axes) in enumerate(params))
    contract = op(f"f@1({text}) -> ()")(lambda *_: ())
    shapes = st.lists(st.sampled_from([1, 2, 7]), max_size=5)
    names = st.sampled_from(["float16", "float32", "int32", "bool"])
    given_specs = st.builds(lambda n, s: TensorSpec(dtypes.get(n), tuple(s)), names, shapes)
    specs = data.draw(st.lists(st.none() | given_specs, max_size=5))
    attributes = data.draw(st.dictionaries(st.text(max_size=3), st.integers(), max_size=1))
    found = soon(lambda: contract.signature(specs, attributes), NbxError)
    if found is not None:
        assert not attributes
        for (dtype, axes), tensor in zip(params, found.tensors, strict=True):
            assert tuple(int(a) if a.isdigit() else found.axes[a] for a in axes) == tensor.shape
            assert tensor.dtype is found.letters.get(dtype, tensor.dtype)


SPEC_WORDS = ["float16", "[", "]", "2", "0", ",", "-1", ";", "strides", "=", "offset", "align", "9" * 20, " ", "[2, 3]"]


@given(st.lists(st.sampled_from(SPEC_WORDS), max_size=25).map("".join) | st.text(max_size=200))
@settings(max_examples=300, deadline=None)
def test_spec_text_gives_a_spec_or_our_error(text: str) -> None:
    found = soon(lambda: spec.parse(text), SpecError, NbxError)
    if found is not None:
        assert spec.parse(str(found)) == found


@given(
    st.sampled_from(sorted(dtypes.TABLE)),
    st.lists(st.integers(0, 1000), max_size=6),
    st.integers(0, 10**6),
    st.sampled_from([1, 2, 4, 16, 256]),
    st.data(),
)
@settings(max_examples=200, deadline=None)
def test_printed_spec_parses_to_itself(
    dtype: str, shape: list[int], offset: int, align: int, data: st.DataObject
) -> None:
    strides = data.draw(st.none() | st.lists(st.integers(0, 10**6), min_size=len(shape), max_size=len(shape)))
    made = TensorSpec(dtypes.get(dtype), tuple(shape), tuple(strides) if strides is not None else None, offset, align)
    found = spec.parse(str(made))
    assert (found.dtype, found.shape, found.offset, found.align) == (made.dtype, made.shape, made.offset, made.align)
    assert found.contiguous == made.contiguous
    assert made.contiguous or found.strides == made.strides
