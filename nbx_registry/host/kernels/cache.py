"""The paged cache: rows written into pages, rounded once; lengths that advance."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nbx_registry.dtypes import DType
from nbx_registry.host.kernels.blocks import Array
from nbx_registry.host.kernels.conversion import conversion
from nbx_registry.launch import BindContext, Launch

Rounding = Callable[[Array], Array]


def paged_kv_append(context: BindContext) -> Launch:
    """Bind the scatter of rows into a paged cache, rounded once to its dtype."""
    signature = context.signature
    new, _, pool = signature.operands
    rounded = _rounding(new.dtype, pool.dtype, saturate=signature.attributes["saturate"])
    page_tokens = pool.shape[2]

    def run(new: Array, slot: Array, pool: Array) -> None:
        if np.minimum.reduce(slot, initial=0) < 0:
            kept = slot >= 0
            new, slot = new[kept], slot[kept]
        if new.size == 0:
            return
        page, position = np.divmod(slot, page_tokens)
        pool[page, :, position] = rounded(new)

    return Launch(function=run, args=signature.names)


def paged_kv_append_step(context: BindContext) -> Launch:
    """Bind the scatter of one row a sequence into both pools, to where the lengths and the table say."""
    signature = context.signature
    new, _, pool, _, table, _ = signature.operands
    rounded = _rounding(new.dtype, pool.dtype, saturate=signature.attributes["saturate"])
    page_tokens = pool.shape[2]
    room = table.shape[1] * page_tokens
    every = np.arange(int(table.shape[0]))

    def run(k_new: Array, v_new: Array, k_pool: Array, v_pool: Array, table: Array, lens: Array) -> None:
        # Of lengths those below zero are the largest, taken as unsigned.
        rows = every
        if np.maximum.reduce(lens.view(np.uint32), initial=0) >= room:
            rows = np.flatnonzero((lens >= 0) & (lens < room))
        if rows.size == 0:
            return
        entry, position = np.divmod(lens if rows is every else lens[rows], page_tokens)
        page = table[rows, entry]
        if np.minimum.reduce(page) < 0:
            kept = page >= 0
            rows, page, position = rows[kept], page[kept], position[kept]
        if rows.size == len(lens):
            k_pool[page, :, position] = rounded(k_new)
            v_pool[page, :, position] = rounded(v_new)
        elif rows.size:
            k_pool[page, :, position] = rounded(k_new[rows])
            v_pool[page, :, position] = rounded(v_new[rows])

    return Launch(function=run, args=signature.names)


def _rounding(source: DType, target: DType, *, saturate: bool) -> Rounding:
    if source is target and not saturate:
        return lambda rows: rows
    convert = conversion(source, target, saturate=saturate)

    def run(rows: Array) -> Array:
        rounded = np.empty(rows.shape, target.numpy)
        convert(rows, rounded)
        return rounded

    return run


def paged_lens_advance(context: BindContext) -> Launch:
    """Bind the addition, in place."""
    n = np.int32(context.signature.attributes["n"])

    def run(lens: Array) -> None:
        np.add(lens, n, lens)

    return Launch(function=run, args=("lens",))
