"""Elementwise ops and sum, against torch, mpmath, ml_dtypes and Python's integers."""

from __future__ import annotations

import itertools
import math
from typing import Any

import mpmath
import numpy as np
import torch
from independent import SPECIAL, TORCH, Comparer, as_torch, independent, special, wide
from running import sign, values

from nbx_registry import dtypes

SHAPES = [((), ()), ((63,), (63,)), ((7, 1, 5), (3, 1)), ((0, 4), (4,)), ((2, 3), ())]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
OPERATIONS = {"add": torch.add, "multiply": torch.multiply, "divide": torch.divide}


@independent("add@1", "multiply@1", "divide@1")
def arithmetic_of_floats(compare: Comparer) -> None:
    for op, (first, second), dtype in itertools.product(OPERATIONS, SHAPES, FLOATS):
        a, b = values(first, dtype, 1), values(second, dtype, 2)
        compare(compare.oracle(op, a, b), OPERATIONS[op](wide(a), wide(b)), "torch", rtol=0)
    for op, dtype in itertools.product(OPERATIONS, FLOATS):
        a, b = special(dtype)[:, None], special(dtype)
        compare(compare.oracle(op, a, b), OPERATIONS[op](wide(a), wide(b)), "torch", rtol=0)
    for op, pair in itertools.product(OPERATIONS, [("float16", "float32"), ("bfloat16", "float64")]):
        a, b = values((5, 7), pair[0]), values((7,), pair[1])
        compare(compare.oracle(op, a, b), OPERATIONS[op](wide(a), wide(b)), "torch", rtol=0)
        assert sign(op, a, b).outputs[0].dtype.name == str(torch.promote_types(*map(TORCH.get, pair)))[6:]


@independent("add@1", "multiply@1")
def arithmetic_of_complex_numbers(compare: Comparer) -> None:
    a, b = values((6, 5), "complex64", 1), values((5,), "complex64", 2)
    for op in ("add", "multiply"):
        compare(compare.oracle(op, a, b), OPERATIONS[op](wide(a), wide(b)), "torch")
        compare(
            compare.oracle(op, a, values((5,), "float32", 3)),
            OPERATIONS[op](wide(a), wide(values((5,), "float32", 3))),
            "torch",
        )


INTEGERS = ["int8", "int16", "int32", "int64", "uint8"]


@independent("add@1", "multiply@1")
def arithmetic_of_integers(compare: Comparer) -> None:
    for op, first, second in itertools.product(("add", "multiply"), INTEGERS, INTEGERS):
        a, b = extremes(first)[:, None], extremes(second)
        theirs = OPERATIONS[op](as_torch(a), as_torch(b))
        assert sign(op, a, b).outputs[0].dtype.name == str(theirs.dtype)[6:]
        compare(compare.oracle(op, a, b), theirs, "torch", rtol=0)
    # torch has no arithmetic of wide unsigned integers, nor of 4 bits: Python's integers, reduced by hand.
    for op, dtype in itertools.product(("add", "multiply"), ["uint16", "uint32", "uint64", "int4", "uint4"]):
        a = extremes(dtype)
        whole = [int(v) for v in a.tolist()]
        exact = [[x + y if op == "add" else x * y for y in whole] for x in whole]
        compare(compare.oracle(op, a[:, None], a), wrapped(exact, dtype), "Python", rtol=0)


@independent("add@1", "multiply@1", "divide@1")
def a_python_scalar_is_a_number_of_the_arrays_dtype(compare: Comparer) -> None:
    for op, dtype, number in itertools.product(OPERATIONS, FLOATS, [0.1, -2.5, 3, 1e5]):
        a = values((9,), dtype)
        with np.errstate(over="ignore"):
            b = np.asarray(number, np.float32 if dtype != "float64" else None).astype(a.dtype)
        compare(compare.oracle(op, a, number), OPERATIONS[op](wide(a), wide(b)), "torch", rtol=0)
        compare(compare.oracle(op, number, a), OPERATIONS[op](wide(b), wide(a)), "torch", rtol=0)
    a = extremes("int8")
    for op in ("add", "multiply"):
        compare(compare.oracle(op, a, 7), OPERATIONS[op](as_torch(a), 7), "torch", rtol=0)


@independent("sqrt@1")
def square_roots(compare: Comparer) -> None:
    for dtype in FLOATS:
        for x in (np.abs(values((4, 33), dtype, scale=100)), special(dtype), values((0,), dtype)):
            # torch's vectorised root is not correctly rounded everywhere.
            compare(compare.oracle("sqrt", x), torch.sqrt(wide(x)), "torch", rtol=1e-15, atol=0)
    x = np.array([2.0, 3.0, 1e-310, 1e300, 0.1])
    compare(compare.oracle("sqrt", x), [float(mpmath.sqrt(mpmath.mpf(v))) for v in x], "mpmath", rtol=0)


@independent("gelu@1")
def gelus(compare: Comparer) -> None:
    for dtype, form in itertools.product(FLOATS, ["none", "tanh"]):
        for x in (values((3, 1, 17), dtype, scale=3), special(dtype), values((), dtype)):
            # 1 + erf loses digits far below zero, in torch.
            theirs = torch.nn.functional.gelu(wide(x), approximate=form)
            compare(compare.oracle("gelu", x, approximate=form), theirs, "torch", rtol=1e-10, atol=1e-13)
    x = np.array([-30.0, -8.25, -5.0, -1.0, -1e-3, 0.0, 1e-30, 0.7, 3.0, 12.0, 40.0])
    with mpmath.workdps(60):
        erf = [mpmath.mpf(v) / 2 * mpmath.erfc(-mpmath.mpf(v) / mpmath.sqrt(2)) for v in x]
        steep = [mpmath.sqrt(2 / mpmath.pi) * (v + mpmath.mpf("0.044715") * mpmath.mpf(v) ** 3) for v in x]
        tanh = [mpmath.mpf(v) / 2 * (1 + mpmath.tanh(s)) for v, s in zip(x, steep, strict=True)]
    compare(compare.oracle("gelu", x), [float(v) for v in erf], "mpmath", rtol=1e-12, atol=1e-250)
    compare(compare.oracle("gelu", x, approximate="tanh"), [float(v) for v in tanh], "mpmath", rtol=1e-13, atol=1e-15)


# astype ---------------------------------------------------------------------------------------------------------------


@independent("astype@1")
def conversions_that_torch_makes(compare: Comparer) -> None:
    for source, target in itertools.product(TORCH, TORCH):
        if source == "complex64" or source.startswith("float8"):
            continue
        # torch rounds float64 and wide integers to 16 and 8 bits through float32.
        through = source in ("float64", "int64", "int32") and target.startswith(("float16", "bfloat16", "float8"))
        x = values((4, 9), "float16" if through and source == "float64" else source, scale=3)
        x = x.astype(dtypes.get(source).numpy)
        # What is beyond an integer dtype is left open.
        x = np.abs(x) if target == "uint8" and source != "bool" else x
        theirs = as_torch(x).to(TORCH[target])
        compare(compare.oracle("astype", x, dtype=target), as_comparable(theirs), "torch", rtol=0)
    for target in TORCH:
        if TORCH[target].is_floating_point and not target.startswith("float8"):
            for source in ("float16", "bfloat16", "float32"):
                x = np.concatenate([special(source), values((99,), source, scale=1e4)])
                compare(compare.oracle("astype", x, dtype=target), as_torch(x).to(TORCH[target]), "torch", rtol=0)
    for source in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz"):
        x = np.arange(256, dtype=np.uint8).view(dtypes.get(source).numpy)
        for target in ("float16", "float32", "float64"):
            compare(compare.oracle("astype", x, dtype=target), as_torch(x).to(TORCH[target]), "torch", rtol=0)


@independent("astype@1")
def integers_wrap_or_saturate(compare: Comparer) -> None:
    every = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "int4", "uint4"]
    for source, target in itertools.product(every, every):
        x = extremes(source)
        whole = [int(v) for v in x.tolist()]
        compare(compare.oracle("astype", x, dtype=target), wrapped(whole, target), "Python", rtol=0)
        low, high = span(target)
        clamped = integers([min(max(v, low), high) for v in whole], target)
        compare(compare.oracle("astype", x, dtype=target, saturate=True), clamped, "Python", rtol=0)


@independent("astype@1")
def floats_saturate(compare: Comparer) -> None:
    x = np.concatenate(
        [SPECIAL, [1e5, -1e5, 3e38, 127.5, 128.0, 255.9, 256.0, -128.9, -129.0, 2.0**31, 2.0**63, -(2.0**63)]]
    )
    for target in ("float16", "bfloat16", "float32"):
        largest = torch.finfo(TORCH[target]).max
        clamped = torch.clamp(torch.from_numpy(x.astype(np.float32)), -largest, largest).to(TORCH[target])
        compare(compare.oracle("astype", x.astype(np.float32), dtype=target, saturate=True), clamped, "torch", rtol=0)
    number = x[~np.isnan(x)]
    for target in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint64"):
        low, high = span(target)
        whole = [low if v <= low else high if v >= high else math.trunc(v) for v in number.tolist()]
        expected = np.array(whole, dtype=dtypes.get(target).numpy)
        compare(compare.oracle("astype", number, dtype=target, saturate=True), expected, "Python", rtol=0)
    compare(
        compare.oracle("astype", np.array([np.nan, 2.7, -2.7]), dtype="int32"),
        np.array([0, 2, -2], np.int32),
        "Python",
        rtol=0,
    )


@independent("astype@1")
def what_is_rounded_is_rounded_once(compare: Comparer) -> None:
    rng = np.random.default_rng(3)
    ties = 1 + 2.0 ** -np.arange(4, 12) + 2.0**-40
    x = np.concatenate([rng.standard_normal(200), ties, -ties, 1e-3 * ties])
    whole = rng.integers(-(2**62), 2**62, 200)
    whole = np.concatenate([whole, 2**60 + 2 ** np.arange(30, 56) + 1])
    for target, bits in (("float16", 11), ("bfloat16", 8), ("float32", 24), ("float64", 53), ("float8_e4m3fn", 4)):
        with mpmath.workprec(bits):
            rounded = [float(+mpmath.mpf(v)) for v in x]
        fits = np.abs(x) > (0.1 if bits in (4, 11) else 0)
        compare(compare.oracle("astype", x[fits], dtype=target), np.array(rounded)[fits], "mpmath", rtol=0)
        if bits in (8, 24, 53):
            with mpmath.workprec(bits):
                rounded = [float(+mpmath.mpf(int(v))) for v in whole]
            compare(compare.oracle("astype", whole, dtype=target), rounded, "mpmath", rtol=0)
    for target in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float4_e2m1fn"):
        narrow = np.concatenate([x, x * 100, [np.inf, -np.inf, 0.0, -0.0, 448.0, 464.0, 465.0]]).astype(np.float32)
        with np.errstate(all="ignore"):
            theirs = narrow.astype(dtypes.get(target).numpy).astype(np.float64)
        compare(compare.oracle("astype", narrow, dtype=target), theirs, "ml_dtypes", rtol=0)


@independent("astype@1")
def complex_numbers(compare: Comparer) -> None:
    x = values((4, 3), "complex64")
    compare(compare.oracle("astype", x, dtype="complex64"), wide(x), "torch", rtol=0)
    real = np.array([np.inf, 1.5, -0.0])
    theirs = torch.from_numpy(real).to(torch.complex64).to(torch.complex128)
    compare(compare.oracle("astype", real, dtype="complex64"), theirs, "torch", rtol=0)


# sum ------------------------------------------------------------------------------------------------------------------

AXES: list[Any] = [None, 0, -1, (0, 2), (1,), (-1, 0, 1)]


@independent("sum@1")
def sums(compare: Comparer) -> None:
    for dtype, axis, keepdims in itertools.product([*FLOATS, "complex64"], AXES, [False, True]):
        x = values((5, 7, 9), dtype)
        theirs = torch.sum(wide(x), dim=(0, 1, 2) if axis is None else axis, keepdim=keepdims)
        compare(compare.oracle("sum", x, axis=axis, keepdims=keepdims), theirs, "torch")
    for dtype, axis in itertools.product(["bool", *INTEGERS], AXES):
        x = values((5, 7, 9), dtype)
        theirs = torch.sum(as_torch(x), dim=(0, 1, 2) if axis is None else axis)
        # torch sums unsigned bytes in int64; the numbers are the same.
        compare(
            compare.oracle("sum", x, axis=axis),
            theirs.numpy().astype(np.uint64 if dtype == "uint8" else np.int64),
            "torch",
            rtol=0,
        )
    for dtype in ("int64", "uint64", "uint32", "int4", "uint4"):
        x = np.repeat(extremes(dtype), 3)
        wide_name = "uint64" if dtype.startswith("u") else "int64"
        compare(compare.oracle("sum", x), wrapped(sum(int(v) for v in x.tolist()), wide_name), "Python", rtol=0)
    for x in (special("float64"), np.array([1e30, 1.0, -1e30]), np.zeros((0, 3)), np.array([np.inf, 1.0])):
        compare(compare.oracle("sum", x), torch.sum(wide(x)), "torch")
    compare(
        compare.oracle("sum", np.ones((2, 0, 3)), axis=1),
        torch.sum(torch.ones(2, 0, 3, dtype=torch.float64), 1),
        "torch",
    )
    ones = np.ones(10_000, np.float16)
    compare(compare.oracle("sum", ones), math.fsum(ones.tolist()), "Python", rtol=0)
    tenths = np.full(1001, 0.1)
    compare(compare.oracle("sum", tenths), math.fsum(tenths.tolist()), "Python")


# Integers -------------------------------------------------------------------------------------------------------------


def span(dtype: str) -> tuple[int, int]:
    bits = dtypes.get(dtype).bits
    return (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def extremes(dtype: str) -> np.ndarray:
    low, high = span(dtype)
    return integers([low, low + 1, 0, 1, 3, high - 1, high], dtype)


def integers(numbers: list[int], dtype: str) -> np.ndarray:
    """Return integers in a dtype that holds them all."""
    return np.array(numbers, np.uint64 if dtype.startswith("u") else np.int64).astype(dtypes.get(dtype).numpy)


def wrapped(exact: Any, dtype: str) -> np.ndarray:
    low, high = span(dtype)
    whole = np.array(exact, dtype=object)
    return integers([(v - low) % (high - low + 1) + low for v in whole.flat], dtype).reshape(whole.shape)


def as_comparable(tensor: torch.Tensor) -> Any:
    return tensor.to(torch.complex128) if tensor.dtype.is_complex else tensor
