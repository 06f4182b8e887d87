"""Turns: cases that fill a good part of a device's memory, as many at once as it holds, whichever processes try them.

Memory is dealt out in shares. A share is a locked file, so that one of a process that was killed is free again.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from nbx_conformance.problems.problem import Problem
from nbx_conformance.runs.runner import Item
from nbx_conformance.trials.trial import Site
from nbx_registry.errors import NbxError
from nbx_registry.filelock import try_lock

SHARES: Final = 16
"""Of a device's memory."""

TIMES: Final = 2
"""How many times its operands and results a trial takes: those of a call lie beside those that are looked at."""

DEALT: Final = 0.8
"""Of a device's memory: the rest is for every process's code and for what smaller cases take."""

_LOOK_S: Final = 0.1


@contextmanager
def turn(site: Site, item: Item) -> Generator[None, None, None]:
    """Wait until the device has memory for a trial, and keep others from it inside the block."""
    live = site.target.live
    if item.case.size != "large" or live is None or site.reach != "here":
        yield
        return
    total, runtime = live.detected.get("memory.bytes"), site.target.runtime
    needed = SHARES
    if isinstance(total, int):
        needed = min(max(math.ceil(TIMES * nbytes(site, item) * SHARES / (DEALT * total)), 1), SHARES)
    user = os.getuid() if os.name == "posix" else 0
    with shares(Path(tempfile.gettempdir()) / f"nbx-conformance-{user}" / live.handle, needed):
        try:
            yield
        finally:
            # What this process keeps for reuse is no memory for the next one's trial. A device that a trial left
            # unusable says so where the next trial begins.
            if runtime is not None:
                with suppress(NbxError):
                    runtime.trim(live.index)


def nbytes(site: Site, item: Item) -> int:
    """Return the bytes of a trial's operands and results; 0 for a case that is refused."""
    try:
        signature = Problem(site.registry.catalog.op(item.case.op), item.case).signature
    except NbxError:
        return 0
    return sum(spec.nbytes for spec in (*item.case.specs(), *signature.outputs))


@contextmanager
def shares(folder: Path, count: int) -> Generator[None, None, None]:
    """Hold ``count`` of the shares whose files lie in a folder; those who ask for several are dealt them one by one."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with ExitStack() as held:
        with ExitStack() as dealing:
            while not _hold(dealing, folder / "dealing"):
                time.sleep(_LOOK_S)
            found = 0
            while found < count:
                for number in range(SHARES):
                    if found < count and _hold(held, folder / str(number)):
                        found += 1
                if found < count:
                    time.sleep(_LOOK_S)
        yield


def _hold(stack: ExitStack, path: Path) -> bool:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    if try_lock(descriptor):
        stack.callback(os.close, descriptor)
        return True
    os.close(descriptor)
    return False
