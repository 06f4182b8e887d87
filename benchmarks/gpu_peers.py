"""What others offer for the same work, by name, where they are installed."""

from __future__ import annotations

import functools
import importlib
import math
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

Way = Callable[[], object]


def optional(ways: Callable[..., dict[str, Way]]) -> Callable[..., dict[str, Way]]:
    """Leave a peer out that cannot be set up here, and say why."""

    @functools.wraps(ways)
    def found(*args: Any, **keywords: Any) -> dict[str, Way]:
        try:
            return ways(*args, **keywords)
        except Exception as error:  # noqa: BLE001 - a peer's code may raise anything
            print(f"{ways.__name__} is left out: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            return {}

    return found


def module(name: str) -> ModuleType | None:
    """Return an installed module, or None."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


@optional
def flag_gems(function: str, *args: Any, **keywords: Any) -> dict[str, Way]:
    """Return FlagGems' function of that name, where it has it; none of torch's is replaced."""
    # It looks for the vendor by a program that a container may lack.
    os.environ.setdefault("GEMS_VENDOR", "nvidia")
    found = getattr(module("flag_gems"), function, None)
    return {"flag_gems": lambda: found(*args, **keywords)} if found else {}


LIGER_LONGEST = 65536
"""Liger refuses longer rows."""


@optional
def liger_rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> dict[str, Way]:
    """Return Liger's normalisation, for rows that it takes."""
    liger = module("liger_kernel.ops.rms_norm")
    if liger is None or x.shape[-1] > LIGER_LONGEST:
        return {}
    return {"liger": lambda: liger.LigerRMSNormFunction.apply(x, weight, eps)}


@optional
def liger_layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> dict[str, Way]:
    """Return Liger's normalisation, for rows that it takes."""
    liger = module("liger_kernel.ops.layer_norm")
    if liger is None or x.shape[-1] > LIGER_LONGEST:
        return {}
    return {"liger": lambda: liger.LigerLayerNormFunction.apply(x, weight, bias, eps)}


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool) -> dict[str, Way]:
    """Return every backend of torch's attention that takes the call."""
    backends = {
        "torch flash": SDPBackend.FLASH_ATTENTION,
        "torch cudnn": SDPBackend.CUDNN_ATTENTION,
        "torch efficient": SDPBackend.EFFICIENT_ATTENTION,
    }

    def way(backend: SDPBackend) -> Way:
        def run() -> object:
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])

        return run

    return {name: way(backend) for name, backend in backends.items() if _runs(way(backend))}


def _runs(way: Way) -> bool:
    try:
        way()
    except RuntimeError:
        return False
    return True


@optional
def flashinfer_decode(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> dict[str, Way]:
    """Return flashinfer's decode of one sequence, [Hq, D] on a cache [Hkv, T, D]."""
    infer = module("flashinfer")
    if infer is None:
        return {}

    def way(matrix: bool) -> Way:
        return lambda: infer.single_decode_with_kv_cache(q, k, v, kv_layout="HND", use_tensor_cores=matrix)

    return {"flashinfer": way(matrix=False), "flashinfer matrix": way(matrix=True)}


@optional
def flashinfer_paged(
    q: torch.Tensor, k_pool: torch.Tensor, v_pool: torch.Tensor, table: torch.Tensor, lens: torch.Tensor
) -> dict[str, Way]:
    """Return flashinfer's decode of a batch through a table of pages; planning, on the host, is not in the time."""
    infer = module("flashinfer")
    if infer is None:
        return {}
    page_tokens = k_pool.shape[2]
    pages = [math.ceil(int(n) / page_tokens) for n in lens.tolist()]
    start = torch.tensor([0, *torch.tensor(pages).cumsum(0).tolist()], dtype=torch.int32, device=q.device)
    used = torch.cat([table[b, :n] for b, n in enumerate(pages)]).to(torch.int32)
    last = torch.tensor([(int(n) - 1) % page_tokens + 1 for n in lens.tolist()], dtype=torch.int32, device=q.device)
    heads = (q.shape[1], k_pool.shape[1], q.shape[2], page_tokens)

    def way(matrix: bool) -> Way:
        space = torch.empty(256 << 20, dtype=torch.uint8, device=q.device)
        wrapper = infer.BatchDecodeWithPagedKVCacheWrapper(space, "HND", use_tensor_cores=matrix)
        wrapper.plan(start, used, last, *heads, q_data_type=q.dtype, kv_data_type=k_pool.dtype)
        return lambda: wrapper.run(q, (k_pool, v_pool))

    return {"flashinfer": way(matrix=False), "flashinfer matrix": way(matrix=True)}


@optional
def gemlite_gemv(x: torch.Tensor, weight: torch.Tensor) -> dict[str, Way]:
    """Return gemlite's product with a weight [N, K] quantised to 4 bits in groups of 128, tuned on its first calls."""
    lite = module("gemlite")
    helper = module("gemlite.helper")
    if lite is None or helper is None:
        return {}
    lite.set_autotune("fast")
    groups = weight.float().reshape(weight.shape[0], -1, 128)
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    scale = ((high - low) / 15).clamp_min(1e-8)
    zero = -low / scale
    codes = (groups / scale + zero).round().clamp(0, 15).to(torch.uint8).reshape(weight.shape)
    layer = helper.A16Wn(device=str(x.device), dtype=x.dtype).from_weights(
        codes, scale.reshape(-1, 1).to(x.dtype), zero.reshape(-1, 1).to(x.dtype), 4, 128
    )
    row = x[None]
    return {"gemlite": lambda: layer(row)}
