"""Loops: one bench run many times on the same contents, cheaply: only what a run writes is put back before the next."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from nbx_conformance.problems.tiled import Value
from nbx_conformance.trials.bench import Bench, Execution
from nbx_conformance.trials.buffers import Contents, DeviceMemory, GuardedBuffer, HostMemory
from nbx_registry.runtime import Stream


class Loop:
    """A bench whose inputs are uploaded once. Until the loop is done with, the bench is used by nothing else.

    Parameters
    ----------
    bench
        What is run.
    inputs
        Values by operand, as `Bench.run` takes them.
    """

    def __init__(self, bench: Bench, inputs: Mapping[str, Value]) -> None:
        self.bench = bench
        stream = bench.runtime.default_stream(bench.index)
        bench.prepare(inputs)
        bench.upload(stream)
        self._operands = bench.operands()
        filled = {slot.name for slot in bench.slots if slot.kind != "input"}
        buffers = [buffer for buffer in bench.buffers.values() if buffer.end > buffer.start]
        self._filled = [buffer for buffer in buffers if buffer.name in filled]
        restored = [buffer for buffer in buffers if buffer.name in bench.mutable]
        self._restored = [(buffer, _staged(bench, buffer, stream)) for buffer in restored]
        bench.runtime.synchronize(bench.index)
        outputs = {output.name for output in bench.bound.signature.op.outputs}
        # What a parameter's layout leaves out is not to be written either, so all of its memory counts.
        self._results = [(buffer, buffer.start, buffer.end) for buffer in self._filled if buffer.name in outputs]
        self._results += [(buffer, 0, buffer.nbytes) for buffer, _ in self._restored]

    def clear(self, poison: int, stream: Stream) -> None:
        """Give parameters that are written their contents back, outputs and workspace one byte; in stream order."""
        runtime, index = self.bench.runtime, self.bench.index
        for buffer, source in self._restored:
            if source is None:
                buffer.upload(stream)
            else:
                runtime.copy(index, buffer.memory.address, source.address, buffer.nbytes, stream)
        for buffer in self._filled:
            if isinstance(buffer.memory, HostMemory):
                buffer.memory.array[buffer.start : buffer.end].fill(poison)
            else:
                runtime.fill(index, buffer.address, poison, buffer.end - buffer.start, stream)

    def launch(self, stream: Stream) -> None:
        """Enqueue the program."""
        self.bench.launch(self._operands, stream)

    def results(self, stream: Stream) -> list[bytes]:
        """Return the memory of each output, then of each parameter that is written, complete on return."""
        found: list[bytes] = []
        for buffer, start, end in self._results:
            memory = buffer.memory
            if isinstance(memory, HostMemory):
                found.append(memory.array[start:end].tobytes())
            else:
                target = np.empty(end - start, np.uint8)
                self.bench.runtime.copy_out(self.bench.index, target, memory.address + start, stream)
                found.append(target.tobytes())
        return found

    def results_of(self, execution: Execution) -> list[bytes]:
        """Return what `results` would have returned after a run of the bench on the same inputs."""
        found: list[bytes] = []
        for buffer, start, end in self._results:
            contents = execution.contents[buffer.name]
            assert isinstance(contents, Contents)
            found.append(contents.after[start:end].tobytes())
        return found


def _staged(bench: Bench, buffer: GuardedBuffer, stream: Stream) -> DeviceMemory | None:
    """Return a copy of a buffer's image on the device; None where it lies in this process."""
    if isinstance(buffer.memory, HostMemory):
        return None
    staged = DeviceMemory(bench.runtime, bench.index, buffer.nbytes)
    staged.write(buffer.image, stream)
    return staged
