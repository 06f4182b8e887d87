"""Specs of attention kernels."""

from __future__ import annotations

from typing import Any

from nbx_registry.contracts.decoding import splits_rule
from nbx_registry.kernel import Kernel, Workspace
from nbx_triton.specs.common import HALVES, kernel

_SPLITS = splits_rule("T")


def _partial(splits: str) -> tuple[Workspace, ...]:
    """Return the workspace for the results of so many splits."""
    return (
        Workspace(name="partial_o", dtype="float32", shape=("B * Hq", splits, "Dv"), lifetime=(0, 1)),
        Workspace(name="partial_m", dtype="float32", shape=("B * Hq", splits), lifetime=(0, 1)),
        Workspace(name="partial_l", dtype="float32", shape=("B * Hq", splits), lifetime=(0, 1)),
    )


def _direct_splits(tokens: object) -> str:
    return f"cdiv({_SPLITS} * 256, {tokens})"


_DIRECT = {
    "direct-64": (64, 64, "B * Hkv * T < 512 * device.multiprocessors"),
    "direct-128": (128, 256, f"B * Hkv * {_direct_splits(256)} <= 4 * device.multiprocessors"),
}
"""Of variants of `direct_attention` the width of rows, the keys of a split, and where they are worth it: measured on an
H200, where programs of one warp are as fast or faster when there are more of them."""


def direct_rows(name: str) -> tuple[str, ...]:
    """Return conditions under which rows of a cache are pieces of 16 bytes, as many as the matrix unit takes."""
    strides = f"{name}.strides"
    return (
        f"{name}.dtype == q.dtype",
        f"{name}.align >= 16 and {strides}[3] == 1",
        f"{strides}[0] % 16 == 0 and {strides}[1] % 16 == 0 and {strides}[2] % 16 == 0",
        f"{strides}[2] >= 0 and {strides}[2] < 2**24",
    )


def split_attention(op: str, module: str, **facts: Any) -> tuple[Kernel, ...]:
    """Return the kernels of an op of one query a sequence: where there are many keys for the device, where few, and of
    caches that meet what is ``direct``'s to ask: its variants, binder and conditions.

    Which of them is asked depends on the batch, the bits of none do.
    """
    when = facts.pop("when")
    variants, *direct = facts.pop("direct")
    common = {
        **facts,
        "workspace": _partial(f"{_SPLITS} * parts"),
        "settings": "nbx_triton.kernels.split_attention:SETTINGS",
        "batch_invariant": True,
    }
    return (
        kernel(
            op,
            "split",
            f"{module}:bind",
            when=when,
            defaults={"keys": 16, "warps": 1, "together": False, "parts": 1},
            doc="One program attends a split of a sequence's keys for the heads of a KV head; a second launch joins.",
            **common,
        ),
        kernel(
            op,
            "quarters",
            f"{module}:bind",
            when=(*when, "B * Hkv * T < 2048 * device.multiprocessors"),
            defaults={"keys": 16, "warps": 1, "together": True, "parts": 4},
            preference=1,
            doc="As split, of four times as many splits; a program's loads are all under way before it waits for one.",
            **common,
        ),
        *(
            Kernel(
                id=f"nbx-triton/{op.partition('@')[0]}/{variant}",
                op=op,
                backend="gluon",
                runtimes=("cuda",),
                bind=f"nbx_triton.kernels.direct_attention:{direct[0]}",
                when=(
                    "q.dtype in (float16, bfloat16)",
                    f"D == {width}",
                    "Dv == D",
                    condition,
                    *direct[1:],
                    "device.matrix_unit.m16n8k16",
                ),
                defaults={"tokens": tokens},
                deterministic=True,
                replayable=True,
                preference=2,
                doc=f"As split, of {tokens} keys; these and values are the matrix unit's operands as they are loaded.",
                **{
                    **common,
                    "workspace": _partial(_direct_splits("tokens")),
                    "settings": "nbx_triton.kernels.direct_attention:SETTINGS",
                },
            )
            for variant, (width, tokens, condition) in _DIRECT.items()
            if variant in variants
        ),
    )


_KEY = (
    "q.dtype",
    "q.shape",
    "q.strides",
    "k.shape",
    "k.strides",
    "v.shape",
    "v.strides",
    "mask.given",
    "mask.dtype",
    "mask.shape",
    "mask.strides",
    "causal",
    "scale",
)


def _rows(name: str) -> tuple[str, ...]:
    """Return conditions under which the copy engine can describe a tensor, and offsets within a batch are short."""
    heads, tokens = f"{name}.shape[1]", f"{name}.shape[2]"
    return (
        f"{heads} * ({tokens} + 128) * D < 2**31",
        f"{name}.align >= 16",
        f"{name}.strides[3] == 1",
        f"{name}.strides[0] % 16 == 0 and {name}.strides[1] % 16 == 0 and {name}.strides[2] % 16 == 0",
        f"{name}.strides[0] > 0 and {name}.strides[1] > 0 and {name}.strides[2] > 0",
        f"{name}.strides[1] * ({heads} - 1) + {name}.strides[2] * ({tokens} + 128) < 2**31",
    )


KERNELS = (
    kernel(
        "scaled_dot_product_attention@1",
        "online",
        "attention:bind",
        when=(f"q.dtype in {HALVES}", "D <= 256", "Dv <= 256"),
        key=_KEY,
        doc="One program attends a tile of queries of one head, keys in order, online softmax in float32.",
    ),
    kernel(
        "scaled_dot_product_attention@1",
        "short",
        "attention:bind_short",
        when=(
            "q.dtype in (float16, bfloat16)",
            "Tk <= 128",
            "D <= 128",
            "Dv <= 128",
            "device.matrix_unit.m16n8k16",
        ),
        key=_KEY,
        preference=1,
        doc="One program attends a tile of queries of one head to all keys at once.",
    ),
    Kernel(
        id="nbx-triton/scaled_dot_product_attention/warps",
        op="scaled_dot_product_attention@1",
        backend="gluon",
        runtimes=("cuda",),
        bind="nbx_triton.kernels.attention_warps:bind",
        when=(
            "q.dtype in (float16, bfloat16)",
            "D == 128",
            "Dv == D",
            "not mask.given",
            "scale == None or scale > 0",
            # A tile is of 128 queries.
            "Tq > 64",
            # None has a description without elements.
            "Tk > 0",
            *(condition for name in ("q", "k", "v", "out") for condition in _rows(name)),
            "device.matrix_unit.wgmma_m64k16",
            "device.registers.setmaxnreg",
            "device.async_copy.tma",
        ),
        key=_KEY,
        workspace=(Workspace(name="descriptions", dtype="int8", shape=("min(B * Hq * cdiv(Tq, 128), 1024)", "512")),),
        deterministic=True,
        replayable=True,
        preference=2,
        doc="Warps that copy, and two groups that multiply in turn; a program takes one tile of queries after another.",
    ),
    *split_attention(
        "decode_attention@1",
        "decode_attention",
        direct=(
            ("direct-64", "direct-128"),
            "bind",
            "not bias.given",
            "T < 2**30",
            *direct_rows("k"),
            *direct_rows("v"),
        ),
        when=(
            f"q.dtype in {HALVES}",
            f"k.dtype in {HALVES}",
            "bias.dtype in (None, float16, bfloat16, float32, float64)",
            "D <= 256",
            "Dv <= 256",
        ),
        key=(
            "q.dtype",
            "q.shape",
            "q.strides",
            "k.dtype",
            "k.shape",
            "k.strides",
            "v.shape",
            "v.strides",
            "bias.given",
            "bias.dtype",
            "bias.strides",
            "q_dtype",
        ),
    ),
    kernel(
        "decode_attention_reduce@1",
        "rows",
        "decode_attention:bind_reduce",
        # Its sums are in float32.
        when=("Dv <= 1024", f"dtype in {HALVES}"),
        key=("o.shape", "o.strides", "m.strides", "l.strides", "out.dtype"),
        batch_invariant=True,
        doc="One program adds up the splits of one row, ascending.",
    ),
)
