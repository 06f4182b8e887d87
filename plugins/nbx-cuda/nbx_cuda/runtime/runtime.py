"""The runtime ``cuda``: the `Runtime` protocol on cuda-core and the driver."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from functools import cache
from typing import Any, Final, Literal

import numpy as np

from nbx_cuda.runtime import driver
from nbx_cuda.runtime.code import Function, Loader
from nbx_cuda.runtime.context import Context
from nbx_cuda.runtime.delay import DELAY
from nbx_cuda.runtime.devices import live_devices
from nbx_cuda.runtime.errors import CudaError
from nbx_cuda.runtime.graph import Capture
from nbx_cuda.runtime.launch import launcher
from nbx_cuda.runtime.memory import CudaBuffer, Pool
from nbx_cuda.runtime.program import CudaProgram
from nbx_cuda.runtime.streams import CudaEvent, CudaStream, refuse_wait
from nbx_registry.errors import NbxError
from nbx_registry.launch import Artifact, Launch, Scalar
from nbx_registry.runtime import LiveDevice, MemoryInfo, Slot

WRONG_CONTEXT = frozenset({201, 400})
"""What the driver says to a launch from a thread with no context, or with another device's: invalid context, invalid
handle."""

_IMPLICIT: Final = 906
"""``CUDA_ERROR_STREAM_CAPTURE_IMPLICIT``: the legacy default stream, while another that it waits for is captured."""

_DEVICE_ORDINAL: Final = 9
"""``CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL``."""

FOREIGN_LIMIT = 256
"""How many streams of other libraries are remembered for a device."""


class CudaRuntime:
    """NVIDIA devices. Making one touches nothing; a device is started at its first use.

    Every ``stream`` may be left out (the runtime's own stream of the device), a `CudaStream`, or an integer: the raw
    handle of another library's stream.
    """

    name = "cuda"
    operands: Literal["address"] = "address"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._live: list[LiveDevice] | None = None
        self._started: dict[int, _Started] = {}

    def devices(self) -> Sequence[LiveDevice]:
        """Return the devices the driver shows; none without a driver, a device or cuda-core (see `why_absent`)."""
        if self._live is None:
            if driver.why_absent():
                return ()
            self._live = live_devices()
        return self._live

    def why_absent(self) -> str:
        """Return why there is no device, with the way out; an empty string when there is one."""
        return driver.why_absent()

    def allocate(self, device: int, nbytes: int, stream: CudaStream | int | None = None) -> CudaBuffer:
        """Allocate ``nbytes`` in stream order, aligned to 256 bytes. Raises `OutOfMemory` with its figures."""
        return self._device(device).pool.allocate(nbytes, self._stream(device, stream))

    def memory(self, device: int) -> MemoryInfo:
        """Return what is handed out, pooled and free, in bytes."""
        return self._device(device).pool.info()

    def trim(self, device: int) -> None:
        """Wait for the device and give it back what the pool keeps."""
        refuse_wait(f"cuda:{device} is waited for")
        self._device(device).pool.trim()

    def copy_in(self, device: int, address: int, source: np.ndarray, stream: CudaStream | int | None = None) -> None:
        """Copy a contiguous host array to ``address``, in stream order; done when this returns."""
        self._copy_host("cuMemcpyHtoDAsync", "to", device, (address, _host_address(source)), source.nbytes, stream)

    def copy_out(self, device: int, target: np.ndarray, address: int, stream: CudaStream | int | None = None) -> None:
        """Copy from ``address`` into a contiguous, writable host array, in stream order; done when this returns."""
        if not target.flags.writeable:
            raise NbxError("cannot copy out into a read-only array")
        self._copy_host("cuMemcpyDtoHAsync", "from", device, (_host_address(target), address), target.nbytes, stream)

    def copy(self, device: int, target: int, source: int, nbytes: int, stream: CudaStream | int | None = None) -> None:
        """Enqueue a copy between two addresses, of this device or of another one."""
        if not nbytes:
            return
        handle = self._stream(device, stream).handle
        doing = f"copying {nbytes} bytes on cuda:{device}"
        # Pools of one device are not mapped on another: between devices the driver has to be told of both.
        to, of = (self._owner(target), self._owner(source)) if len(self.devices()) > 1 else (device, device)
        with self._device(device).context.current():
            if to == of:
                driver.call(doing, "cuMemcpyAsync", target, source, nbytes, handle)
            else:
                contexts = (self._device(to).context.handle, self._device(of).context.handle)
                driver.call(doing, "cuMemcpyPeerAsync", target, contexts[0], source, contexts[1], nbytes, handle)

    def fill(self, device: int, address: int, byte: int, nbytes: int, stream: CudaStream | int | None = None) -> None:
        """Enqueue setting ``nbytes`` bytes from ``address`` on to ``byte``."""
        if nbytes:
            handle = self._stream(device, stream).handle
            with self._device(device).context.current():
                driver.call(
                    f"filling {nbytes} bytes on cuda:{device}", "cuMemsetD8Async", address, byte, nbytes, handle
                )

    def default_stream(self, device: int) -> CudaStream:
        """Return the stream that work goes to when nobody names one: the runtime's own, one a device."""
        return self._device(device).default_stream

    def stream(self, device: int) -> CudaStream:
        """Create a stream that synchronises with no other."""
        return CudaStream.new(self._device(device).context)

    def event(self, device: int) -> CudaEvent:
        """Create an event that keeps its time."""
        return CudaEvent(self._device(device).context)

    def delay(self, device: int, stream: CudaStream | int | None, seconds: float) -> None:
        """Keep ``stream`` busy for that long, by the device's clock, with a kernel of one thread."""
        launch = Launch(function=self.load(device, DELAY), args=(Scalar(round(seconds * 1e9), "uint64"),))
        self.program(device, (launch,), ()).run((), self._stream(device, stream).handle)

    def synchronize(self, device: int) -> None:
        """Wait until the device has done everything. Raises `CudaError` for what went wrong meanwhile."""
        refuse_wait(f"cuda:{device} is waited for")
        with self._device(device).context.current():
            driver.call(f"waiting for cuda:{device}", "cuCtxSynchronize")

    def load(self, device: int, artifact: Artifact) -> Function:
        """Load a cubin or PTX; the result is a `Launch.function`. The same image is loaded once."""
        return self._device(device).loader.load(artifact)

    def program(self, device: int, launches: Sequence[Launch], slots: Sequence[Slot]) -> CudaProgram:
        """Pack launches over named slots. Raises `NbxError` for arguments that do not fit the loaded code."""
        started = self._device(device)
        for launch in launches:
            if isinstance(launch.function, Function) and launch.function.device != device:
                raise NbxError(f"{launch.function!r} cannot be launched on cuda:{device}")
        with started.context.current():
            return CudaProgram(
                launches,
                slots,
                launch=launcher(),
                failed=started.launch_failed,
                default_stream=started.default_stream.handle,
            )

    def capture(self, device: int, stream: CudaStream) -> Capture:
        """Record what is enqueued on ``stream`` inside the block; the value's ``.graph`` is the graph afterwards."""
        return Capture(
            self._device(device).pool, self._stream(device, stream), lambda other: self._stream(device, other)
        )

    def capturing(self, device: int, stream: CudaStream | int | None = None) -> bool:
        """Return whether what is enqueued on ``stream`` is being recorded, by `capture` or by another library."""
        # Through ctypes: this is asked at calls that run many times a second.
        status = ctypes.c_int()
        queue = self._stream(device, stream)
        with queue.context.current():
            asked = driver.library().cuStreamIsCapturing(ctypes.c_void_p(queue.handle), ctypes.byref(status))
        if asked == _IMPLICIT:
            return True
        driver.check(asked, f"asking whether {queue!r} is being captured")
        return status.value != 0

    def check_pointer(self, device: int, address: int) -> None:
        """Raise `NbxError` unless ``address`` is memory of that device, allocated by anybody in this process.

        A kernel handed such an address would fault and take the process's context with it.
        """
        try:
            owner = self._owner(address)
        except CudaError as error:
            raise NbxError(f"address {address:#x} was made by no allocator of cuda:{device}") from error
        if owner != device:
            raise NbxError(f"address {address:#x} is memory of cuda:{owner}, not of cuda:{device}")

    @staticmethod
    def _owner(address: int) -> int:
        """Return the device whose memory an address is. Raises `CudaError` for one that is none's."""
        # Not through cuda-bindings: 13.3 gives 0 as the ordinal of every device.
        owner = ctypes.c_int()
        asked = driver.library().cuPointerGetAttribute(ctypes.byref(owner), _DEVICE_ORDINAL, ctypes.c_uint64(address))
        driver.check(asked, f"asking about address {address:#x}")
        return owner.value

    def _device(self, index: int) -> _Started:
        started = self._started.get(index)
        if started is None:
            with self._lock:
                started = self._started.get(index)
                if started is None:
                    started = self._started[index] = self._start(index)
        return started

    def _start(self, index: int) -> _Started:
        live = self.devices()
        if not 0 <= index < len(live):
            why = self.why_absent() or f"the driver shows {len(live)}: cuda:0 to cuda:{len(live) - 1}"
            raise CudaError(f"there is no cuda:{index}: {why}")
        return _Started(live[index])

    def _stream(self, device: int, stream: CudaStream | int | None) -> CudaStream:
        if stream is None:
            return self._device(device).default_stream
        if isinstance(stream, int):
            return self._device(device).foreign_stream(stream)
        if stream.device != device:
            raise NbxError(f"{stream!r} is no stream of cuda:{device}")
        return stream

    def _copy_host(
        self,
        function: str,
        direction: str,
        device: int,
        addresses: tuple[int, int],
        nbytes: int,
        stream: CudaStream | int | None,
    ) -> None:
        if nbytes == 0:
            return
        refuse_wait(f"{nbytes} bytes are copied {direction} cuda:{device} by the host")
        queue = self._stream(device, stream)
        with queue.context.current():
            doing = f"copying {nbytes} bytes {direction} cuda:{device}"
            driver.call(doing, function, *addresses, nbytes, queue.handle)
            # Pinned host memory is read and written behind the caller's back; pageable memory is not. Nobody tells.
            driver.call(doing, "cuStreamSynchronize", queue.handle)


class _Started:
    """What the runtime keeps for a device that is in use."""

    def __init__(self, live: LiveDevice) -> None:
        self.context = Context(live.index)
        self.pool = Pool(self.context)
        shared_limit = live.detected["shared.bytes_per_block_optin"]
        assert isinstance(shared_limit, int)
        self.loader = Loader(self.context, shared_limit)
        self.default_stream = CudaStream.new(self.context)
        self._foreign: dict[int, CudaStream] = {}

    def foreign_stream(self, handle: int) -> CudaStream:
        """Return the stream of another library's handle."""
        found = self._foreign.get(handle)
        if found is None:
            found = CudaStream.foreign(self.context, handle)
            if len(self._foreign) >= FOREIGN_LIMIT:
                self._foreign.clear()
            self._foreign[handle] = found
        return found

    def launch_failed(self, launch: Launch, arguments: tuple[Any, ...], code: int) -> None:
        """Try once more in the device's own context where that was the matter; raise `CudaError` otherwise."""
        if code in WRONG_CONTEXT:
            with self.context.current():
                code = launcher()(*arguments)
        driver.check(
            code,
            f"launching {launch.function.entry} on cuda:{self.context.index} "
            f"(grid {launch.grid}, block {launch.block}, {launch.shared_bytes} bytes of shared memory)",
        )


def _host_address(array: np.ndarray) -> int:
    if not array.flags.c_contiguous:
        raise NbxError(
            f"only contiguous host arrays are copied; this one has shape {array.shape}, strides {array.strides}"
        )
    return array.ctypes.data


@cache
def create() -> CudaRuntime:
    """Return the process's one CUDA runtime: memory is accounted in one place. Touches no driver."""
    return CudaRuntime()
