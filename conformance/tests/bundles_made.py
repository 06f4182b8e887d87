"""Bundles made by hand, for tests of what reads them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nbx_conformance.bundles.bundle import seal

DIGEST = "a" * 64
PROFILE = {"ulp": [0.25, 0.5, 1.5], "l2": 1e-7, "share": 0.5, "worst": [3, 7]}


def case(name: str, verdict: str = "pass", **more: Any) -> dict[str, Any]:
    return {"case": name, "check": "numbers poison", "verdict": verdict, "seed": 0, "seconds": 0.1, **more}


def kernel(op: str, *cases: Mapping[str, Any], verdict: str = "pass", **more: Any) -> dict[str, Any]:
    given = {"op": op, "op_digest": DIGEST, "kernel_digest": DIGEST, "backend": "acme", "toolkit": None, "built": []}
    expected = len({entry["case"] for entry in cases})
    return {**given, "verdict": verdict, "expected": expected, "cases": list(cases), **more}


def write(path: Path, kernels: Mapping[str, Any], **more: Any) -> Path:
    device = {"id": "acme/one", "evidence_class": "acme", "digest": DIGEST, "handles": ["acme:0"], "detected": {}}
    data = {
        "format": 2,
        "suite": {"version": "0.1.0", "digest": DIGEST},
        "created": "2026-11-30T06:00:00+00:00",
        "seconds": 1.5,
        "selection": {"size": "smoke", "plugins": [], "ops": [], "kernels": []},
        "device": {**device, **more.pop("device", {})},
        "runtime": {"name": "acme", "versions": {"driver": "1.0"}},
        "reach": "here",
        "via": "device",
        "distributions": {"nbx-acme": "0.1.0"},
        "kernels": dict(kernels),
        "plugins": {},
        "waivers": [],
        **more,
    }
    path.write_bytes(seal(data))
    return path
