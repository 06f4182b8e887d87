"""The host's elementwise kernels, against torch in float64."""

import operator

import hosted
import mpmath
import numpy as np
import pytest
import torch
from hosted import FLOATS, LAYOUTS, check, laid_out, run, special, wide
from running import share, values

from nbx_registry import dtypes
from nbx_registry.host.kernels.gaussian import gelu_float32
from nbx_registry.rounding import integer_range

OPERATIONS = {
    "add": torch.add,
    "subtract": torch.subtract,
    "multiply": torch.multiply,
    "divide": torch.divide,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
}


@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "divide"])
def test_plain_dtypes_run_numpy_itself(op: str) -> None:
    program, _ = hosted.bind(op, "float32[63]", "float32[63]")
    assert program.function is getattr(np, op)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", OPERATIONS)
def test_arithmetic_rounds_once(op: str, dtype: str) -> None:
    a, b = values((7, 1, 33), dtype, 1), values((3, 33), dtype, 2)
    check(run(op, a, b), OPERATIONS[op](wide(a), wide(b)), ulp=0.5)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", OPERATIONS)
def test_arithmetic_of_special_values(op: str, dtype: str) -> None:
    a, b = special(dtype)[:, None], special(dtype)
    expected = OPERATIONS[op](wide(a), wide(b))
    if dtype == "float32":
        expected = expected.float().double()  # what overflows there
    check(run(op, a, b), expected, ulp=0.5, absolute=1e-44)


@pytest.mark.parametrize("pair", [("float16", "float32"), ("bfloat16", "float32"), ("bfloat16", "float64")])
def test_mixed_dtypes_are_added_in_the_wider(pair: tuple[str, str]) -> None:
    a, b = values((5, 7), pair[0], 1), values((7,), pair[1], 2)
    found = run("add", a, b)
    assert dtypes.of_numpy(found.dtype).name == pair[1]
    check(found, wide(a) + wide(b), ulp=0.5)


INTEGERS = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "maximum": max,
    "minimum": min,
}


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "uint64", "int4", "uint4"])
@pytest.mark.parametrize("op", INTEGERS)
def test_integers_wrap_around(op: str, dtype: str) -> None:
    table = dtypes.get(dtype)
    low, high = integer_range(table)
    numbers = [low, high, high - 1, low + 1, 3]
    wanted = [INTEGERS[op](a, b) for a in numbers for b in numbers]
    wrapped = [(v - low) % (high - low + 1) + low for v in wanted]
    array = np.array(numbers, np.int64 if low else np.uint64).astype(table.numpy)
    found = run(op, array[:, None], array)
    assert [int(v) for v in found.ravel()] == wrapped


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint64", "int4", "uint4"])
def test_signs_of_integers_wrap_around(dtype: str) -> None:
    table = dtypes.get(dtype)
    low, high = integer_range(table)
    numbers = [low, high, low + 1, 3]
    for op, one in (("negative", operator.neg), ("abs", abs), ("relu", lambda v: max(v, 0))):
        found = run(op, np.array(numbers, np.int64 if low else np.uint64).astype(table.numpy))
        assert [int(v) for v in found] == [(one(v) - low) % (high - low + 1) + low for v in numbers], op


@pytest.mark.parametrize("dtype", [*FLOATS, "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float4_e2m1fn"])
@pytest.mark.parametrize("op", ["negative", "abs", "relu"])
def test_what_only_chooses_or_changes_a_sign_is_exact(op: str, dtype: str) -> None:
    bits = {8: np.uint8, 4: np.uint8, 16: np.uint16}.get(dtypes.get(dtype).bits)
    if bits is None:
        x = special(dtype)
    else:  # every number there is
        x = np.arange(16 if dtypes.get(dtype).bits == 4 else 2 ** dtypes.get(dtype).bits, dtype=np.uint32)
        x = x.astype(bits).view(dtypes.get(dtype).numpy)
    assert share(op, run(op, x), x) == 0


def test_complex_numbers() -> None:
    x, y = values((7, 5), "complex64", 1), values((5,), "complex64", 2)
    np.testing.assert_array_equal(run("subtract", x, y), x - y)
    np.testing.assert_array_equal(run("negative", x), -x)
    found = run("abs", np.append(x.ravel() * np.float32(1e30), np.complex64(complex(np.inf, np.nan))))
    np.testing.assert_allclose(found, np.append(np.abs(x.ravel().astype(complex)) * 1e30, np.inf), rtol=3e-7)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
def test_a_python_scalar_takes_the_arrays_dtype_before_it_counts(dtype: str) -> None:
    numpy_dtype = dtypes.get(dtype).numpy
    a = np.array([1.0, 3.0, 0.5]).astype(numpy_dtype)
    scalar = 0.1  # in neither format
    check(run("multiply", a, scalar), wide(a) * float(numpy_dtype.type(scalar)), ulp=0.5)


@pytest.mark.parametrize("dtype", FLOATS)
def test_sqrt(dtype: str) -> None:
    x = np.abs(values((5, 63), dtype, 3))
    check(run("sqrt", x), torch.sqrt(wide(x)), ulp=1 if dtype == "float64" else 0.5)  # torch's may be off by one itself


@pytest.mark.parametrize("form", ["none", "tanh"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_gelu(dtype: str, form: str) -> None:
    # 20,003 elements: more than a block, and no multiple of one.
    x = values((20_003,), dtype, 4, scale=4)
    truth = torch.nn.functional.gelu(wide(x), approximate=form)
    relative = 4e-16 if dtype == "float64" else 2e-7
    # Half a unit of the narrow dtypes' last place, at the worst end of a binade.
    rounding = {"float16": 2.0**-11, "bfloat16": 2.0**-8}.get(dtype, 0)
    least = 2.0**-25 if dtype == "float16" else 0
    off = np.abs(run("gelu", x, approximate=form).astype(np.float64) - truth.numpy())
    assert np.all(off <= rounding * np.abs(truth.numpy()) + relative * np.abs(x.astype(np.float64)) + least)


def test_gelu_keeps_its_digits_far_below_zero() -> None:
    x = np.linspace(-12, 0, 4001, endpoint=False, dtype=np.float32)
    # erfc, because torch's own gelu loses them: it adds 1 to an erf close to -1.
    z = wide(x)
    truth = (0.5 * z * torch.erfc(-z / 2**0.5)).numpy()
    off = np.abs(run("gelu", x).astype(np.float64) - truth) / np.abs(truth)
    assert np.all(off <= 5e-7 * (1 + x.astype(np.float64) ** 2 / 2))


def test_gelu_of_float64_keeps_its_digits_far_below_zero() -> None:
    x = np.linspace(-36, 0, 201, endpoint=False)
    truth = [float(mpmath.mpf(v) * mpmath.ncdf(v)) for v in x.tolist()]
    np.testing.assert_allclose(run("gelu", x), truth, rtol=1.5e-15)


@pytest.mark.parametrize("form", ["none", "tanh"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_a_gelu_of_zero_has_the_sign_of_its_argument(dtype: str, form: str) -> None:
    x = np.array([-0.0, 0.0, -60_000.0, -300.0, 1e-3]).astype(dtype)
    found = run("gelu", x, approximate=form)
    assert not found[:4].any()
    assert np.signbit(found).tolist() == [True, False, True, True, False]
    run("gelu", x, approximate=form, out=x)
    np.testing.assert_array_equal(np.signbit(x), np.signbit(found))


@pytest.mark.parametrize("form", ["none", "tanh"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_gelu_of_special_values(dtype: str, form: str) -> None:
    x = special(dtype)
    found = run("gelu", x, approximate=form).astype(np.float64)
    # NaN, inf, -inf times 0, both zeros
    np.testing.assert_array_equal(found[:5], [np.nan, np.inf, np.nan, 0, 0])
    if dtype != "float16":  # which these are beyond
        np.testing.assert_allclose(found[6], float(x[6]))
        assert found[7] == 0


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gelu_of_views(layout: str) -> None:
    x = laid_out(values((33, 65), "float32", 5), layout)
    check(run("gelu", x), torch.nn.functional.gelu(wide(x)), ulp=1, absolute=5e-7)


@pytest.mark.parametrize("shape", [(0,), (3, 0), ()])
def test_gelu_of_any_shape(shape: tuple[int, ...]) -> None:
    x = values(shape, "float32", 6)
    assert run("gelu", x).shape == shape


def test_gelu_in_place_and_over_a_shifted_view_of_itself() -> None:
    x = values((40_000,), "float32", 7)
    expected = run("gelu", x)
    room = np.concatenate([x, x[:1]])
    run("gelu", room[:-1], out=room[1:])
    np.testing.assert_array_equal(room[1:], expected)
    run("gelu", x, out=x)
    np.testing.assert_array_equal(x, expected)


def test_a_block_of_gelu_in_place_is_the_block_apart() -> None:
    x = values((100,), "float32", 8)
    apart = np.empty_like(x)
    scratch = np.empty((3, 128), np.float32)
    gelu_float32(x, apart, scratch)
    gelu_float32(x, x, scratch)
    np.testing.assert_array_equal(x, apart)
