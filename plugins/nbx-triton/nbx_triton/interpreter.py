"""The emulator ``triton-interpreter``: kernels run by Triton's interpreter, on host memory, without torch or a GPU.

It stands in for runtime ``cuda`` when conformance checks the numbers of kernels of backend ``triton``. The process
must have been started with ``TRITON_INTERPRET=1``: Triton looks at it when a function is decorated.

Memory is NumPy's, addresses are real ones, everything is synchronous. A kernel that reads or writes out of bounds
does so in this process.

Triton's own executor (`triton.runtime.interpreter.GridExecutor`) copies tensors through torch's methods, so launches
are executed here. `_repair` corrects what Triton 3.6.0 gets wrong, each with its reason; with numpy before 2.4 and
Triton 3.9 the first is not needed and harmless.
"""

from __future__ import annotations

import ctypes
import importlib
import itertools
import json
import os
import platform
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ml_dtypes
import numpy as np
import triton
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import (
    InterpretedFunction,
    ReduceOps,
    TensorHandle,
    _get_np_dtype,
    interpreter_builder,
)

from nbx_registry.errors import NbxError
from nbx_registry.launch import Artifact, Launch, Scalar, ScalarOf
from nbx_registry.runtime import LiveDevice, MemoryInfo, Slot

NAME = "triton-interpreter"
_ALIGN = 256

_one_at_a_time = threading.Lock()
"""Held while a launch runs: which program it is at, Triton's interpreter keeps for the whole process, as it does the
language that it puts in the place of Triton's own."""


def runtime() -> InterpreterRuntime:
    """Return the emulator's runtime. Raises `NbxError` in a process that was not started for it."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        raise NbxError(
            f"runtime {NAME!r} needs TRITON_INTERPRET=1 in the environment the process is started with; "
            "Triton reads it when kernels are imported"
        )
    return InterpreterRuntime()


class HostBuffer:
    """Host memory, 256-byte aligned."""

    def __init__(self, memory: np.ndarray, device: int, live: dict[int, int]) -> None:
        self._memory = memory
        self._live = live
        base = memory.ctypes.data
        self.address = base + -base % _ALIGN
        self.nbytes = memory.nbytes - _ALIGN
        self.device = device
        live[self.address] = self.nbytes

    def __del__(self) -> None:
        # Takes no lock: the garbage collector may call this anywhere.
        self._live.pop(self.address, None)


class HostStream:
    """The one queue there is; what is enqueued has run when the call returns."""

    handle = None
    device = 0

    def synchronize(self) -> None:
        """Do nothing: all work is done."""

    def wait(self, event: HostEvent) -> None:
        """Do nothing: the event's work is done."""


class HostEvent:
    """A time stamp."""

    def __init__(self) -> None:
        self._at = 0.0

    def record(self, stream: HostStream) -> None:  # noqa: ARG002 - the one stream
        """Take the time."""
        self._at = time.perf_counter()

    def synchronize(self) -> None:
        """Do nothing: all work is done."""

    def elapsed_s(self, earlier: HostEvent) -> float:
        """Seconds since ``earlier`` was recorded."""
        return self._at - earlier._at


class HostGraph:
    """Program runs that were recorded instead of executed."""

    def __init__(self, runs: list[tuple[InterpretedProgram, tuple[Any, ...]]]) -> None:
        self._runs = runs

    def replay(self, stream: HostStream) -> None:  # noqa: ARG002 - the one stream
        """Execute the recorded runs in order, with the operands they were recorded with."""
        for program, operands in self._runs:
            program.execute(operands)


class Capture:
    """What a block recorded; ``graph`` is there once the block has ended."""

    graph: HostGraph | None = None


class InterpretedKernel:
    """A Triton function bound to types and constants, called with addresses and numbers."""

    def __init__(self, artifact: Artifact) -> None:
        image = json.loads(artifact.image)
        module, _, name = image["function"].partition(":")
        function = getattr(importlib.import_module(module), name)
        if not hasattr(function, "rewrite"):
            raise NbxError(
                f"{image['function']} was not imported for the interpreter; start the process with TRITON_INTERPRET=1"
            )
        self._function = function.rewrite()
        self._signature = [(name, _tuples(kind)) for name, kind in image["signature"]]
        self._constants = {tuple(path): value for path, value in image["constants"]}
        _patch_language(function.fn)

    def run(self, grid: tuple[int, int, int], values: Sequence[int | float]) -> None:
        """Execute every program of ``grid``, first axis slowest, with the arguments that are no constants."""
        passed = iter(values)
        arguments = {name: self._argument(kind, (i,), passed) for i, (name, kind) in enumerate(self._signature)}
        # Lanes that are masked off compute on whatever they hold, and NaN is a value like another.
        with _one_at_a_time, np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            interpreter_builder.set_grid_dim(*grid)
            for index in itertools.product(*map(range, grid)):
                interpreter_builder.set_grid_idx(*index)
                self._function(**arguments)

    def _argument(self, kind: Any, path: tuple[int, ...], passed: Iterator[int | float]) -> Any:
        if isinstance(kind, tuple):
            return tuple(self._argument(inner, (*path, i), passed) for i, inner in enumerate(kind))
        if kind == "constexpr":
            return self._constants[path]
        dtype = tl.str_to_ty(kind, None)
        return tl.tensor(TensorHandle(np.array([next(passed)], dtype=_get_np_dtype(dtype)), dtype), dtype)


class InterpretedProgram:
    """Launches over named slots."""

    def __init__(self, owner: InterpreterRuntime, launches: Sequence[Launch], slots: Sequence[Slot]) -> None:
        self._owner = owner
        positions = {slot.name: i for i, slot in enumerate(slots)}
        self._steps = [
            (launch, [self._source(launch, argument, positions) for argument in launch.args]) for launch in launches
        ]

    @staticmethod
    def _source(launch: Launch, argument: str | Scalar | ScalarOf, positions: dict[str, int]) -> tuple[int | None, Any]:
        """Return (slot, byte offset) for an operand or (None, value) for a number."""
        if isinstance(argument, Scalar):
            return None, argument.value
        name = argument if isinstance(argument, str) else argument.name
        if name not in positions:
            raise NbxError(f"a launch takes {name!r}, which is no slot; slots are {', '.join(positions)}")
        return positions[name], dict(launch.offsets).get(name, 0) if isinstance(argument, str) else 0

    def run(self, operands: Sequence[Any], stream: Any) -> None:  # noqa: ARG002 - the one stream
        """Execute every launch, or record the run where a capture is under way."""
        if self._owner.recording is not None:
            self._owner.recording.append((self, tuple(operands)))
        else:
            self.execute(operands)

    def execute(self, operands: Sequence[Any]) -> None:
        """Execute every launch."""
        for launch, sources in self._steps:
            values = [_value(operands, slot, value) for slot, value in sources]
            launch.function.run(launch.grid, values)


def _value(operands: Sequence[Any], slot: int | None, value: Any) -> Any:
    """Return a number of the launch's own, or an operand, an address ``value`` bytes on."""
    if slot is None:
        return value
    # A sum of -0.0 and 0 has lost the sign.
    return operands[slot] + value if value else operands[slot]


class InterpreterRuntime:
    """The `Runtime` protocol over host memory; see the module's documentation."""

    name = NAME
    operands = "address"

    def __init__(self) -> None:
        _repair()
        self.recording: list[tuple[InterpretedProgram, tuple[Any, ...]]] | None = None
        self._live: dict[int, int] = {}
        self._lock = threading.Lock()
        self._allocations = 0
        self._allocated = 0
        self._stream = HostStream()
        self._device = LiveDevice(
            runtime=NAME,
            index=0,
            name=f"Triton {triton.__version__} interpreter on {platform.machine()}",
            arch=platform.machine(),
            versions={"triton": triton.__version__, "numpy": np.__version__},
        )

    def devices(self) -> Sequence[LiveDevice]:
        """The one device."""
        return (self._device,)

    def why_absent(self) -> str:
        """Return nothing: the device is always there."""
        return ""

    def allocate(self, device: int, nbytes: int, stream: HostStream | None = None) -> HostBuffer:  # noqa: ARG002
        """Allocate 256-byte aligned host memory. Raises `OutOfMemory`."""
        try:
            memory = np.empty(nbytes + _ALIGN, np.uint8)
        except (MemoryError, ValueError) as error:
            info = self.memory(device)
            raise info.out_of_memory(
                nbytes, f"cannot allocate {nbytes} bytes for {NAME}: {info.live} are handed out"
            ) from error
        with self._lock:
            self._allocations += 1
            self._allocated += nbytes
        return HostBuffer(memory, device, self._live)

    def memory(self, device: int) -> MemoryInfo:  # noqa: ARG002
        """Return what is handed out; the host's free memory is not asked for."""
        return MemoryInfo(
            live=sum(list(self._live.values())),
            pooled=0,
            free=None,
            allocations=self._allocations,
            allocated_bytes=self._allocated,
        )

    def trim(self, device: int) -> None:
        """Do nothing: no memory is kept."""

    def copy_in(self, device: int, address: int, source: np.ndarray, stream: HostStream | None = None) -> None:  # noqa: ARG002
        """Copy a contiguous array to ``address``."""
        _at(address, source.nbytes)[:] = np.frombuffer(np.ascontiguousarray(source).tobytes(), np.uint8)

    def copy_out(self, device: int, target: np.ndarray, address: int, stream: HostStream | None = None) -> None:  # noqa: ARG002
        """Copy from ``address`` into a contiguous array."""
        target.reshape(-1).view(np.uint8)[:] = _at(address, target.nbytes)

    def copy(self, device: int, target: int, source: int, nbytes: int, stream: HostStream | None = None) -> None:  # noqa: ARG002
        """Copy ``nbytes``; the ranges may overlap."""
        _at(target, nbytes)[:] = _at(source, nbytes).copy()

    def fill(self, device: int, address: int, byte: int, nbytes: int, stream: HostStream | None = None) -> None:  # noqa: ARG002
        """Set ``nbytes`` bytes."""
        _at(address, nbytes)[:] = byte

    def default_stream(self, device: int) -> HostStream:  # noqa: ARG002
        """The one stream."""
        return self._stream

    def stream(self, device: int) -> HostStream:  # noqa: ARG002
        """Return the one stream: nothing runs beside anything else."""
        return self._stream

    def event(self, device: int) -> HostEvent:  # noqa: ARG002
        """Return a new event."""
        return HostEvent()

    def delay(self, device: int, stream: HostStream, seconds: float) -> None:  # noqa: ARG002
        """Sleep."""
        time.sleep(seconds)

    def synchronize(self, device: int) -> None:
        """Do nothing: all work is done."""

    def load(self, device: int, artifact: Artifact) -> InterpretedKernel:  # noqa: ARG002
        """Find the function an artifact of kind ``python`` names."""
        if artifact.kind != "python":
            raise NbxError(f"runtime {NAME!r} cannot run {artifact.entry!r}: it is a {artifact.kind}, not Python")
        return InterpretedKernel(artifact)

    def program(self, device: int, launches: Sequence[Launch], slots: Sequence[Slot]) -> InterpretedProgram:  # noqa: ARG002
        """Resolve the launches' arguments to slots."""
        return InterpretedProgram(self, launches, slots)

    @contextmanager
    def capture(self, device: int, stream: HostStream) -> Iterator[Capture]:  # noqa: ARG002
        """Record program runs instead of executing them."""
        if self.recording is not None:
            raise NbxError("a capture is already under way")
        capture = Capture()
        self.recording = runs = []
        try:
            yield capture
        finally:
            self.recording = None
        capture.graph = HostGraph(runs)

    def capturing(self, device: int, stream: HostStream | None = None) -> bool:  # noqa: ARG002
        """Return whether a capture is under way."""
        return self.recording is not None


def _at(address: int, nbytes: int) -> np.ndarray:
    """Return the bytes at ``address``."""
    if nbytes == 0:
        return np.empty(0, np.uint8)
    return np.frombuffer((ctypes.c_uint8 * nbytes).from_address(address), np.uint8)


def _tuples(kind: Any) -> Any:
    """Return a type read from JSON with its lists as tuples."""
    return tuple(_tuples(inner) for inner in kind) if isinstance(kind, list) else kind


_language_patched = False


def _patch_language(function: Any) -> None:
    """Point ``triton.language`` at the interpreter, once and for the life of the process, which does nothing else."""
    global _language_patched
    with _one_at_a_time:
        if _language_patched:
            return
        interpreter._patch_lang(function)
        # Functions of the standard library see the language under another module.
        interpreter._patch_lang(tl.zeros.fn)
        # Triton 3.6.0 takes int() of an array of shape [1], which numpy 2.4 refuses: loops with run-time bounds fail.
        tl.tensor.__index__ = lambda self: int(self.handle.data.item())
        _language_patched = True


def _repair() -> None:
    """Correct the interpreter of Triton 3.6.0, so that its numbers are those of the hardware.

    - Casts to and from bfloat16: float32 to bfloat16 truncates, where hardware rounds to nearest even; those between
      bfloat16 and anything but float32 convert the bits as if they were an integer.
    - Products of bfloat16 tiles multiply the bits as integers.
    - A fused multiply-add rounds the product too.
    - What compares two scalars is spread over a block as a number, not as true or false.
    - A reduction by a function of one's own visits one element after another, in a millisecond each.
    - A call of one Triton function by another patches the whole language again, a millisecond each.
    """
    stored = {
        tl.bfloat16: np.dtype(ml_dtypes.bfloat16),
        tl.float8e4nv: np.dtype(ml_dtypes.float8_e4m3fn),
        tl.float8e5: np.dtype(ml_dtypes.float8_e5m2),
    }

    def numbers(handle: Any) -> np.ndarray:
        own = stored.get(handle.dtype.scalar)
        return handle.data if own is None else np.ascontiguousarray(handle.data).view(own)

    def cast(source: Any, target: Any) -> Any:
        scalar = target.scalar
        own = stored.get(scalar)
        if own is None:
            return TensorHandle(numbers(source).astype(_get_np_dtype(target)), scalar)
        return TensorHandle(numbers(source).astype(own).view(_get_np_dtype(target)), scalar)

    def dot(a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any) -> Any:  # noqa: ARG001
        left, right = (numbers(x).astype(d.data.dtype) for x in (a, b))
        return TensorHandle(np.matmul(left, right) + d.data, d.dtype.scalar)

    def fma(x: Any, y: Any, z: Any) -> Any:
        return TensorHandle(_multiply_add(x.data, y.data, z.data), z.dtype.scalar)

    def splat(kind: Any, value: Any) -> Any:
        return TensorHandle(np.full(kind.shape, value.data.reshape(-1)[0], value.data.dtype), value.dtype.scalar)

    interpreter_builder.cast_impl = cast
    interpreter_builder.create_dot = dot
    interpreter_builder.create_splat = splat
    interpreter_builder.create_fma = fma
    ReduceOps.generic_reduce = _reduce_by_halves
    InterpretedFunction.__call__ = lambda self, *args, **kwargs: self.rewrite()(*args, **kwargs)


def _multiply_add(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Return x y + z, of floats or integers, rounded once.

    float32 in float64, which holds the product (the sum is rounded twice, which shows in one of 2^29). float64 with
    what rounding takes from product and sum (T. J. Dekker, "A floating-point technique for extending the available
    precision", 1971), left out where that passes the largest number.
    """
    if z.dtype == np.float32:
        return (x.astype(np.float64) * y + z).astype(np.float32)
    if z.dtype != np.float64:
        return x * y + z
    product = x * y
    (x_high, x_low), (y_high, y_low) = _halves(x), _halves(y)
    rest = x_low * y_low - (((product - x_high * y_high) - x_low * y_high) - x_high * y_low)
    total = product + z
    back = total - product
    rest = rest + ((product - (total - back)) + (z - back))
    return np.where(np.isfinite(rest), total + rest, total)


def _halves(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split float64 in two of 26 bits."""
    scaled = x * 134217729.0
    high = scaled - (scaled - x)
    return high, x - high


def _reduce_by_halves(self: Any, inputs: Any) -> Any:
    """Combine the first half of the axis with the second, until one is left; block extents are powers of two."""
    given, axis = self.unravel(inputs, self.axis)
    rank = given[0].handle.data.ndim
    kept = tuple(given)
    while (extent := kept[0].handle.data.shape[axis]) > 1:
        first, second = (
            tuple(
                self.to_tensor(np.take(part.handle.data, range(at, at + extent // 2), axis=axis), part.dtype)
                for part in kept
            )
            for at in (0, extent // 2)
        )
        combined = self.combine_fn.fn(*first, *second)
        kept = combined if isinstance(combined, tuple) else (combined,)
    found = []
    for part, of in zip(kept, given, strict=True):
        data = part.handle.data
        if not self.keep_dims:
            data = np.squeeze(data, axis) if self.axis is not None else data.item()
        elif self.axis is None:
            data = data.reshape((1,) * rank)
        found.append(self.to_tensor(data, of.dtype))
    return found
