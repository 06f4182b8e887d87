"""Arrays of several libraries in one call: which one the result is in, scalars of NumPy, what is only read."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import nbx_registry as nbx
from nbx_registry import tensor
from nbx_registry.errors import SignatureError

MAKE: dict[str, Callable[[np.ndarray], Any]] = {
    "numpy": np.array,
    "torch": torch.tensor,
    "nbx": lambda x: tensor.asarray(x, copy=True),
    "jax": jnp.asarray,
    "read-only": lambda x: frozen(x.copy()),
    "scalar": lambda x: x.ravel()[0],
}
RESULT: dict[str, type] = {"numpy": np.ndarray, "torch": torch.Tensor, "nbx": nbx.Tensor, "jax": nbx.Tensor}
RESULT |= {"read-only": np.ndarray, "scalar": np.ndarray}


def frozen(x: np.ndarray) -> np.ndarray:
    x.flags.writeable = False
    return x


def elements(x: Any) -> np.ndarray:
    return np.asarray(x.numpy() if hasattr(x, "numpy") else x)


@pytest.fixture(scope="module")
def reg() -> nbx.Registry:
    return nbx.load(require="any")


@pytest.mark.parametrize(("first", "second"), list(itertools.product(MAKE, repeat=2)))
def test_the_first_array_decides_and_out_overrides_it(first: str, second: str, reg: nbx.Registry) -> None:
    x = np.arange(7, dtype=np.float32) + 3
    a, b = MAKE[first](x), MAKE[second](x)
    wide = [x[0] if name == "scalar" else x for name in (first, second)]
    found = reg.call("multiply", a, b)
    assert type(found) is RESULT[first]
    assert elements(found).tolist() == (wide[0] * wide[1]).tolist()
    for name in ("numpy", "torch", "nbx"):
        out = MAKE[name](np.zeros_like(wide[0] * wide[1]))
        assert reg.call("multiply", a, b, out=out) is out
        assert elements(out).tolist() == elements(found).tolist()
    assert elements(a).tolist() == wide[0].tolist()


def test_three_libraries_in_one_call(reg: nbx.Registry) -> None:
    mask, x, y = jnp.asarray([True, False, True]), torch.ones(3), np.zeros(3, np.float32)
    assert elements(reg.call("where", mask, x, y)).tolist() == [1, 0, 1]
    joined = reg.call("where", torch.tensor([True, False, True]), jax.device_put(y), tensor.asarray(y))
    assert type(joined) is torch.Tensor


def test_scalars_of_numpy_have_dtypes_of_their_own(reg: nbx.Registry) -> None:
    x = np.ones(3, np.float32)
    assert reg.call("add", x, 1.0).dtype == np.float32
    for scalar in (np.float64(1), np.float32(1), np.int32(1), np.bool(True)):
        request = ("add", x, scalar)
        try:
            found = reg.call(*request).dtype
        except SignatureError:
            with pytest.raises(SignatureError):
                reg.decide(*request)
        else:
            # Asked about and called, they are the same.
            assert found == np.result_type(x.dtype, scalar.dtype)
            assert f"x2: {scalar.dtype.name}[]" in reg.decide(*request).request


def test_what_is_read_only_goes_in_and_does_not_come_out(reg: nbx.Registry) -> None:
    x = frozen(np.ones(3, np.float32))
    assert reg.call("add", x, x).tolist() == [2, 2, 2]
    for _ in range(2):
        with pytest.raises(SignatureError, match="out= is read-only"):
            reg.call("add", x, x, out=frozen(np.ones(3, np.float32)))
    pool = frozen(np.zeros((1, 1, 4, 2), np.float32))
    with pytest.raises(SignatureError, match="pool is written in place, but it is read-only"):
        reg.call("paged_kv_append", np.ones((1, 1, 2), np.float32), np.array([0], np.int32), pool)


@pytest.mark.parametrize("other", [torch.ones(3, requires_grad=True), np.ones(3, ">f4"), np.ma.masked_array([1.0] * 3)])
def test_one_bad_array_refuses_the_call_by_name(other: Any, reg: nbx.Registry) -> None:
    with pytest.raises(SignatureError, match=r"detach|byte-swapped|filled"):
        reg.call("add", np.ones(3, np.float32), other)
