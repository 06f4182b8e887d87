"""Load: other work in flight while a kernel runs, the kernel itself on other buffers and memory traffic.

Where streams run behind their caller it goes to streams of its own; where they do not, and it is the device itself, to
another thread. An emulator that runs one thing at a time has none.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

import numpy as np

from nbx_conformance.buffers import POISON, DeviceMemory
from nbx_conformance.loop import Loop

TRAFFIC: Final = 1 << 20
"""Bytes copied and filled, each time."""

AHEAD: Final = 32
"""How many times streams are fed before they are waited for."""

SWITCH: Final = 1e-5
"""Seconds after which a thread lets another one go on: so that they meet inside of kernels too short for the usual."""

Feed = Callable[[], None]
"""Called before each run: gives the load more to do."""


@contextmanager
def none() -> Generator[Feed, None, None]:
    """Nothing else is in flight."""
    yield lambda: None


@contextmanager
def streams(loop: Loop) -> Generator[Feed, None, None]:
    """Work on two streams of their own: the loop's program, and copies between two places."""
    runtime, index = loop.bench.runtime, loop.bench.index
    kernels, copies = runtime.stream(index), runtime.stream(index)
    source, target = DeviceMemory(runtime, index, TRAFFIC), DeviceMemory(runtime, index, TRAFFIC)
    runtime.synchronize(index)
    fed = 0

    def feed() -> None:
        nonlocal fed
        fed += 1
        if fed % AHEAD == 0:
            kernels.synchronize()
            copies.synchronize()
        runtime.fill(index, source.address, fed % 256, TRAFFIC, copies)
        runtime.copy(index, target.address, source.address, TRAFFIC, copies)
        # One of them before the run that is looked at, one beside it.
        for _ in range(2):
            loop.clear(POISON[fed % 2], kernels)
            loop.launch(kernels)

    try:
        yield feed
    finally:
        kernels.synchronize()
        copies.synchronize()


@contextmanager
def threads(loop: Loop) -> Generator[Feed, None, None]:
    """Work in another thread, which goes on by itself. What it raises is raised at the end."""
    stream = loop.bench.runtime.default_stream(loop.bench.index)
    source, target = np.zeros(TRAFFIC, np.uint8), np.empty(TRAFFIC, np.uint8)
    done = threading.Event()
    raised: list[BaseException] = []

    def work() -> None:
        turn = 0
        try:
            while not done.is_set():
                turn += 1
                loop.clear(POISON[turn % 2], stream)
                loop.launch(stream)
                if turn % AHEAD == 0:
                    np.copyto(target, source)
        except BaseException as error:  # noqa: BLE001 - whatever a kernel raises is raised again where it is waited for
            raised.append(error)

    before = sys.getswitchinterval()
    thread = threading.Thread(target=work, name="nbx-conformance load", daemon=True)
    sys.setswitchinterval(SWITCH)
    thread.start()
    try:
        yield lambda: None
    finally:
        done.set()
        thread.join()
        sys.setswitchinterval(before)
    if raised:
        raise raised[0]
