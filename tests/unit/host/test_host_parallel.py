"""Work spread over threads: all of it once, errors and interrupts, nesting, forks, BLAS."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings
from collections import Counter

import numpy as np
import pytest
import threadpoolctl

from nbx_registry.host import parallel
from nbx_registry.host.parallel import LARGE, blas, spread, spread_over, threads


@pytest.fixture(autouse=True)
def four_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NBX_HOST_THREADS", "4")


def blas_threads() -> list[int]:
    return [library["num_threads"] for library in threadpoolctl.threadpool_info() if library["user_api"] == "blas"]


def test_threads_are_the_processs_cores_unless_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert threads() == 4
    monkeypatch.delenv("NBX_HOST_THREADS")
    assert threads() == len(os.sched_getaffinity(0))


@pytest.mark.parametrize("extent", [0, 1, 2, 7, 63, 1000])
@pytest.mark.parametrize("nbytes", [0, LARGE, 64 * LARGE])
def test_every_item_is_done_once(extent: int, nbytes: int) -> None:
    seen: Counter[int] = Counter()
    lock = threading.Lock()

    def task(start: int, stop: int) -> None:
        with lock:
            seen.update(range(start, stop))

    spread(task, extent, nbytes)
    assert seen == Counter(range(extent))


def test_parts_run_side_by_side() -> None:
    meeting = threading.Barrier(4, timeout=60)
    spread(lambda start, stop: meeting.wait(), 4, 64 * LARGE)


def test_small_work_stays_on_the_callers_thread() -> None:
    where = []
    spread(lambda start, stop: where.append(threading.current_thread()), 1000, 1)
    assert where == [threading.current_thread()]


def test_one_thread_is_the_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NBX_HOST_THREADS", "1")
    where = []
    spread(lambda start, stop: where.append((start, stop, threading.current_thread())), 1000, 64 * LARGE)
    assert where == [(0, 1000, threading.current_thread())]


def test_what_a_part_raises_arrives_and_the_pool_goes_on() -> None:
    def task(start: int, stop: int) -> None:
        if start <= 500 < stop:
            raise MemoryError(f"item 500 of {start} to {stop}")

    with pytest.raises(MemoryError, match="item 500"):
        spread(task, 1000, 64 * LARGE)
    test_every_item_is_done_once(63, 64 * LARGE)


def test_parts_that_have_not_begun_do_not_after_an_error() -> None:
    began = []

    def task(start: int, stop: int) -> None:
        began.append(start)
        raise ValueError("part")

    with pytest.raises(ValueError, match="part"):
        spread(task, 1000, 1000 * LARGE)
    assert len(began) <= 4


def test_work_inside_a_part_is_not_spread_again() -> None:
    where: dict[threading.Thread, set[threading.Thread]] = {}

    def outer(start: int, stop: int) -> None:
        inner: set[threading.Thread] = set()
        spread(lambda a, b: inner.add(threading.current_thread()), 1000, 64 * LARGE)
        where.setdefault(threading.current_thread(), set()).update(inner)

    spread(outer, 1000, 64 * LARGE)
    assert all(inner == {own} for own, inner in where.items())


def test_many_callers_share_the_pool() -> None:
    totals = []

    def caller() -> None:
        parts: list[int] = []
        spread(lambda start, stop: parts.append(stop - start), 1000, 64 * LARGE)
        totals.append(sum(parts))

    callers = [threading.Thread(target=caller) for _ in range(8)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join()
    assert totals == [1000] * 8
    assert parallel._blas.held == []


def test_error_handling_of_numpy_is_the_callers() -> None:
    zeros = np.zeros(1000, np.float32)
    out = np.empty_like(zeros)

    def task(start: int, stop: int) -> None:
        np.divide(zeros[start:stop], 0, out=out[start:stop])

    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("error")
        spread(task, 1000, 64 * LARGE)
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        spread(task, 1000, 64 * LARGE)


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "strided"])
def test_arrays_of_any_layout_are_cut_up(layout: str) -> None:
    x, out = np.arange(2 * 1001 * 63.0).reshape(2, 1001, 63), np.zeros((2, 1001, 63))
    if layout == "transposed":
        x, out = x.T, out.T
    elif layout == "strided":
        x, out = x[:, ::2], out[:, ::2]
    spread_over(lambda a, b: np.copyto(b, a * 2), *(x, out))
    np.testing.assert_array_equal(out, x * 2)


def test_blas_is_held_to_one_thread_in_each_part_and_let_go() -> None:
    before = blas_threads()
    inside = []
    spread(lambda start, stop: inside.append(blas_threads()), 4, 64 * LARGE)
    assert inside == [[1] * len(before)] * 4
    assert blas_threads() == before


def test_blas_is_held_to_the_threads_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    with threadpoolctl.threadpool_limits(3, user_api="blas"):
        before = blas_threads()
        monkeypatch.setenv("NBX_HOST_THREADS", "2")
        with blas():
            assert blas_threads() == [min(2, count) for count in before]
            monkeypatch.setenv("NBX_HOST_THREADS", "1")
            with blas():
                assert set(blas_threads()) == {1}
            assert blas_threads() == [min(2, count) for count in before]
        assert blas_threads() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_the_child_of_a_fork_works() -> None:
    script = """
import os, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads, which is what this is about
from nbx_registry.host.parallel import LARGE, spread
done = []
spread(lambda start, stop: done.append(stop - start), 1000, 64 * LARGE)
child = os.fork()
if not child:
    again = []
    spread(lambda start, stop: again.append(stop - start), 1000, 64 * LARGE)
    os._exit(0 if sum(again) == 1000 else 1)
assert os.waitpid(child, 0)[1] == 0 and sum(done) == 1000
"""
    environ = {**os.environ, "NBX_HOST_THREADS": "3"}
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120, env=environ)


def test_threadpoolctl_is_loaded_by_the_first_use_alone() -> None:
    script = "import sys, nbx_registry.host.parallel; assert 'threadpoolctl' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def test_looking_for_libraries_of_blas_leaves_the_environment_as_it_is() -> None:
    code = (
        "import os; from nbx_registry.host import parallel; before = dict(os.environ); parallel._libraries(); "
        "assert dict(os.environ) == before"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
