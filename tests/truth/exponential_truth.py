"""Elementary functions, powers, activations and choices, against torch, mpmath and Python's integers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import torch
from elementwise_truth import extremes, integers, wrapped
from independent import SPECIAL, TORCH, Comparer, as_torch, independent, special, wide
from running import sign, values

from nbx_registry import dtypes

SHAPES = [((), ()), ((63,), (63,)), ((7, 1, 5), (3, 1)), ((0, 4), (4,)), ((2, 3), ())]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
EXACT = {"maximum": torch.maximum, "minimum": torch.minimum}


def at(function: Callable[[Any], Any], numbers: list[float]) -> list[float]:
    """Return a function of mpmath at float64 numbers, with digits to spare."""
    with mpmath.workdps(60):
        return [float(function(mpmath.mpf(number))) for number in numbers]


@independent("negative@1", "abs@1", "relu@1")
def signs(compare: Comparer) -> None:
    functions = {"negative": torch.negative, "abs": torch.abs, "relu": torch.relu}
    for (op, theirs), dtype in itertools.product(functions.items(), FLOATS):
        for x in (values((4, 33), dtype), special(dtype), values((), dtype), values((0, 3), dtype)):
            # Of -0.0 relu may make either zero.
            zero = 0.0 if op == "relu" else -0.0
            compare(compare.oracle(op, x) + zero, theirs(wide(x)) + zero, "torch", rtol=0)
    for op, dtype in itertools.product(functions, ["int8", "int16", "int32", "int64", "uint8"]):
        x = extremes(dtype)
        compare(compare.oracle(op, x), functions[op](as_torch(x)), "torch", rtol=0)
    for dtype in ("uint16", "uint32", "uint64", "int4", "uint4"):
        x = extremes(dtype)
        whole = [int(v) for v in x.tolist()]
        for op, one in (("negative", lambda v: -v), ("abs", abs), ("relu", lambda v: max(v, 0))):
            compare(compare.oracle(op, x), wrapped([one(v) for v in whole], dtype), "Python", rtol=0)
    x = values((4, 3), "complex64")
    compare(compare.oracle("negative", x), torch.negative(wide(x)), "torch", rtol=0)
    compare(compare.oracle("abs", x), torch.abs(wide(x)), "torch")


@independent("sqrt@1", "rsqrt@1", "reciprocal@1", "exp@1", "log@1", "tanh@1", "erf@1", "sigmoid@1", "silu@1")
def elementary_functions(compare: Comparer) -> None:
    functions: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
        "sqrt": (torch.sqrt, mpmath.sqrt),
        "rsqrt": (torch.rsqrt, lambda v: 1 / mpmath.sqrt(v)),
        "reciprocal": (torch.reciprocal, lambda v: 1 / v),
        "exp": (torch.exp, mpmath.exp),
        "log": (torch.log, mpmath.log),
        "tanh": (torch.tanh, mpmath.tanh),
        "erf": (torch.erf, mpmath.erf),
        "sigmoid": (torch.sigmoid, lambda v: 1 / (1 + mpmath.exp(-v))),
        "silu": (lambda x: x * torch.sigmoid(x), lambda v: v / (1 + mpmath.exp(-v))),
    }
    positive = [1e-300, 1e-30, 0.1, 0.9999, 1.0001, 2.0, 7.25, 36.0, 700.0]
    anywhere = [*(-v for v in positive), *positive, -740.0, -745.0, -36.7]
    # Of subnormal results the last digits are all there is; silu multiplies those of an exponential.
    subnormal = {"exp": 1e-322, "sigmoid": 1e-322, "silu": 1e-320}
    for op, (theirs, exact) in functions.items():
        for dtype in FLOATS:
            for x in (values((4, 33), dtype, scale=3), special(dtype), values((0,), dtype), values((), dtype)):
                compare(compare.oracle(op, x), theirs(wide(x)), "torch", rtol=1e-14, atol=1e-300)
        numbers = positive if op in ("sqrt", "rsqrt", "log") else anywhere
        if op == "reciprocal":
            numbers = [v for v in numbers if abs(v) > 1e-299]
        found = compare.oracle(op, np.array(numbers))
        compare(found, at(exact, numbers), "mpmath", rtol=5e-16, atol=subnormal.get(op, 0))


@independent("tanh@1", "erf@1", "sqrt@1", "silu@1")
def zeros_keep_their_signs(compare: Comparer) -> None:
    functions = {"tanh": torch.tanh, "erf": torch.erf, "sqrt": torch.sqrt, "silu": torch.nn.functional.silu}
    zeros = np.array([0.0, -0.0])
    for op, theirs in functions.items():
        compare(compare.oracle(op, zeros), theirs(wide(zeros)), "torch", rtol=0)


@independent("subtract@1", "maximum@1", "minimum@1")
def differences_and_extrema(compare: Comparer) -> None:
    functions = {"subtract": torch.subtract, **EXACT}
    for op, (first, second), dtype in itertools.product(functions, SHAPES, FLOATS):
        a, b = values(first, dtype, 1), values(second, dtype, 2)
        compare(compare.oracle(op, a, b), functions[op](wide(a), wide(b)), "torch", rtol=0)
    for op, dtype in itertools.product(functions, FLOATS):
        a, b = special(dtype)[:, None], special(dtype)
        theirs = functions[op](wide(a), wide(b))
        ours = compare.oracle(op, a, b)
        # Of zeros of both signs an extremum is either.
        compare(*((ours, theirs) if op == "subtract" else (ours + 0.0, theirs + 0.0)), "torch", rtol=0)
    whole = ["int8", "int16", "int32", "int64", "uint8"]
    for op, first, second in itertools.product(functions, whole, whole):
        a, b = extremes(first)[:, None], extremes(second)
        theirs = functions[op](as_torch(a), as_torch(b))
        assert sign(op, a, b).outputs[0].dtype.name == str(theirs.dtype)[6:]
        compare(compare.oracle(op, a, b), theirs, "torch", rtol=0)
    python = {"subtract": lambda x, y: x - y, "maximum": max, "minimum": min}
    for op, dtype in itertools.product(functions, ["uint16", "uint32", "uint64", "int4", "uint4"]):
        a = extremes(dtype)
        numbers = [int(v) for v in a.tolist()]
        exact = [[python[op](x, y) for y in numbers] for x in numbers]
        compare(compare.oracle(op, a[:, None], a), wrapped(exact, dtype), "Python", rtol=0)
    a, b = values((6, 5), "complex64", 1), values((5,), "complex64", 2)
    compare(compare.oracle("subtract", a, b), torch.subtract(wide(a), wide(b)), "torch")


@independent("clip@1")
def clips(compare: Comparer) -> None:
    for dtype in [*FLOATS, "int8", "int32", "uint8"]:
        x = values((5, 7, 33), dtype, 1, scale=2)
        for least, most in ((1, 3), (1, None), (None, 3), (3, 1)):
            compare(compare.oracle("clip", x, least, most), torch.clamp(wide(x), least, most), "torch", rtol=0)
        low, high = values((7, 1), dtype, 2), values((33,), dtype, 3)
        compare(compare.oracle("clip", x, low, high), torch.clamp(wide(x), wide(low), wide(high)), "torch", rtol=0)
    x = special("float32")
    for low, high in itertools.product(x, x):
        ours = compare.oracle("clip", x, np.array(low), np.array(high))
        theirs = torch.clamp(wide(x), wide(np.array(low)), wide(np.array(high)))
        compare(ours + 0.0, theirs + 0.0, "torch", rtol=0)


@independent("where@1")
def choices(compare: Comparer) -> None:
    for dtype in TORCH:
        if dtype.startswith("float8"):
            continue
        condition, a, b = values((5, 1, 33), "bool"), values((7, 33), dtype, 1), values((7, 1), dtype, 2)
        theirs = torch.where(as_torch(condition), wide(a), wide(b))
        compare(compare.oracle("where", condition, a, b), theirs, "torch", rtol=0)
    condition, a = values((14,), "bool"), special("float16")
    ours = compare.oracle("where", condition, a, values((14,), "float32"))
    compare(ours, torch.where(as_torch(condition), wide(a), wide(values((14,), "float32"))), "torch", rtol=0)
    compare(compare.oracle("where", condition, a, 0.5), torch.where(as_torch(condition), wide(a), 0.5), "torch", rtol=0)


@independent("pow@1")
def powers(compare: Comparer) -> None:
    for (first, second), dtype in itertools.product(SHAPES, FLOATS):
        a, b = np.array(np.abs(values(first, dtype, 1))), values(second, dtype, 2)
        compare(compare.oracle("pow", a, b), torch.pow(wide(a), wide(b)), "torch", rtol=1e-15, atol=0)
    exponents = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.5, -0.5, np.inf, -np.inf, np.nan, 1e300, -1e300, 2.5]
    bases = np.concatenate([SPECIAL, [-2.0, 2.0, 1e20, 0.5, -0.5, 1e-320]])
    # Element by element: of one exponent torch, as NumPy, takes a root.
    a, b = (np.array(each) for each in np.broadcast_arrays(bases[:, None], np.array(exponents)))
    theirs = torch.pow(wide(a), wide(b))
    ours = compare.oracle("pow", a, b)
    compare(ours, theirs, "torch", rtol=1e-15, atol=0)
    compare(np.copysign(1.0, ours[ours == 0]), torch.copysign(torch.tensor(1.0), theirs[theirs == 0]), "torch")
    for column, exponent in enumerate(exponents):
        for form in (exponent, np.array(exponent), np.full((1,), exponent)):
            compare(compare.oracle("pow", bases, form), theirs[:, column], "torch", rtol=1e-15, atol=0)
            one = compare.oracle("pow", bases[5:6], form)
            compare(one, theirs[5:6, column], "torch", rtol=1e-15, atol=0)
    numbers = [(2.0, 0.5), (1.0000001, 3e8), (7.3, -300.0), (1e-300, 1.05), (0.1, 3.0), (3.3, 17.0), (1e20, -2.0)]
    with mpmath.workdps(60):
        exact = [float(mpmath.mpf(x) ** mpmath.mpf(e)) for x, e in numbers]
    compare(compare.oracle("pow", *np.array(numbers).T), exact, "mpmath", rtol=4e-16, atol=0)
    squares = np.random.default_rng(7).standard_normal(99)
    with mpmath.workprec(53):
        compare(compare.oracle("pow", squares, 2), [float(mpmath.mpf(v) ** 2) for v in squares], "mpmath", rtol=0)


@independent("pow@1")
def powers_of_integers(compare: Comparer) -> None:
    for dtype in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "int4", "uint4"):
        x, e = extremes(dtype), integers([0, 1, 2, 3, 7], dtype)
        exact = [[int(v) ** int(k) for k in e.tolist()] for v in x.tolist()]
        compare(compare.oracle("pow", x[:, None], e), wrapped(exact, dtype), "Python", rtol=0)
        if dtype in TORCH:
            compare(compare.oracle("pow", x[:, None], e), torch.pow(as_torch(x[:, None]), as_torch(e)), "torch", rtol=0)
    x, e = np.array([-7, 3], np.int8), np.array([5, 40], np.int32)
    compare(compare.oracle("pow", x, e), wrapped([(-7) ** 5, 3**40], "int32"), "Python", rtol=0)
    assert dtypes.of_numpy(compare.oracle("pow", x, e).dtype).name == "int32"
