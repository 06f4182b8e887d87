"""Checks ops as torch knows them, on one case of the suite each: ``python tests/unit/torch_ops.py`` checks all of them.

The tests check a few: every way in which a contract differs from another for torch.
"""

from __future__ import annotations

import math
import sys
import warnings
from typing import Any

import numpy as np
import torch

import nbx_registry as nbx
from nbx_conformance.problems.problem import Problem
from nbx_conformance.runs.runner import case_table
from nbx_registry import dtypes
from nbx_registry.interop.torch import Registered, register


def problem_of(reg: nbx.Registry, name: str) -> Problem:
    """Return the smallest case of the suite for an op, tensors in the place of scalars."""
    op, best, least = reg.ops[name], None, math.inf
    for case in case_table(reg).of(op.id, "smoke"):
        problem = Problem(op, case)
        try:
            slots = problem.signature.slots()
        except nbx.SignatureError:
            continue
        size = sum(spec.size for _, spec in slots)
        if 0 < size < least and not any(spec.weak or spec.dtype.packed or 0 in spec.shape for _, spec in slots):
            best, least = problem, size
    assert best is not None, f"{name} has no case"
    return best


def tensor(value: Any) -> Any:
    """Return an array of the suite as torch has it, with ones for what is not finite: NaN is unequal to itself."""
    if isinstance(value, (list, tuple)):
        return [tensor(item) for item in value]
    if not isinstance(value, np.ndarray):
        return value
    dtype = dtypes.of_numpy(value.dtype)
    if dtype.kind in ("float", "complex"):
        wide = value.astype(np.complex128 if dtype.kind == "complex" else np.float64)
        value = np.where(np.isfinite(wide), value, np.ones((), value.dtype)).astype(value.dtype)
    flat = np.ascontiguousarray(value).reshape(-1).view(np.uint8).copy()
    return torch.from_numpy(flat).view(getattr(torch, dtype.name)).reshape(value.shape)


def opcheck(reg: nbx.Registry, found: Registered, name: str) -> dict[str, str]:
    """Return what `torch.library.opcheck` says of an op, by check."""
    problem = problem_of(reg, name)
    attributes = {
        key: getattr(torch, value.name) if isinstance(value, nbx.DType) else value
        for key, value in problem.signature.attributes.items()
    }
    tensors = tuple(tensor(value) for value in problem.arrays(0))
    return torch.library.opcheck(found.ops[name].default, tensors, attributes)


def compiled(backend: str) -> None:
    """Compare a function of several ops with what a backend makes of it, without a break."""
    ops = torch.ops.nbx

    def function(x: Any, w: Any, lens: Any) -> tuple[Any, ...]:
        y = torch.relu(ops.linear(x, w, activation="gelu"))
        ops.paged_lens_advance(lens, n=2)
        y = ops.softmax(ops.add(y, 1.0), axis=-1)
        values, indices = ops.topk(y, k=3)
        table = ops.full(shape=[3], fill_value=2, dtype=torch.float32)
        both = ops.concat([values * 2, ops.multiply(values, table)], axis=0)
        return both, indices, ops.where(y > 0.1, y, 0.0), ops.permute_dims(both, axes=[1, 0])

    generator = torch.Generator().manual_seed(63)
    x, w = (torch.randn(shape, generator=generator) for shape in ((7, 63), (33, 63)))
    lens = [torch.tensor([1, 5], dtype=torch.int32) for _ in range(2)]
    expected = function(x, w, lens[0])
    results = torch.compile(function, fullgraph=True, backend=backend)(x, w, lens[1])
    assert all(torch.equal(a, b) for a, b in zip((*expected, lens[0]), (*results, lens[1]), strict=True))
    assert lens[1].tolist() == [3, 7]


def main() -> int:
    warnings.simplefilter("ignore")
    reg = nbx.load(require="any")
    nbx.set_default(reg)
    found = register()
    failed = 0
    for name in found.ops:
        try:
            wrong = {check: said for check, said in opcheck(reg, found, name).items() if said != "SUCCESS"}
        except Exception as error:  # noqa: BLE001 - whatever an op raises is what is told of it
            wrong = {type(error).__name__: str(error)}
        failed += bool(wrong)
        print(name, wrong or "ok", flush=True)
    for backend in ("aot_eager", "inductor"):
        compiled(backend)
        print("compiled by", backend)
    print(f"{len(found.ops)} ops, {failed} wrong, {len(found.refused)} refused: {dict(found.refused)}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
