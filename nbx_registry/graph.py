"""Graphs: calls that were recorded once, and replay as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nbx_registry import interop
from nbx_registry.contents import Area, area_of
from nbx_registry.errors import CaptureError, SignatureError
from nbx_registry.interop.memory import array_at
from nbx_registry.recording import NUMBER, VALUES, scalar_identity
from nbx_registry.streams import recording

if TYPE_CHECKING:
    from nbx_registry.recording import Recorded
    from nbx_registry.runtime import Graph as Captured
    from nbx_registry.runtime import Runtime, Stream


class Graph:
    """Calls of a function, recorded and proven: `Registry.capture` makes it.

    A replay runs every call again, in order, on what their arrays hold by then. It keeps the arrays alive. Each kernel
    runs with the settings and the workspace that it was recorded with. On a device `Registry.ran` counts no replays.

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
            raise _inside()
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
        another dtype, shape, layout or device (arrays on the host are copied to the graph's), for an input that cannot
        be written by itself, and for another value in the place of what is no array. Then nothing was copied.
        """
        if len(inputs) != len(self.inputs):
            raise SignatureError(f"the graph was captured with {len(self.inputs)} inputs; {len(inputs)} are given")
        if recording():
            raise _inside()
        copies: list[_Copy] = []
        for number, (target, source) in enumerate(zip(self.inputs, inputs, strict=True)):
            copy = self._copy(number, target, source)
            copies += () if copy is None else (copy,)
        self._check_apart(copies)
        stream = self._stream()
        for copy in copies:
            if copy.here:
                self._runtime.copy(self._index, copy.to.start, copy.of.start, copy.to.nbytes, stream)
            else:
                data = array_at(copy.of.start, np.dtype(np.uint8), (copy.of.nbytes,), owner=copy.source, readonly=True)
                self._runtime.copy_in(self._index, copy.to.start, data, stream)
        self.replay()
        return self.outputs

    def _copy(self, number: int, target: Any, source: Any) -> _Copy | None:
        """Return what is to be copied to an input; None where that is nothing."""
        name = f"input {number}"
        if target is source:
            return None
        if isinstance(source, NUMBER) and not isinstance(target, NUMBER):
            source = np.asarray(source)
        here, there = interop.adapter(target), interop.adapter(source)
        if here is None or there is None or isinstance(target, NUMBER):
            if not _same_value(target, source):
                raise SignatureError(
                    f"{name} of the graph is {_shown(target)}, for good; capture again for {_shown(source)}"
                )
            return None
        source = there.take(source)
        there = interop.adapter(source)
        assert there is not None
        wanted, given, place = here.spec(target), there.spec(source), there.place(source)
        same = (given.dtype, given.shape, given.strides) == (wanted.dtype, wanted.shape, wanted.strides)
        if not same or place not in (self.device, "cpu"):
            raise SignatureError(f"{name} of the graph is {wanted} on {self.device}; {given} on {place} is given")
        if wanted.size != wanted.extent or (wanted.dtype.packed and here.name != there.name):
            raise SignatureError(f"{name} of the graph is {wanted}, and cannot be copied to as a whole; write into it")
        to, of = area_of(target), area_of(source)
        if to is None or of is None or (place == self.device and of.start == to.start):
            return None
        if not to.writable:
            raise SignatureError(f"{name} of the graph is read-only; capture with an array that can be written")
        return _Copy(number, to, of, source, place == self.device)

    def _check_apart(self, copies: Sequence[_Copy]) -> None:
        """Refuse copies of which one would write what another one reads or writes."""
        areas = [area_of(array) for array in self.inputs] if copies else []
        for copy in copies:
            for number, area in enumerate(areas):
                if number != copy.number and area is not None and _meet(copy.to, area):
                    raise SignatureError(
                        f"inputs {number} and {copy.number} of the graph share memory; write into them, and replay"
                    )
            for other in copies:
                if other.here and _meet(copy.to, other.of):
                    raise SignatureError(
                        f"what is given as input {other.number} lies in input {copy.number} of the graph, which is "
                        "written; give a copy"
                    )

    def __repr__(self) -> str:
        return f"<Graph of {len(self._recorded)} calls on {self.device}>"


class _Copy(NamedTuple):
    """An array to be copied to an input, ``here`` on the graph's own device."""

    number: int
    to: Area
    of: Area
    source: Any
    here: bool


def _inside() -> CaptureError:
    return CaptureError("a graph is replayed while calls are recorded for another; record its calls themselves")


def _meet(a: Area, b: Area) -> bool:
    return a.start < b.end and b.start < a.end


def _shown(value: Any) -> str:
    return repr(value) if value is None or isinstance(value, VALUES) else f"this {type(value).__name__}"


def _same_value(target: Any, source: Any) -> bool:
    """Return whether two inputs that are no arrays are the same: 1, 1.0 and True are not."""
    if type(target) is not type(source):
        return False
    if isinstance(target, VALUES):
        return scalar_identity(target) == scalar_identity(source)
    try:
        return bool(target == source)
    except (TypeError, ValueError, RuntimeError):
        # Of lists of arrays nobody says whether they are equal.
        return False
