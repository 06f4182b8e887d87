"""Who allocates: the runtime's pool, or an allocator that an engine passes for a block of code."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from nbx_registry.errors import NbxError, OutOfMemory, SignatureError
from nbx_registry.runtime import Buffer, Runtime
from nbx_registry.streams import refuse_recorded

ALIGNMENT = 256
"""Bytes that an address is a multiple of; what every runtime promises."""


class Allocator(Protocol):
    """Hands out device memory in the place of a runtime's pool."""

    def allocate(self, place: str, nbytes: int, stream: Any) -> Buffer:
        """Return ``nbytes`` bytes, which may be 0, on ``place`` (``cuda:0``, ``cpu``), 256-byte aligned or better.

        What is returned has ``address``, ``nbytes`` (at least as many) and ``device`` (the index); the memory is its
        own until nothing refers to it any more. ``stream`` is the stream that the memory is first used on, a `Stream`
        or the raw handle of one, None for the default one: when the buffer is dropped, work that uses it may still be
        enqueued there. Out of memory is a MemoryError, better an `OutOfMemory`.
        """
        ...


_allocator: ContextVar[Allocator | None] = ContextVar("nbx_allocator", default=None)


@contextmanager
def allocating(allocator: Allocator | None) -> Generator[Allocator | None, None, None]:
    """Take memory from ``allocator`` for whatever is called inside the block.

    That is the outputs of calls that come as `nbx_registry.Tensor`, `nbx_registry.empty`, and every kernel's workspace;
    a `Bound` made inside keeps what it was made with. Outputs in another library's arrays are that library's to
    allocate. Blocks nest (None: the runtimes' own pools again), and each thread or asyncio task has its own.

    Raises `SignatureError` for what has no ``allocate``.
    """
    if allocator is not None and not callable(getattr(allocator, "allocate", None)):
        raise SignatureError(f"{allocator!r} is no allocator: it has no method allocate(place, nbytes, stream)")
    token = _allocator.set(allocator)
    try:
        yield allocator
    finally:
        _allocator.reset(token)


def allocate(runtime: Runtime, index: int, nbytes: int, stream: Any = None) -> Buffer:
    """Return memory of a device: from the allocator of the block around the call, else from the runtime's pool.

    Raises
    ------
    OutOfMemory
        Also where the allocator raised any MemoryError.
    NbxError
        The allocator gave something else than memory of that size there.
    CaptureError
        Calls are recorded for a graph.
    """
    if runtime.name != "host":
        refuse_recorded(
            f"{nbytes} bytes are allocated on {runtime.name}:{index}",
            "they would lie elsewhere each time: make the tensor before, and write into it by an op",
            "MOVED",
        )
    allocator = _allocator.get()
    if allocator is None:
        return runtime.allocate(index, nbytes, stream)
    place = "cpu" if runtime.name == "host" else f"{runtime.name}:{index}"
    try:
        buffer: Any = allocator.allocate(place, nbytes, stream)
    except OutOfMemory:
        raise
    except MemoryError as error:
        info = runtime.memory(index)
        raise info.out_of_memory(
            nbytes,
            f"{_name(allocator)} has no {nbytes} bytes on {place}: {error or 'it says no more'}; the runtime's own "
            f"pool has {info.live} bytes handed out, {info.free} free",
        ) from error
    problem = _wrong(buffer, index, nbytes)
    if problem:
        raise NbxError(f"{_name(allocator)} was asked for {nbytes} bytes on {place} and gave {problem}")
    return buffer


def own_allocator() -> bool:
    """Return whether an allocator is in the place of the runtimes' pools."""
    return _allocator.get() is not None


def _wrong(buffer: Any, index: int, nbytes: int) -> str:
    """Return what is wrong with an allocator's answer, in words; empty where nothing is."""
    for name in ("address", "nbytes", "device"):
        value = getattr(buffer, name, None)
        if type(value) is not int:
            return f"{buffer!r}, whose {name!r} is {value!r} and not an integer"
    if buffer.nbytes < nbytes:
        return f"{buffer.nbytes}"
    if buffer.device != index:
        return f"memory of device {buffer.device}"
    if nbytes and (buffer.address <= 0 or buffer.address % ALIGNMENT):
        return f"the address {buffer.address:#x}, which is no multiple of {ALIGNMENT}"
    return ""


def _name(allocator: object) -> str:
    return f"the allocator {type(allocator).__qualname__}"
