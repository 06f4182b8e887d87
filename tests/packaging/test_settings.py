"""The settings that are shipped are about the code that is shipped with them, and are what its calls use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import nbx_registry as nbx
from nbx_registry.planentry import kernel_digest

ROOT = Path(__file__).parents[2]
ENTRIES: list[tuple[str, dict[str, Any]]] = [
    (data["device"], entry)
    for path in sorted(ROOT.glob("plugins/*/nbx_*/settings/*.json"))
    for data in [json.loads(path.read_text("utf-8"))]
    for entry in data["entries"]
]


@pytest.fixture(scope="module")
def registry() -> nbx.Registry:
    return nbx.load(require="any")


def test_settings_of_an_h200_are_shipped() -> None:
    assert any(device == "nvidia/h200-sxm" for device, _ in ENTRIES)


@pytest.mark.parametrize(("device", "entry"), ENTRIES, ids=lambda value: value if isinstance(value, str) else None)
def test_shipped_settings_are_proven_of_this_code(device: str, entry: dict[str, Any], registry: nbx.Registry) -> None:
    proof = entry["proof"]
    assert proof["kernel_digest"] == kernel_digest(registry.kernels[entry["kernel"]])
    assert proof["deviation"] <= proof["bound"]
    assert proof["times"]["tuned_s"] <= proof["times"]["default_s"]


def test_a_call_of_a_shipped_key_uses_them(registry: nbx.Registry) -> None:
    x, w = "float16[32, 2048]", "float16[3072, 2048]"
    decision = registry.decide("linear", x, w, device="nvidia/h200-sxm", kernel="nbx-triton/linear/blocks")
    (chosen,) = (candidate for candidate in decision.candidates if candidate.accepted)
    assert chosen.tuned is not None
    assert chosen.tuned.settings == {"block_m": 64, "block_n": 128, "more_n": 0, "stages": 4, "warps": 4}
