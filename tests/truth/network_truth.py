"""Normalization, products, attention, layout and indexing, against torch in float64 on the CPU."""

from __future__ import annotations

import itertools
from typing import Any

import mpmath
import numpy as np
import torch
from independent import BFLOAT16, TORCH, Comparer, as_torch, independent, special, wide
from running import sign, values
from torch.nn import functional

from nbx_sdm.contracts import wy_solve

FLOATS = ["float16", "bfloat16", "float32", "float64"]


@independent("layer_norm@1")
def layer_norms(compare: Comparer) -> None:
    for dtype, shape, (scaled, shifted) in itertools.product(
        FLOATS, [(63,), (4, 1000), (2, 3, 1)], [(0, 0), (1, 0), (0, 1), (1, 1)]
    ):
        x, width = values(shape, dtype, scale=2), shape[-1]
        weight = values((width,), dtype, 1) if scaled else None
        bias = values((width,), dtype, 2) if shifted else None
        theirs = functional.layer_norm(
            wide(x), (width,), None if weight is None else wide(weight), None if bias is None else wide(bias), 1e-3
        )
        compare(compare.oracle("layer_norm", x, weight, bias, eps=1e-3), theirs, "torch")
    large = 1e6 + values((3, 129), "float64")
    compare(compare.oracle("layer_norm", large), functional.layer_norm(wide(large), (129,)), "torch", atol=1e-9)
    x = values((14, 5), "float32")
    x[:, 2] = special("float32")
    compare(compare.oracle("layer_norm", x), functional.layer_norm(wide(x), (5,)), "torch", rtol=1e-7)


@independent("rms_norm@1")
def rms_norms(compare: Comparer) -> None:
    for dtype, shape, scaled in itertools.product(FLOATS, [(63,), (4, 1000), (2, 3, 1), (0, 5)], [False, True]):
        x, width = values(shape, dtype, scale=2), shape[-1]
        weight = values((width,), dtype, 1) if scaled else None
        theirs = functional.rms_norm(wide(x), (width,), None if weight is None else wide(weight), 1e-3)
        compare(compare.oracle("rms_norm", x, weight, eps=1e-3), theirs, "torch")
    x = 1e-3 * values((3, 129), "float64")
    compare(compare.oracle("rms_norm", x), functional.rms_norm(wide(x), (129,), None, 1e-6), "torch")
    x = values((14, 5), "float32")
    x[:, 2] = special("float32")
    compare(compare.oracle("rms_norm", x), functional.rms_norm(wide(x), (5,), None, 1e-6), "torch", rtol=1e-7)


@independent("group_norm@1")
def group_norms(compare: Comparer) -> None:
    for dtype, shape, (scaled, shifted), groups in itertools.product(
        FLOATS, [(2, 6), (3, 6, 7), (2, 6, 5, 7), (1, 6, 2, 3, 5)], [(0, 0), (1, 0), (0, 1), (1, 1)], [1, 2, 3, 6]
    ):
        if len(shape) == 2 and groups == 6:
            continue  # torch refuses groups of one element, of which nothing is left but the bias
        x = values(shape, dtype, scale=2)
        weight = values((6,), dtype, 1) if scaled else None
        bias = values((6,), dtype, 2) if shifted else None
        theirs = functional.group_norm(
            wide(x), groups, None if weight is None else wide(weight), None if bias is None else wide(bias), 1e-3
        )
        compare(compare.oracle("group_norm", x, weight, bias, groups=groups, eps=1e-3), theirs, "torch")
    large = 1e6 + values((2, 4, 129), "float64")
    theirs = functional.group_norm(wide(large), 2)
    compare(compare.oracle("group_norm", large, groups=2), theirs, "torch", atol=1e-9)
    x = values((14, 2, 5), "float32")
    x[:, 0, 2] = special("float32")
    theirs = functional.group_norm(wide(x), 2)
    compare(compare.oracle("group_norm", x, groups=2), theirs, "torch", rtol=1e-7)


@independent("softmax@1")
def softmaxes(compare: Comparer) -> None:
    for dtype, (shape, axis) in itertools.product(
        FLOATS, [((63,), -1), ((5, 7, 9), 1), ((3, 1000), -1), ((0, 4), 1), ((2, 1), 0)]
    ):
        x = values(shape, dtype, scale=5)
        compare(compare.oracle("softmax", x, axis=axis), torch.softmax(wide(x), axis), "torch")
    rows = np.array([[1e4] * 3, [-np.inf, 0, 1], [-np.inf] * 3, [np.inf, 0, 0], [np.nan, 0, 0], [65504, 65504, -65504]])
    compare(compare.oracle("softmax", rows), torch.softmax(wide(rows), -1), "torch")
    x = np.array([0.0, -1.5, -300.0, 2.25, -700.0])
    with mpmath.workdps(50):
        weights = [mpmath.exp(mpmath.mpf(v)) for v in x]
        expected = [float(w / sum(weights)) for w in weights]
    compare(compare.oracle("softmax", x), expected, "mpmath", rtol=1e-12, atol=0)


@independent("matmul@1")
def products(compare: Comparer) -> None:
    shapes = [
        ((5, 63), (63, 7)), ((63,), (63,)), ((63,), (63, 4)), ((4, 63), (63,)), ((2, 1, 3, 5), (4, 5, 6)),
        ((3, 0), (0, 2)), ((0, 3), (3, 2)), ((1, 3, 4), (7, 4, 2)), ((6, 3, 4), (4,)), ((1, 1), (1, 1)),
    ]  # fmt: skip
    for dtype, (first, second) in itertools.product(FLOATS, shapes):
        a, b = values(first, dtype, 1), values(second, dtype, 2)
        compare(compare.oracle("matmul", a, b), torch.matmul(wide(a), wide(b)), "torch")
    a = np.array([[np.inf, 1.0], [np.nan, 1.0], [0.0, -0.0]])
    compare(compare.oracle("matmul", a, np.eye(2) + 1), torch.matmul(wide(a), wide(np.eye(2) + 1)), "torch")


ACTIVATIONS: dict[str | None, Any] = {
    None: lambda z: z,
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda z: functional.gelu(z, approximate="tanh"),
    "silu": functional.silu,
}


@independent("linear@1")
def linears(compare: Comparer) -> None:
    for dtype, activation, biased, lead in itertools.product(FLOATS, ACTIVATIONS, [False, True], [(), (3,), (2, 5)]):
        x, w = values((*lead, 63), dtype, 1, 0.3), values((17, 63), dtype, 2, 0.3)
        bias = values((17,), dtype, 3) if biased else None
        theirs = ACTIVATIONS[activation](functional.linear(wide(x), wide(w), None if bias is None else wide(bias)))
        compare(compare.oracle("linear", x, w, bias, activation=activation), theirs, "torch", rtol=1e-10)
    x = np.array([[np.nan, 1.0], [np.inf, 1.0], [-np.inf, 1.0]])
    compare(
        compare.oracle("linear", x, np.eye(2), activation="relu"), functional.relu(wide(x) @ wide(np.eye(2))), "torch"
    )


# Attention ------------------------------------------------------------------------------------------------------------


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Any, scale: float | None) -> torch.Tensor:
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=True)


@independent("scaled_dot_product_attention@1")
def attentions(compare: Comparer) -> None:
    op = "scaled_dot_product_attention"
    shapes = [(2, 6, 2, 5, 9, 16, 16), (1, 3, 3, 7, 7, 31, 5), (1, 4, 1, 1, 129, 8, 64), (2, 2, 2, 9, 4, 3, 2)]
    for dtype, (batch, heads, kv, queries, keys, width, out), causal in itertools.product(
        FLOATS, shapes, [False, True]
    ):
        q = values((batch, heads, queries, width), dtype, 1)
        k = values((batch, kv, keys, width), dtype, 2)
        v = values((batch, kv, keys, out), dtype, 3)
        seen = torch.ones(queries, keys, dtype=torch.bool)
        lower = torch.tril(seen, diagonal=keys - queries) if causal else seen
        # Of a row that sees nothing torch says what its version says; here it is 0.
        live = lower.any(-1)
        theirs = torch.where(live[:, None], attention(wide(q), wide(k), wide(v), lower | ~live[:, None], None), 0.0)
        compare(compare.oracle(op, q, k, v, causal=causal), theirs, "torch")
        kept = torch.from_numpy(values((batch, 1, queries, keys), "bool", 4)) | torch.eye(
            queries, keys, dtype=torch.bool
        )
        kept[..., 0] = True
        both = lower & kept
        live = both.any(-1, keepdim=True)
        theirs = torch.where(live, attention(wide(q), wide(k), wide(v), both | ~live, 0.3), 0.0)
        compare(compare.oracle(op, q, k, v, kept.numpy(), causal=causal, scale=0.3), theirs, "torch")
        bias = values((heads, 1, keys), dtype, 5)
        theirs = attention(wide(q), wide(k), wide(v), wide(bias).expand(batch, heads, queries, keys), None)
        compare(compare.oracle(op, q, k, v, bias), theirs, "torch")
    q, k, v = (values((1, 2, 3, 4), "float32", seed) for seed in (1, 2, 3))
    hidden = np.zeros((3, 3), np.float32)
    hidden[:2, :2] = -np.inf
    theirs = attention(wide(q), wide(k), wide(v), wide(hidden), None)
    compare(compare.oracle(op, q, k, v, hidden), theirs, "torch")
    q[0, 0, 0, 0] = np.nan
    # torch's fused kernel gives 0 where a score is NaN; its parts do not.
    theirs = torch.softmax(wide(q) @ wide(k).mT / 2, -1) @ wide(v)
    compare(compare.oracle(op, q, k, v), theirs, "torch")


@independent("decode_attention@1")
def decodes(compare: Comparer) -> None:
    for (query, cache), (heads, kv, keys, width, out) in itertools.product(
        [
            ("float32", "float32"),
            ("float16", "float16"),
            ("bfloat16", "bfloat16"),
            ("float32", "float16"),
            ("float64", "float64"),
        ],
        [(6, 2, 63, 127, 64), (4, 4, 1, 8, 8), (8, 1, 300, 129, 33)],
    ):
        q = values((2, heads, width), query, 1)
        k, v = values((2, kv, keys, width), cache, 2), values((2, kv, keys, out), cache, 3)
        bias = values((keys,), "float32", 4)
        plain = attention(wide(q)[:, :, None], wide(k), wide(v), None, None)[:, :, 0]
        compare(compare.oracle("decode_attention", q, k, v), plain, "torch")
        biased = attention(wide(q)[:, :, None], wide(k), wide(v), wide(bias).expand(2, heads, 1, keys), 0.2)[:, :, 0]
        compare(compare.oracle("decode_attention", q, k, v, bias, scale=0.2), biased, "torch")
        if query == "float32":
            rounded = as_torch(q).to(TORCH[cache]).to(torch.float64)
            theirs = attention(rounded[:, :, None], wide(k), wide(v), None, None)[:, :, 0]
            compare(compare.oracle("decode_attention", q, k, v, q_dtype=cache), theirs, "torch")
    # Of a finite query beyond float16 its largest number is left.
    q = np.array([[[1e5, 0.0]], [[-1e5, 0.0]]], np.float32)
    k, v = np.full((2, 1, 3, 2), 1e-5, np.float16), values((2, 1, 3, 2), "float16")
    clamped = torch.clamp(as_torch(q), -65504, 65504).to(torch.float64)
    theirs = attention(clamped[:, :, None], wide(k), wide(v), None, None)[:, :, 0]
    compare(compare.oracle("decode_attention", q, k, v, q_dtype="float16"), theirs, "torch")


@independent("decode_attention_reduce@1")
def reductions_of_splits(compare: Comparer) -> None:
    for rows, splits, width in [(1, 1, 3), (5, 7, 33), (3, 64, 8)]:
        o, m = values((rows, splits, width), "float32", 1), values((rows, splits), "float32", 2, 20)
        total = np.abs(values((rows, splits), "float32", 3)) + 1
        m[0, splits // 2 :], total[0, splits // 2 :], o[0, splits // 2 :] = -np.inf, 0, 0
        if splits == 1:
            m[:], total[:], o[:] = 0.5, 1.5, 2.5
        weights = torch.exp(wide(m) - wide(m).amax(-1, keepdim=True))
        theirs = (weights[..., None] * wide(o)).sum(1) / (weights * wide(total)).sum(1, keepdim=True)
        compare(compare.oracle("decode_attention_reduce", o, m, total), theirs, "torch")
    # The parts of an attention, joined, are the attention.
    scores, v = values((4, 90), "float64", 5, 3), values((90, 6), "float64", 6)
    m, o, total = np.zeros((4, 3)), np.zeros((4, 3, 6)), np.zeros((4, 3))
    for s in range(3):
        part = wide(scores)[:, 30 * s : 30 * s + 30]
        m[:, s] = part.amax(-1).numpy()
        p = torch.exp(part - part.amax(-1, keepdim=True))
        total[:, s], o[:, s] = p.sum(-1).numpy(), (p @ wide(v)[30 * s : 30 * s + 30]).numpy()
    joined = compare.oracle(
        "decode_attention_reduce", o.astype(np.float32), m.astype(np.float32), total.astype(np.float32)
    )
    compare(joined, torch.softmax(wide(scores), -1) @ wide(v), "torch", rtol=1e-5, atol=1e-6)


@independent("paged_kv_append@1")
def appends(compare: Comparer) -> None:
    for source, target in itertools.product(
        ["float32", "bfloat16", "float16"], ["float16", "bfloat16", "float32", "float8_e5m2"]
    ):
        new, pool = values((5, 3, 8), source, 1, 100), values((4, 3, 16, 8), target, 2)
        slot = np.array([0, 63, 17, 31, 5], np.int32)
        # [pages, H, tokens, D] with the tokens of all pages in one axis, written there, and put back.
        flat = as_torch(pool).permute(0, 2, 1, 3).reshape(64, 3, 8)
        flat[torch.from_numpy(slot).long()] = as_torch(new).to(TORCH[target])
        theirs = flat.reshape(4, 16, 3, 8).permute(0, 2, 1, 3)
        compare(compare.oracle("paged_kv_append", new, slot, pool), theirs, "torch", rtol=0)
    new, pool = np.full((2, 1, 1), 1e5, np.float32), np.zeros((1, 1, 3, 1), np.float16)
    slot = np.array([-1, 2], np.int32)
    for saturate, number in ((False, np.inf), (True, 65504.0)):
        theirs = torch.tensor([0.0, 0.0, number]).reshape(1, 1, 3, 1).to(torch.float16)
        compare(compare.oracle("paged_kv_append", new, slot, pool, saturate=saturate), theirs, "torch", rtol=0)


# Layout and indexing --------------------------------------------------------------------------------------------------

ANY = ["bool", "int8", "int64", "float16", "float32", "float64", "complex64"]


@independent("permute_dims@1")
def permutations(compare: Comparer) -> None:
    for dtype, axes in itertools.product(ANY, itertools.permutations(range(3))):
        x = values((2, 5, 3), dtype)
        compare(compare.oracle("permute_dims", x, axes=axes), wide(x).permute(axes), "torch", rtol=0)
    x = values((2, 5, 3), "bfloat16")
    compare(compare.oracle("permute_dims", x, axes=(-1, 0, 1), copy=True), wide(x).permute(-1, 0, 1), "torch", rtol=0)


@independent("pixel_shuffle@1")
def shuffles(compare: Comparer) -> None:
    for dtype, r, (height, width) in itertools.product(ANY, [1, 2, 3], [(3, 5), (1, 1), (0, 2)]):
        x = values((2, 3 * r * r, height, width), dtype)
        compare(compare.oracle("pixel_shuffle", x, r=r), functional.pixel_shuffle(wide(x), r), "torch", rtol=0)
    for r in (1, 2):
        narrow = values((2, 3, 1, 3, 5), "float16")
        x = np.broadcast_to(narrow, (2, 3, 4, 3, 5))
        whole = wide(narrow).expand(2, 3, 4, 3, 5).reshape(2, 12, 3, 5)
        compare(compare.oracle("pixel_shuffle", x, r=r), functional.pixel_shuffle(whole, r), "torch", rtol=0)


@independent("embedding@1")
def embeddings(compare: Comparer) -> None:
    for dtype, index_dtype, shape in itertools.product(ANY, ["int32", "int64"], [(), (7,), (2, 3), (0, 3)]):
        w = values((11, 5), dtype)
        index = np.random.default_rng(1).integers(0, 11, shape).astype(index_dtype)
        theirs = wide(w)[torch.from_numpy(index).long()]
        compare(compare.oracle("embedding", w, index), theirs, "torch", rtol=0)
        if dtype in ("float16", "float32", "float64"):
            theirs = functional.embedding(torch.from_numpy(index), wide(w))
            compare(compare.oracle("embedding", w, index), theirs, "torch", rtol=0)
    w = values((3, 2), "float32").astype(BFLOAT16)
    compare(compare.oracle("embedding", w, np.array([2, 0])), wide(w)[[2, 0]], "torch", rtol=0)


@independent("pixel_unshuffle@1")
def unshuffles(compare: Comparer) -> None:
    for dtype, r, (height, width) in itertools.product(ANY, [1, 2, 3], [(3, 5), (1, 1), (4, 2)]):
        x = values((2, 3, height * r, width * r), dtype)
        compare(compare.oracle("pixel_unshuffle", x, r=r), functional.pixel_unshuffle(wide(x), r), "torch", rtol=0)


@independent("broadcast_to@1")
def broadcasts(compare: Comparer) -> None:
    shapes = [((3, 1), (3, 5)), ((1, 5), (2, 3, 5)), ((), (2, 3)), ((2, 3), (2, 3)), ((1, 3), (0, 3)), ((0, 1), (0, 4))]
    for dtype, (shape, target) in itertools.product(ANY, shapes):
        x = values(shape, dtype)
        compare(compare.oracle("broadcast_to", x, shape=target), wide(x).expand(target), "torch", rtol=0)
    x = values((2, 1), "float32").astype(BFLOAT16)
    compare(compare.oracle("broadcast_to", x, shape=(2, 3), copy=True), wide(x).expand(2, 3), "torch", rtol=0)


@independent("concat@1")
def joins(compare: Comparer) -> None:
    def both(arrays: list[np.ndarray], axis: int | None) -> None:
        theirs = torch.cat(
            [wide(x).reshape(-1) for x in arrays] if axis is None else list(map(wide, arrays)), axis or 0
        )
        compare(compare.oracle("concat", arrays, axis=axis), theirs, "torch", rtol=0)

    shapes = [(0, (2, 3, 5), (4, 3, 5)), (1, (2, 3, 5), (2, 1, 5)), (-1, (2, 3, 5), (2, 3, 0)), (None, (2, 3), (4,))]
    for dtype, (axis, *parts) in itertools.product(ANY, shapes):
        both([values(shape, dtype, seed) for seed, shape in enumerate([*parts, parts[0]])], axis)
    pairs = [("float16", "float32"), ("bfloat16", "float64"), ("float32", "complex64"), ("float16", "float64")]
    for first, second in [*pairs, ("int8", "int32"), ("uint8", "int8"), ("int16", "uint8")]:
        arrays = [values((3, 4), first, 1), values((2, 4), second, 2)]
        both(arrays, 0)
        signature = sign("concat", arrays)
        assert signature.outputs[0].dtype.name == str(torch.promote_types(TORCH[first], TORCH[second]))[6:]
    both([values((3,), "int8")], 0)
    both([np.array(2.5), np.ones((2, 2))], None)


@independent("take@1")
def picks(compare: Comparer) -> None:
    for dtype, index_dtype, axis, count in itertools.product(ANY, ["int32", "int64"], [0, 1, -1], [0, 1, 9]):
        x = values((5, 7, 3), dtype)
        indices = np.random.default_rng(1).integers(0, x.shape[axis], count).astype(index_dtype)
        theirs = torch.index_select(wide(x), axis, torch.from_numpy(indices))
        compare(compare.oracle("take", x, indices, axis=axis), theirs, "torch", rtol=0)
    x = values((5,), "float32").astype(BFLOAT16)
    compare(compare.oracle("take", x, np.array([4, 0, 4])), wide(x)[[4, 0, 4]], "torch", rtol=0)


@independent("topk@1")
def bests(compare: Comparer) -> None:
    def both(x: np.ndarray, k: int, axis: int, largest: bool) -> None:
        # torch.topk leaves the order of equal elements open; its stable sort does not.
        number = wide(x).to(torch.int64) if x.dtype == bool else wide(x)
        found = torch.sort(number, dim=axis, descending=largest, stable=True)
        indices = found.indices.narrow(axis, 0, k)
        values, places = compare.oracle("topk", x, k=k, axis=axis, largest=largest)
        compare(places, indices, "torch", rtol=0)
        compare(values, wide(x).gather(axis, indices), "torch", rtol=0)
        theirs = torch.topk(number, k, axis, largest).values
        # Of zeros of both signs torch.topk names either.
        compare(values + 0, theirs + 0, "torch", rtol=0)

    for dtype, (axis, k), largest in itertools.product(
        [*FLOATS, "bool", "int8", "int64", "uint8"], [(0, 0), (0, 5), (1, 3), (-1, 2)], [True, False]
    ):
        x = values((5, 7, 3), dtype, scale=2)
        both(x if dtype not in FLOATS else np.rint(x.astype(np.float64)).astype(x.dtype), k, axis, largest)
    for dtype, largest in itertools.product(FLOATS, [True, False]):
        both(special(dtype)[np.random.default_rng(3).integers(0, 14, (20, 40))], 33, 1, largest)
    for dtype in ("uint64", "int4", "uint4"):
        x = values((4, 9), dtype)
        expected = [sorted(range(9), key=lambda i, row=row: (-int(row[i]), i))[:4] for row in x.tolist()]
        compare(compare.oracle("topk", x, k=4)[1], expected, "Python", rtol=0)


@independent("sdm::wy_solve@1")
def solves(compare: Comparer) -> None:
    for chunks, width in [(2, 1), (3, 17), (1, 65), (1, 129)]:
        a, qk = values((chunks, width, width), "float32", 1, 0.3), values((chunks, width, width), "float32", 2)
        beta = np.abs(values((chunks, width), "float32", 3)) % 1
        lower = torch.tril(wide(beta)[..., None] * wide(a), -1)
        eye = torch.eye(width, dtype=torch.float64).expand(chunks, width, width)
        x = torch.linalg.solve_triangular(lower + eye, eye, upper=False, unitriangular=True)
        a[:, *np.triu_indices(width)] = np.nan
        qk_lower = torch.tril(wide(qk))
        qk[:, *np.triu_indices(width, 1)] = np.nan
        found_x, found_qx = compare.oracle(wy_solve, a, beta, qk)
        compare(found_x, x, "torch", rtol=1e-9, atol=1e-9)
        compare(found_qx, torch.tril(qk_lower @ x), "torch", rtol=1e-9, atol=1e-9)
        above = np.triu_indices(width, 1)
        for found in (found_x, found_qx):
            assert not found[:, *above].any()
            assert not np.signbit(found[:, *above]).any()
