"""Stream-ordered memory: one pool a device, buffers that go back in stream order, and what they add up to."""

from __future__ import annotations

import threading
from typing import Any

from nbx_cuda.runtime.context import Context
from nbx_cuda.runtime.driver import bindings, call, translated
from nbx_cuda.runtime.errors import CudaError
from nbx_cuda.runtime.streams import CudaStream
from nbx_registry.errors import NbxError
from nbx_registry.runtime import MemoryInfo

OUT_OF_MEMORY = 2


class CudaBuffer:
    """Memory of a device, ``address`` and ``nbytes``; freed in the order of ``stream`` when it is dropped.

    Whoever uses it on another stream keeps it until ``stream`` has waited for that work.
    """

    __slots__ = ("__weakref__", "_core", "_pool", "address", "device", "nbytes", "stream")

    def __init__(self, pool: Pool, core: Any, nbytes: int, stream: CudaStream) -> None:
        self._pool = pool
        self._core = core
        self.address = int(core.handle)
        self.nbytes = nbytes
        self.device = pool.context.index
        self.stream = stream

    def __del__(self) -> None:
        self._pool.release(self.address, self._core, self.stream)

    def __repr__(self) -> str:
        return f"<CudaBuffer of {self.nbytes} bytes at {self.address:#x} on cuda:{self.device}>"


class Pool:
    """The memory pool of one device. It keeps what is freed for reuse and gives it back only when asked for more.

    Attributes
    ----------
    held : dict
        For a stream under capture, by handle, a list: what is dropped meanwhile goes there, because the graph that is
        being recorded uses it.
    """

    def __init__(self, context: Context) -> None:
        from cuda.core import DeviceMemoryResource, DeviceMemoryResourceOptions

        self.context = context
        self.held: dict[int, list[Any]] = {}
        self._live: dict[int, int] = {}
        self._lock = threading.Lock()
        self._allocations = 0
        self._allocated_bytes = 0
        with translated(f"creating the memory pool of cuda:{context.index}"), context.device():
            self.resource = DeviceMemoryResource(context.index, DeviceMemoryResourceOptions())
        driver = bindings()
        # A pool made here starts with a threshold of 0: the driver would return everything at each synchronisation.
        call(
            f"setting up the memory pool of cuda:{context.index}",
            "cuMemPoolSetAttribute",
            self.resource.handle,
            driver.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
            driver.cuuint64_t(2**64 - 1),
        )

    def allocate(self, nbytes: int, stream: CudaStream) -> CudaBuffer:
        """Allocate in the order of ``stream``; 0 bytes get an address too.

        Raises `OutOfMemory` with its figures, after which everything goes on; `NbxError` on a stream under capture.
        """
        if nbytes < 0:
            raise NbxError(f"cannot allocate {nbytes} bytes")
        if stream.handle in self.held:
            raise NbxError("memory cannot be allocated on a stream under capture; allocate before the capture begins")
        with self.context.current():
            try:
                core = self._take(nbytes, stream)
            except CudaError as error:
                if error.result != OUT_OF_MEMORY:
                    raise
                # Memory freed on other streams comes back once they are past the point where it was freed.
                self.trim()
                core = self._take_or_raise(nbytes, stream)
        buffer = CudaBuffer(self, core, nbytes, stream)
        self._live[buffer.address] = nbytes
        with self._lock:
            self._allocations += 1
            self._allocated_bytes += nbytes
        return buffer

    def release(self, address: int, core: Any, stream: CudaStream) -> None:
        """Take a dropped buffer back: freed now in stream order, or kept by the graph being recorded there.

        Takes no lock: the garbage collector may call this anywhere.
        """
        self._live.pop(address, None)
        held = self.held.get(stream.handle)
        if held is not None:
            held.append(core)

    def trim(self) -> None:
        """Wait for the device and give what the pool keeps back to it."""
        with self.context.current():
            call(f"waiting for cuda:{self.context.index}", "cuCtxSynchronize")
            call(f"trimming the memory pool of cuda:{self.context.index}", "cuMemPoolTrimTo", self.resource.handle, 0)

    def info(self) -> MemoryInfo:
        """Return what is live, pooled and free, in bytes."""
        with self.context.current(), translated(f"reading the memory pool of cuda:{self.context.index}"):
            attributes = self.resource.attributes
            pooled = attributes.reserved_mem_current - attributes.used_mem_current
            free, _ = call(f"asking cuda:{self.context.index} for its free memory", "cuMemGetInfo")
        with self._lock:
            allocations, allocated_bytes = self._allocations, self._allocated_bytes
        return MemoryInfo(
            live=sum(list(self._live.values())),
            pooled=max(0, pooled),
            free=int(free),
            allocations=allocations,
            allocated_bytes=allocated_bytes,
        )

    def _take(self, nbytes: int, stream: CudaStream) -> Any:
        with translated(f"allocating {nbytes} bytes on cuda:{self.context.index}"):
            return self.resource.allocate(max(nbytes, 1), stream=stream.core)

    def _take_or_raise(self, nbytes: int, stream: CudaStream) -> Any:
        try:
            return self._take(nbytes, stream)
        except CudaError as error:
            if error.result != OUT_OF_MEMORY:
                raise
            info = self.info()
            raise info.out_of_memory(
                nbytes,
                f"cuda:{self.context.index} is out of memory: {nbytes} bytes requested, {info.live} handed out, "
                f"{info.pooled} pooled, {info.free} free on the device",
            ) from error
