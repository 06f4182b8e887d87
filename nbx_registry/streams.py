"""Where and behind what work is enqueued: live handles of devices, the stream chosen for each, and recording."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from nbx_registry.errors import CaptureError, SignatureError

if TYPE_CHECKING:
    from nbx_registry.runtime import Stream


def split_place(place: object) -> tuple[str, int]:
    """Turn a live handle into runtime and index: ``cpu`` into host and 0, ``cuda:1`` (or ``cuda``) into cuda and 1."""
    kind, colon, index = (place if isinstance(place, str) else "").partition(":")
    if kind == "cpu" and not colon:
        return "host", 0
    if not kind.isidentifier() or kind in ("cpu", "host") or (colon and not index.isdecimal()):
        raise SignatureError(f"{place!r} is no live device; write 'cpu', 'cuda:0', 'wgpu:0'")
    return kind, int(index or 0)


def whole_place(place: object) -> str:
    """Return a live handle with its index: ``cpu``, ``cuda:0``. Raises `SignatureError` for what is none."""
    name, index = split_place(place)
    return "cpu" if name == "host" else f"{name}:{index}"


_streams: ContextVar[Mapping[str, Stream]] = ContextVar("nbx_streams", default={})  # noqa: B039 (never changed in place)


def current_stream(place: str) -> Stream | None:
    """Return the stream chosen for ``place`` by `stream` in this thread or task; None for the runtime's default."""
    return _streams.get().get(place)


@contextmanager
def stream(chosen: Stream, device: str | None = None) -> Generator[Stream, None, None]:
    """Enqueue what is called inside the block on ``chosen``, a stream of its device's runtime.

    Blocks nest, and each thread or asyncio task has its own choice. ``device`` is the live handle (``cuda:0``); it
    can be left out for streams that carry it as ``place``. Raises `SignatureError` where neither says.
    """
    place = device if device is not None else getattr(chosen, "place", None)
    if place is None:
        raise SignatureError(f"which device {chosen!r} belongs to is not known; give stream(s, device='cuda:0')")
    _, index = split_place(place)
    if index != chosen.device:
        raise SignatureError(f"{chosen!r} is a stream of device {chosen.device}, not of {place!r}")
    place = whole_place(place)
    token = _streams.set({**_streams.get(), place: chosen})
    try:
        yield chosen
    finally:
        _streams.reset(token)


_recording: ContextVar[bool] = ContextVar("nbx_recording", default=False)


def recording() -> bool:
    """Return whether calls are recorded for a graph in this thread or task."""
    return _recording.get()


@contextmanager
def recorded(on: bool) -> Generator[None, None, None]:
    """Say that calls inside the block are recorded for a graph, or, inside such a block, that they are not."""
    token = _recording.set(on)
    try:
        yield
    finally:
        _recording.reset(token)


def refuse_recorded(what: str, way: str, code: str) -> None:
    """Raise `CaptureError` where calls are recorded for a graph: ``what`` is done, and ``way`` is the way out."""
    if _recording.get():
        raise CaptureError(f"{what} while calls are recorded for a graph; {way}", code=code)
