"""Capturing: a function is recorded as it runs, captured as a graph, and the graph proven before it is trusted."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from nbx_registry.bound import recordings
from nbx_registry.call import flat
from nbx_registry.contents import Area, Bytes, area_of
from nbx_registry.errors import CaptureError, NbxError, SignatureError
from nbx_registry.graph import Graph
from nbx_registry.recording import Recorded, Recording, identities, leaves
from nbx_registry.spec import TensorSpec
from nbx_registry.streams import stream

if TYPE_CHECKING:
    from nbx_registry.registry import Registry
    from nbx_registry.runtime import Graph as Captured

VARIED_BYTES = 16 << 20
"""Of inputs that nobody named, those that are larger keep their contents while the graph is proven."""


def capture(
    registry: Registry, function: Callable[..., Any], inputs: tuple[Any, ...], device: str | None, steps: int
) -> Graph:
    """Return the graph of a function's calls: see `Registry.capture`."""
    if not callable(function):
        raise SignatureError(f"{function!r} is no function; give one, and the inputs that it takes")
    if type(steps) is not int or steps < 1:
        raise SignatureError(f"steps={steps!r} is no count of runs; at least one is compared")
    recording = Recording(registry, device)
    with registry.observed(recording):
        recordings[registry] = recording
        try:
            return _Capture(recording, lambda: function(*inputs), inputs).graph(steps)
        finally:
            del recordings[registry]


_MADE = ", so that no replay would write it; return what ops of this registry made"


class _Astray(Exception):
    """A further run would read an index out of range."""


class _Capture:
    def __init__(self, recording: Recording, function: Callable[[], Any], inputs: tuple[Any, ...]) -> None:
        self._recording = recording
        self._function = function
        self._inputs = inputs

    def graph(self, steps: int) -> Graph:
        recording = self._recording
        with _then(self._restore):
            outputs = recording.first(self._function)
            before = recording.contents.snapshot()
            self._first = identities(outputs)
            self._check_made(outputs)
            recording.contents.reset()
            captured = self._captured()
            assert recording.place is not None
            graph = Graph(
                recording.calls,
                captured,
                recording.runtime,
                recording.place,
                recording.stream,
                self._inputs,
                outputs,
            )
            self._prove(graph, steps)
        recording.contents.put(before)
        return graph

    def _restore(self) -> None:
        if self._recording.calls:
            self._recording.contents.restore()

    def _captured(self) -> Captured | None:
        """Run the function once more while a stream is captured: on the host, where none is, for its calls alone."""
        recording = self._recording
        runtime, index, place = recording.runtime, recording.calls[0].index, recording.place
        if runtime.operands == "array":
            self._same_result(recording.again(self._function, _nothing))
            return None
        try:
            chosen = runtime.stream(index)
            with stream(chosen, place), runtime.capture(index, chosen) as captured:

                def enqueue(one: Recorded) -> None:
                    if one.fixed.enqueue is not None:
                        try:
                            one.fixed.enqueue(chosen.handle)
                        except NbxError as error:
                            raise CaptureError(f"{one}, cannot be captured: {error}", kernel=one.kernel) from error

                self._same_result(recording.again(self._function, enqueue))
        except CaptureError:
            raise
        except (NbxError, RuntimeError) as error:
            raise CaptureError(
                f"the function ran, but cannot be captured on {place}: {error}; what is captured waits for nothing, "
                "reads nothing on the host and allocates nothing"
            ) from error
        return captured.graph

    def _check_made(self, outputs: Any) -> None:
        """Refuse arrays that the function returns and no call has to do with; its inputs are written from outside."""
        contents = self._recording.contents
        given = {area.start for array in flat(self._inputs) if (area := area_of(array)) is not None}
        for leaf in leaves(outputs):
            try:
                area = area_of(leaf)
            except SignatureError:
                continue
            if area is not None and area.start not in given and not contents.touches(area):
                raise CaptureError(
                    f"the function returns an array ({area.spec}) that no recorded call read or made{_MADE}",
                    code="MOVED",
                )

    def _same_result(self, result: Any) -> None:
        found = identities(result)
        if found == self._first:
            return
        for then, now in zip(self._first, found, strict=False):
            if then != now and then[0] == now[0] == "scalar":
                raise CaptureError(
                    f"the function returned {then[-1]} the first time and returns {now[-1]} now: a graph returns what "
                    "it returned the first time, of which calls write the arrays alone; return a tensor",
                    code="CHANGED",
                )
        raise CaptureError(
            f"the function returns an array that lies elsewhere each time: no recorded call made it{_MADE}",
            code="MOVED",
        )

    # Proving.

    def _prove(self, graph: Graph, steps: int) -> None:
        """Compare runs with replays: on what memory holds, over several steps, and on other contents."""
        contents = self._recording.contents
        self._round(graph, "on what the arrays hold", 1, ())
        if steps > 1 and contents.lasting:
            with suppress(_Astray):
                self._round(graph, f"in {steps} steps, each on what the last one left", steps, ())
        varied = self._varied()
        if varied:
            self._round(graph, "on other contents", 1, varied)

    def _round(self, graph: Graph, words: str, steps: int, varied: Sequence[Area]) -> None:
        contents = self._recording.contents
        contents.restore()
        held = contents.change(varied)
        with _then(lambda: contents.undo(held)):
            # On other contents the replay is first: what the function writes beside its calls is then from before.
            if varied:
                found = self._replayed(graph, words, steps)
                contents.reset()
                expected = self._run(steps)
            else:
                expected = self._run(steps)
                contents.reset()
                found = self._replayed(graph, words, steps)
        self._compare(words, expected, found)

    def _run(self, steps: int) -> Sequence[tuple[int, Bytes]]:
        recording = self._recording
        for step in range(steps):
            act = _again_in_range(recording) if step else _again
            self._same_result(recording.again(self._function, act))
        return recording.contents.snapshot()

    def _replayed(self, graph: Graph, words: str, steps: int) -> Sequence[tuple[int, Bytes]]:
        try:
            for _ in range(steps):
                graph.replay()
            return self._recording.contents.snapshot()
        except NbxError as error:
            raise CaptureError(f"the graph does not replay {words}: {error}") from error

    def _compare(self, words: str, expected: Sequence[tuple[int, Bytes]], found: Sequence[tuple[int, Bytes]]) -> None:
        guilty: tuple[int, int, str] | None = None
        for (start, run), (_, replayed) in zip(expected, found, strict=True):
            wrong = (run != replayed).nonzero()[0]
            if wrong.size:
                place = start + int(wrong[0])
                writers = [
                    (one, area)
                    for one in self._recording.calls
                    for area in one.written
                    if area.start <= place < area.end
                ]
                # What a call wrote may have been overwritten since: the last one is who left it.
                one, area = writers[-1]
                told = f"{wrong.size} of {run.size} bytes of {area.spec} differ, the first at byte {place - area.start}"
                if guilty is None or one.number < guilty[0]:
                    guilty = (one.number, place, told)
        if guilty is None:
            return
        one = self._recording.calls[guilty[0]]
        kernel = one.fixed.bound.choice.kernel
        more = "" if kernel.deterministic else "; the kernel does not say that it is deterministic: pin one that does"
        raise CaptureError(
            f"the graph is not what its calls are: {one}, leaves other bytes when it is replayed than when it is run, "
            f"{words} ({guilty[2]}){more}",
            code="REPLAY_DIFFERS",
            kernel=one.kernel,
        )

    def _varied(self) -> list[Area]:
        """Return the floating arrays that may be given other contents: those named, else small ones on a device."""
        recording = self._recording
        arrays = flat(self._inputs)
        limit = None
        if not arrays and recording.runtime.operands == "address":
            # On the host memory may be mapped from a file, of which no library tells that it cannot be written.
            arrays, limit = [array for one in recording.calls for array in one.arrays], VARIED_BYTES
        found: dict[int, Area] = {}
        for array in arrays:
            area = area_of(array)
            if area is None or not area.writable or area.packed or area.spec.dtype.kind not in ("float", "complex"):
                continue
            if (limit is None or area.nbytes <= limit) and area.spec.injective and not recording.contents.writes(area):
                found.setdefault(area.start, area)
        return list(found.values())


@contextmanager
def _then(put_back: Callable[[], None]) -> Generator[None, None, None]:
    """Put back what the arrays held before; what went wrong first is what is raised, where that cannot be either."""
    try:
        yield
    except BaseException as error:
        try:
            put_back()
        except NbxError as inner:
            error.add_note(f"what the arrays held before could not be put back: {inner}")
        raise
    put_back()


def _nothing(one: Recorded) -> None:
    """Let a call be made without being run."""


def _again(one: Recorded) -> None:
    one.fixed.again()


def _again_in_range(recording: Recording) -> Callable[[Recorded], None]:
    """Return what runs a call again, if the indices that it reads are within its contract's bounds."""

    def again(one: Recorded) -> None:
        signature = one.fixed.bound.signature
        limits = signature.index_limits() if signature.op.index_bounds else {}
        for param, array in zip(signature.op.tensors, one.arrays, strict=False):
            area = area_of(array) if param.name in limits else None
            spec: TensorSpec | None = None if area is None else area.spec
            if area is None or spec is None or not spec.dtype.integral:
                continue
            low, high, _ = limits[param.name]
            values = recording.contents.load(area)
            if int(values.min()) < low or (high is not None and int(values.max()) >= high):
                raise _Astray
        one.fixed.again()

    return again
