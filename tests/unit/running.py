"""Contracts run on NumPy arrays, for tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from nbx_registry import dtypes
from nbx_registry.contracts import ALL
from nbx_registry.op import Op, Signature
from nbx_registry.rounding import round_to_float
from nbx_registry.spec import TensorSpec, parse

OPS = {op.name: op for op in ALL}


def spec_of(value: Any) -> Any:
    """Return the spec of an array, a spec string, or a Python scalar (weak); None for None, a tuple for a list."""
    if isinstance(value, list):
        return tuple(map(spec_of, value))
    if value is None or isinstance(value, TensorSpec):
        return value
    if isinstance(value, str):
        return parse(value)
    if isinstance(value, (bool, int, float, complex)):
        kind = {bool: "bool", int: "int64", float: "float64", complex: "complex64"}[type(value)]
        return TensorSpec(dtypes.get(kind), (), weak=True)
    strides = tuple(stride // value.itemsize for stride in value.strides)
    return TensorSpec(dtypes.of_numpy(value.dtype), value.shape, strides)


def sign(op: Op | str, *tensors: Any, **attributes: Any) -> Signature:
    """Return the signature of an op on arrays, spec strings or Python scalars."""
    op = OPS[op] if isinstance(op, str) else op
    return op.signature([spec_of(tensor) for tensor in tensors], attributes)


def oracle(op: Op | str, *arrays: Any, **attributes: Any) -> Any:
    """Return what an op's oracle gives: an array, or several."""
    signature = sign(op, *arrays, **attributes)
    padded = [*arrays, *(None,) * (len(signature.tensors) - len(arrays))]
    results = signature.op.run_oracle(signature, padded)
    return results[0] if len(results) == 1 else results


def share(op: Op | str, output: np.ndarray, *arrays: Any, **attributes: Any) -> float:
    """Return the largest part of its bound that an error of an output takes; above 1 it is refused.

    Infinite where a special value, or the sign of a zero that has one, is not the oracle's.
    """
    signature = sign(op, *arrays, **attributes)
    padded = [*arrays, *(None,) * (len(signature.tensors) - len(arrays))]
    references = signature.op.run_oracle(signature, padded)
    (reference,), (bound,) = references, signature.op.bound(signature, padded, references)
    dtype = signature.outputs[0].dtype
    with np.errstate(all="ignore"):
        wide = output.astype(reference.dtype)
        rounded = round_to_float(reference, dtype) if dtype.floating else reference
        special = ~np.isfinite(rounded)
        error = np.abs(np.where(special, 0, wide) - np.where(special, 0, reference))
        # Within its bound of the largest number either answer is right.
        near = special & np.isfinite(reference) & np.isfinite(wide) & (np.abs(wide - reference) <= bound)
        wrong = special & ~near & ~((wide == rounded) | ((wide != wide) & (rounded != rounded)))
        if signature.op.signed_zeros and dtype.floating:
            wrong |= (reference == 0) & (wide == 0) & (np.signbit(wide) != np.signbit(rounded))
        parts = np.where(wrong, np.inf, np.where(error == 0, 0, error / bound))
    return float(np.max(parts, initial=0.0))


def outputs(op: Op | str, *tensors: Any, **attributes: Any) -> str:
    """Return an op's outputs as spec strings, in one line."""
    return ", ".join(map(str, sign(op, *tensors, **attributes).outputs))


def values(shape: tuple[int, ...], dtype: str, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    """Return normal values (small integers where the dtype is integral) in a dtype of the table."""
    rng = np.random.default_rng([seed, *shape])
    wanted = dtypes.get(dtype)
    if wanted.kind == "bool":
        return np.array(rng.random(shape) < 0.5)
    if wanted.integral:
        low = 0 if wanted.kind == "uint" else -7
        return np.array(rng.integers(low, 7, shape, endpoint=True)).astype(wanted.numpy)
    found = np.array(scale * rng.standard_normal(shape))
    if wanted.kind == "complex":
        found = found + 1j * scale * rng.standard_normal(shape)
    return found.astype(wanted.numpy)
