"""What the host computes is the same whatever NumPy error state its caller has."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import nbx_registry as nbx
from nbx_registry.silence import give, make, silent, take

X = np.array([0.0, -0.0, 3e38, -3e38, 1e-38, np.nan, np.inf, -np.inf, -1.0, 200.0], np.float32)
Y = np.array([1.0, -0.0, np.nan], np.float16)
CALLS: dict[str, Callable[[nbx.Registry], object]] = {
    **{
        op: lambda reg, op=op: reg.call(op, X, X)
        for op in ("add", "subtract", "multiply", "divide", "pow", "maximum", "minimum")
    },
    **{
        op: lambda reg, op=op: reg.call(op, X)
        for op in ("sqrt", "rsqrt", "exp", "log", "tanh", "erf", "reciprocal", "sigmoid", "silu", "relu", "gelu")
    },
    "scalar": lambda reg: reg.call("multiply", Y, 10**300),
    "narrow": lambda reg: reg.call("astype", X, dtype="float16"),
    "out": lambda reg: reg.call("divide", X, X, out=np.empty_like(X)),
    "bound": lambda reg: reg.bind("multiply", X, X)(),
    "tensor": lambda reg: reg.call("divide", nbx.asarray(X), nbx.asarray(X)).numpy(),
    "composite": lambda reg: reg.call("sigmoid", X, kernel="nbx-host/sigmoid/composed"),
}


@pytest.fixture(scope="module")
def reg() -> Iterator[nbx.Registry]:
    return nbx.load(require="any")


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_no_exception_and_no_warning(reg: nbx.Registry, call: Callable[[nbx.Registry], object]) -> None:
    with np.errstate(all="ignore"):
        expected = call(reg)
    for state in ("raise", "warn", "print"):
        with warnings.catch_warnings(), np.errstate(all=state):
            warnings.simplefilter("error")
            np.testing.assert_array_equal(call(reg), expected)
            assert set(np.geterr().values()) == {state}


def test_kernels_inside_of_kernels_and_beside_each_other() -> None:
    states: list[str] = []

    def note() -> None:
        states.append(np.geterr()["over"])

    def nested() -> None:
        note()
        silent(note)()
        note()

    threads = [threading.Thread(target=silent(nested)) for _ in range(4)]
    for thread in threads:
        thread.start()
    silent(nested)()
    for thread in threads:
        thread.join()
    assert states == ["ignore"] * 15
    assert np.geterr()["over"] != "ignore"


def test_what_raised_may_be_entered_again() -> None:
    def fail() -> None:
        raise ValueError("mine")

    for _ in range(3):
        with pytest.raises(ValueError, match="mine"):
            silent(fail)()
    enter = make()
    give(enter)
    assert take() is enter
    assert enter(lambda: np.geterr()["invalid"]) == "ignore"
