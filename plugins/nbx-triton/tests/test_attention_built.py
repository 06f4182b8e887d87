"""Attention compiles within every architecture's limits, with the products and the registers that it is written for."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import nbx_registry as nbx
from nbx_triton.kernels import attention_tiles

SIXTEEN_BITS = ["nvidia/a100-sxm4-80gb", "nvidia/l40s", "nvidia/h200-sxm", "nvidia/b200", "nvidia/rtx-5090"]
"""Products of every architecture on which Triton uses the matrix unit."""

HEADS = "float16[32, 12, 128, 32];strides=[49152, 32, 384, 1]"
CASES = {
    "online-128": ("online", ["float16[4, 32, 4096, 128]", *["float16[4, 8, 4096, 128]"] * 2, None]),
    "online-rows": ("online", [*["bfloat16[2, 8, 1000, 96]"] * 3, "bool[1000, 1000]"]),
    "online-keys": ("online", [*["bfloat16[2, 8, 1000, 96]"] * 3, "float16[2, 1, 1, 1000]"]),
    "short-32": ("short", [*[HEADS] * 3, "bool[32, 1, 1, 128]"]),
    "short-128": ("short", [*["float16[2, 8, 100, 128]"] * 3, "float32[100, 100]"]),
}


@pytest.mark.parametrize("device", SIXTEEN_BITS)
@pytest.mark.parametrize("case", CASES)
def test_builds_within_the_devices_limits(
    registry: nbx.Registry, bind: Callable[..., Any], case: str, device: str
) -> None:
    kernel, tensors = CASES[case]
    (launch,) = bind(f"nbx-triton/scaled_dot_product_attention/{kernel}", tensors, device, causal=True).launches
    facts, made = registry.devices[device], launch.function
    assert made.shared_bytes <= facts.fact("shared.bytes_per_block_optin")
    assert made.registers * made.threads <= facts.fact("registers.per_block")
    # A few registers may spill; a tile that does not fit by far is a mistake in its size.
    assert made.spills <= 128


def test_weights_stay_in_registers(bind: Callable[..., Any], sass: Callable[[bytes], str]) -> None:
    kernel, tensors = CASES["online-128"]
    name = f"nbx-triton/scaled_dot_product_attention/{kernel}"
    text = sass(bind(name, tensors, "nvidia/h200-sxm", causal=True).launches[0].function.image)
    # Two loops of 8 steps of 16 along the width and 4 along the keys, the latter with A in registers.
    assert len(re.findall(r"HGMMA\.64x64x16\.F32 R\d+, gdesc", text)) == 16
    assert len(re.findall(r"HGMMA\.64x128x16\.F32 R\d+, R\d+, gdesc", text)) == 8


def test_products_of_both_groups_of_warps_go_on_while_weights_are_made(
    bind: Callable[..., Any], sass: Callable[[bytes], str]
) -> None:
    tensors = ["float16[4, 32, 4096, 128]", *["float16[4, 8, 4096, 128]"] * 2, None]
    kernel = "nbx-triton/scaled_dot_product_attention/warps"
    made = bind(kernel, tensors, "nvidia/h200-sxm", causal=True).launches[0].function
    assert made.threads == 384
    assert made.registers * made.threads <= 65536
    assert made.spills == 0
    text = re.findall(r"HGMMA|MUFU\.EX2|WARPGROUP\.DEPBAR", sass(made.image))
    # From the products that are waited for first, over 66 powers, to the wait for the others.
    order = "".join({"H": "h", "M": "x", "W": "w"}[word[0]] for word in text)
    steps = re.findall("h{16}wx{66}w", order)
    # A loop of cut blocks and one of whole ones, for each group.
    assert len(steps) == 4


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("batch", "heads", "queries", "keys", "section"),
    [(1, 1, 128, 128, 1), (2, 6, 300, 129, 4), (9, 8, 257, 200, 8), (1, 32, 2000, 2000, 16), (5, 40, 200, 900, 40)],
)
def test_every_tile_is_dealt_once(
    monkeypatch: pytest.MonkeyPatch, batch: int, heads: int, queries: int, keys: int, section: int, causal: bool
) -> None:
    tiles = -(-queries // 128)
    total = batch * heads * tiles
    programs = min(total, 132)
    sizes = (queries, keys, heads, section, total, programs)
    dealt, times, place = (getattr(attention_tiles, name).fn for name in ("dealt", "times", "place"))
    monkeypatch.setattr(attention_tiles, "dealt", dealt)
    found = []
    for number in range(programs):
        language = SimpleNamespace(program_id=lambda _axis, number=number: number, maximum=max, minimum=min)
        monkeypatch.setattr(attention_tiles, "gl", language)
        for time in range(times(total, programs)):
            where = place(dealt(time, programs), sizes, causal, 128)
            found.append(where[:3])
            first, blocks, whole = where[2:]
            sees = [min(keys, row + 1 + keys - queries) if causal else keys for row in range(first, first + 128)]
            assert blocks == max(1, -(-max(*sees, 0) // 128))
            assert whole == min(blocks - 1, max(0, min(sees)) // 128)
    assert sorted(found) == [(b, h, 128 * t) for b in range(batch) for h in range(heads) for t in range(tiles)]
