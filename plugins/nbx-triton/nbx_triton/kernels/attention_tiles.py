"""Tiles of queries, dealt to programs that stay on their multiprocessors.

Tiles are dealt out as cards are: every other time in reverse. Sections of heads whose keys and values fit the cache
follow one another, and the keys of causal tiles grow in one and shrink in the next, to the last: so hands come out
equal.

Written in Gluon, Triton's language of layouts.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def dealt(time, programs):
    """Return the number of the program's tile, the ``time``-th; every other time tiles are dealt in reverse."""
    number = gl.program_id(0)
    if time % 2 == 1:
        number = programs - 1 - number
    return time * programs + number


@gluon.jit
def times(tiles, programs):
    """Return how many tiles the program has."""
    count = tiles // programs
    if dealt(count, programs) < tiles:
        count += 1
    return count


@gluon.jit
def place(number, sizes, CAUSAL: gl.constexpr, BLOCK_N: gl.constexpr):
    """Return a tile's batch, head and first query, its blocks of keys, and how many of these every query sees whole."""
    queries, keys, heads, section = sizes[0], sizes[1], sizes[2], sizes[3]
    tiles = (queries + 127) // 128
    part = number // (tiles * section)
    head = part * section + number % section
    tile = number % (tiles * section) // section
    last = keys
    whole = keys
    if CAUSAL:
        if (sizes[4] // (tiles * section) - part) % 2 == 1:
            tile = tiles - 1 - tile
        first_sees = tile * 128 + 1 + keys - queries
        whole = gl.maximum(gl.minimum(keys, first_sees), 0)
        last = gl.maximum(gl.minimum(keys, first_sees + 127), 0)
    # Where nothing is seen there is one block all the same, whose weights are 0.
    blocks = gl.maximum((last + BLOCK_N - 1) // BLOCK_N, 1)
    return head // heads, head % heads, tile * 128, blocks, gl.minimum(whole // BLOCK_N, blocks - 1)
