"""The files of this distribution: every fact known, sourced, and what its documents say."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import nbx_devices
import nbx_registry as nbx
from nbx_devices import plugin
from nbx_registry.device import Device
from nbx_registry.devicetable import DeviceTable
from nbx_registry.errors import MissingFact
from nbx_registry.runtime import LiveDevice
from nbx_registry.suggestions import hints

TABLE = DeviceTable(plugin.nbx_register_devices())
PRODUCTS = tuple(TABLE)

# Runtime, compile target, evidence class.
DRIVEN = {
    "amd/mi100": ("hip", "gfx908", "amd-gfx908-120"),
    "amd/mi250x": ("hip", "gfx90a", "amd-gfx90a-110"),
    "amd/mi300x": ("hip", "gfx942", "amd-gfx942-304"),
    "apple/m1": ("wgpu", "apple7", "apple7-m1"),
    "apple/m2": ("wgpu", "apple8", "apple8-m2"),
    "apple/m4-pro": ("wgpu", "apple9", "apple9-m4-pro"),
    "host/cpu": ("host", "host", "host"),
    "intel/max-1550": ("sycl", "intel_gpu_pvc", "intel-xe-hpc-64"),
    "nvidia/a100-sxm4-80gb": ("cuda", "sm_80", "nvidia-sm_80-ga100-108"),
    "nvidia/b200": ("cuda", "sm_100", "nvidia-sm_100-148"),
    "nvidia/h100-sxm": ("cuda", "sm_90", "nvidia-sm_90-gh100-132"),
    "nvidia/h200-sxm": ("cuda", "sm_90", "nvidia-sm_90-gh100-132"),
    "nvidia/l40s": ("cuda", "sm_89", "nvidia-sm_89-ad102-142"),
    "nvidia/rtx-5090": ("cuda", "sm_120", "nvidia-sm_120-gb202-170"),
    "nvidia/t4": ("cuda", "sm_75", "nvidia-sm_75-tu104-40"),
    "nvidia/v100-sxm2-16gb": ("cuda", "sm_70", "nvidia-sm_70-gv100-80"),
    "nvidia/v100-sxm2-32gb": ("cuda", "sm_70", "nvidia-sm_70-gv100-80"),
}
# The name its driver gives, and how many multiprocessors it reports.
LIVE = {
    "amd/mi100": ("AMD Instinct MI100", 120),
    "amd/mi250x": ("AMD Instinct MI250X", 110),
    "amd/mi300x": ("AMD Instinct MI300X", 304),
    "apple/m1": ("Apple M1", None),
    "apple/m2": ("Apple M2", None),
    "apple/m4-pro": ("Apple M4 Pro", None),
    "host/cpu": ("any processor", None),
    "intel/max-1550": ("Intel(R) Data Center GPU Max 1550", 64),
    "nvidia/a100-sxm4-80gb": ("NVIDIA A100-SXM4-80GB", 108),
    "nvidia/b200": ("NVIDIA B200", 148),
    "nvidia/h100-sxm": ("NVIDIA H100 80GB HBM3", 132),
    "nvidia/h200-sxm": ("NVIDIA H200", 132),
    "nvidia/l40s": ("NVIDIA L40S", 142),
    "nvidia/rtx-5090": ("NVIDIA GeForce RTX 5090", 170),
    "nvidia/t4": ("Tesla T4", 40),
    "nvidia/v100-sxm2-16gb": ("Tesla V100-SXM2-16GB", 80),
    "nvidia/v100-sxm2-32gb": ("Tesla V100-SXM2-32GB", 80),
}

OPERATORS: Mapping[type, Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def test_the_plugin_offers_the_folder_of_this_package():
    assert plugin.NBX_HOOKS == 1
    assert plugin.nbx_register_devices() == [Path(nbx_devices.__file__).parent]


def test_these_products_are_described():
    assert set(PRODUCTS) == set(DRIVEN)
    readme = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
    for id in PRODUCTS:
        assert f"`{id}`" in readme, f"README.md does not list {id}"


def test_every_file_is_well_formed():
    assert TABLE.check() == ()


@pytest.mark.parametrize("id", PRODUCTS)
def test_every_fact_has_a_known_key_and_documents(id):
    for key, fact in TABLE[id].facts.items():
        assert TABLE.schema.find(key) is not None
        assert fact.documents
        assert fact.read != "unconfirmed", f"{key} rests on no document: leave it out"
        if isinstance(fact.value, (int, float)) and not isinstance(fact.value, bool):
            assert TABLE.schema.find(key).unit


def test_the_schema_is_in_use():
    used = {key for id in PRODUCTS for key in TABLE[id].facts}
    idle = [key for key in TABLE.schema.keys if not key.endswith(".*") and key not in used]
    assert idle == []


def evaluate(formula: str, device: Device) -> float:
    """Evaluate arithmetic over numbers and facts."""

    def value(node: ast.expr) -> float:
        if isinstance(node, ast.BinOp):
            return OPERATORS[type(node.op)](value(node.left), value(node.right))
        if isinstance(node, ast.Constant):
            return node.value
        return device.fact(ast.unparse(node))

    return value(ast.parse(formula, mode="eval").body)


FORMULAS = [(id, key) for id in PRODUCTS for key, fact in TABLE[id].facts.items() if fact.read == "="]


@pytest.mark.parametrize(("id", "key"), FORMULAS)
def test_arithmetic_gives_the_value_to_the_digits_written(id, key):
    fact = TABLE[id].facts[key]
    computed = evaluate(fact.formula, TABLE[id])
    if isinstance(fact.value, int):
        assert computed == fact.value
        return
    mantissa, _, exponent = f"{fact.value:.12e}".partition("e")
    places = len(mantissa.rstrip("0").partition(".")[2])
    unit = 10.0 ** (int(exponent) - places)
    # Half a unit is rounding; one document rounds twice.
    assert abs(computed - fact.value) <= 0.6 * unit


def test_there_is_arithmetic_to_check():
    assert len(FORMULAS) >= 60


PRICED = {
    "nvidia/v100-sxm2-16gb": 125e12,
    "nvidia/v100-sxm2-32gb": 125e12,
    "nvidia/t4": 65e12,
    "nvidia/a100-sxm4-80gb": 312e12,
    "nvidia/l40s": 362.05e12,
    "nvidia/h100-sxm": 989.4e12,
    "nvidia/h200-sxm": 989.4e12,
    "nvidia/b200": 2.25e15,
    "nvidia/rtx-5090": 209.5e12,
    "amd/mi100": 184.6e12,
    "amd/mi250x": 191.5e12,
    "amd/mi300x": 1307.4e12,
    "apple/m1": 2.617e12,
    "apple/m2": 3.579e12,
    "intel/max-1550": 419.4e12,
}


@pytest.mark.parametrize("id", PRODUCTS)
def test_a_product_of_float16_matrices_is_priced_or_the_fact_it_lacks_is_named(id, monkeypatch, tmp_path):
    # Without what the user's own files add.
    monkeypatch.setenv("NBX_CONFIG_DIR", str(tmp_path))
    price = nbx.load().price("matmul", "float16[4096, 4096]", "float16[4096, 4096]", device=id)
    if id in PRICED:
        assert price.floor() == (pytest.approx(2 * 4096**3 / PRICED[id]), "matrix")
        return
    lacking = "memory.bandwidth_bytes_per_s" if id == "host/cpu" else "peak.matrix.float16_flop_per_s"
    with pytest.raises(MissingFact) as caught:
        price.floor()
    assert f"{id} states no '{lacking}'" in str(caught.value)
    assert str(TABLE[id].file) in str(caught.value)


@pytest.mark.parametrize("id", PRODUCTS)
def test_what_drives_each_product(id):
    device = TABLE[id]
    assert (device.runtime, device.arch, device.evidence_class) == DRIVEN[id]
    assert device.arch in device.targets


def test_settings_are_shared_where_the_memory_system_is_the_same():
    lent = {id: TABLE[id].settings_from for id in PRODUCTS if TABLE[id].settings_from is not None}
    assert lent == {
        "nvidia/v100-sxm2-16gb": "nvidia/v100-sxm2-32gb",
        "nvidia/v100-sxm2-32gb": "nvidia/v100-sxm2-16gb",
    }
    assert TABLE["nvidia/h100-sxm"].evidence_class == TABLE["nvidia/h200-sxm"].evidence_class
    for id, other in lent.items():
        assert TABLE[id].evidence_class == TABLE[other].evidence_class
        assert TABLE[id].fact("memory.bandwidth_bytes_per_s") == TABLE[other].fact("memory.bandwidth_bytes_per_s")


@pytest.mark.parametrize("id", PRODUCTS)
def test_a_card_is_recognised_by_what_its_driver_says(id):
    device = TABLE[id]
    name, count = LIVE[id]
    detected = {} if count is None else {"multiprocessors": count}
    arch = "x86_64" if id == "host/cpu" else device.arch
    card = LiveDevice(runtime=device.runtime, index=0, name=name, arch=arch, detected=detected)
    assert TABLE.match(card) is device


@pytest.mark.parametrize(
    ("runtime", "name", "arch", "count"),
    [
        ("cuda", "NVIDIA H200 MIG 1g.18gb", "sm_90", 16),
        ("cuda", "NVIDIA H100 PCIe", "sm_90", 114),
        ("cuda", "NVIDIA A100-SXM4-40GB", "sm_80", 108),
        ("cuda", "NVIDIA L40", "sm_89", 142),
        ("hip", "AMD Instinct MI250", "gfx90a", 104),
        ("hip", "AMD Instinct MI300X", "gfx942", 38),
        ("wgpu", "Apple M1 Pro", "apple7", None),
        ("sycl", "Intel(R) Data Center GPU Max 1550", "intel_gpu_pvc", 128),
    ],
)
def test_a_slice_a_package_or_a_sibling_of_a_card_is_not_the_card(runtime, name, arch, count):
    detected = {} if count is None else {"multiprocessors": count}
    assert TABLE.match(LiveDevice(runtime=runtime, index=0, name=name, arch=arch, detected=detected)) is None


def test_suggestions_name_capabilities_that_some_product_has():
    for capability, suggestion in TABLE.suggestions.items():
        kind, _, name = capability.partition(".")
        runtimes = {TABLE[id].runtime for id in PRODUCTS}
        assert name in runtimes if kind == "runtime" else any(TABLE[id].has(capability) for id in PRODUCTS), capability
        assert re.fullmatch(r"nbx-[a-z-]+", suggestion.distribution)
        for id in PRODUCTS:
            told = [hint for hint in hints(TABLE.suggestions, TABLE[id], ()) if capability in hint.split(" of ")[0]]
            assert bool(told) is (kind != "runtime" and TABLE[id].has(capability))
            assert all(suggestion.distribution in hint and ("planned" in hint) is suggestion.planned for hint in told)


def test_what_is_suggested_is_in_the_workspace_and_what_is_planned_is_not():
    plugins = Path(__file__).parents[2] / "plugins"
    if not plugins.is_dir():
        pytest.skip("these are the tests of an unpacked distribution, with no workspace around them")
    for suggestion in TABLE.suggestions.values():
        there = (plugins / suggestion.distribution / "pyproject.toml").is_file()
        assert there is not suggestion.planned, suggestion
