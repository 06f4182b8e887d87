"""Graphs: calls that were recorded once, and replay as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nbx_registry import interop
from nbx_registry.contents import area_of
from nbx_registry.errors import CaptureError, SignatureError
from nbx_registry.interop.memory import array_at
from nbx_registry.streams import recording

if TYPE_CHECKING:
    from nbx_registry.recording import Recorded
    from nbx_registry.runtime import Graph as Captured
    from nbx_registry.runtime import Runtime, Stream


class Graph:
    """Calls of a function, recorded and proven: `Registry.capture` makes it.

    A replay runs every call again, in order, on what their arrays hold by then. It keeps the arrays alive. Each kernel
    runs with the settings and the workspace that it was recorded with. Replays are not counted by `Registry.ran`.

    Attributes
    ----------
    outputs
        What the function returned. Its arrays are the same ones, written by every replay.
    inputs : tuple
        What the function was given.
    device : str
        Live handle.
    """

    __slots__ = ("_captured", "_index", "_recorded", "_runtime", "_stream", "device", "inputs", "outputs")

    def __init__(
        self,
        recorded: Sequence[Recorded],
        captured: Captured | None,
        runtime: Runtime,
        device: str,
        stream: Callable[[], Any],
        inputs: tuple[Any, ...],
        outputs: Any,
    ) -> None:
        self._recorded = tuple(recorded)
        self._captured = captured
        self._runtime = runtime
        self._index = self._recorded[0].index
        self._stream = stream
        self.device = device
        self.inputs = inputs
        self.outputs = outputs

    @property
    def calls(self) -> tuple[str, ...]:
        """The calls in order, in words, each with its kernel."""
        return tuple(str(one) for one in self._recorded)

    @property
    def kernels(self) -> tuple[str, ...]:
        """Ids of the kernels, in the order of the calls."""
        return tuple(one.kernel for one in self._recorded)

    def replay(self, stream: Stream | Any = None) -> None:
        """Run every call again; on a device, enqueue them as one graph.

        ``stream`` is a stream of the runtime or the raw handle of one. Left out, it is the one that the arrays' library
        enqueues on now, as for calls.

        Raises
        ------
        CaptureError
            Calls are being recorded for another graph.
        SignatureError, PluginFault
            On the host alone, where each call is looked at as ever: an index out of range, a kernel that raises.
        """
        if recording():
            raise CaptureError("a graph is replayed while calls are recorded for another; record its calls themselves")
        if self._captured is None:
            for one in self._recorded:
                one.fixed.again()
            return
        if stream is None:
            stream = self._stream()
        self._captured.replay(self._runtime.default_stream(self._index) if stream is None else stream)

    def __call__(self, *inputs: Any) -> Any:
        """Copy arrays into the graph's inputs, replay, and return the outputs.

        An array that is the graph's own input, or shares its memory, is not copied. Raises `SignatureError` for one of
        another dtype, shape, layout or device (arrays on the host are copied to the graph's), and for another value in
        the place of what is no array.
        """
        if len(inputs) != len(self.inputs):
            raise SignatureError(f"the graph was captured with {len(self.inputs)} inputs; {len(inputs)} are given")
        stream = self._stream()
        for number, (target, source) in enumerate(zip(self.inputs, inputs, strict=True)):
            self._copy(f"input {number}", target, source, stream)
        self.replay()
        return self.outputs

    def _copy(self, name: str, target: Any, source: Any, stream: Any) -> None:
        if target is source:
            return
        here, there = interop.adapter(target), interop.adapter(source)
        if here is None or there is None:
            if here is not there or target != source:
                raise SignatureError(f"{name} of the graph is {target!r}, for good; capture again for {source!r}")
            return
        source = there.take(source)
        there = interop.adapter(source)
        assert there is not None
        wanted, given, place = here.spec(target), there.spec(source), there.place(source)
        same = (given.dtype, given.shape, given.strides) == (wanted.dtype, wanted.shape, wanted.strides)
        if not same or place not in (self.device, "cpu"):
            raise SignatureError(f"{name} of the graph is {wanted} on {self.device}; {given} on {place} is given")
        if wanted.size != wanted.extent or (wanted.dtype.packed and here.name != there.name):
            raise SignatureError(f"{name} of the graph is {wanted}, and cannot be copied to as a whole; write into it")
        if not wanted.size:
            return
        to, of = area_of(target), area_of(source)
        assert to is not None
        assert of is not None
        if place != self.device:
            data = array_at(of.start, np.dtype(np.uint8), (of.nbytes,), owner=source, readonly=True)
            self._runtime.copy_in(self._index, to.start, data, stream)
        elif of.start != to.start:
            self._runtime.copy(self._index, to.start, of.start, to.nbytes, stream)

    def __repr__(self) -> str:
        return f"<Graph of {len(self._recorded)} calls on {self.device}>"
