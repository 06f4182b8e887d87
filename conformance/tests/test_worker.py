"""Trials in a process of their own: what it answers, and what becomes of one that ends, hangs or prints."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict

import pytest

from nbx_conformance.runs import runner, worker
from nbx_conformance.runs.options import Options
from nbx_conformance.runs.session import Session
from nbx_conformance.runs.worker import Worker, ended
from nbx_registry.errors import NbxError

ITEM = next(
    item for item in Session(Options(device="cpu", kernels=("nbx-host/sqrt/numpy",))).items if item.case.id == "minilm"
)


def faulty(monkeypatch: pytest.MonkeyPatch, code: str) -> Worker:
    """Return a worker whose process greets and then runs ``code`` for the first request."""
    source = f"import sys, os, time; print('{{\"versions\": {{}}}}', flush=True); sys.stdin.readline(); {code}"
    monkeypatch.setattr(worker, "COMMAND", (sys.executable, "-c", source))
    return Worker(Options(device="cpu"), "cpu", "device", {})


def test_a_trial_elsewhere_gives_the_record_it_gives_here() -> None:
    there = Worker(Options(device="cpu"), "cpu", "device", {"NBX_REQUIRE": "any"})
    try:
        found = there.run(ITEM)
        here = Session(Options(device="cpu")).run(ITEM)
        assert (found.verdict, found.checks, found.output) == (here.verdict, here.checks, here.output)
        assert "numpy" in there.versions()
    finally:
        there.close()


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("os._exit(7)", "the process ended with code 7"),
        ("os.abort()", "SIGABRT ended the process"),
        ("os.write(1, b'{'); os._exit(8)", "the process ended with code 8"),
    ],
    ids=["exit", "signal", "half-an-answer"],
)
def test_a_process_that_ends_is_an_error_and_the_next_trial_gets_another(
    monkeypatch: pytest.MonkeyPatch, code: str, why: str
) -> None:
    there = faulty(monkeypatch, code)
    for _ in range(2):
        record = there.run(ITEM)
        assert (record.verdict, record.handle) == ("error", "cpu")
        assert record.details == {"numbers": why}
    there.close()


def test_a_process_that_never_gets_ready_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "COMMAND", (sys.executable, "-c", "import os; os._exit(5)"))
    there = Worker(Options(device="cpu"), "cpu", "device", {})
    assert there.versions() == {}
    assert there.run(ITEM).details == {"numbers": "the process ended with code 5"}
    there.close()


def test_an_interrupt_of_the_run_is_not_one_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    there = faulty(monkeypatch, "")
    assert os.getpgid(there.start().pid) != os.getpgid(0)
    there.close()


def test_a_device_that_is_lost_is_left_with_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    record = json.dumps({"record": asdict(ended(ITEM, "lost", "cpu")), "lost": True})
    there = faulty(monkeypatch, f"print({record!r}, flush=True); print(os.getpid(), file=sys.stderr, flush=True)")
    assert there.run(ITEM).details == {"numbers": "lost"}
    first = there.start().pid
    assert there.run(ITEM).details == {"numbers": "lost"}
    assert there.start().pid != first
    there.close()


def test_a_trial_that_does_not_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "TRIAL_SECONDS", {"smoke": 0.5})
    there = faulty(monkeypatch, "time.sleep(60)")
    assert there.run(ITEM).details == {"numbers": "took longer than 0.5 s"}
    there.close()


def test_after_a_device_is_lost_trials_go_on_in_a_process_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(index: int) -> None:
        raise NbxError("the context is gone")

    session = Session(Options(device="cpu", kernels=("nbx-host/sqrt/numpy",)))
    monkeypatch.setattr(runner, "execute", lambda site, item: ended(item, "an illegal address", "cpu"))
    monkeypatch.setattr(session.site.target.runtime, "synchronize", gone)
    assert session.run(ITEM).details == {"numbers": "an illegal address"}
    monkeypatch.setattr(worker, "COMMAND", (sys.executable, "-c", "import os; os._exit(9)"))
    assert session.run(ITEM).details == {"numbers": "the process ended with code 9"}
    session.close()


def test_a_kernel_that_cannot_be_bound_is_an_error_and_no_end_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object, **__: object) -> None:
        raise NbxError("the context is gone")

    session = Session(Options(device="cpu", kernels=("nbx-host/sqrt/numpy",)))
    monkeypatch.setattr(session.registry, "bind_specs", gone)
    record = session.run(ITEM)
    assert (record.verdict, record.checks) == ("error", {"error": ["numbers"]})
    assert "the context is gone" in record.details["numbers"]
