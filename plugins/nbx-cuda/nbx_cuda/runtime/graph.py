"""Capturing a stream's work as a graph, and replaying it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any

from nbx_cuda.runtime.driver import translated
from nbx_cuda.runtime.memory import Pool
from nbx_cuda.runtime.streams import CudaStream
from nbx_registry.errors import NbxError

Find = Callable[[CudaStream | int | None], CudaStream]
"""Returns a stream itself, the one of a raw handle, or the default one for None."""


class CudaGraph:
    """A captured sequence of launches, with the memory it uses that nobody else holds any more."""

    def __init__(self, core: Any, origin: CudaStream, held: list[Any], find: Find) -> None:
        self._core = core
        self._origin = origin
        self._held = held
        self._find = find
        self._replayed_on: dict[int, CudaStream] = {}

    def replay(self, stream: CudaStream | int | None = None) -> None:
        """Enqueue the whole sequence on ``stream`` (or its raw handle), over what its buffers hold by then."""
        queue, context = self._find(stream), self._origin.context
        with context.current(), translated(f"replaying a graph on cuda:{context.index}"):
            self._core.launch(queue.core)
        if self._held:
            self._replayed_on[queue.handle] = queue

    def __del__(self) -> None:
        # What the graph held goes back in the order of its origin, which must first wait for the replays elsewhere.
        if self._held:
            with self._origin.context.current():
                for stream in self._replayed_on.values():
                    if stream.handle != self._origin.handle:
                        self._origin.core.wait(stream.core)


class Capture:
    """Record what is enqueued on ``stream`` inside the block; ``graph`` is set when it ends without an error.

    Memory cannot be allocated on the stream meanwhile. What is dropped meanwhile lives on with the graph.
    """

    def __init__(self, pool: Pool, stream: CudaStream, find: Find) -> None:
        self.graph: CudaGraph | None = None
        self._pool = pool
        self._stream = stream
        self._find = find
        self._builder: Any = None

    def __enter__(self) -> Capture:
        stream = self._stream
        if stream.handle in self._pool.held:
            raise NbxError(f"{stream!r} is already under capture")
        with stream.context.current(), translated(f"capturing {stream!r}"):
            self._builder = stream.core.create_graph_builder().begin_building()
        self._pool.held[stream.handle] = []
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stream = self._stream
        held = self._pool.held[stream.handle]
        try:
            with stream.context.current():
                if kind is None:
                    with translated(f"ending the capture of {stream!r}"):
                        self.graph = CudaGraph(self._builder.end_building().complete(), stream, held, self._find)
                else:
                    self._abandon()
        finally:
            # Not before: what another thread drops until then would be freed in the capture.
            del self._pool.held[stream.handle]
            self._builder = None

    def _abandon(self) -> None:
        # The block failed: its error is the one to tell. The stream must leave capture mode all the same.
        from cuda.core._utils.cuda_utils import CUDAError

        # An invalidated capture ends with an error of its own.
        with suppress(CUDAError):
            self._builder.close()
