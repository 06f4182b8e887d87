"""Attention written in Gluon computes what it should, whatever the layouts: those are the compiler's to check."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import triton.language as tl

from nbx_triton.kernels import direct_attention

DECODE = "nbx-triton/decode_attention/direct-"
PAGED = "nbx-triton/paged_decode_attention/direct-64"


def call(name: str) -> Callable[..., Any]:
    """Return Triton's function of that name, called without a layout."""

    def called(*arguments: Any, layout: Any = None, **options: Any) -> Any:
        del layout
        return getattr(tl, name)(*arguments, **options)

    return called


ALIKE = (
    "arange",
    "exp2",
    "expand_dims",
    "load",
    "max",
    "maximum",
    "minimum",
    "permute",
    "program_id",
    "reshape",
    "store",
)
LAYOUTS = (
    "BlockedLayout",
    "DistributedLinearLayout",
    "DotOperandLayout",
    "NVMMADistributedLayout",
    "SliceLayout",
    "SwizzledSharedLayout",
)
LANGUAGE = SimpleNamespace(
    **{name: call(name) for name in (*ALIKE, "sum", "where")},
    **{name: lambda *_: None for name in LAYOUTS},
    float32=tl.float32,
    int64=tl.int64,
    allocate_shared_memory=lambda _dtype, _shape, _layout, value: SimpleNamespace(load=lambda _: value),
    convert_layout=lambda x, _: x,
    full=lambda shape, value, dtype, _: tl.full(shape, value, dtype),
    zeros=lambda shape, dtype, _: tl.zeros(shape, dtype),
)


@pytest.fixture(autouse=True)
def in_blocks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Put Triton's language in the place of Gluon's."""
    source = Path(direct_attention.__file__).read_text(encoding="utf-8")
    for text, instead in (
        ("from triton.experimental import gluon\n", "import triton.language as tl\n"),
        ("from triton.experimental.gluon import language as gl\n", ""),
        ("from triton.experimental.gluon.language.nvidia.ampere import mma_v2\n", ""),
        ("@gluon.jit", "@triton.jit"),
        (": gl.constexpr", ": tl.constexpr"),
    ):
        assert text in source
        source = source.replace(text, instead)
    path = tmp_path / "direct_attention_in_blocks.py"
    path.write_text(source, encoding="utf-8")
    made = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(made)
    monkeypatch.setitem(sys.modules, path.stem, module)
    made.loader.exec_module(module)
    monkeypatch.setattr(module, "gl", LANGUAGE, raising=False)
    monkeypatch.setattr(module, "mma_v2", call("dot"), raising=False)
    monkeypatch.setattr(direct_attention, "attend_split", module.attend_split)


def deal(rng: np.random.Generator, sequences: int, most: int) -> np.ndarray:
    """Return a table of pages in no order, of a pool of as many."""
    return rng.permutation(sequences * most).astype(np.int32).reshape(sequences, most)


@pytest.mark.parametrize(
    ("dtype", "heads", "page_tokens", "lengths"),
    [
        ("float16", (4, 2), 64, [0, 1, 260]),
        ("bfloat16", (3, 3), 64, [65, 64]),
        ("float16", (20, 1), 128, [257]),
    ],
    ids=str,
)
def test_attention_of_pages(
    check: Callable,
    normal: Callable,
    rng: np.random.Generator,
    dtype: str,
    heads: tuple[int, int],
    page_tokens: int,
    lengths: list[int],
) -> None:
    table = deal(rng, len(lengths), 5)
    q = normal(dtype, len(lengths), heads[0], 64)
    pools = [normal(dtype, table.size, heads[1], page_tokens, 64) for _ in range(2)]
    check(PAGED, q, *pools, table, np.array(lengths, np.int32))


@pytest.mark.parametrize(("dtype", "heads", "keys"), [("bfloat16", (3, 3), 65), ("float16", (20, 2), 257)], ids=str)
def test_attention_of_rows_of_128(
    check: Callable, normal: Callable, dtype: str, heads: tuple[int, int], keys: int
) -> None:
    k, v = (normal(dtype, 2, heads[1], keys, 128) for _ in range(2))
    check(f"{DECODE}128", normal(dtype, 2, heads[0], 128), k, v, None)


def test_missing_pages_lengths_out_of_range_and_what_lies_past_the_end(
    check: Callable, normal: Callable, rng: np.random.Generator
) -> None:
    table = deal(rng, 3, 4)
    table[0, 1] = -1
    q = normal("float16", 3, 6, 64)
    pools = [normal("float16", table.size, 2, 64, 64) for _ in range(2)]
    check(PAGED, q, *pools, table, np.array([130, -5, 1000], np.int32))


def test_attention_of_a_prefix_of_a_buffer(check: Callable, normal: Callable) -> None:
    q = normal("float16", 2, 8, 64)
    k, v = (normal("float16", 2, 400, 2, 128)[:, :300, :, 64:].transpose(0, 2, 1, 3) for _ in range(2))
    check(f"{DECODE}64", q, k, v, None, scale=-0.3, q_dtype=None)
