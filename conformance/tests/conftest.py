"""Registries for the suite's own tests: the host's, and the simulation's, which lives beside the core's tests."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from nbx_conformance.runs.options import Options
from nbx_conformance.runs.runner import Record
from nbx_conformance.runs.session import Session

# Helpers beside the tests.
sys.path.append(str(Path(__file__).parent))

SIMULATION = Path(__file__).parents[2] / "tests" / "plugins" / "nbx-simulated"

if SIMULATION.is_dir():
    sys.path.append(str(SIMULATION))
    # Tests skip without these in an unpacked distribution alone: in the repository they have to import.
    for module in ("nbx_simulated.plugin", "nbx_sdm"):
        importlib.import_module(module)


@pytest.fixture
def try_kernel() -> Callable[..., list[Record]]:
    """Give a function that tries one kernel of in-process plugins: on cases, in the order given, or on all."""

    def run(
        kernel: str, *extra: Any, device: str = "cpu", cases: Iterable[str] = (), via: str = "auto"
    ) -> list[Record]:
        session = Session(Options(device=device, kernels=(kernel,), extra=extra, via=via))
        wanted = tuple(cases)
        found = [session.run(item) for item in session.items if not wanted or item.case.id in wanted]
        assert not wanted or {record.case for record in found} == set(wanted)
        return sorted(found, key=lambda record: wanted.index(record.case)) if wanted else found

    return run


@pytest.fixture(scope="session")
def sqrt_session() -> Session:
    """A whole run of the host's sqrt: small, and all of it passes."""
    session = Session(Options(device="cpu", kernels=("nbx-host/sqrt/numpy",)))
    for item in session.items:
        session.run(item)
    return session
