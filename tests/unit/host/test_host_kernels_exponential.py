"""The host's powers, roots, exponentials and activations: within the contract's bounds of the oracle."""

from __future__ import annotations

import itertools
from typing import Any

import hosted
import numpy as np
import pytest
from hosted import FLOATS, LAYOUTS, laid_out, run
from running import oracle, share, values

from nbx_registry import dtypes
from nbx_registry.host.kernels.gaussian import erf

ELEMENTARY = ["reciprocal", "sqrt", "rsqrt", "exp", "log", "tanh", "erf", "sigmoid", "silu"]
EDGES = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 3e38, -3e38, 0.5, 88.5, -88.5, -100.0, -745.0]


def numbers(dtype: str, count: int = 20_003) -> np.ndarray:
    """Return numbers over many binades and near zero, and edges: more than a block."""
    rng = np.random.default_rng([5, count])
    wide = np.exp2(rng.uniform(-40, 20, count)) * np.where(rng.random(count) < 0.5, -1, 1)
    with np.errstate(all="ignore"):
        return np.concatenate([wide, rng.uniform(-110, 110, count), EDGES]).astype(dtypes.get(dtype).numpy)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", ELEMENTARY)
def test_elementary_functions_are_within_their_bounds(op: str, dtype: str) -> None:
    x = numbers(dtype)
    assert share(op, run(op, x), x) <= 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("op", ELEMENTARY)
def test_of_every_narrow_number_the_result_is_rounded_once(op: str, dtype: str) -> None:
    table = dtypes.get(dtype)
    x = np.arange(2**table.bits, dtype=np.uint32).astype(np.uint16 if table.bits == 16 else np.uint8).view(table.numpy)
    assert share(op, run(op, x), x) <= 1


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("op", [*ELEMENTARY, "relu", "negative", "abs"])
def test_views(op: str, layout: str) -> None:
    x = laid_out(values((33, 65), "float32", 5), layout)
    np.testing.assert_array_equal(run(op, x), run(op, np.ascontiguousarray(x)))


@pytest.mark.parametrize("op", [*ELEMENTARY, "relu", "negative", "abs"])
def test_in_place_and_over_a_shifted_view(op: str) -> None:
    x = values((40_000,), "float32", 7)
    expected = run(op, x)
    room = np.concatenate([x, x[:1]])
    run(op, room[:-1], out=room[1:])
    np.testing.assert_array_equal(room[1:], expected)
    run(op, x, out=x)
    np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1, 1)])
@pytest.mark.parametrize("op", [*ELEMENTARY, "relu", "negative", "abs"])
def test_any_shape(op: str, shape: tuple[int, ...]) -> None:
    x = np.abs(values(shape, "float32", 6))
    found = run(op, x)
    assert found.shape == shape
    assert share(op, found, x) <= 1


def test_a_block_of_erf_in_place_is_the_block_apart() -> None:
    x = np.concatenate([values((99,), "float32", 8), [np.float32(np.nan)]])
    apart = np.empty_like(x)
    scratch = np.empty((3, 128), np.float32)
    erf(x, apart, scratch)
    erf(x, x, scratch)
    np.testing.assert_array_equal(x, apart)


# pow ------------------------------------------------------------------------------------------------------------------

BASES = [*EDGES, -2.0, 3.0, 1e20, -1e20, 65504.0]
EXPONENTS = [0.0, -0.0, 1.0, 2.0, 3.0, 8.0, 9.0, -1.0, -2.0, -3.0, 0.5, -0.5, 2.5, 1e9, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize("dtype", [*FLOATS, "float8_e5m2"])
def test_powers_of_special_values(dtype: str) -> None:
    with np.errstate(all="ignore"):
        x, e = (np.array(each).astype(dtypes.get(dtype).numpy) for each in (BASES, EXPONENTS))
    assert share("pow", run("pow", x[:, None], e), x[:, None], e) <= 1
    for one in e:
        # One exponent for all goes another way.
        assert share("pow", run("pow", x, float(one)), x, float(one)) <= 1, one
        assert share("pow", run("pow", x, np.array(one)), x, np.array(one)) <= 1, one
    for base, one in itertools.product(x[:6], e):
        assert share("pow", run("pow", np.array(base), np.array(one)), np.array(base), np.array(one)) <= 1


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("e", [0, 1, 2, 3, 4, 5, 7, 8, 9, -1, -2, -3, -8, 0.5, -0.5, 2.5])
def test_powers_by_one_exponent(dtype: str, e: float) -> None:
    x = numbers(dtype)
    assert share("pow", run("pow", x, e), x, e) <= 1


@pytest.mark.parametrize("dtype", FLOATS)
def test_powers_element_by_element(dtype: str) -> None:
    rng = np.random.default_rng(11)
    x = np.exp2(rng.uniform(-6, 6, (3, 20_003))).astype(dtypes.get(dtype).numpy)
    for e in (rng.uniform(-3, 3, x.shape), rng.integers(-9, 10, x.shape), rng.integers(1, 3, (3, 1))):
        exponent = e.astype(x.dtype)
        assert share("pow", run("pow", x, exponent), x, exponent) <= 1


def test_a_scalar_base() -> None:
    e = values((129,), "float32", 3)
    assert share("pow", run("pow", 500_000.0, e), 500_000.0, e) <= 1


@pytest.mark.parametrize(
    ("x_shape", "e_shape"), [((5, 1, 63), (7, 1)), ((63,), (4, 63)), ((), (2, 65)), ((2, 0), (1,))]
)
def test_powers_broadcast(x_shape: tuple[int, ...], e_shape: tuple[int, ...]) -> None:
    x, e = np.abs(values(x_shape, "float16", 1)), values(e_shape, "float32", 2)
    assert share("pow", run("pow", x, e), x, e) <= 1


@pytest.mark.parametrize("layout", LAYOUTS)
def test_powers_of_views(layout: str) -> None:
    x, e = np.abs(values((33, 65), "float32", 1)), values((33, 65), "float32", 2)
    expected = run("pow", np.ascontiguousarray(laid_out(x, layout)), np.ascontiguousarray(laid_out(e, layout)))
    np.testing.assert_array_equal(run("pow", laid_out(x, layout), laid_out(e, layout)), expected)


def test_powers_in_place() -> None:
    x, e = np.abs(values((20_003,), "float32", 1)), values((20_003,), "float32", 2)
    expected = [run("pow", x, e), run("pow", x, e), run("pow", x, 3), run("pow", x, 2.5)]
    for number, (exponent, over) in enumerate([(e, "x"), (e, "e"), (3, "x"), (2.5, "x")]):
        base, given = x.copy(), exponent.copy() if isinstance(exponent, np.ndarray) else exponent
        out = base if over == "x" else given
        run("pow", base, given, out=out)
        np.testing.assert_array_equal(out, expected[number])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint64", "int4", "uint4"])
def test_powers_of_integers_wrap_around(dtype: str) -> None:
    x = np.arange(-7, 8) if dtype.startswith("i") else np.arange(15)
    x, e = x.astype(dtypes.get(dtype).numpy)[:, None], np.arange(8).astype(dtypes.get(dtype).numpy)
    np.testing.assert_array_equal(run("pow", x, e), oracle("pow", x, e))
    np.testing.assert_array_equal(run("pow", x, 5), oracle("pow", x, 5))


# Choices --------------------------------------------------------------------------------------------------------------

CHOSEN = ["bool", "int8", "uint64", "int4", "float16", "bfloat16", "float32", "float64", "complex64", "float8_e4m3fnuz"]


def bits(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    """Return any bit pattern, NaN payloads among them."""
    table = dtypes.get(dtype)
    if table.bits < 8 or table.kind == "bool":
        return values(shape, dtype, seed)
    count = int(np.prod(shape)) * table.itemsize
    return np.frombuffer(np.random.default_rng(seed).bytes(count), np.uint8).view(table.numpy).reshape(shape)


@pytest.mark.parametrize("dtype", CHOSEN)
def test_where_copies_bits(dtype: str) -> None:
    condition = values((7, 1, 5003), "bool", 1)
    x1, x2 = bits((3, 5003), dtype, 2), bits((7, 1, 1), dtype, 3)
    found = run("where", condition, x1, x2)
    expected = np.where(condition, x1, x2)
    assert found.dtype == expected.dtype
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("dtype", "scalar"), [("bfloat16", 0.1), ("float16", 1e9), ("int8", -3), ("complex64", 2), ("bool", True)]
)
def test_where_takes_a_python_scalar(dtype: str, scalar: Any) -> None:
    condition, x = values((129,), "bool", 1), values((129,), dtype, 2)
    for args in ((condition, x, scalar), (condition, scalar, x)):
        np.testing.assert_array_equal(run("where", *args), oracle("where", *args).astype(x.dtype))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_where_of_views_and_in_place(layout: str) -> None:
    condition, x1, x2 = values((33, 65), "bool", 1), values((33, 65), "float32", 2), values((33, 65), "float32", 3)
    views = [laid_out(each, layout) for each in (condition, x1, x2)]
    expected = np.where(*views)
    np.testing.assert_array_equal(run("where", *views), expected)
    if layout != "expanded":
        run("where", *views, out=views[1])
        np.testing.assert_array_equal(views[1], expected)


@pytest.mark.parametrize("dtype", [*FLOATS, "float8_e4m3fn", "int8", "uint64", "int4"])
@pytest.mark.parametrize("bounds", [(1, 3), (1, None), (None, 3), (None, None), (3, 1)])
def test_clip(dtype: str, bounds: tuple[int | None, int | None]) -> None:
    x = values((7, 129), dtype, 4, scale=3)
    assert share("clip", run("clip", x, *bounds), x, *bounds) == 0
    arrays = [None if bound is None else np.array([[bound]] * 7).astype(x.dtype) for bound in bounds]
    assert share("clip", run("clip", x, *arrays), x, *arrays) == 0


def test_clip_propagates_nan_and_runs_in_place() -> None:
    x, least = np.array([1.0, np.nan, 5.0, 9.0], np.float32), np.array([2.0, 0.0, np.nan, 0.0], np.float32)
    expected = [2.0, np.nan, np.nan, 4.0]
    np.testing.assert_array_equal(run("clip", x, least, 4), expected)
    run("clip", x, least, 4, out=least)
    np.testing.assert_array_equal(least, expected)


def test_float16_is_left_to_numpy_only_where_that_computes_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    from numpy.lib import introspect

    for target, plain in (("X86_V4", True), ("AVX512_SPR", False)):
        loops = {"exp": {"ee": {"current": target, "available": target}}}
        monkeypatch.setattr(introspect, "opt_func_info", lambda loops=loops, **_: loops)
        program, _ = hosted.bind("exp", "float16[63]")
        assert (program.function is np.exp) == plain
        x = values((63,), "float16", 2)
        assert share("exp", run("exp", x), x) <= 1
