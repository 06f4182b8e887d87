"""Trials in a process of their own: what it answers, and what becomes of one that ends, hangs or prints."""

from __future__ import annotations

import sys

import pytest

from nbx_conformance import worker
from nbx_conformance.options import Options
from nbx_conformance.session import Session
from nbx_conformance.worker import Worker

ITEM = next(
    item for item in Session(Options(device="cpu", kernels=("nbx-host/sqrt/numpy",))).items if item.case.id == "minilm"
)


def faulty(monkeypatch: pytest.MonkeyPatch, code: str) -> Worker:
    """Return a worker whose process greets and then runs ``code`` for the first request."""
    source = f"import sys, os, time; print('{{\"versions\": {{}}}}', flush=True); sys.stdin.readline(); {code}"
    monkeypatch.setattr(worker, "COMMAND", (sys.executable, "-c", source))
    return Worker(Options(device="cpu"), "device", {})


def test_a_trial_elsewhere_gives_the_record_it_gives_here() -> None:
    there = Worker(Options(device="cpu"), "device", {"NBX_REQUIRE": "any"})
    try:
        found = there.run(ITEM)
        here = Session(Options(device="cpu")).run(ITEM)
        assert (found.verdict, found.checks, found.output) == (here.verdict, here.checks, here.output)
        assert "numpy" in there.versions()
    finally:
        there.close()


def test_a_process_that_ends_is_an_error_and_the_next_trial_gets_another(monkeypatch: pytest.MonkeyPatch) -> None:
    there = faulty(monkeypatch, "os._exit(7)")
    for _ in range(2):
        record = there.run(ITEM)
        assert record.verdict == "error"
        assert record.details == {"numbers": "the process ended with code 7"}
    there.close()


def test_a_trial_that_does_not_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "TRIAL_SECONDS", 0.5)
    there = faulty(monkeypatch, "time.sleep(60)")
    assert there.run(ITEM).details == {"numbers": "took longer than 0.5 s"}
    there.close()
