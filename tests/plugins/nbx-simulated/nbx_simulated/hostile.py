"""Loopback kernels with one thing wrong each. A suite that accepts one of them checks nothing.

`hostile_kernels` lists them. Each comes as a plugin of its own, so that a test loads exactly one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nbx_registry.hookspecs import HOOK_VERSION, hookimpl
from nbx_registry.kernel import Kernel
from nbx_registry.launch import BindContext, Launch
from nbx_registry.rounding import float_format
from nbx_registry.spec import TensorSpec
from nbx_simulated.kernels import Array, Loopback, Operands, Written, launch_of
from nbx_simulated.memory import Memory

BLOCK = 8
"""Elements in the last block that `Unwritten` forgets."""


class Unwritten(Loopback):
    """Leaves the last partial block of each output as it was."""

    def write(self, memory: Memory, written: Written) -> None:
        for address, spec, values in written:
            target = memory.array(address, spec)
            keep = target.copy()
            whole = values.size - (values.size % BLOCK or BLOCK)
            target[...] = np.where(np.arange(values.size).reshape(values.shape) < whole, values, keep)


class ReadsPast(Loopback):
    """Adds the element behind its first input, times zero, to the last of its output: right, unless that is NaN."""

    def run(self, memory: Memory, *operands: Any) -> None:
        given = self.operands(operands)
        written = self.compute(given, self.read(memory, given))
        address, spec = _first(self, given)
        behind = memory.array(address + spec.extent * spec.dtype.itemsize, TensorSpec(spec.dtype, (1,)))
        flat = written[0][2].reshape(-1)
        if flat.size:
            flat[-1] += (behind.astype(np.float64) * 0).astype(flat.dtype)[0]
        self.write(memory, written)


class WritesPast(Loopback):
    """Writes one element behind its output."""

    def write(self, memory: Memory, written: Written) -> None:
        super().write(memory, written)
        address, spec, _ = written[0]
        memory.view(address + spec.extent * spec.dtype.itemsize, spec.dtype.itemsize).fill(0)


class Stale(Loopback):
    """Right the first time; afterwards gives the first results again."""

    _first: list[Array] | None = None

    def compute(self, given: Operands, arrays: list[Any]) -> Written:
        written = super().compute(given, arrays)
        if self._first is None:
            self._first = [values.copy() for _, _, values in written]
        return [(address, spec, old) for (address, spec, _), old in zip(written, self._first, strict=True)]


class WrongStream(Loopback):
    """Runs at once, whatever its stream has yet to do."""

    at_once = True


class HostFallback(Loopback):
    """Waits for its stream, and computes on the host, in its caller's time."""

    at_once = True
    waits = True


class Undeclared(Loopback):
    """Takes memory that it did not declare, at each run."""

    def run(self, memory: Memory, *operands: Any) -> None:
        scratch = memory.allocate(4096)
        super().run(memory, *operands)
        memory.free(scratch)


class WritesInput(Loopback):
    """Zeroes the first element of its first input when it is done with it."""

    def run(self, memory: Memory, *operands: Any) -> None:
        super().run(memory, *operands)
        address, spec = _first(self, self.operands(operands))
        if spec.size:
            memory.array(address, spec).reshape(-1)[:1].view(np.uint8).fill(0)


class OnePercent(Loopback):
    """Results are 1 % too large; integers by 1, at least."""

    def compute(self, given: Operands, arrays: list[Any]) -> Written:
        written: Written = []
        for address, spec, values in super().compute(given, arrays):
            with np.errstate(all="ignore"):
                if spec.dtype.floating:
                    wrong = (values.astype(np.float64) * 1.01).astype(values.dtype)
                elif values.dtype == bool:
                    wrong = ~values
                else:
                    wrong = values + np.maximum(np.abs(values) // 100, 1).astype(values.dtype)
            written.append((address, spec, wrong))
        return written


class SpecialValues(Loopback):
    """Reads NaN as 0, and infinities as the largest numbers."""

    def load(self, memory: Memory, operand: Any, spec: TensorSpec) -> Any:
        value = super().load(memory, operand, spec)
        if not spec.dtype.floating or spec.weak:
            return value
        largest = float(float_format(spec.dtype).largest)
        return np.nan_to_num(value.astype(np.float64), posinf=largest, neginf=-largest).astype(value.dtype)


class IgnoresStrides(Loopback):
    """Says nothing about layout, and reads every input as if it were contiguous."""

    def load(self, memory: Memory, operand: Any, spec: TensorSpec) -> Any:
        # What would lie outside the allocation is left out: this kernel is wrong, not fatal.
        dense = TensorSpec(spec.dtype, spec.shape)
        if spec.weak or spec.contiguous or dense.extent > spec.extent:
            return super().load(memory, operand, spec)
        return super().load(memory, operand, dense)


class IgnoresOverlap(Loopback):
    """Says it bears any overlap, and reads its inputs again when half of the output is written."""

    def run(self, memory: Memory, *operands: Any) -> None:
        given = self.operands(operands)
        for half in (0, 1):
            for address, spec, values in self.compute(given, self.read(memory, given)):
                target = memory.array(address, spec)
                here = (np.arange(values.size).reshape(values.shape) * 2 >= values.size) == bool(half)
                target[...] = np.where(here, values, target)


class Unrepeatable(Loopback):
    """Claims determinism; every other run is one unit in the last place off in its first element."""

    _turn = 0

    def compute(self, given: Operands, arrays: list[Any]) -> Written:
        written = super().compute(given, arrays)
        self._turn += 1
        _, spec, values = written[0]
        if self._turn % 2 == 0 and values.size and spec.dtype.floating:
            first = values.reshape(-1)[:1].view(f"u{values.dtype.itemsize}")
            first ^= np.asarray(1, first.dtype)
        return written


_FLAWS: dict[str, type[Loopback]] = {
    "unwritten": Unwritten,
    "reads_past_input": ReadsPast,
    "writes_past_output": WritesPast,
    "stale": Stale,
    "wrong_stream": WrongStream,
    "host_fallback": HostFallback,
    "undeclared_memory": Undeclared,
    "writes_input": WritesInput,
    "one_percent": OnePercent,
    "special_values": SpecialValues,
    "ignores_strides": IgnoresStrides,
    "ignores_overlap": IgnoresOverlap,
    "unrepeatable": Unrepeatable,
}


@dataclass(frozen=True)
class Hostile:
    """One hostile kernel.

    Attributes
    ----------
    name
        What is wrong with it, in a word: ``writes_input``.
    doc
        The same in a sentence.
    kernel
        Its id is ``nbx-hostile/<op>/<name>``.
    """

    name: str
    doc: str
    kernel: Kernel

    @property
    def plugin(self) -> HostilePlugin:
        """The plugin to load it with: ``nbx.load(plugins=[nbx_simulated.plugin, hostile.plugin])``."""
        return HostilePlugin([self.kernel])


class HostilePlugin:
    """An in-process plugin that brings hostile kernels, beside nbx_simulated's own."""

    NBX_HOOKS = HOOK_VERSION
    name = "nbx-hostile"

    def __init__(self, kernels: Iterable[Kernel]) -> None:
        self._kernels = tuple(kernels)

    @hookimpl
    def nbx_register_kernels(self) -> tuple[Kernel, ...]:
        """Register the kernels."""
        return self._kernels


def hostile_kernels(op: str = "add@1", **changes: Any) -> tuple[Hostile, ...]:
    """Return one kernel of every kind for ``op``, by name.

    ``changes`` replace fields of the kernels (``when=``, ``deterministic=``).
    """
    return tuple(
        Hostile(name, (flaw.__doc__ or "").strip(), _kernel(name, flaw, op, changes)) for name, flaw in _FLAWS.items()
    )


def _kernel(name: str, flaw: Callable[..., Loopback], op: str, changes: dict[str, Any]) -> Kernel:
    stated: dict[str, Any] = {
        "id": f"nbx-hostile/{op.partition('@')[0].replace('::', '.')}/{name}",
        "op": op,
        "backend": "loopback",
        "runtimes": ("sim",),
        "bind": "nbx_simulated.hostile:bind",
        "deterministic": True,
        "replayable": True,
        "overlap": "any" if flaw is IgnoresOverlap else "refuse",
        # Settings are how a binder is told things; here, which flaw to have.
        "defaults": {"flaw": name},
        "doc": (flaw.__doc__ or "").strip(),
    }
    return Kernel(**{**stated, **changes})


def bind(context: BindContext) -> Launch:
    """Bind the hostile kernel that the settings name."""
    flawed = _FLAWS[context.settings["flaw"]](context.signature)
    return launch_of(context.signature, _AtOnce(flawed) if getattr(flawed, "at_once", False) else flawed.run)


class _AtOnce:
    """A function that runs in its caller's thread: before its stream gets to it or, waiting, after that."""

    at_once = True

    def __init__(self, flawed: Loopback) -> None:
        self._run = flawed.run
        self.waits = getattr(flawed, "waits", False)

    def __call__(self, memory: Memory, *operands: Any) -> None:
        self._run(memory, *operands)


def _first(kernel: Loopback, given: Operands) -> tuple[int, TensorSpec]:
    """Return address and spec of the first tensor parameter."""
    return next(
        (operand, spec)
        for operand, spec in zip(given.tensors, kernel.signature.tensors, strict=True)
        if isinstance(spec, TensorSpec) and not spec.weak
    )
