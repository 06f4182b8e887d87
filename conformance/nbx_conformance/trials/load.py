"""Load: other work in flight while a kernel runs, the kernel itself on other buffers and memory traffic.

Where streams run behind their caller it goes to streams of its own; where they do not, and it is the device itself, to
another thread. An emulator that runs one thing at a time has none.
"""

from __future__ import annotations

import dis
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any, Final

import numpy as np

from nbx_conformance.trials.buffers import DeviceMemory
from nbx_conformance.trials.loop import Loop
from nbx_registry.bands import POISON
from nbx_registry.runtime import Stream

TRAFFIC: Final = 1 << 20
"""Bytes copied and filled, each time."""

AHEAD: Final = 32
"""How many times streams are fed before they are waited for."""

SWITCH: Final = 1e-5
"""Seconds after which a thread lets another one go on: so that they meet inside of kernels too short for the usual."""

STEPS: Final = 64
"""At how many points of one run another thread is waited for."""

PATIENCE: Final = 0.05
"""Seconds for which it is waited for at one point: it may want what the halted run holds."""

MISSES: Final = 3
"""After how many waits in vain there are no more."""

Launch = Callable[[Loop, Stream], None]
"""Launches a loop that is looked at, with something else in flight."""


@contextmanager
def none() -> Generator[Launch, None, None]:
    """Nothing else is in flight."""
    yield Loop.launch


@contextmanager
def streams(loop: Loop) -> Generator[Launch, None, None]:
    """Work on two streams of their own: another loop's program, and copies between two places."""
    runtime, index = loop.bench.runtime, loop.bench.index
    kernels, copies = runtime.stream(index), runtime.stream(index)
    source, target = DeviceMemory(runtime, index, TRAFFIC), DeviceMemory(runtime, index, TRAFFIC)
    runtime.synchronize(index)
    fed = 0

    def launch(watched: Loop, stream: Stream) -> None:
        nonlocal fed
        fed += 1
        if fed % AHEAD == 0:
            kernels.synchronize()
            copies.synchronize()
        runtime.fill(index, source.address, fed % 256, TRAFFIC, copies)
        runtime.copy(index, target.address, source.address, TRAFFIC, copies)
        # One before the run that is looked at, one beside it.
        for _ in range(2):
            loop.clear(POISON[fed % 2], kernels)
            loop.launch(kernels)
        watched.launch(stream)

    try:
        yield launch
    finally:
        kernels.synchronize()
        copies.synchronize()


@contextmanager
def threads(loop: Loop, *, halted: bool) -> Generator[Launch, None, None]:
    """Work in another thread, which goes on by itself. What it raises is raised at the end.

    With ``halted``, the first run that is looked at is halted wherever a thread may be: the other one gets in between.
    """
    stream = loop.bench.runtime.default_stream(loop.bench.index)
    source, target = np.zeros(TRAFFIC, np.uint8), np.empty(TRAFFIC, np.uint8)
    done = threading.Event()
    raised: list[BaseException] = []
    to_halt, turn = halted, 0

    def work() -> None:
        nonlocal turn
        try:
            while not done.is_set():
                turn += 1
                loop.clear(POISON[turn % 2], stream)
                loop.launch(stream)
                if turn % AHEAD == 0:
                    np.copyto(target, source)
        except BaseException as error:  # noqa: BLE001 - whatever a kernel raises is raised again where it is waited for
            raised.append(error)

    def launch(watched: Loop, stream: Stream) -> None:
        nonlocal to_halt
        with _halting(lambda: turn) if to_halt else nullcontext():
            to_halt = False
            watched.launch(stream)

    before = sys.getswitchinterval()
    thread = threading.Thread(target=work, name="nbx-conformance load", daemon=True)
    sys.setswitchinterval(SWITCH)
    thread.start()
    try:
        yield launch
    finally:
        done.set()
        thread.join()
        sys.setswitchinterval(before)
    if raised:
        raise raised[0]


_TELLING: Final = tuple(
    number
    for number, name in enumerate(dis.opname)
    if name.startswith(("CALL", "BINARY_", "INPLACE_", "STORE_SUBSCR", "STORE_SLICE", "STORE_ATTR", "STORE_GLOBAL"))
)
"""Instructions after which something may have changed that another thread sees."""


@contextmanager
def _halting(turn: Callable[[], int]) -> Generator[None, None, None]:
    """Halt after each instruction that another thread could tell from the next, until that has run once from the start.

    ``turn`` returns how often it has begun.
    """
    steps = misses = 0
    last: dict[FrameType, int] = {}

    def halt() -> None:
        nonlocal steps, misses
        steps += 1
        wanted, end = turn() + 2, time.perf_counter() + PATIENCE
        while turn() < wanted:
            if time.perf_counter() > end:
                misses += 1
                return
            time.sleep(SWITCH)

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        del argument
        if event == "call":
            frame.f_trace_opcodes = True
        elif event == "opcode":
            if last.get(frame) in _TELLING and steps < STEPS and misses < MISSES:
                halt()
            last[frame] = frame.f_code.co_code[frame.f_lasti]
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)
