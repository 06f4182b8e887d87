"""Costs at given values: closed forms, and the bounds that every one of them keeps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from running import OPS, sign

from nbx_registry.cost import Cost
from nbx_registry.errors import PluginFault
from nbx_registry.op import op

I32 = np.int32


def costs(name: str, *tensors: Any, values: dict[str, Any], **attributes: Any) -> tuple[Cost, Cost]:
    """Return the cost whatever the values, and at some."""
    signature = sign(name, *tensors, **attributes)
    return signature.op.cost(signature), signature.op.cost(signature, values)


def test_decoding_reads_what_the_sequences_hold() -> None:
    # Three sequences of 5, 0 and 12 tokens, in pages of 4; the second page of the last is missing.
    table = np.array([[0, 1, 2], [3, 4, 5], [6, -1, 8]], I32)
    values = {"block_table": table, "seq_lens": np.array([5, 0, 12], I32)}
    pools = "float16[9, 2, 4, 8]", "float16[9, 2, 4, 6]"
    before, at = costs("paged_decode_attention", "float16[3, 4, 8]", *pools, "int32[3, 3]", "int32[3]", values=values)
    tokens, entries, out = 5 + 8, 2 + 3, 2 * 3 * 4 * 6
    assert at.flops == at.least_flops == 2 * 4 * tokens * (8 + 6)
    assert at.bytes_read == 2 * 2 * 4 * 8 + 2 * 2 * tokens * (8 + 6) + 4 * entries + 4 * 3
    assert at.least_bytes == at.bytes_read + out
    assert at.bytes_written == before.bytes_written == out
    assert before.least_bytes == 4 * 3 + out


def test_a_batch_of_long_sequences_costs_its_cache() -> None:
    batch, tokens = 32, 2048
    table = np.random.default_rng(0).permutation(batch * 32).reshape(batch, 32).astype(I32)
    pool = f"float16[{batch * 32}, 8, 64, 64]"
    specs = (f"float16[{batch}, 32, 64]", pool, pool, f"int32[{batch}, 32]", f"int32[{batch}]")
    values = {"block_table": table, "seq_lens": np.full(batch, tokens, I32)}
    before, at = costs("paged_decode_attention", *specs, values=values, longest=2048)
    cache = 2 * batch * tokens * 8 * 64 * 2
    assert cache == 134_217_728
    assert cache < at.least_bytes < cache * 1.01
    assert (at.flops, at.bytes_read) == (before.flops, before.bytes_read)
    # Sequences that share their pages read them once.
    shared = {**values, "block_table": np.broadcast_to(table[:1], table.shape)}
    one = costs("paged_decode_attention", *specs, values=shared, longest=2048)[1]
    assert cache // batch < one.least_bytes < cache // batch * 1.1
    assert one.bytes_read == at.bytes_read


def test_appends_move_the_rows_that_have_a_place() -> None:
    new, pool = "float32[5, 2, 8]", "float16[9, 2, 4, 8]"
    _, at = costs("paged_kv_append", new, "int32[5]", pool, values={"slot": np.array([3, -1, 0, -7, 35], I32)})
    assert (at.bytes_read, at.bytes_written) == (3 * 16 * 4 + 5 * 4, 3 * 16 * 2)
    assert at.least_bytes == at.bytes_read + at.bytes_written
    values = {"block_table": np.array([[0, 1], [2, -1], [3, 4]], I32), "lens": np.array([3, 5, 8], I32)}
    step = ("float32[3, 2, 8]", "float32[3, 2, 8]", pool, pool, "int32[3, 2]", "int32[3]")
    _, at = costs("paged_kv_append_step", *step, values=values)
    # The second has no page there, the third no place in its table.
    assert at.bytes_read == 2 * 16 * 4 + 3 * 4 + 2 * 4
    assert at.bytes_written == 2 * 16 * 2
    assert at.least_bytes == at.bytes_read + at.bytes_written


def test_gathers_read_each_place_once() -> None:
    index = np.array([4, 4, 1, 4, 0])
    _, at = costs("embedding", "float16[9, 8]", "int64[5]", values={"index": index})
    assert at.least_bytes == 3 * 8 * 2 + 5 * 8 + 5 * 8 * 2
    _, at = costs("take", "float16[7, 9]", "int64[5]", values={"indices": index}, axis=1)
    assert at.least_bytes == 7 * 3 * 2 + 5 * 8 + 7 * 5 * 2
    tables = "float32[64, 4]", "float32[64, 4]"
    _, at = costs("rotary_embedding", "float16[1, 2, 5, 8]", "int64[1, 5]", *tables, values={"position": index[None]})
    assert at.least_bytes == 2 * (2 * 2 * 5 * 8) + 5 * 8 + 2 * 3 * 4 * 4


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", ["bool", "float16"])
def test_attention_costs_what_its_mask_shows(dtype: str, causal: bool) -> None:
    keep = np.zeros((2, 1, 1, 5), bool)
    keep[0, ..., :3] = True
    mask = keep if dtype == "bool" else np.where(keep, 0, -np.inf).astype(np.float16)
    specs = ("float16[2, 4, 3, 8]", "float16[2, 2, 5, 8]", "float16[2, 2, 5, 6]", f"{dtype}[2, 1, 1, 5]")
    before, at = costs("scaled_dot_product_attention", *specs, values={"mask": mask}, causal=causal)
    # Causal row i of 3 sees keys up to i + 2.
    pairs = 4 * 9
    assert at.flops == at.least_flops == 2 * pairs * (8 + 6)
    assert at.least_bytes == before.least_bytes + 2 * (4 * 3 * 8 + 2 * 3 * (8 + 6))
    none = costs("scaled_dot_product_attention", *specs, values={"mask": np.zeros_like(keep)}, causal=causal)[1]
    assert (none.flops, none.least_bytes) == (0, before.least_bytes)


def test_decoding_with_a_bias_reads_the_keys_that_it_shows() -> None:
    bias = np.array([0, -np.inf, 1, -np.inf, -np.inf], np.float32)
    specs = ("float16[2, 4, 8]", "float16[2, 2, 5, 8]", "float16[2, 2, 5, 6]", "float32[5]")
    before, at = costs("decode_attention", *specs, values={"bias": bias})
    assert at.flops == 2 * 2 * 4 * 2 * (8 + 6) == before.flops * 2 // 5
    assert at.least_bytes == before.least_bytes + 2 * (2 * 4 * 8 + 2 * 2 * 2 * (8 + 6))


DRAWN: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "embedding": (("float16[9, 8]", "int64[3, 4]"), {"index": (0, 9, (3, 4))}),
    "take": (("float16[9];strides=[0]", "int32[12]"), {"indices": (0, 9, (12,))}),
    "rotary_embedding": (
        ("float16[2, 3, 4, 8]", "int32[2, 4]", "float16[7, 4]", "float16[7, 4];strides=[0, 1]"),
        {"position": (0, 7, (2, 4))},
    ),
    "decode_attention": (
        ("float16[2, 4, 8];strides=[0, 0, 1]", "float16[2, 2, 5, 8]", "float16[2, 2, 5, 6]", "float32[5]"),
        {"bias": (0, 2, (5,))},
    ),
    "scaled_dot_product_attention": (
        ("float16[2, 4, 3, 8]", "float16[2, 2, 5, 8];strides=[0, 0, 8, 1]", "float16[2, 2, 5, 6]", "bool[4, 3, 5]"),
        {"mask": (0, 2, (4, 3, 5))},
    ),
    "paged_decode_attention": (
        ("float16[3, 4, 8]", "float16[9, 2, 4, 8]", "float16[9, 2, 4, 6]", "int32[3, 3]", "int32[3]"),
        {"block_table": (-1, 9, (3, 3)), "seq_lens": (-2, 13, (3,))},
    ),
    "paged_kv_append": (("float32[5, 2, 8]", "int32[5]", "float16[9, 2, 4, 8]"), {"slot": (-3, 36, (5,))}),
    "paged_kv_append_step": (
        (
            *("float32[3, 2, 8]", "float32[3, 2, 6];strides=[0, 6, 1]"),
            *("float16[9, 2, 4, 8]", "float16[9, 2, 4, 6]", "int32[3, 3]", "int32[3]"),
        ),
        {"block_table": (-1, 9, (3, 3)), "lens": (-2, 14, (3,))},
    ),
}
"""Operands of each op whose cost values decide, and the range and shape of these."""


def test_every_op_whose_cost_values_decide_is_drawn() -> None:
    assert {op.name for op in OPS.values() if op.cost_at is not None} == DRAWN.keys()


@pytest.mark.parametrize("name", DRAWN)
def test_at_values_a_cost_lies_between_the_least_and_the_nominal_one(name: str) -> None:
    specs, drawn = DRAWN[name]
    rng = np.random.default_rng(0)
    for _ in range(50):
        values = {key: rng.integers(low, high, shape) for key, (low, high, shape) in drawn.items()}
        before, at = costs(name, *specs, values=values)
        assert before.least_bytes <= at.least_bytes <= before.bytes_read + before.bytes_written
        assert at.least_bytes <= at.bytes_read + at.bytes_written
        assert before.least_flops <= at.least_flops <= at.flops <= before.flops
        assert (at.unit, at.dtype) == (before.unit, before.dtype)


@pytest.mark.parametrize("name", DRAWN)
def test_without_the_values_that_decide_a_cost_is_the_least_there_may_be(name: str) -> None:
    signature = sign(name, *DRAWN[name][0])
    assert signature.op.cost(signature, {}) == signature.op.cost(signature)
    assert signature.op.cost(signature, {"of": np.zeros(3), "another": np.zeros(3)}) == signature.op.cost(signature)
    assert set(OPS[name].cost_values) == DRAWN[name][1].keys()


def test_a_rule_that_gives_no_cost_is_its_plugins_fault() -> None:
    made: Any = op(
        "made::gather@1(x: F[N], index: I[K]) -> F[K]", cost_at=lambda s, cost, index: 5, cost_values=("index",)
    )(lambda x, index: x[index])
    signature = sign(made, "float32[3]", "int32[2]")
    with pytest.raises(PluginFault, match="gave 5, no Cost"):
        signature.op.cost(signature, {"index": np.zeros(2, I32)})
