"""The evidence that is shipped is about the code that is shipped with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import nbx_registry as nbx
from nbx_conformance.bundles.bundle import portable
from nbx_conformance.bundles.verify import judge, verify
from nbx_conformance.runs import profiles, runner

ROOT = Path(__file__).parents[2]
BUNDLES = sorted((*ROOT.glob("nbx_registry/host/evidence/*.json"), *ROOT.glob("plugins/*/nbx_*/evidence/*.json")))


@pytest.fixture(scope="module")
def registry() -> nbx.Registry:
    return nbx.load()


@pytest.mark.parametrize("path", BUNDLES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_shipped_bundle_names_no_folder_of_a_machine(path: Path) -> None:
    data = json.loads(path.read_text("utf-8"))
    reasons = [case.get("reason", "") for kernel in data["kernels"].values() for case in kernel["cases"]]
    assert [reason for reason in reasons if portable(reason) != reason] == []


@pytest.mark.parametrize("path", BUNDLES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_shipped_bundle_verifies(path: Path, registry: nbx.Registry) -> None:
    found = verify(path, registry)
    assert not found.problems
    assert not found.stale


@pytest.mark.parametrize("name", profiles.names())
def test_the_host_satisfies_every_profile(name: str, registry: nbx.Registry) -> None:
    cases = runner.case_table(registry)
    bundles = [verify(path, registry, cases) for path in BUNDLES if path.is_relative_to(ROOT / "nbx_registry")]
    (host,) = judge(name, bundles, registry, cases)
    assert (host.device, list(host.lines())[1:]) == ("host/cpu", [])


@pytest.mark.parametrize(
    ("prefix", "device", "level"),
    [
        ("nbx-host/", "host/cpu", "here"),
        ("nbx-triton/", "nvidia/h200-sxm", "here"),
        ("nbx-triton/", "nvidia/v100-sxm2-16gb", "built"),
        ("nbx-triton/", "nvidia/b200", "built"),
        ("nbx-sdm/wy_solve/blocks", "nvidia/h200-sxm", "here"),
        ("nbx-sdm/wy_solve/blocks", "nvidia/b200", "elsewhere"),
    ],
)
def test_every_kernel_that_is_shipped_was_checked(prefix: str, device: str, level: str, registry: nbx.Registry) -> None:
    kernels = [k for k in registry.kernels.values() if k.id.startswith(prefix)]
    assert kernels
    if level == "built":
        # What a kernel asks of a device may be what this one lacks: then nothing of it is built.
        kernels = [k for k in kernels if not any("device." in condition for condition in k.when)]
    levels = {k.id: registry.kernel_evidence(k.id, device).level for k in kernels if k.backend != "composite"}
    ranks = ("none", "built", "elsewhere", "here")
    assert not {name: found for name, found in levels.items() if ranks.index(found) < ranks.index(level)}
