"""What an allocation that fails says, and that the caller goes on. The driver is a stand-in."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from nbx_cuda.runtime import memory
from nbx_cuda.runtime.errors import CudaError
from nbx_cuda.runtime.memory import Pool
from nbx_registry.errors import OutOfMemory

ROOM = 1000
"""Bytes that the card has."""


class Card:
    """A card of `ROOM` bytes whose pool keeps what is freed until it is trimmed."""

    def __init__(self) -> None:
        self.used = 0
        self.pooled = 0
        self.trims = 0
        self.handle = 7
        self.error = 2

    @property
    def attributes(self) -> Any:
        return SimpleNamespace(reserved_mem_current=self.used + self.pooled, used_mem_current=self.used)

    def allocate(self, nbytes: int, stream: Any) -> Any:
        del stream
        if self.used + self.pooled + nbytes > ROOM:
            raise CudaError("CUDA_ERROR_OUT_OF_MEMORY: out of memory", result=self.error)
        self.used += nbytes
        return SimpleNamespace(handle=4096 * (1 + self.used))

    def free(self, nbytes: int) -> None:
        self.used -= nbytes
        self.pooled += nbytes

    def call(self, doing: str, function: str, *arguments: Any) -> Any:
        del doing, arguments
        if function == "cuMemPoolTrimTo":
            self.trims += 1
            self.pooled = 0
        return (ROOM - self.used - self.pooled, ROOM) if function == "cuMemGetInfo" else None


class Context:
    index = 0

    def current(self) -> Any:
        return nullcontext()


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    card = Card()
    monkeypatch.setattr(memory, "call", card.call)
    monkeypatch.setattr(memory, "translated", lambda _: nullcontext())
    return card


@pytest.fixture
def pool(card: Card) -> Pool:
    pool = Pool.__new__(Pool)
    pool.context = Context()
    pool.held, pool._live, pool._allocations, pool._allocated_bytes = {}, {}, 0, 0
    pool._lock = threading.Lock()
    pool.resource = card
    return pool


STREAM: Any = SimpleNamespace(handle=0, core=None)


def test_its_figures_are_told_and_the_caller_goes_on(pool: Pool, card: Card) -> None:
    kept = pool.allocate(600, STREAM)
    with pytest.raises(OutOfMemory) as raised:
        pool.allocate(700, STREAM)
    error = raised.value
    assert (error.requested, error.live, error.pooled, error.free) == (700, 600, 0, 400)
    assert str(error) == (
        "cuda:0 is out of memory: 700 bytes requested, 600 handed out, 0 pooled, 400 free on the device"
    )
    assert card.trims == 1
    again = pool.allocate(400, STREAM)
    assert pool.info().live == 1000
    del kept, again
    assert pool.info().live == 0


def test_what_the_pool_keeps_is_given_back_before_anything_is_refused(pool: Pool, card: Card) -> None:
    first = pool.allocate(600, STREAM)
    del first
    card.free(600)
    assert pool.allocate(900, STREAM).nbytes == 900
    assert card.trims == 1


def test_another_failure_is_no_lack_of_memory(pool: Pool, card: Card) -> None:
    card.error = 700
    with pytest.raises(CudaError, match="OUT_OF_MEMORY") as raised:
        pool.allocate(2 * ROOM, STREAM)
    assert raised.value.result == 700
    assert card.trims == 0
