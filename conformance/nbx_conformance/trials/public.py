"""The public path: a case's arrays as a caller would pass them to ``Registry.call``, over guarded buffers.

They are `nbx_registry.Tensor` objects in the runtime's own memory, or, on the host, NumPy arrays over it.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from nbx_conformance.trials.buffers import DeviceMemory, GuardedBuffer, HostMemory
from nbx_conformance.trials.tiled_buffers import buffer_for
from nbx_conformance.trials.trial import Site, Trial
from nbx_registry import registry as registry_module
from nbx_registry.bands import PATTERNS, POISON
from nbx_registry.runtime import Runtime
from nbx_registry.spec import TensorSpec
from nbx_registry.tensor import Borrowed, Tensor


@dataclass(frozen=True)
class Call:
    """Arguments of one call, by parameter, and the buffers behind them."""

    arguments: Mapping[str, Any]
    outputs: tuple[Any, ...]
    buffers: Mapping[str, GuardedBuffer]

    @property
    def out(self) -> Any:
        """What goes into ``out=``."""
        return self.outputs[0] if len(self.outputs) == 1 else self.outputs or None

    def damage(self) -> str:
        """Return what changed in any buffer, or an empty string."""
        found = (buffer.download().damage(elements=True) for buffer in self.buffers.values())
        return "; ".join(str(damage) for damage in found if damage is not None)


def prepare(trial: Trial, outputs: tuple[TensorSpec, ...] = (), *, tensors: bool = False) -> Call:
    """Put a case's first inputs into guarded buffers, and poisoned outputs of the given specs beside them.

    ``tensors`` asks for the project's own tensors on the host too: what is then made for a call is made by the runtime.
    """
    buffers: dict[str, GuardedBuffer] = {}
    arguments: dict[str, Any] = {}
    given = trial.problem.given(0)

    def put(name: str, spec: TensorSpec, values: Any) -> Any:
        buffers[name] = _buffer(trial, name, spec, values, tensors=tensors)
        return _seen(trial.site, buffers[name], spec, tensors=tensors)

    for name, spec in trial.case.tensors.items():
        if isinstance(spec, TensorSpec):
            arguments[name] = put(name, spec, given[name])
        elif isinstance(spec, tuple):
            pairs = zip(spec, given[name], strict=True)
            arguments[name] = [put(f"{name}.{i}", item, values) for i, (item, values) in enumerate(pairs)]
        else:
            arguments[name] = spec
    made = tuple(put(f"out.{i}", spec, None) for i, spec in enumerate(outputs))
    runtime, index, _ = device_of(trial.site)
    runtime.synchronize(index)
    return Call(arguments, made, buffers)


def overlapping(trial: Trial, name: str, shift: int) -> tuple[Call, Any]:
    """Return a call whose dense input ``name`` shares a buffer with its output, which begins ``shift`` elements later,
    or earlier where that is negative.

    The other inputs have buffers of their own.
    """
    prepared = prepare(trial)
    spec = trial.problem.signature.tensor(name)
    values = trial.problem.given(0)[name]
    beyond = np.zeros(abs(shift), values.dtype)
    line = np.concatenate([beyond, values.reshape(-1)] if shift < 0 else [values.reshape(-1), beyond])
    shared = _buffer(trial, name, TensorSpec(spec.dtype, line.shape), line, tensors=False)
    source = _seen(trial.site, shared, TensorSpec(spec.dtype, spec.shape, None, max(-shift, 0)), tensors=False)
    target = _seen(trial.site, shared, TensorSpec(spec.dtype, spec.shape, None, max(shift, 0)), tensors=False)
    runtime, index, _ = device_of(trial.site)
    runtime.synchronize(index)
    buffers = {**prepared.buffers, name: shared}
    return Call({**prepared.arguments, name: source}, (target,), buffers), target


def _buffer(trial: Trial, name: str, spec: TensorSpec, values: Any, *, tensors: bool) -> GuardedBuffer:
    runtime, index, place = device_of(trial.site)
    allocate = HostMemory if place == "cpu" and not tensors else partial(DeviceMemory, runtime, index)
    buffer = buffer_for(name, spec, allocate, trial.problem.sample)
    buffer.prepare(values, guard=PATTERNS[0], poison=POISON[0])
    buffer.upload()
    return buffer


def _seen(site: Site, buffer: GuardedBuffer, spec: TensorSpec, *, tensors: bool) -> Any:
    """Return a caller's array over a buffer: ``spec`` counts its offset from the buffer's own first element."""
    runtime, index, place = device_of(site)
    shift = spec.offset if spec is not buffer.spec else 0
    if place == "cpu" and not tensors:
        return buffer.operand(TensorSpec(spec.dtype, spec.shape, spec.strides, buffer.spec.offset + shift))
    borrowed = Borrowed(buffer.address, buffer.end - buffer.start, index, buffer)
    return Tensor(borrowed, TensorSpec(spec.dtype, spec.shape, spec.strides, shift), place, runtime)


def call(trial: Trial, prepared: Call, *, out: Any = None) -> Any:
    """Call the op through the registry, pinned to the trial's kernel."""
    names = [param.name for param in trial.problem.op.tensors]
    tensors = [prepared.arguments.get(name) for name in names]
    while tensors and tensors[-1] is None:
        tensors.pop()
    runtime, index, place = device_of(trial.site)
    keywords = {"out": out, "device": place, "kernel": trial.kernel.id, "require": "any"}
    with _default(trial.site):
        result = trial.registry.call(trial.case.op, *tensors, **keywords, **trial.case.attributes)
    runtime.synchronize(index)
    return result


def device_of(site: Site) -> tuple[Runtime, int, str]:
    """Return runtime, index and handle of the site's live device."""
    target = site.target
    assert target.runtime is not None
    assert target.live is not None
    return target.runtime, target.live.index, target.live.handle


@contextmanager
def _default(site: Site) -> Generator[None]:
    """Let tensors find the site's runtimes: they ask the process's registry for them."""
    before = registry_module.set_default(site.registry)
    try:
        yield
    finally:
        registry_module.set_default(before)
