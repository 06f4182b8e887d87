"""Captures without a device: what is dropped meanwhile, and what a failure leaves."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from nbx_cuda.runtime.errors import CudaError
from nbx_cuda.runtime.graph import Capture, CudaGraph
from nbx_cuda.runtime.memory import Pool
from nbx_registry.errors import NbxError

pytest.importorskip("cuda.core")


@pytest.fixture
def pool() -> Pool:
    made = Pool.__new__(Pool)
    made.held, made._live = {}, {}
    return made


def stream(end: Callable[[], None], closed: list[bool] | None = None) -> Any:
    """Return a stream whose capture ends by a call of ``end``."""
    builder = SimpleNamespace(close=lambda: None if closed is None else closed.append(True))
    builder.begin_building = lambda: builder
    builder.end_building = lambda: end() or builder
    builder.complete = lambda: "graph"
    return SimpleNamespace(
        handle=77,
        core=SimpleNamespace(create_graph_builder=lambda: builder),
        context=SimpleNamespace(current=nullcontext, index=0),
    )


def test_what_is_dropped_until_the_capture_has_ended_is_the_graphs(pool: Pool) -> None:
    queue = stream(lambda: pool.release(0x200, "late", queue))
    with Capture(pool, queue, lambda found: found) as capture:
        pool.release(0x100, "early", queue)
        with pytest.raises(NbxError, match="allocate before the capture begins"):
            pool.allocate(16, queue)
        with pytest.raises(NbxError, match="already under capture"), Capture(pool, queue, lambda found: found):
            pass
    assert capture.graph is not None
    assert capture.graph._held == ["early", "late"]
    assert not pool.held


def test_a_capture_that_fails_leaves_the_stream_to_others(pool: Pool) -> None:
    def refused() -> None:
        raise RuntimeError("the capture was invalidated")

    queue = stream(refused)
    capture = Capture(pool, queue, lambda found: found)
    with pytest.raises(CudaError, match="invalidated"), capture:
        pass
    assert capture.graph is None
    assert not pool.held

    closed: list[bool] = []
    queue = stream(lambda: None, closed)
    with pytest.raises(ZeroDivisionError), Capture(pool, queue, lambda found: found):
        raise ZeroDivisionError
    assert closed == [True]
    assert not pool.held


def test_a_graph_keeps_streams_for_the_sake_of_what_it_holds_alone(pool: Pool) -> None:
    waited: list[str] = []
    queue = stream(lambda: None)
    queue.core.wait = waited.append
    other = SimpleNamespace(handle=78, core="other")
    for held in ([], ["buffer"]):
        launched: list[str] = []
        graph = CudaGraph(SimpleNamespace(launch=launched.append), queue, held, lambda found: found)
        graph.replay(other)
        assert launched == ["other"]
        assert list(graph._replayed_on.values()) == [other] * len(held)
        del graph
        assert waited == ["other"] * len(held)
