"""Turns: a device's memory is never promised twice, and what a process held is free when it ends."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from dataclasses import replace
from pathlib import Path

import pytest

import nbx_registry as nbx
from nbx_conformance.runs.runner import Item, case_table
from nbx_conformance.runs.turns import SHARES, nbytes, shares, turn
from nbx_conformance.trials.trial import Site


def test_who_finds_too_few_shares_left_waits_for_others(tmp_path: Path) -> None:
    entered, most = threading.Event(), [0]
    now, lock = [0], threading.Lock()

    def work(count: int) -> None:
        with shares(tmp_path, count):
            with lock:
                now[0] += count
                most[0] = max(most[0], now[0])
            entered.wait(0.05)
            with lock:
                now[0] -= count

    threads = [threading.Thread(target=work, args=(count,)) for count in (10, 7, 16, 1, 9, 3, 3, 3, 3, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert 10 <= most[0] <= SHARES


def test_a_process_that_is_killed_holds_nothing(tmp_path: Path) -> None:
    script = f"""
        import os, signal
        from pathlib import Path
        from nbx_conformance.runs.turns import SHARES, shares
        with shares(Path({str(tmp_path)!r}), SHARES):
            os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=False, timeout=60)
    assert done.returncode != 0
    with shares(tmp_path, SHARES):
        pass


@pytest.mark.parametrize("op", ["add@1", "paged_decode_attention@1"])
def test_a_trial_takes_what_its_operands_and_results_take(op: str) -> None:
    registry = nbx.load()
    cases = case_table(registry)
    site = Site(registry, cases, registry.target("cpu"), "here", "device")
    kernel = next(kernel for kernel in registry.kernels.values() if kernel.op == op)
    for case in cases.of(op, "smoke"):
        found = nbytes(site, Item(kernel, case))
        assert (found == 0) == bool(case.refuses) or found >= sum(spec.nbytes for spec in case.specs())


def test_what_a_large_trial_leaves_for_reuse_is_given_back() -> None:
    simulation = pytest.importorskip("nbx_simulated.plugin", reason="the simulation lives beside the core's tests")
    registry = nbx.load(plugins=(simulation,))
    target = registry.target("sim:0")
    assert target.runtime is not None
    cases = case_table(registry)
    site = Site(registry, cases, target, "here", "device")
    kernel = registry.catalog.kernel("nbx-simulated/add/loopback")
    for size, left in (("smoke", True), ("large", False)):
        item = Item(kernel, replace(cases.of("add@1", "smoke")[0], size=size))
        target.runtime.trim(0)
        with turn(site, item):
            target.runtime.allocate(0, 1 << 20)
            target.runtime.synchronize(0)
        assert (target.runtime.memory(0).pooled > 0) is left
