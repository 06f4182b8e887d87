"""The bench: one bound program over guarded buffers, run on prepared contents and read back byte by byte."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nbx_conformance.cases.values import Array
from nbx_conformance.problems.tiled import Tiled, Value
from nbx_conformance.trials.buffers import Contents, DeviceMemory, GuardedBuffer, allocator
from nbx_conformance.trials.tiled_buffers import Scan, buffer_for
from nbx_registry.bands import PATTERNS, POISON
from nbx_registry.errors import NbxError
from nbx_registry.program import BoundProgram
from nbx_registry.runtime import LiveDevice, Runtime, Slot, Stream
from nbx_registry.spec import TensorSpec

if TYPE_CHECKING:
    from nbx_conformance.problems.sample import Sample


@dataclass(frozen=True, eq=False)
class Execution:
    """What one run left behind.

    Attributes
    ----------
    contents
        By slot: parameters, outputs, workspace.
    outputs, mutated
        Values by name, of the outputs and of the parameters written in place; of a large problem those at its sample.
    allocations
        Allocations the runtime counted, and their bytes, while the program was enqueued and ran; not counted where it
        ran behind a delay.
    """

    contents: Mapping[str, Contents | Scan]
    outputs: Mapping[str, Array]
    mutated: Mapping[str, Array]
    allocations: tuple[int, int]

    @property
    def results(self) -> dict[str, Array]:
        """Outputs, then parameters written in place."""
        return {**self.outputs, **self.mutated}


class Bench:
    """Buffers for every operand of a bound program, and the program.

    ``sample`` says where large results are looked at.
    """

    def __init__(self, bound: BoundProgram, sample: Sample | None = None) -> None:
        if bound.runtime is None or bound.live is None:
            raise NbxError(f"{bound.choice.kernel.id} is bound to no device that is present; nothing can be run")
        self.bound = bound
        self.runtime: Runtime = bound.runtime
        self.live: LiveDevice = bound.live
        self.index = bound.live.index
        self._sample = sample
        self.mutable = frozenset(param.name for param in bound.signature.op.tensors if param.mutable)
        # A view has no memory of its own: what it shows is read from its base.
        kinds = ("input",) if bound.view is not None else ("input", "output", "workspace")
        self.slots = [slot for slot in bound.slots if slot.kind in kinds]
        allocate = allocator(self.runtime, self.index)
        self.buffers = {
            slot.name: buffer_for(slot.name, slot.spec, allocate, sample) for slot in self.slots if not slot.spec.weak
        }
        self._scalars: dict[str, bool | int | float] = {}

    def run(
        self,
        inputs: Mapping[str, Value],
        *,
        guard: int = PATTERNS[0],
        poison: int = POISON[0],
        stream: Stream | None = None,
    ) -> Execution:
        """Run over bands, gaps and poison of the given bytes, on a stream or the default one."""
        stream = stream or self.runtime.default_stream(self.index)
        self.prepare(inputs, guard=guard, poison=poison)
        self.upload(stream)
        self.runtime.synchronize(self.index)
        before = self.runtime.memory(self.index)
        self.launch(self.operands(), stream)
        self.runtime.synchronize(self.index)
        after = self.runtime.memory(self.index)
        counted = (after.allocations - before.allocations, after.allocated_bytes - before.allocated_bytes)
        return self.read(stream, counted)

    def lags(self, seconds: float) -> bool:
        """Whether a stream of the runtime can be busy while its caller goes on: whether there is a behind to run in."""
        stream = self.runtime.stream(self.index)
        # The first delay may be slow to enqueue: what keeps a stream busy is loaded then.
        self.runtime.delay(self.index, stream, 0)
        stream.synchronize()
        began = time.perf_counter()
        self.runtime.delay(self.index, stream, seconds)
        free = time.perf_counter() - began < seconds / 2
        stream.synchronize()
        return free

    def cannot_capture(self) -> str:
        """Return why the runtime captures nothing at all; empty where it does."""
        try:
            with self.runtime.capture(self.index, self.runtime.stream(self.index)):
                pass
        except NbxError as error:
            return f"runtime {self.runtime.name} cannot capture: {error}"
        return ""

    def run_behind(self, inputs: Mapping[str, Value], stale: Mapping[str, Value], seconds: float) -> Execution | None:
        """Run on a stream of its own that is busy first; the inputs arrive on it after the delay.

        Until then memory holds ``stale`` inputs, so that whatever ran ahead of its stream computed from those. Returns
        None where the delay was over before everything was enqueued, so that nothing was shown.
        """
        stream = self.runtime.stream(self.index)
        default = self.runtime.default_stream(self.index)
        # What arrives later waits in memory of its own: a copy from there is enqueued, one from the host may block.
        staged = {name: self._stage(buffer) for name, buffer in self.buffers.items()}
        self.prepare(inputs)
        for name, buffer in self.buffers.items():
            staged[name].write(buffer.image, default)
        self.prepare(stale)
        self.upload(default)
        self.prepare(inputs)
        self.runtime.synchronize(self.index)
        began = time.perf_counter()
        self.runtime.delay(self.index, stream, seconds)
        for slot in self.slots:
            buffer = self.buffers.get(slot.name)
            if buffer is not None and slot.kind == "input":
                self.runtime.copy(self.index, buffer.memory.address, staged[slot.name].address, buffer.nbytes, stream)
        self.launch(self.operands(), stream)
        enqueued = time.perf_counter() - began
        stream.synchronize()
        return self.read(stream) if enqueued < seconds else None

    def _stage(self, buffer: GuardedBuffer) -> DeviceMemory:
        return DeviceMemory(self.runtime, self.index, buffer.nbytes)

    def prepare(self, inputs: Mapping[str, Value], *, guard: int = PATTERNS[0], poison: int = POISON[0]) -> None:
        """Compose the image of every buffer, and take in the scalars."""
        for slot in self.slots:
            value = inputs.get(slot.name)
            buffer = self.buffers.get(slot.name)
            if buffer is None:
                assert isinstance(value, bool | int | float)
                self._scalars[slot.name] = value
            elif slot.kind == "input":
                assert isinstance(value, np.ndarray | Tiled)
                buffer.prepare(value, guard=guard, poison=poison)
            else:
                buffer.prepare(None, guard=guard, poison=poison)

    def upload(self, stream: Stream) -> None:
        """Write every buffer's image to its memory, in stream order."""
        for buffer in self.buffers.values():
            buffer.upload(stream)

    def operands(self) -> list[Any]:
        """Return what the program is given: the buffers, and the scalars as last prepared. A view is given nothing."""
        bound = self.bound
        if bound.program is None:
            return []
        arguments = [self._operand(slot) for slot in self.slots if slot.kind != "workspace"]
        return bound.operands(arguments, [_Scratch(self.buffers[slot.name]) for slot in bound.workspace])

    def launch(self, operands: Sequence[Any], stream: Stream) -> None:
        """Enqueue the program, if there is one."""
        if self.bound.program is not None:
            self.bound.program.run(operands, stream.handle)

    def _operand(self, slot: Slot) -> Any:
        buffer = self.buffers.get(slot.name)
        return self._scalars[slot.name] if buffer is None else buffer.operand()

    def read(self, stream: Stream, counted: tuple[int, int] = (0, 0)) -> Execution:
        """Return what every buffer holds, complete on return, beside its image."""
        contents = {name: buffer.download(stream) for name, buffer in self.buffers.items()}
        signature = self.bound.signature
        view = self.bound.view
        if view is None:
            outputs = {output.name: self._values(output.name, contents[output.name]) for output in signature.op.outputs}
        else:
            base = contents[view.of]
            spec = base.buffer.spec
            shown = TensorSpec(spec.dtype, view.shape, view.strides, spec.offset + view.offset)
            name = signature.op.outputs[0].name
            outputs = {name: self._values(name, base, shown)}
        mutated = {
            name: self._values(name, contents[name])
            for name in signature.names
            if name in self.mutable and name in contents
        }
        return Execution(contents, outputs, mutated, counted)

    def _values(self, name: str, contents: Contents | Scan, view: TensorSpec | None = None) -> Array:
        if self._sample is None:
            return contents.values(view)
        return self._sample.look(name, contents.buffer.spec if view is None else view, contents.values)


class _Scratch:
    """A guarded buffer as workspace is handed to a bound program."""

    def __init__(self, buffer: GuardedBuffer) -> None:
        self.address = buffer.address
        self.nbytes = buffer.spec.nbytes
        self.device = 0
        self.array = buffer.bytes()
