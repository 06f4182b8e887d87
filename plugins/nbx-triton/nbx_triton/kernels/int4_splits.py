"""Groups of a packed weight shared among programs: how many each of them sums, and the sum of their sums."""

from __future__ import annotations

import triton
import triton.language as tl

from nbx_registry.launch import BindContext, Launch
from nbx_triton.compiler import Options
from nbx_triton.kernels.strided import collapse, locate, program
from nbx_triton.launching import launch

MOST_SPLITS = 16
_BLOCK = 512


@triton.jit
def add_splits(
    partial,
    out,
    count,
    shape,
    out_strides,
    WIDE: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write BLOCK of ``count`` elements: the sums of all splits, in order."""
    index = program(WIDE) * BLOCK + tl.arange(0, BLOCK)
    inside = index < count
    total = tl.zeros((BLOCK,), tl.float32)
    for part in tl.static_range(SPLITS):
        total += tl.load(partial + part * count + index, mask=inside, other=0)
    tl.store(out + locate(index, shape, out_strides), total.to(out.dtype.element_ty), mask=inside)


def share_groups(groups: int, tiles: int, programs: int) -> tuple[int, int]:
    """Return how many groups a program sums, and how many programs there are then for each of ``tiles``.

    ``programs`` is about how many there are to be in all. The kernels' workspaces declare the same number.
    """
    share = triton.cdiv(groups, max(1, min(programs // tiles, groups, MOST_SPLITS)))
    return share, triton.cdiv(groups, share)


def join(ctx: BindContext, splits: int, wide: bool) -> Launch:
    """Return the launch that adds what ``splits`` programs wrote to the workspace ``partial``."""
    (out,) = ctx.signature.outputs
    shape, strides = collapse(out.shape, out.strides)
    return launch(
        ctx,
        add_splits,
        programs=triton.cdiv(out.size, _BLOCK),
        arguments={"partial": "partial", "out": "out", "count": out.size, "shape": shape, "out_strides": strides},
        constants={"WIDE": wide, "SPLITS": splits, "BLOCK": _BLOCK},
        options=Options(num_warps=4, num_stages=1, enable_fp_fusion=False),
    )
