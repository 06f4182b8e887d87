"""The evidence that is shipped is about the code that is shipped with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import nbx_registry as nbx
from nbx_conformance import profiles, runner
from nbx_conformance.bundle import portable
from nbx_conformance.verify import judge, verify

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


ON_NO_CARD = {
    "abs": ("dense", "strided"),
    "add": ("dense", "strided"),
    "arange": ("products",),
    "argmax": ("columns", "rows", "split-columns", "split-rows"),
    "astype": ("dense", "strided"),
    "clip": ("dense", "strided"),
    "concat": ("parts",),
    "conv2d": ("channels-last", "tiles"),
    "decode_attention": ("quarters",),
    "depthwise_conv2d": ("gather", "slide"),
    "dequant_gemv_int4": ("matrix", "ordered", "split", "strips"),
    "dequant_int4": ("groups",),
    "dequant_matmul_int4": ("groups", "tiles"),
    "divide": ("dense", "strided"),
    "embedding": ("rows",),
    "erf": ("dense", "strided"),
    "exp": ("dense", "strided"),
    "full": ("dense", "strided"),
    "gelu": ("dense", "strided"),
    "group_norm": ("groups", "split"),
    "irfft": ("butterflies", "products"),
    "irfft_basis": ("tables",),
    "layer_norm": ("rows", "split"),
    "linear": ("blocks", "blocks-128", "blocks-64", "bulk", "few", "row", "streamed", "streamed-128", "tiles"),
    "log": ("dense", "strided"),
    "matmul": ("blocks", "blocks-128", "blocks-64", "bulk", "few", "row", "streamed", "streamed-128", "tiles"),
    "max": ("columns", "rows", "split-columns", "split-rows"),
    "maximum": ("dense", "strided"),
    "mean": ("columns", "rows", "split-columns", "split-rows"),
    "minimum": ("dense", "strided"),
    "multiply": ("dense", "strided"),
    "negative": ("dense", "strided"),
    "paged_decode_attention": ("quarters", "split"),
    "paged_kv_append": ("rows",),
    "paged_kv_append_step": ("rows",),
    "paged_lens_advance": ("blocks",),
    "pixel_shuffle": ("rows",),
    "pixel_unshuffle": ("rows",),
    "pow": ("dense", "strided"),
    "prod": ("columns", "rows", "split-columns", "split-rows"),
    "quantize_int4": ("groups",),
    "reciprocal": ("dense", "strided"),
    "relu": ("dense", "strided"),
    "rfft": ("butterflies", "products"),
    "rfft_basis": ("tables",),
    "rms_norm": ("rows", "split"),
    "rotary_embedding": ("tokens",),
    "rsqrt": ("dense", "strided"),
    "scaled_dot_product_attention": ("short", "warps"),
    "sigmoid": ("dense", "strided"),
    "silu": ("dense", "strided"),
    "softmax": ("rows", "split"),
    "sqrt": ("dense", "strided"),
    "subtract": ("dense", "strided"),
    "sum": ("columns", "rows", "split-columns", "split-rows"),
    "take": ("tiles",),
    "tanh": ("dense", "strided"),
    "topk": ("passes", "rows", "select-1024", "select-256", "select-64"),
    "where": ("dense", "strided"),
}
"""Kernels of nbx-triton that no card has run yet: built and interpreted while they were written, without a bundle."""


@pytest.mark.parametrize(
    ("prefix", "device", "level"),
    [
        ("nbx-host/", "host/cpu", "here"),
        ("nbx-triton/", "nvidia/h200-sxm", "here"),
        ("nbx-triton/", "nvidia/v100-sxm2-16gb", "elsewhere"),
        ("nbx-triton/", "nvidia/b200", "elsewhere"),
        ("nbx-sdm/wy_solve/blocks", "nvidia/h200-sxm", "here"),
        ("nbx-sdm/wy_solve/blocks", "nvidia/b200", "elsewhere"),
    ],
)
def test_every_kernel_that_is_shipped_was_checked(prefix: str, device: str, level: str, registry: nbx.Registry) -> None:
    waiting = {f"nbx-triton/{op}/{variant}" for op, variants in ON_NO_CARD.items() for variant in variants}
    kernels = [k for k in registry.kernels.values() if k.id.startswith(prefix) and k.id not in waiting]
    assert kernels
    # Nothing stands in for a device that Gluon is for.
    apart = {"composite", "gluon"} if level == "elsewhere" else {"composite"}
    levels = {k.id: registry.kernel_evidence(k.id, device).level for k in kernels if k.backend not in apart}
    ranks = ("none", "built", "elsewhere", "here")
    assert not {name: found for name, found in levels.items() if ranks.index(found) < ranks.index(level)}


def test_a_kernel_that_no_card_has_run_is_known_and_runs_for_nobody_who_does_not_ask(registry: nbx.Registry) -> None:
    for op, variants in ON_NO_CARD.items():
        for variant in variants:
            name = f"nbx-triton/{op}/{variant}"
            assert registry.kernels[name].op.startswith(f"{op}@")
            assert registry.kernel_evidence(name, "nvidia/h200-sxm").level == "none"
    decision = registry.decide("exp", "float32[1024]", device="nvidia/h200-sxm")
    assert decision.chosen is None
    assert {candidate.code for candidate in decision.candidates if "nbx-triton" in candidate.kernel} == {"EVIDENCE"}
