"""Pointwise kernels, dense and strided, and the elementary functions they are made of."""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from nbx_registry import dtypes
from nbx_registry.rounding import integer_range

FLOATS = ["float16", "bfloat16", "float32", "float64"]
VARIANTS = ["dense", "strided"]
SPECIAL = [-0.0, 0.0, -1, 1, np.inf, -np.inf, np.nan, 5e-39, -5e-39, 65504, 3e38]


def numbers(dtype: str) -> np.ndarray:
    """Return special values and a thousand from -9 to 9."""
    with np.errstate(over="ignore"):
        return np.concatenate([SPECIAL, np.linspace(-9, 9, 989)]).astype(dtypes.get(dtype).numpy)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "op", ["abs", "negative", "relu", "reciprocal", "rsqrt", "exp", "log", "tanh", "sigmoid", "erf", "silu"]
)
def test_functions_of_one_operand(check: Callable, op: str, dtype: str) -> None:
    check(f"nbx-triton/{op}/dense", numbers(dtype))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("op", "attributes"), [("sigmoid", {}), ("silu", {}), ("gelu", {}), ("gelu", {"approximate": "tanh"})]
)
def test_functions_of_every_number_of_16_bits(check: Callable, op: str, attributes: dict, dtype: str) -> None:
    check(f"nbx-triton/{op}/dense", np.arange(2**16, dtype=np.uint16).view(dtypes.get(dtype).numpy), **attributes)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("op", ["exp", "negative"])
def test_one_operand_of_any_strides(check: Callable, normal: Callable, op: str, dtype: str) -> None:
    check(f"nbx-triton/{op}/strided", normal(dtype, 33, 65).T[::2])


def test_tiles_cover_rows_and_columns_of_any_size(check: Callable, normal: Callable) -> None:
    check("nbx-triton/negative/strided", normal("float32", 3, 2100)[:, 1:])
    check("nbx-triton/relu/strided", normal("float32", 3, 7, 130, 5).transpose(3, 0, 2, 1))
    check("nbx-triton/subtract/strided", normal("float16", 2000, 3)[::-1], normal("float16", 3))


@pytest.mark.parametrize("count", [16, 15, 4096, 4097, 8191])
def test_dense_ends_anywhere(check: Callable, normal: Callable, count: int) -> None:
    check("nbx-triton/negative/dense", normal("float16", count))
    check("nbx-triton/arange/products", start=count, dtype="int32")


def test_offsets_of_64_bits(check: Callable, normal: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nbx_triton.kernels.walk.NARROW", 100)
    monkeypatch.setattr("nbx_triton.kernels.arange.NARROW", 100)
    check("nbx-triton/relu/dense", normal("float16", 5003))
    check("nbx-triton/relu/strided", normal("float32", 129, 66).T)
    check("nbx-triton/arange/products", start=5003, dtype="float32")


def sweep(name: str) -> np.ndarray:
    """Return float32 numbers evenly over all bit patterns, and densely where the function bends."""
    bits = np.arange(0x200, 0x7F800000, 0x7F800000 // 20_000 | 1, np.uint32).view(np.float32)
    low, high = {"exp": (-104, 89), "log": (0.4, 2.5), "tanh": (-10, 10), "erf": (-4.1, 4.1)}[name]
    near = np.linspace(low, high, 20_001, dtype=np.float32)
    return np.concatenate([bits, near]) if name == "log" else np.concatenate([bits, -bits, near])


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf"])
def test_errors_are_what_the_functions_say(run: Callable, name: str) -> None:
    x = sweep(name)
    (got,) = run(f"nbx-triton/{name}/dense", x)
    exact = np.vectorize(getattr(math, name), otypes=[np.float64]) if name == "erf" else getattr(np, name)
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = exact(x.astype(np.float64))
        rounded = wanted.astype(np.float32)
        ulp = np.spacing(np.abs(rounded)).astype(np.float64)
        error = np.where(np.isinf(rounded), got != rounded, np.abs(got.astype(np.float64) - wanted) / ulp)
    assert error.max() <= {"exp": 1.2, "log": 0.9}.get(name, 1.4)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("op", ["maximum", "minimum", "subtract"])
def test_every_special_value_beside_every_other(check: Callable, op: str, variant: str) -> None:
    x, y = np.meshgrid(np.array(SPECIAL, np.float32), np.array(SPECIAL, np.float32))
    check(f"nbx-triton/{op}/{variant}", np.ascontiguousarray(x), np.ascontiguousarray(y))


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8", "uint64"])
@pytest.mark.parametrize("op", ["subtract", "maximum", "minimum"])
def test_integers_of_two_operands(check: Callable, rng: np.random.Generator, op: str, dtype: str) -> None:
    low, high = integer_range(dtypes.get(dtype))
    x, y = (rng.integers(low, high, 129, dtype, endpoint=True) for _ in range(2))
    check(f"nbx-triton/{op}/dense", x, y)


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint16", "uint64"])
@pytest.mark.parametrize("op", ["abs", "negative", "relu"])
def test_integers_at_the_ends_of_their_range(check: Callable, op: str, dtype: str) -> None:
    low, high = integer_range(dtypes.get(dtype))
    check(f"nbx-triton/{op}/dense", np.array([low, high, 0, 1, high - 1, low + 1], dtype))


@pytest.mark.parametrize("types", [("float16", "float32"), ("bfloat16", "float64"), ("int8", "uint16")], ids=str)
@pytest.mark.parametrize("variant", VARIANTS)
def test_dtypes_promote(check: Callable, normal: Callable, variant: str, types: tuple[str, str]) -> None:
    x, y = (np.abs(normal(dtype, 3, 129, scale=9)) for dtype in types)
    check(f"nbx-triton/subtract/{variant}", x, y)


def test_operands_broadcast(check: Callable, normal: Callable) -> None:
    check("nbx-triton/maximum/strided", normal("float16", 5, 1, 63), normal("float16", 7, 1))
    check("nbx-triton/minimum/strided", normal("float32", 2, 65).T, normal("float32", 1))


def test_a_number_is_rounded_once(run: Callable) -> None:
    # float32 would make a tie of it, whose even neighbour is 1.
    number = 1 + 2**-8 + 2**-40
    x = np.zeros(17, ml_dtypes.bfloat16)
    for variant in VARIANTS:
        (out,) = run(f"nbx-triton/maximum/{variant}", x, number)
        assert out.astype(np.float64).tolist() == [1 + 2**-7] * 17


@pytest.mark.parametrize("variant", VARIANTS)
def test_clip_takes_bounds_of_every_kind(check: Callable, variant: str) -> None:
    x = numbers("float32")
    bound = np.roll(x, 3)
    for low, high in ((-0.5, None), (None, 0.5), (None, None), (0.75, -0.25), (bound, 1.0), (-1.0, bound)):
        check(f"nbx-triton/clip/{variant}", x, low, high)
    check(f"nbx-triton/clip/{variant}", np.arange(-128, 128, dtype=np.int8), -100, 99)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", ["bool", "int16", "float32", "float64", "complex64", "float8_e4m3fn"])
def test_where_copies_bits(run: Callable, rng: np.random.Generator, dtype: str, variant: str) -> None:
    own = dtypes.get(dtype)
    high = 2 if dtype == "bool" else 256
    x, y = (rng.integers(0, high, 129 * own.itemsize, np.uint8).view(own.numpy) for _ in range(2))
    condition = rng.integers(0, 2, 129).astype(bool)
    (out,) = run(f"nbx-triton/where/{variant}", condition, x, y)
    unsigned = f"u{own.itemsize}"
    np.testing.assert_array_equal(
        out.view(unsigned), np.where(condition, x.view(unsigned), y.view(unsigned)), strict=True
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_where_promotes_and_takes_numbers(check: Callable, normal: Callable, variant: str) -> None:
    condition = normal("float32", 129) > 0
    check(f"nbx-triton/where/{variant}", condition, normal("float16", 129), normal("float32", 129))
    check(f"nbx-triton/where/{variant}", condition, 0.1, normal("bfloat16", 129))
    check(f"nbx-triton/where/{variant}", condition, np.arange(129, dtype=np.uint64), 2**63 + 1)


def test_signs_of_float8_and_complex_numbers_change(check: Callable, rng: np.random.Generator) -> None:
    x = rng.integers(0, 256, 256, np.uint8).view(ml_dtypes.float8_e4m3fn)
    check("nbx-triton/negative/dense", x)
    check("nbx-triton/abs/dense", x)
    check("nbx-triton/negative/dense", np.array([1 - 2j, -0.0 + 3j, complex(np.inf, -0.0)], np.complex64))


@pytest.mark.parametrize("variant", VARIANTS)
def test_full_rounds_its_value_once(check: Callable, variant: str) -> None:
    for dtype, value in (("bfloat16", 1 + 2**-8 + 2**-40), ("float8_e5m2", 0.1), ("complex64", -7.5), ("int8", -128)):
        check(f"nbx-triton/full/{variant}", shape=(3, 129), fill_value=value, dtype=dtype)


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float16", "float32", "float64"])
def test_arange(check: Callable, dtype: str) -> None:
    check("nbx-triton/arange/products", start=200, stop=-1, step=-3, dtype=dtype)
    if dtype.startswith("float"):
        check("nbx-triton/arange/products", start=-1.5, stop=12.9, step=0.1, dtype=dtype)


def test_arange_of_numbers_that_no_signed_dtype_holds(check: Callable) -> None:
    check("nbx-triton/arange/products", start=2**64 - 1, stop=2**64 - 128, step=-1, dtype="uint64")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_progression_that_begins_far_from_0_passes_it_exactly(check: Callable, dtype: str) -> None:
    check("nbx-triton/arange/products", start=-1e9, stop=1e9, step=1000000.3, dtype=dtype)
    check("nbx-triton/arange/products", start=-(2**31) + 1, stop=2**31, step=2**20 - 3, dtype=dtype)
