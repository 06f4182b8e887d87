"""A check of one kernel against its contract's oracle and tolerance, on the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nbx_registry import Registry, dtypes, spec
from nbx_registry.runtime import Runtime
from nbx_triton import interpreter

DEVICE = "nvidia/h200-sxm"
GUARD = 64
POISON = 0x5A


@pytest.fixture(scope="session")
def emulator() -> Runtime:
    return interpreter.runtime()


def describe(array: Any) -> Any:
    if array is None:
        return None
    if isinstance(array, tuple):
        return tuple(describe(item) for item in array)
    if isinstance(array, int | float) and not isinstance(array, np.generic):
        return spec.TensorSpec(dtypes.get("float64" if isinstance(array, float) else "int64"), (), weak=True)
    strides = tuple(stride // array.itemsize for stride in array.strides)
    return spec.TensorSpec(dtypes.of_numpy(array.dtype), array.shape, strides)


class Guarded:
    """Memory that shows what was written outside it."""

    def __init__(self, what: spec.TensorSpec) -> None:
        self.raw = np.full(what.nbytes + 2 * GUARD, POISON, np.uint8)
        self.inner = self.raw[GUARD : GUARD + what.nbytes]
        self.address = self.inner.ctypes.data
        self.array = self.inner.view(what.dtype.numpy).reshape(what.shape)

    def intact(self) -> bool:
        return bool((self.raw[:GUARD] == POISON).all() and (self.raw[-GUARD:] == POISON).all())


@pytest.fixture(scope="session")
def run(registry: Registry, emulator: Runtime) -> Callable[..., tuple[np.ndarray, ...]]:
    """Run a kernel; return outputs. Memory around outputs and workspace must stay as it was."""

    def run(kernel: str, *arrays: Any, **attributes: Any) -> tuple[np.ndarray, ...]:
        op = registry.ops[registry.kernels[kernel].op.partition("@")[0]]
        signature = op.signature([describe(array) for array in arrays], attributes)
        bound = registry.bind_specs(op.name, signature, device=DEVICE, kernel=kernel, require="any", runtime=emulator)
        made = [Guarded(slot.spec) for slot in bound.slots if slot.kind != "input"]
        given = [
            array if isinstance(array, int | float) and not isinstance(array, np.generic) else array.ctypes.data
            for operand in arrays
            for array in (operand if isinstance(operand, tuple) else (operand,))
            if array is not None
        ]
        if bound.program is not None:
            bound.program.run([*given, *(memory.address for memory in made)], None)
        assert all(memory.intact() for memory in made), "a kernel wrote outside its output or workspace"
        return tuple(memory.array for memory in made[: len(signature.outputs)])

    return run


@pytest.fixture(scope="session")
def check(registry: Registry, run: Callable[..., tuple[np.ndarray, ...]]) -> Callable[..., None]:
    """Run a kernel twice and hold it to its contract: oracle, tolerance, equal bits."""

    def check(kernel: str, *arrays: Any, **attributes: Any) -> None:
        op = registry.ops[registry.kernels[kernel].op.partition("@")[0]]
        signature = op.signature([describe(array) for array in arrays], attributes)
        expected = op.run_oracle(signature, arrays)
        allowed = op.bound(signature, arrays, expected)
        first, second = run(kernel, *arrays, **attributes), run(kernel, *arrays, **attributes)
        for name, got, again, wanted, bound in zip(
            (output.name for output in op.outputs), first, second, expected, allowed, strict=True
        ):
            assert got.tobytes() == again.tobytes(), f"{name} is not repeatable"
            compare(got, wanted, bound)

    return check


def compare(got: np.ndarray, wanted: np.ndarray, bound: np.ndarray) -> None:
    """Assert that results are within their bounds; NaN answers NaN, an infinity the same one."""
    if wanted.dtype.kind in "iub":
        np.testing.assert_array_equal(got, wanted)
        return
    values = got.astype(wanted.dtype)
    with np.errstate(invalid="ignore"):
        wrong = ~((np.abs(values - wanted) <= bound) | (values == wanted) | (np.isnan(values) & np.isnan(wanted)))
    if wrong.any():
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise AssertionError(
            f"{int(wrong.sum())} of {wrong.size} wrong; at {place} {values[place]} where {wanted[place]} "
            f"+- {bound[place]} is expected"
        )


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Random numbers of the test's own, the same at every run."""
    return np.random.default_rng(list(request.node.nodeid.encode()))


@pytest.fixture
def normal(rng: np.random.Generator) -> Callable[..., np.ndarray]:
    """Draw a normal array of any dtype."""

    def normal(dtype: str, *shape: int, scale: float = 1.0) -> np.ndarray:
        return (rng.standard_normal(shape) * scale).astype(dtypes.get(dtype).numpy)

    return normal
