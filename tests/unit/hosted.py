"""Host kernels run by themselves, without a registry, and compared with torch in float64."""

from __future__ import annotations

import pkgutil
from typing import Any

import ml_dtypes
import numpy as np
import torch
from running import sign

from nbx_registry import dtypes
from nbx_registry.call import flat
from nbx_registry.host.runtime import host_runtime
from nbx_registry.host.specs import KERNELS
from nbx_registry.kernel import Kernel
from nbx_registry.launch import BindContext
from nbx_registry.op import Op
from nbx_registry.runtime import Slot
from nbx_registry.spec import TensorSpec

HOST = {kernel.op.partition("@")[0]: kernel for kernel in KERNELS if kernel.backend == "numpy"}
POISON = 0x7B
"""Fills outputs before a kernel writes them: neither zero nor a value that tests give."""


def bind(op: Op | str, *tensors: Any, kernel: Kernel | None = None, **attributes: Any) -> Any:
    """Return a kernel's program on the host, and the signature it is bound to."""
    signature = sign(op, *tensors, **attributes)
    kernel = HOST[signature.op.name] if kernel is None else kernel
    device: Any = None  # no kernel of the host reads a device fact
    context = BindContext(kernel=kernel, signature=signature, device=device, settings={})
    bound = pkgutil.resolve_name(str(kernel.bind))(context)
    slots = [Slot(name, spec, "input") for name, spec in signature.slots()]
    return host_runtime().program(0, [bound], slots), signature


def poisoned(spec: TensorSpec) -> np.ndarray:
    return np.full(spec.size * spec.dtype.itemsize, POISON, np.uint8).view(spec.dtype.numpy).reshape(spec.shape)


def run(op: Op | str, *tensors: Any, out: Any = None, kernel: Kernel | None = None, **attributes: Any) -> Any:
    """Run a kernel on arrays and return its output, or several."""
    program, signature = bind(op, *tensors, kernel=kernel, **attributes)
    outs = [poisoned(spec) for spec in signature.outputs] if out is None else [out]
    program.run([tensor for tensor in flat(tensors) if tensor is not None] + outs, None)
    return outs[0] if len(outs) == 1 else tuple(outs)


def wide(array: np.ndarray) -> torch.Tensor:
    """Return the values in torch's float64 (its own dtype for integers and booleans)."""
    return torch.from_numpy(array.copy() if array.dtype.kind in "biu" else array.astype(np.float64))


def check(found: np.ndarray, truth: torch.Tensor, *, ulp: float = 1.0, absolute: float = 0.0) -> None:
    """Assert that ``found`` is within so many units of its own dtype's last place of the truth, or so far off."""
    expected = truth.numpy()
    assert found.shape == expected.shape
    got = found.astype(np.float64)
    form = ml_dtypes.finfo(found.dtype)
    with np.errstate(all="ignore"):
        exponent = np.floor(np.log2(np.maximum(np.abs(expected), float(form.smallest_normal))))
        spacing = np.exp2(exponent) * float(form.eps)
        off = np.abs(got - expected)
    beyond = np.abs(expected) >= float(form.max)
    special = ~np.isfinite(expected) | beyond
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    infinite = special & ~np.isnan(expected)
    assert np.all(np.sign(got[infinite]) == np.sign(expected[infinite]))
    assert np.all((off <= np.maximum(ulp * spacing, absolute))[~special]), float(np.nanmax(np.where(special, 0, off)))


def laid_out(array: np.ndarray, layout: str) -> np.ndarray:
    """Return the same values as a view: transposed, pitched, strided, offset or (of one row) expanded."""
    if layout == "transposed":
        return np.ascontiguousarray(array.swapaxes(-1, -2)).swapaxes(-1, -2)
    room = np.full((*array.shape[:-1], 2 * array.shape[-1] + 3), np.nan).astype(array.dtype)
    where = {
        "pitched": np.s_[..., : array.shape[-1]],
        "offset": np.s_[..., 3 : 3 + array.shape[-1]],
        "strided": np.s_[..., : 2 * array.shape[-1] : 2],
    }
    if layout == "expanded":
        return np.broadcast_to(array[:1], array.shape)
    room[where[layout]] = array
    return room[where[layout]]


LAYOUTS = ["transposed", "pitched", "offset", "strided", "expanded"]
FLOATS = ["float32", "float16", "bfloat16", "float64"]
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, 3e38, -3e38, 1.5, -2.0]


def special(dtype: str) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.array(SPECIAL).astype(dtypes.get(dtype).numpy)
