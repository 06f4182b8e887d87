"""Costs, nominal and least, against closed forms; every figure an exact integer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from running import OPS, sign

from nbx_registry.contracts import ALL
from nbx_registry.contracts.attention import visible_pairs
from nbx_registry.cost import Cost, default_cost, distinct_positions
from nbx_registry.errors import PluginFault
from nbx_registry.op import Op, Signature, op
from nbx_registry.spec import parse


def cost(name: str, *tensors: Any, **attributes: Any) -> Cost:
    signature = sign(name, *tensors, **attributes)
    return signature.op.cost(signature)


def figures(found: Cost) -> tuple[int, int, int, int, int]:
    return found.flops, found.bytes_read, found.bytes_written, found.least_flops, found.least_bytes


@pytest.mark.parametrize("name", ["add", "multiply", "divide"])
def test_arithmetic(name: str) -> None:
    n = 63 * 127
    assert figures(cost(name, "float16[63, 127]", "float16[63, 127]")) == (n, 4 * n, 2 * n, n, 6 * n)
    assert figures(cost(name, "float16[63, 127]", "float32[127]")) == (n, 2 * n + 4 * 127, 4 * n, n, 6 * n + 4 * 127)
    assert figures(cost(name, "float32[63, 127]", 2.0)) == (n, 4 * n, 4 * n, n, 8 * n)
    assert figures(cost(name, "float32[0, 127]", 2.0)) == (0, 0, 0, 0, 0)


def test_an_expanded_axis_counts_once_at_the_least() -> None:
    expanded = "float32[63, 127];strides=[0, 1]"
    n = 63 * 127
    assert figures(cost("add", expanded, "float32[63, 127]")) == (n, 8 * n, 4 * n, n, 8 * n + 4 * 127)
    # Where no operand varies, one addition serves the whole axis.
    assert figures(cost("add", expanded, expanded)) == (n, 8 * n, 4 * n, 127, 4 * n + 8 * 127)
    assert figures(cost("sqrt", expanded)) == (n, 4 * n, 4 * n, 127, 4 * n + 4 * 127)
    assert figures(cost("sum", expanded, axis=1)) == (n, 4 * n, 4 * 63, 127 - 63, 4 * 127 + 4 * 63)


def test_distinct_positions() -> None:
    a, b = parse("float32[5, 1, 7];strides=[7, 7, 1]"), parse("float32[3, 7];strides=[0, 1]")
    assert distinct_positions([a, b], (5, 3, 7)) == 5 * 7
    assert distinct_positions([], (5, 3)) == 1
    assert distinct_positions([a], (5, 0, 7)) == 0


def test_conversion_moves_and_computes_nothing() -> None:
    n = 1000
    assert figures(cost("astype", "float32[1000]", dtype="float16")) == (0, 4 * n, 2 * n, 0, 6 * n)
    assert figures(cost("astype", "int64[1000]", dtype="bool")) == (0, 8 * n, n, 0, 9 * n)
    assert figures(cost("astype", "int4[1001]", dtype="int8")) == (0, 501, 1001, 0, 1502)


def test_functions_of_an_element() -> None:
    n = 129
    assert figures(cost("sqrt", "float64[129]")) == (n, 8 * n, 8 * n, n, 16 * n)
    assert figures(cost("gelu", "float16[129]")) == (5 * n, 2 * n, 2 * n, 5 * n, 4 * n)
    assert figures(cost("gelu", "float16[129]", approximate="tanh")) == (9 * n, 2 * n, 2 * n, 9 * n, 4 * n)


def test_a_sum_adds_once_for_each_element_and_at_the_least_once_less_for_each_result() -> None:
    n = 5 * 7 * 9
    assert figures(cost("sum", "float32[5, 7, 9]")) == (n, 4 * n, 4, n - 1, 4 * n + 4)
    assert figures(cost("sum", "float16[5, 7, 9]", axis=(0, 2))) == (n, 2 * n, 14, n - 7, 2 * n + 14)
    assert figures(cost("sum", "bool[5, 7, 9]", axis=1)) == (n, n, 8 * 45, n - 45, n + 8 * 45)
    assert figures(cost("sum", "float32[0, 7]", axis=0)) == (0, 0, 28, 0, 28)


def test_normalization() -> None:
    n = 6 * 1000
    assert figures(cost("softmax", "float16[6, 1000]")) == (5 * n, 2 * n, 2 * n, 5 * n, 4 * n)
    assert figures(cost("layer_norm", "float32[6, 1000]")) == (5 * n, 4 * n, 4 * n, 5 * n, 8 * n)
    full = cost("layer_norm", "float32[6, 1000]", "float32[1000]", "float32[1000]")
    assert figures(full) == (7 * n, 4 * n + 8000, 4 * n, 7 * n, 8 * n + 8000)
    assert cost("layer_norm", "float32[6, 1000]", None, "float32[1000]").flops == 6 * n
    # Rows that are one row are normalised once.
    for name, each in (("layer_norm", 5), ("rms_norm", 3)):
        expanded = cost(name, "float32[6, 1000];strides=[0, 1]")
        assert (expanded.flops, expanded.least_flops) == (each * n, each * 1000)


def test_products() -> None:
    m, k, n = 63, 129, 1000
    assert figures(cost("matmul", f"float16[{m}, {k}]", f"float16[{k}, {n}]")) == (
        2 * m * k * n,
        2 * (m * k + k * n),
        2 * m * n,
        2 * m * k * n,
        2 * (m * k + k * n + m * n),
    )
    batched = cost("matmul", f"float32[2, 1, {m}, {k}]", f"float32[5, {k}, {n}]")
    assert batched.flops == 10 * 2 * m * k * n
    assert batched.bytes_read == 4 * (2 * m * k + 5 * k * n)
    assert cost("matmul", f"float32[{k}]", f"float32[{k}]").flops == 2 * k
    assert cost("matmul", f"float32[{m}, {k}]", f"float32[{k}]").flops == 2 * m * k
    assert cost("matmul", f"float32[{m}, 0]", f"float32[0, {n}]").flops == 0
    assert figures(cost("linear", f"float16[3, 7, {k}]", f"float16[{n}, {k}]", f"float16[{n}]", activation="gelu")) == (
        2 * 21 * k * n,
        2 * (21 * k + n * k + n),
        2 * 21 * n,
        2 * 21 * k * n,
        2 * (21 * k + n * k + n + 21 * n),
    )


def test_an_embedding_reads_rows_not_the_table() -> None:
    rows, width, table = 7, 384, 30522
    found = cost("embedding", f"float32[{table}, {width}]", f"int32[{rows}]")
    # All indices may be equal: one row need be read.
    least = 4 * width + 4 * rows + 4 * rows * width
    assert figures(found) == (0, 4 * rows * width + 4 * rows, 4 * rows * width, 0, least)
    assert cost("embedding", "float32[50, 8]", "int32[21];strides=[0]").least_bytes == 4 * 8 + 4 + 4 * 21 * 8
    assert cost("embedding", "float32[50, 8];strides=[1, 0]", "int32[21]").least_bytes == 4 + 4 * 21 + 4 * 21 * 8
    assert cost("embedding", "float32[50, 8]", "int32[0]").least_bytes == 0


def test_where_nothing_is_written_nothing_need_be_read() -> None:
    assert figures(cost("matmul", "float32[0, 5]", "float32[5, 7]")) == (0, 140, 0, 0, 0)
    assert figures(cost("matmul", "float32[3, 0]", "float32[0, 7]")) == (0, 0, 84, 0, 84)
    assert cost("conv2d", "float32[0, 3, 9, 9]", "float32[4, 3, 3, 3]", "float32[4]").least_bytes == 0
    assert cost("add", "float32[0, 5]", "float32[5]").least_bytes == 0


def test_attention() -> None:
    b, hq, hkv, tq, tk, d, dv = 2, 8, 2, 63, 129, 64, 32
    arrays = f"float16[{b}, {hq}, {tq}, {d}]", f"float16[{b}, {hkv}, {tk}, {d}]", f"float16[{b}, {hkv}, {tk}, {dv}]"
    flops = 2 * b * hq * tq * tk * (d + dv)
    read = 2 * (b * hq * tq * d + b * hkv * tk * (d + dv))
    out = 2 * b * hq * tq * dv
    op = "scaled_dot_product_attention"
    assert figures(cost(op, *arrays)) == (flops, read, out, flops, read + out)
    mask = tq * tk
    # Whatever is hidden need not be read, and that may be all.
    assert figures(cost(op, *arrays, f"bool[{tq}, {tk}]")) == (flops, read + mask, out, 0, mask + out)
    assert cost(op, *arrays, f"float32[{b}, 1, 1, {tk}]").least_bytes == 4 * b * tk + out
    assert cost(op, *arrays, f"bool[{tq}, {tk}];strides=[0, 1]").least_bytes == tk + out


@pytest.mark.parametrize(("queries", "keys"), [(5, 9), (9, 5), (5, 5), (1, 5), (5, 0)])
def test_of_a_mask_causality_leaves_what_it_shows(queries: int, keys: int) -> None:
    op, seen = "scaled_dot_product_attention", np.tri(queries, keys, keys - queries, dtype=bool)
    arrays = f"float16[1, 2, {queries}, 8]", *(f"float16[1, 1, {keys}, 8]",) * 2
    for shape, left in (
        ([queries, keys], int(seen.sum())),
        ([queries, 1], int(seen.any(1).sum())),
        ([keys], int(seen.any(0).sum())),
        ([2, 1, 1], 2 * int(seen.any())),
    ):
        found = cost(op, *arrays, f"bool{shape}", causal=True)
        assert (found.least_flops, found.least_bytes) == (0, left + 2 * 2 * queries * 8)


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (63, 63), (63, 129), (129, 63), (1, 1000), (5, 0), (0, 5)])
def test_a_causal_mask_hides_pairs_at_the_least(queries: int, keys: int) -> None:
    seen = np.tri(queries, keys, keys - queries, dtype=bool)
    assert visible_pairs(queries, keys, True) == int(seen.sum())
    q, k = f"float16[1, 2, {queries}, 8]", f"float16[1, 1, {keys}, 8]"
    found = cost("scaled_dot_product_attention", q, k, k, causal=True)
    assert found.flops == 2 * 2 * queries * keys * 16
    assert found.least_flops == 2 * 2 * int(seen.sum()) * 16
    # Queries that see nothing need not be read.
    live = int(seen.any(-1).sum())
    assert found.least_bytes == (2 * (2 * live * 8 + 2 * keys * 8 + 2 * queries * 8) if live else 2 * 2 * queries * 8)


def test_decoding() -> None:
    b, hq, hkv, t, d, dv = 8, 32, 8, 8192, 128, 64
    arrays = f"float16[{b}, {hq}, {d}]", f"float16[{b}, {hkv}, {t}, {d}]", f"float16[{b}, {hkv}, {t}, {dv}]"
    read, out = 2 * (b * hq * d + b * hkv * t * (d + dv)), 2 * b * hq * dv
    flops = 2 * b * hq * t * (d + dv)
    assert figures(cost("decode_attention", *arrays)) == (flops, read, out, flops, read + out)
    biased = cost("decode_attention", *arrays, f"float32[{t}]")
    assert figures(biased) == (flops, read + 4 * t, out, 0, 4 * t + out)
    nothing = f"float16[1, {hq}, {d}]", f"float16[1, {hkv}, 0, {d}]", f"float16[1, {hkv}, 0, {dv}]"
    assert cost("decode_attention", *nothing).least_bytes == 2 * hq * dv
    parts = "float32[256, 32, 64]", "float32[256, 32]", "float32[256, 32]"
    n = 256 * 32
    found = cost("decode_attention_reduce", *parts, dtype="float16")
    # All splits may be empty, which their maxima say.
    assert figures(found) == (2 * n * 64, 4 * n * 66, 2 * 256 * 64, 0, 4 * n + 2 * 256 * 64)


def test_appending_to_a_cache_touches_the_rows_not_the_pool() -> None:
    n, h, d = 5, 8, 128
    found = cost("paged_kv_append", f"float32[{n}, {h}, {d}]", f"int32[{n}]", f"float16[100000, {h}, 16, {d}]")
    row = n * h * d
    # All slots may be padding.
    assert figures(found) == (0, 4 * row + 4 * n, 2 * row, 0, 4 * n)


def test_a_view_moves_nothing_and_a_copy_everything() -> None:
    assert figures(cost("permute_dims", "float16[5, 7]", axes=(1, 0))) == (0, 0, 0, 0, 0)
    assert figures(cost("permute_dims", "float16[5, 7]", axes=(1, 0), copy=True)) == (0, 70, 70, 0, 140)


def test_a_pixel_shuffle_of_an_expanded_tensor_reads_it_once() -> None:
    n = 2 * 12 * 3 * 5
    assert figures(cost("pixel_shuffle", "float16[2, 12, 3, 5]", r=2)) == (0, 2 * n, 2 * n, 0, 4 * n)
    expanded = "float16[2, 3, 4, 3, 5];strides=[45, 15, 0, 5, 1]"
    assert figures(cost("pixel_shuffle", expanded, r=2)) == (0, 2 * n, 2 * n, 0, 2 * n // 4 + 2 * n)


def test_units_and_the_dtype_they_work_in() -> None:
    found = cost("matmul", "bfloat16[3, 4]", "bfloat16[4, 5]")
    assert (found.unit, found.dtype.name) == ("matrix", "bfloat16")
    found = cost("decode_attention", "float32[1, 1, 8]", "float16[1, 1, 9, 8]", "float16[1, 1, 9, 8]")
    assert (found.unit, found.dtype.name) == ("matrix", "float16")
    for arrays, dtype in (("float16[3]", "float32"), ("float64[3]", "float64"), ("int32[3]", "int32")):
        found = cost("add", arrays, arrays)
        assert (found.unit, found.dtype.name) == ("vector", dtype)
    assert cost("paged_kv_append", "float16[1, 1, 8]", "int32[1]", "float16[3, 1, 4, 8]").dtype.name == "float32"


TYPICAL: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "add": (("float32[3]", 2.0), {}),
    "multiply": (("int8[3]", "uint8[3]"), {}),
    "divide": (("float16[3, 1]", "float32[4]"), {}),
    "subtract": ((3, "uint8[3]"), {}),
    "negative": (("complex64[3]",), {}),
    "abs": (("complex64[3]",), {}),
    "reciprocal": (("float8_e5m2[3]",), {}),
    "pow": (("int8[3, 1]", 2), {}),
    "sqrt": (("float64[3]",), {}),
    "rsqrt": (("float32[3]",), {}),
    "exp": (("float16[3]",), {}),
    "log": (("bfloat16[3]",), {}),
    "tanh": (("float64[3]",), {}),
    "erf": (("float32[3]",), {}),
    "relu": (("uint4[3]",), {}),
    "sigmoid": (("float16[3]",), {}),
    "silu": (("float64[3]",), {}),
    "gelu": (("bfloat16[3]",), {}),
    "maximum": (("float16[3, 1]", "float32[4]"), {}),
    "minimum": (("int8[3]", 0), {}),
    "clip": (("float32[3, 4]", None, "float32[4]"), {}),
    "where": (("bool[3, 1]", "bfloat16[4]", 0.5), {}),
    "astype": (("complex64[3]",), {"dtype": "complex64"}),
    "sum": (("uint8[3, 4]",), {"axis": -1, "keepdims": True}),
    "layer_norm": (("float32[3, 4]", None, "float32[4]"), {}),
    "softmax": (("float32[3, 4]",), {"axis": 0}),
    "matmul": (("float32[4]", "float32[2, 4, 3]"), {}),
    "linear": (("float32[4]", "float32[3, 4]"), {"activation": "silu"}),
    "embedding": (("float8_e5m2[3, 4]", "int64[]"), {}),
    "scaled_dot_product_attention": (("float16[1, 4, 3, 8]", "float16[1, 2, 5, 8]", "float16[1, 2, 5, 6]"), {}),
    "decode_attention": (("float32[1, 4, 8]", "float16[1, 2, 5, 8]", "float16[1, 2, 5, 6]"), {"q_dtype": "float16"}),
    "decode_attention_reduce": (("float32[3, 4, 5]", "float32[3, 4]", "float32[3, 4]"), {}),
    "paged_kv_append": (("float32[3, 2, 8]", "int32[3]", "float8_e5m2[5, 2, 4, 8]"), {"saturate": True}),
    "paged_kv_append_step": (
        (
            "float32[3, 2, 8]",
            "float32[3, 2, 6]",
            "float16[5, 2, 4, 8]",
            "float16[5, 2, 4, 6]",
            "int32[3, 2]",
            "int32[3]",
        ),
        {"saturate": True},
    ),
    "paged_lens_advance": (("int32[3]",), {"n": 2}),
    "paged_decode_attention": (
        ("float32[3, 4, 8]", "float16[5, 2, 4, 8]", "float16[5, 2, 4, 6]", "int32[3, 2]", "int32[3]"),
        {"longest": 7, "q_dtype": "float16"},
    ),
    "rotary_embedding": (
        ("float16[1, 2, 3, 8]", "int64[1, 3]", "float32[9, 4]", "float32[9, 4]"),
        {"interleaved": True},
    ),
    "depthwise_conv2d": (("float16[2, 3, 9, 7]", "float16[3, 1, 3, 3]", "float16[3]"), {"padding": 1, "stride": 2}),
    "conv2d": (("bfloat16[2, 6, 9, 7]", "bfloat16[4, 3, 3, 3]"), {"groups": 2, "dilation": (1, 2)}),
    "rfft_basis": ((), {"n": 63}),
    "irfft_basis": ((), {"n": 64}),
    "rfft": (("float32[3, 63]",), {}),
    "irfft": (("complex64[3, 5]",), {"n": 63}),
    "permute_dims": (("bool[3, 4]",), {"axes": (1, 0), "copy": True}),
    "pixel_shuffle": (("int4[1, 8, 3, 5]",), {"r": 2}),
    "pixel_unshuffle": (("int4[1, 2, 6, 10]",), {"r": 2}),
    "broadcast_to": (("float16[3, 1]",), {"shape": (2, 3, 4)}),
    "concat": ((["float16[3, 1]", "float16[3, 4]"],), {"axis": 1}),
    "take": (("float16[3, 4]", "int32[5]"), {"axis": 1}),
    "prod": (("float16[3, 4]",), {"axis": (0, 1)}),
    "mean": (("int8[3, 4]",), {"axis": 0}),
    "max": (("bfloat16[3, 4]",), {"axis": -1}),
    "argmax": (("float32[3, 4]",), {"axis": 0, "keepdims": True}),
    "topk": (("float32[3, 9]",), {"k": 4}),
    "rms_norm": (("float16[3, 4]", "float16[4]"), {}),
    "group_norm": (("float32[2, 6, 5]", "float32[6]"), {"groups": 3}),
    "full": ((), {"shape": (3, 4), "fill_value": 2.5, "dtype": "bfloat16"}),
    "arange": ((), {"start": 0, "stop": 7, "step": 2}),
    "random_bits": ((), {"shape": (3, 4), "seed": 1}),
    "uniform": ((), {"shape": (3, 4), "seed": 1, "dtype": "float16"}),
    "normal": ((), {"shape": (3, 4), "seed": 1, "dtype": "float64"}),
    "quantize_int4": (("bfloat16[136, 3]",), {}),
    "dequant_int4": (("int32[17, 3]", "float16[2, 3]", "float16[2, 3]"), {}),
    "dequant_gemv_int4": (("bfloat16[136]", "int32[17, 3]", "float16[2, 3]", "float16[2, 3]"), {}),
    "dequant_matmul_int4": (("float16[4, 136]", "int32[17, 3]", "float16[2, 3]", "float16[2, 3]"), {}),
}


def test_the_typical_signatures_are_of_every_op() -> None:
    assert set(TYPICAL) == {found.name for found in ALL}


@pytest.mark.parametrize("name", TYPICAL)
def test_the_least_is_never_more_than_the_nominal(name: str) -> None:
    tensors, attributes = TYPICAL[name]
    found = cost(name, *tensors, **attributes)
    assert all(type(figure) is int and figure >= 0 for figure in figures(found))
    assert found.least_flops <= found.flops
    assert found.least_bytes <= found.bytes_read + found.bytes_written


def made(**rules: Any) -> Op:
    @op("made@1(x: F[N, C]) -> F[N]", **rules)
    def contract(x: Any) -> Any:
        return x.sum(-1)

    return contract


def test_expressions_give_what_they_say_and_the_rest_its_default() -> None:
    contract = made(flops="2 * x.size", bytes_read="N * 4", least_flops="N")
    found = contract.cost(contract.signature([parse("float32[6, 10]")], {}))
    assert figures(found) == (120, 24, 24, 6, 48)
    plain = made()
    assert figures(plain.cost(plain.signature([parse("float32[6, 10]")], {}))) == (0, 240, 24, 0, 264)


def test_a_rule_must_give_counts() -> None:
    def negative(signature: Signature) -> Cost:
        return default_cost(signature, flops=-1)

    signatures = {contract: contract.signature([parse("float32[6, 10]")], {}) for contract in (
        made(flops="x.size / 4"), made(cost=negative), made(cost=lambda signature: 3),
    )}  # fmt: skip
    for (contract, signature), words in zip(
        signatures.items(), ["flops .* 15.0", "flops .* -1", "no Cost"], strict=True
    ):
        with pytest.raises(PluginFault, match=words):
            contract.cost(signature)


def test_every_op_says_what_nominal_and_least_differ_in() -> None:
    assert "Nominal" in (Cost.__doc__ or "")
    assert all(OPS[name].cost_function is None or OPS[name].cost_function.__doc__ for name in OPS)
