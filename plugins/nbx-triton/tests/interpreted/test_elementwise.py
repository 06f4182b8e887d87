"""add, multiply, divide, sqrt, gelu, astype."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from nbx_registry import dtypes
from nbx_registry.rounding import integer_range

FLOATS = ["float16", "bfloat16", "float32", "float64"]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", ["add", "multiply", "divide"])
def test_floating_operands_broadcast(check: Callable, normal: Callable, op: str, dtype: str) -> None:
    check(f"nbx-triton/{op}/strided", normal(dtype, 3, 65, 7), normal(dtype, 65, 1))


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", ["add", "multiply"])
def test_integers_wrap(run: Callable, rng: np.random.Generator, op: str, dtype: str) -> None:
    low, high = integer_range(dtypes.get(dtype))
    x, y = (rng.integers(low, high, 129, dtype, endpoint=True) for _ in range(2))
    (out,) = run(f"nbx-triton/{op}/dense", x, y)
    np.testing.assert_array_equal(out, x + y if op == "add" else x * y)


@pytest.mark.parametrize("dtypes", [("float16", "float32"), ("float64", "bfloat16"), ("int8", "uint16")], ids=str)
def test_dtypes_promote(check: Callable, normal: Callable, dtypes: tuple[str, str]) -> None:
    check("nbx-triton/add/dense", normal(dtypes[0], 63, scale=9), np.abs(normal(dtypes[1], 63, scale=9)))


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_scalar_takes_the_arrays_dtype_first(check: Callable, normal: Callable, dtype: str) -> None:
    check("nbx-triton/multiply/dense", normal(dtype, 5, 13), 0.1)
    check("nbx-triton/divide/dense", 3, normal(dtype, 5, 13))


@pytest.mark.parametrize("op", ["multiply", "pow", "maximum"])
def test_a_scalar_of_zero_keeps_its_sign(run: Callable, op: str) -> None:
    (found,) = run(f"nbx-triton/{op}/dense", -0.0, np.array([1.0, 3.0], np.float32))
    (zero,) = run(f"nbx-triton/{op}/dense", 0.0, np.array([1.0, 3.0], np.float32))
    assert np.signbit(found).all() == (op != "maximum")
    assert not np.signbit(zero).any()


def test_a_scalar_beside_integers_is_exact(check: Callable) -> None:
    check("nbx-triton/multiply/dense", np.array([2**62 - 1, -5], np.int64), 2**61 + 1)


@pytest.mark.parametrize("layout", ["transposed", "stepped", "expanded", "reversed", "rank 6"])
def test_any_strides(check: Callable, normal: Callable, layout: str) -> None:
    x, y = {
        "transposed": lambda: (normal("float32", 33, 65).T, normal("float32", 65, 33)),
        "stepped": lambda: (normal("float32", 33, 65)[::2, ::3], normal("float32", 17, 22)),
        "expanded": lambda: (np.broadcast_to(normal("float32", 1, 65), (33, 65)), normal("float32", 33, 65)),
        "reversed": lambda: (normal("float32", 33, 65)[::-1, ::-1], normal("float32", 33, 65)),
        "rank 6": lambda: (
            normal("float32", 2, 3, 1, 5, 2, 3).transpose(5, 0, 3, 1, 4, 2),
            normal("float32", 3, 2, 5, 3, 2, 1)[::-1],
        ),
    }[layout]()
    check("nbx-triton/add/strided", x, y)


def test_division_meets_zeros_and_infinities(check: Callable) -> None:
    x = np.array([1, -1, 0, np.inf, np.nan, 3, 1e-45], np.float32)
    check("nbx-triton/divide/dense", x, np.array([0, 0, 0, np.inf, 1, -0.0, 3], np.float32))


@pytest.mark.parametrize("dtype", FLOATS)
def test_sqrt(check: Callable, normal: Callable, dtype: str) -> None:
    special = np.array([-0.0, 0.0, -1, np.inf, np.nan, 1e-40], dtypes.get(dtype).numpy)
    check("nbx-triton/sqrt/dense", np.concatenate([special, np.abs(normal(dtype, 123))]))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu(check: Callable, normal: Callable, approximate: str, dtype: str) -> None:
    special = np.array([-0.0, np.inf, np.nan, -50, 50, -9, 9, -1e-30], dtypes.get(dtype).numpy)
    check("nbx-triton/gelu/dense", np.concatenate([special, normal(dtype, 121, scale=4)]), approximate=approximate)


def test_gelu_keeps_its_digits_far_below_zero(run: Callable) -> None:
    import math

    x = np.linspace(-13, 0, 129, dtype=np.float32)
    (out,) = run("nbx-triton/gelu/dense", x)
    wanted = np.array([v / 2 * math.erfc(-v / math.sqrt(2)) for v in x.tolist()])
    np.testing.assert_allclose(out, wanted, rtol=6e-7, atol=1e-45)


# Halfway between neighbours of the 16-bit formats, once exactly and once with a last bit beyond float32.
_TIES = [1 + 2**-11, 1 + 2**-11 + 2**-40, 1 + 2**-8, 1 + 2**-8 + 2**-33, 65519.99, 65520, 65504, 2**-25, 2**-25 * 1.1]
_FLOATS = np.array([*_TIES, 0, -0.0, np.inf, -np.inf, np.nan, 1e30, 3.4e38, 3.3961e38, 1e300, 1e-310, 0.7, -0.7, 127.9])


@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize("target", [*FLOATS, "bool"])
@pytest.mark.parametrize("source", FLOATS)
def test_floats_to_floats(check: Callable, source: str, target: str, saturate: bool) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        x = _FLOATS.astype(dtypes.get(source).numpy)
    check("nbx-triton/astype/dense", np.concatenate([x, -x]), dtype=target, saturate=saturate)


@pytest.mark.parametrize("target", INTEGERS)
@pytest.mark.parametrize("source", FLOATS)
def test_floats_to_integers_saturate(check: Callable, source: str, target: str) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        x = np.concatenate([_FLOATS, [255.5, 3e9, 9.3e18, 2e19]]).astype(dtypes.get(source).numpy)
    check("nbx-triton/astype/dense", np.concatenate([x, -x]), dtype=target, saturate=True)


@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize("target", [*FLOATS, *INTEGERS, "bool"])
@pytest.mark.parametrize("source", ["int8", "int64", "uint64", "uint32", "bool"])
def test_from_integers(check: Callable, rng: np.random.Generator, source: str, target: str, saturate: bool) -> None:
    low, high = integer_range(dtypes.get(source))
    ties = [2**24 + 1, 2**53 + 1, 257 * 2**40 + 1, 2**62 + 2**54 + 1, 70000, 65520, 255, 128]
    drawn = [int(v) for v in (rng.random(40) - 0.5) * 2.0 ** rng.integers(1, 65, 40)]
    numbers = [v for v in (*ties, *drawn, low, high, 0) if low <= v <= high]
    check("nbx-triton/astype/dense", np.array(numbers, source), dtype=target, saturate=saturate)


@pytest.mark.parametrize("op", ["sqrt", "gelu"])
def test_functions_read_through_strides(check: Callable, normal: Callable, op: str) -> None:
    check(f"nbx-triton/{op}/strided", np.abs(normal("float16", 33, 65)).T[::2])
    check(f"nbx-triton/{op}/strided", np.abs(normal("float32", 3, 5, 7)).transpose(2, 0, 1))


@pytest.mark.parametrize("count", [1, 17, 8193])
def test_conversions_end_anywhere(check: Callable, normal: Callable, count: int) -> None:
    check("nbx-triton/astype/dense", normal("float16", count), dtype="float32")
    check("nbx-triton/astype/dense", normal("float64", count), dtype="bool")


def test_astype_reads_through_strides(check: Callable, normal: Callable) -> None:
    check("nbx-triton/astype/strided", normal("float32", 33, 65).T[::2], dtype=ml_dtypes.bfloat16.__name__)
