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
from nbx_devices import plugin
from nbx_registry.device import Device
from nbx_registry.devicetable import DeviceTable
from nbx_registry.errors import MissingFact
from nbx_registry.runtime import LiveDevice

TABLE = DeviceTable(plugin.nbx_register_devices())
PRODUCTS = tuple(TABLE)

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
    assert PRODUCTS == (
        "amd/mi300x",
        "apple/m4-pro",
        "host/cpu",
        "nvidia/b200",
        "nvidia/h200-sxm",
        "nvidia/v100-sxm2-16gb",
    )


def test_every_file_is_well_formed():
    assert TABLE.check() == ()


@pytest.mark.parametrize("id", PRODUCTS)
def test_every_fact_has_a_known_key_and_documents(id):
    for key, fact in TABLE[id].facts.items():
        assert TABLE.schema.find(key) is not None
        assert fact.documents
        assert fact.read != "unconfirmed", f"{key} rests on no document: leave it out"


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
    assert len(FORMULAS) >= 9


# What the specification of device facts says, by product.
SPOT = {
    "nvidia/v100-sxm2-16gb": {
        "memory.bytes": 16935682048,
        "memory.bandwidth_bytes_per_s": 900e9,
        "multiprocessors": 80,
        "l2.bytes": 6291456,
        "peak.vector.float64_flop_per_s": 7.8e12,
        "peak.vector.float32_flop_per_s": 15.7e12,
        "peak.matrix.float16_flop_per_s": 125e12,
        "shared.bytes_per_block": 49152,
        "shared.bytes_per_block_optin": 98304,
        "shared.bytes_reserved_per_block": 0,
        "threads.per_block": 1024,
        "warp.width": 32,
        "registers.per_block": 65536,
        "registers.per_thread": 255,
        "grid.x": 2**31 - 1,
        "grid.y": 65535,
        "async_copy.cp_async": False,
        "matrix.bfloat16": False,
        "matrix.int8": False,
        "matrix_unit.m8n8k4": {"float16": ("float16", "float32")},
        "matrix_unit.m16n8k16": False,
    },
    "nvidia/h200-sxm": {
        "memory.bandwidth_bytes_per_s": 4.8e12,
        "memory.copy_bytes_per_s": 4.25e12,
        "multiprocessors": 132,
        "peak.vector.float64_flop_per_s": 33.5e12,
        "peak.vector.float32_flop_per_s": 66.9e12,
        "peak.matrix.float64_flop_per_s": 66.9e12,
        "peak.matrix.tf32_flop_per_s": 494.7e12,
        "peak.matrix.float16_flop_per_s": 989.4e12,
        "peak.matrix.bfloat16_flop_per_s": 989.4e12,
        "peak.matrix.float8_e4m3fn_flop_per_s": 1978.9e12,
        "peak.matrix.int8_op_per_s": 1978.9e12,
        "shared.bytes_per_multiprocessor": 233472,
        "shared.bytes_per_block_optin": 232448,
        "shared.bytes_reserved_per_block": 1024,
        "cluster.portable": 8,
        "cluster.optin": 16,
        "tensor_memory.bytes_per_block": 0,
        "async_copy.tma": True,
        "matrix.float4_e2m1fn": False,
        "matrix_unit.wgmma_m64k16": {"float16": ("float16", "float32"), "bfloat16": ("float32",)},
        "matrix_unit.m8n8k4": False,
        "matrix_unit.tcgen05_f16": False,
    },
    "nvidia/b200": {
        "memory.bytes": 191514411008,
        "memory.bandwidth_bytes_per_s": 8.0e12,
        "memory.reported_bandwidth_bytes_per_s": 7.67232e12,
        "multiprocessors": 148,
        "l2.bytes": 132644864,
        "peak.vector.float32_flop_per_s": 74.5e12,
        "peak.matrix.float16_flop_per_s": 2.25e15,
        "peak.matrix.float4_e2m1fn_flop_per_s": 9.0e15,
        "peak.matrix.int8_op_per_s": 4.5e15,
        "tensor_memory.bytes_per_block": 262144,
        "async_copy.tma_gather4": True,
        "matrix.float4_e2m1fn": True,
        "matrix_unit.wgmma_m64k16": False,
        "matrix_unit.tcgen05_i8": {"int8": ("int32",)},
    },
    "amd/mi300x": {
        "memory.nominal_bytes": 206158430208,
        "memory.bandwidth_bytes_per_s": 5.3e12,
        "multiprocessors": 304,
        "l2.bytes": 8 * 4194304,
        "last_level_cache.bytes": 268435456,
        "peak.vector.float32_flop_per_s": 163.4e12,
        "peak.matrix.tf32_flop_per_s": 653.7e12,
        "peak.matrix.float16_flop_per_s": 1307.4e12,
        "peak.matrix.float8_e4m3fnuz_flop_per_s": 2614.9e12,
        "warp.width": 64,
        "registers.per_multiprocessor": 131072,
        "shared.bytes_per_block": 65536,
        "threads.per_multiprocessor": 2048,
        "matrix.float8_e4m3fn": False,
        "async_copy.tma": False,
        "matrix_unit.mfma_32x32x8": {"float16": ("float32",), "bfloat16": ("float32",)},
    },
    "apple/m4-pro": {
        "memory.bandwidth_bytes_per_s": 273e9,
        "memory.options": ("24 GB", "48 GB", "64 GB"),
        "multiprocessor_options": (16, 20),
        "warp.width": 32,
        "threads.per_block": 1024,
        "shared.bytes_per_block": 32768,
        "arithmetic.float64": False,
        "atomics.int64_global": False,
        "atomics.int64_min_max": True,
    },
}


@pytest.mark.parametrize(("id", "key"), [(id, key) for id, facts in SPOT.items() for key in facts])
def test_values_are_those_of_the_documents(id, key):
    assert TABLE[id].fact(key) == SPOT[id][key]


@pytest.mark.parametrize(
    ("id", "key"),
    [
        ("amd/mi300x", "memory.bytes"),
        ("amd/mi300x", "atomics.int64_shared"),
        ("apple/m4-pro", "memory.bytes"),
        ("apple/m4-pro", "multiprocessors"),
        ("apple/m4-pro", "peak.vector.float32_flop_per_s"),
        ("host/cpu", "memory.bandwidth_bytes_per_s"),
    ],
)
def test_what_no_document_states_is_left_out(id, key):
    with pytest.raises(MissingFact):
        TABLE[id].fact(key)


@pytest.mark.parametrize(
    ("id", "runtime", "arch", "evidence_class"),
    [
        ("amd/mi300x", "hip", "gfx942", "amd-gfx942-304"),
        ("apple/m4-pro", "wgpu", "apple9", "apple9-m4-pro"),
        ("host/cpu", "host", "host", "host"),
        ("nvidia/b200", "cuda", "sm_100", "nvidia-sm_100-148"),
        ("nvidia/h200-sxm", "cuda", "sm_90", "nvidia-sm_90-gh100-132"),
        ("nvidia/v100-sxm2-16gb", "cuda", "sm_70", "nvidia-sm_70-gv100-80"),
    ],
)
def test_what_drives_each_product(id, runtime, arch, evidence_class):
    device = TABLE[id]
    assert (device.runtime, device.arch, device.evidence_class) == (runtime, arch, evidence_class)
    assert device.arch in device.targets


@pytest.mark.parametrize(
    ("id", "name", "count"),
    [
        ("nvidia/h200-sxm", "NVIDIA H200", 132),
        ("nvidia/b200", "NVIDIA B200", 148),
        ("nvidia/v100-sxm2-16gb", "Tesla V100-SXM2-16GB", 80),
        ("amd/mi300x", "AMD Instinct MI300X", 304),
        ("apple/m4-pro", "Apple M4 Pro", None),
        ("host/cpu", "any processor", None),
    ],
)
def test_a_card_is_recognised_by_the_name_its_driver_gives(id, name, count):
    device = TABLE[id]
    detected = {} if count is None else {"multiprocessors": count}
    arch = "x86_64" if id == "host/cpu" else device.arch
    card = LiveDevice(runtime=device.runtime, index=0, name=name, arch=arch, detected=detected)
    assert TABLE.match(card) is device


def test_a_slice_of_a_card_is_not_the_card():
    card = LiveDevice(
        runtime="cuda", index=0, name="NVIDIA H200 MIG 1g.18gb", arch="sm_90", detected={"multiprocessors": 16}
    )
    assert TABLE.match(card) is None


def test_suggestions_name_capabilities_that_some_product_has():
    for name, distribution in TABLE.suggestions.items():
        assert any(TABLE[id].has(name) for id in PRODUCTS), name
        assert re.fullmatch(r"nbx-[a-z-]+", distribution)
