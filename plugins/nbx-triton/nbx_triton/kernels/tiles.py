"""Tiles of rows and columns: how large, and which of them a program has."""

from __future__ import annotations

import triton
import triton.language as tl

ELEMENTS = 4096
"""Elements of a tile of what is moved: several loads under way in each thread of four warps."""


def tile_shape(rows: int, columns: int, elements: int = ELEMENTS) -> tuple[int, int]:
    """Return rows and columns of a tile, powers of two, of up to ``elements``: whole rows if they fit."""
    across = min(elements, triton.next_power_of_2(columns))
    return min(elements // across, triton.next_power_of_2(rows)), across


@triton.jit
def tile(number, columns, BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr):
    """Return the rows and the columns of a tile. Tiles are numbered along the columns first."""
    across = (columns + BLOCK_COLUMNS - 1) // BLOCK_COLUMNS
    row = number // across * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    column = number % across * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    return row, column
