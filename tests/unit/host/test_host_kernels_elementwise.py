"""The host's elementwise kernels, against torch in float64."""

import hosted
import mpmath
import numpy as np
import pytest
import torch
from hosted import FLOATS, LAYOUTS, check, laid_out, run, special, wide
from running import values

from nbx_registry import dtypes
from nbx_registry.host.kernels.gaussian import gelu_float32
from nbx_registry.rounding import integer_range

OPERATIONS = {"add": torch.add, "multiply": torch.multiply, "divide": torch.divide}


@pytest.mark.parametrize("op", ["add", "multiply", "divide"])
def test_plain_dtypes_run_numpy_itself(op: str) -> None:
    program, _ = hosted.bind(op, "float32[63]", "float32[63]")
    assert program.function is getattr(np, op)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", OPERATIONS)
def test_arithmetic_rounds_once(op: str, dtype: str) -> None:
    a, b = values((7, 1, 33), dtype, 1), values((3, 33), dtype, 2)
    check(run(op, a, b), OPERATIONS[op](wide(a), wide(b)), ulp=0.5)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's own functions report what IEEE 754 answers
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


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "int4", "uint4"])
@pytest.mark.parametrize("op", ["add", "multiply"])
def test_integers_wrap_around(op: str, dtype: str) -> None:
    table = dtypes.get(dtype)
    low, high = integer_range(table)
    numbers = [low, high, high - 1, low + 1, 3]
    wanted = [(a + b if op == "add" else a * b) for a in numbers for b in numbers]
    wrapped = [(v - low) % (high - low + 1) + low for v in wanted]
    array = np.array(numbers).astype(table.numpy)
    found = run(op, array[:, None], array)
    assert [int(v) for v in found.ravel()] == wrapped


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
