"""Work over large arrays on every core: chunks on one small pool of threads, which NumPy lets run side by side.

For work that takes milliseconds. A kernel decides when it is bound whether its arrays are `large`; for others nothing
here is touched. What chunks compute must not depend on where they are cut, so that results are the same, to the bit,
on any number of threads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from functools import cache
from itertools import pairwise
from typing import Any, Final

import numpy as np

from nbx_registry import environment

LARGE = 1 << 23
"""Bytes read and written from which on work is spread over threads."""
CHUNK = 1 << 20
"""Bytes of a chunk, at the least: handing it over costs a hundredth of it."""
PER_THREAD = 8
"""Chunks for each thread, at the most: cores that are late are given fewer."""

Array = np.ndarray[Any, Any]
Task = Callable[[int, int], object]
"""``(start, stop)``: does a part of the work."""


def threads() -> int:
    """Return how many threads work: ``NBX_HOST_THREADS``, else as many as there are cores for this process."""
    given = environment.host_threads()
    if given is not None:
        return given
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def large(nbytes: int) -> bool:
    """Whether work on so many bytes, read and written, is worth spreading."""
    return nbytes >= LARGE


def spread(task: Task, extent: int, nbytes: int) -> None:
    """Call ``task(start, stop)`` over the whole of ``range(extent)``, in parts at the same time.

    Parameters
    ----------
    task
        Does a part, in any order with the others.
    extent
        Items; what an item is, the task knows.
    nbytes
        Bytes read and written by all of it.

    Raises
    ------
    Whatever a task raises, the first part's where several do; parts that have not begun then never run.

    Notes
    -----
    Inside a task this calls it as it stands: work that is spread already is not spread again. BLAS runs on one thread
    in each, so that together they use the cores there are.
    """
    if not extent:
        return
    if getattr(_inside, "value", False):
        task(0, extent)
        return
    workers = threads()
    parts = 1 if workers == 1 else min(extent, workers * PER_THREAD, max(1, nbytes // CHUNK))
    if parts == 1:
        with _blas_held(workers):
            task(0, extent)
        return
    ends = [extent * part // parts for part in range(parts + 1)]
    failed = threading.Event()

    def run(start: int, stop: int) -> None:
        if failed.is_set():
            return
        _inside.value = True
        try:
            task(start, stop)
        except BaseException:
            failed.set()
            raise
        finally:
            _inside.value = False

    with _blas_held(1):
        # NumPy's error handling is the caller's, which a thread of the pool does not have.
        futures = [_pool(workers).submit(copy_context().run, run, start, stop) for start, stop in pairwise(ends)]
        try:
            errors = [error for future in futures if (error := future.exception()) is not None]
        except BaseException:
            # An interrupt: what has begun still reads and writes the caller's arrays.
            failed.set()
            wait(futures)
            raise
    if errors:
        raise errors[0]


def spread_over(function: Callable[..., object], *arrays: Array) -> None:
    """Spread ``function(*arrays)``, which treats every element by itself, over parts of arrays of one shape."""
    if all(array.flags.c_contiguous for array in arrays):
        arrays = tuple(array.reshape(-1) for array in arrays)
    shape = arrays[0].shape
    axis = max(range(len(shape)), key=shape.__getitem__, default=0)

    def task(start: int, stop: int) -> None:
        part = (*(slice(None),) * axis, slice(start, stop))
        function(*(array[part] for array in arrays))

    spread(task, shape[axis], sum(array.nbytes for array in arrays))


@contextmanager
def blas() -> Generator[None, None, None]:
    """Hold BLAS to `threads` inside the block: it asks the machine, not ``NBX_HOST_THREADS``."""
    with _blas_held(1 if getattr(_inside, "value", False) else threads()):
        yield


_inside = threading.local()
_lock = threading.Lock()
_pools: dict[int, ThreadPoolExecutor] = {}


def _pool(workers: int) -> ThreadPoolExecutor:
    with _lock:
        if workers not in _pools:
            _pools[workers] = ThreadPoolExecutor(workers, thread_name_prefix="nbx-host")
        return _pools[workers]


class _Blas:
    """Who holds BLAS to how many threads. Its limit is the process's: the lowest of those asked for is in force."""

    def __init__(self) -> None:
        self.held: list[int] = []
        self.before: list[Any] = []

    def set(self, limits: list[int]) -> None:
        libraries = _libraries()
        if not self.held:
            self.before = [library.get_num_threads() for library in libraries]
        self.held = limits
        for library, before in zip(libraries, self.before, strict=True):
            # Never more than it would take by itself.
            wanted = min([before, *limits])
            if library.get_num_threads() != wanted:
                library.set_num_threads(wanted)


_blas = _Blas()


@contextmanager
def _blas_held(count: int) -> Generator[None, None, None]:
    with _lock:
        _blas.set([*_blas.held, count])
    try:
        yield
    finally:
        with _lock:
            held = list(_blas.held)
            held.remove(count)
            _blas.set(held)


_OPENMP: Final = "KMP_DUPLICATE_LIB_OK"
"""Whether Intel's OpenMP may be there twice: threadpoolctl 3 sets it as it is imported."""


@cache
def _libraries() -> list[Any]:
    told = os.environ.get(_OPENMP)
    # On first use alone: it looks through all that is loaded. It brings no types.
    import threadpoolctl  # pyright: ignore[reportMissingTypeStubs]

    # It sets this for its own tests of OpenMP; the environment is the caller's, and their children's.
    if told is None:
        os.environ.pop(_OPENMP, None)
    controller: Any = threadpoolctl.ThreadpoolController()
    return controller.select(user_api="blas").lib_controllers


def _after_fork() -> None:
    """Forget threads that the child of a fork does not have, and a lock that one of them may have held."""
    global _lock
    _lock = threading.Lock()
    _pools.clear()
    _inside.value = False
    held, _blas.held = _blas.held, []
    if held:
        for library, before in zip(_libraries(), _blas.before, strict=True):
            library.set_num_threads(before)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
