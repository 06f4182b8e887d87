"""int4 weights: packed, unpacked and multiplied tile by tile, on every core where they are large.

Nothing of a weight's size is held beside the output: a thread has one tile in float32. Tiles lie where they lie
whatever the number of threads, so that results are the same on any.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from nbx_registry.contracts.quantized import GROUP, NIBBLES
from nbx_registry.errors import SignatureError
from nbx_registry.host.kernels.blocks import Array
from nbx_registry.host.kernels.widening import widen
from nbx_registry.host.parallel import large, spread
from nbx_registry.launch import BindContext, Launch

TILE = 1 << 21
"""Elements of a tile: so much work a step that threads do not wait for Python's lock between steps. On 16 cores tiles
of an eighth of that were as slow on all of them as on one, and no faster on one."""
COLUMNS = 1024
"""Of the tiles that a product adds up."""
PANEL = 512
"""Rows of the tiles that a product adds up: whole groups."""

FEW = 2048
"""Words of a tile that are unpacked all at once."""

_WORDS = GROUP // NIBBLES
_SHIFTS = np.arange(0, 4 * NIBBLES, 4, dtype=np.uint32)[:, None]
_SAFE = {"float16": 0x7BFF, "bfloat16": 0x477F, "float32": 0x477FE000}
"""The bits of the largest magnitude, at most float16's largest number, of which no group's range is beyond float16."""


class _Tile(NamedTuple):
    """Whole groups of some columns; the last group of a weight, where it is shorter, is a tile of its own."""

    groups: slice
    rows: slice
    columns: slice
    shape: tuple[int, int, int]
    """Groups, rows of each, columns."""

    @property
    def words(self) -> slice:
        """The rows of the packed weight."""
        return slice(self.rows.start // NIBBLES, self.rows.stop // NIBBLES)


def _tiles(k: int, n: int, size: int) -> list[_Tile]:
    """Cut a weight into tiles of about ``size`` elements."""
    whole, rest = divmod(k, GROUP)
    width = max(1, min(n, size // GROUP))
    height = max(1, size // (GROUP * width))
    found: list[_Tile] = []
    for column in range(0, n, width):
        columns = slice(column, min(column + width, n))
        across = columns.stop - column
        for group in range(0, whole, height):
            stop = min(group + height, whole)
            shape = (stop - group, GROUP, across)
            found.append(_Tile(slice(group, stop), slice(group * GROUP, stop * GROUP), columns, shape))
        if rest:
            found.append(_Tile(slice(whole, whole + 1), slice(whole * GROUP, k), columns, (1, rest, across)))
    return found


class _Scratch:
    """Memory of one thread for tile after tile: the system is asked for it once, not at every step."""

    def __init__(self) -> None:
        self._held: dict[str, Array] = {}

    def array(self, name: str, shape: tuple[int, ...], dtype: type[np.generic]) -> Array:
        """Return a contiguous array, whose contents are left from the last one of that name."""
        size = math.prod(shape)
        held = self._held.get(name)
        if held is None or held.size < size:
            held = self._held[name] = np.empty(size, dtype)
        return held[:size].reshape(shape)


Work = Callable[[_Tile, _Scratch], object]


def _spread(tiles: list[_Tile], nbytes: int, work: Work) -> None:
    # As many as threads come to need at once: fresh memory at every part would be a page fault every few kilobytes.
    idle: list[_Scratch] = []

    def part(start: int, stop: int) -> None:
        try:
            scratch = idle.pop()
        except IndexError:
            scratch = _Scratch()
        for tile in tiles[start:stop]:
            work(tile, scratch)
        idle.append(scratch)

    if large(nbytes):
        spread(part, len(tiles), nbytes)
    else:
        part(0, len(tiles))


# Packing


def quantize_int4(context: BindContext) -> Launch:
    """Bind the packing: a look at every element, then tile after tile."""
    (spec,) = context.signature.operands
    k, n = spec.shape
    tiles = _tiles(k, n, TILE)
    name, limit = context.signature.op.name, _SAFE[spec.dtype.name]

    def run(w: Array, packed: Array, scale: Array, zero_min: Array) -> None:
        sizes: list[int] = []
        _spread(tiles, w.nbytes, lambda tile, scratch: sizes.append(_largest_bits(w, tile, scratch)))
        if max(sizes, default=0) > limit:
            _spread(tiles, w.nbytes, lambda tile, scratch: _check(name, w, tile, scratch))
        _spread(tiles, w.nbytes, lambda tile, scratch: _pack(w, tile, scratch, packed, scale, zero_min))

    return Launch(function=run, args=("w", "packed", "scale", "zero_min"))


def _largest_bits(w: Array, tile: _Tile, scratch: _Scratch) -> int:
    """Return the largest of the bits of a tile's numbers without their signs: ordered as the magnitudes are."""
    words = w.view(f"u{w.dtype.itemsize}")[tile.rows, tile.columns]
    unsigned = words.dtype.type
    bits = scratch.array("bits", words.shape, unsigned)
    np.bitwise_and(words, unsigned((1 << 8 * w.dtype.itemsize - 1) - 1), out=bits)
    return int(bits.max(initial=0))


def _range(tile: Array) -> tuple[Array, Array]:
    """Return scale and minimum, float16, of each group and column of a tile [groups, rows, columns] in float32."""
    least = tile.min(1)
    span: Any = tile.max(1)
    span -= least
    span /= np.float32(15)
    scale = span.astype(np.float16)
    scale[scale == 0] = 1
    return scale, least.astype(np.float16) + np.float16(0)


def _load(w: Array, tile: _Tile, scratch: _Scratch) -> Array:
    values = scratch.array("values", tile.shape, np.float32)
    widen(w[tile.rows, tile.columns], values.reshape(-1, tile.shape[2]))
    return values


def _check(op: str, w: Array, tile: _Tile, scratch: _Scratch) -> None:
    """Refuse numbers that are not finite, and groups whose range float16 does not hold."""
    numbers: Any = w[tile.rows, tile.columns].astype(np.float32)
    wrong: Any = ~np.isfinite(numbers)
    if wrong.any():
        row, column = (int(i) for i in np.argwhere(wrong)[0])
        where = [tile.rows.start + row, tile.columns.start + column]
        raise SignatureError(
            f"{op}: w holds {numbers[row, column]} at {where}; weights must be finite; nothing was written"
        )
    values = _load(w, tile, scratch)
    scale, least = _range(values)
    wrong = ~(np.isfinite(scale) & np.isfinite(least))
    if wrong.any():
        group, column = (int(i) for i in np.argwhere(wrong)[0])
        numbers = values[group, :, column]
        raise SignatureError(
            f"{op}: group {tile.groups.start + group} of column {tile.columns.start + column} of w goes from "
            f"{numbers.min()} to {numbers.max()}, whose scale or minimum is beyond float16; nothing was written"
        )


def _pack(w: Array, tile: _Tile, scratch: _Scratch, packed: Array, scale: Array, zero_min: Array) -> None:
    steps = _load(w, tile, scratch)
    factor, least = _range(steps)
    scale[tile.groups, tile.columns], zero_min[tile.groups, tile.columns] = factor, least
    steps -= least.astype(np.float32)[:, None]
    steps /= factor.astype(np.float32)[:, None]
    np.clip(steps, 0, 15, out=steps)
    np.rint(steps, out=steps)
    q = scratch.array("q", (steps.size // NIBBLES // tile.shape[2], NIBBLES // 2, 2, tile.shape[2]), np.uint8)
    np.copyto(q, steps.reshape(q.shape), casting="unsafe")
    # Two nibbles a byte, four bytes a word.
    pairs = scratch.array("pairs", q[:, :, 0].shape, np.uint8)
    np.left_shift(q[:, :, 1], np.uint8(4), out=pairs)
    np.bitwise_or(pairs, q[:, :, 0], out=pairs)
    words: Any = scratch.array("words", pairs[:, 0].shape, np.uint32)
    np.copyto(words, pairs[:, 3])
    for byte in (2, 1, 0):
        words <<= np.uint32(8)
        words |= pairs[:, byte]
    packed[tile.words, tile.columns] = words.view(np.int32)


# Unpacking


def dequant_int4(context: BindContext) -> Launch:
    """Bind the unpacking, tile after tile, straight into the output."""
    (out_spec,) = context.signature.outputs
    k, n = out_spec.shape
    tiles = _tiles(k, n, NIBBLES * TILE // 2)

    def run(w: Array, scale: Array, zero_min: Array, out: Array) -> None:
        def unpack(tile: _Tile, scratch: _Scratch) -> None:
            _unpack(w, scale, zero_min, tile, scratch, out[tile.rows, tile.columns])

        _spread(tiles, w.nbytes + out.nbytes, unpack)

    return Launch(function=run, args=("w", "scale", "zero_min", "out"))


def _unpack(w: Array, scale: Array, zero_min: Array, tile: _Tile, scratch: _Scratch, out: Array) -> None:
    """Write the weights of a tile to ``out`` [rows, columns], float32: an exact product, and a sum rounded once."""
    groups, rows, columns = tile.shape
    packed = w[tile.words, tile.columns]
    factor = scale[tile.groups, tile.columns].astype(np.float32)[:, None]
    least = zero_min[tile.groups, tile.columns].astype(np.float32)[:, None]
    if packed.size <= FEW:
        # As below, all nibbles of a word at once: slower for many words, and fewer calls for few.
        signed: Any = (packed.view(np.uint32)[:, None] >> _SHIFTS & np.uint32(15)).view(np.int32)
        steps: Any = signed.reshape(tile.shape).astype(np.float32)
        steps *= factor
        steps += least
        np.copyto(out, steps.reshape(out.shape))
        return
    words = scratch.array("words", packed.shape, np.uint32)
    np.copyto(words, packed.view(np.uint32))
    nibbles = scratch.array("nibbles", words.shape, np.uint32)
    values = scratch.array("values", (groups, rows // NIBBLES, columns), np.float32)
    for position in range(NIBBLES):
        np.right_shift(words, np.uint32(4 * position), out=nibbles)
        np.bitwise_and(nibbles, np.uint32(15), out=nibbles)
        # Signed integers are converted in one instruction.
        np.copyto(values.reshape(words.shape), nibbles.view(np.int32), casting="unsafe")
        np.multiply(values, factor, out=values)
        np.add(values, least, out=values)
        out[position::NIBBLES] = values.reshape(words.shape)


# Products

Weights = Callable[[slice, slice], Array]
"""Rows and columns of a weight, contiguous, in float32."""


def dequant_matmul_int4(context: BindContext) -> Launch:
    """Bind a product that unpacks a tile at a time: the weight is never whole."""
    x_spec, w_spec, *_ = context.signature.operands
    k, n = NIBBLES * w_spec.shape[0], w_spec.shape[1]
    vector = x_spec.rank == 1

    def run(x: Array, w: Array, scale: Array, zero_min: Array, out: Array) -> None:
        rows, target = (x[None], out[None]) if vector else (x, out)
        product(rows, unpacked(w, scale, zero_min), target, k, n)

    return Launch(function=run, args=("x", "w", "scale", "zero_min", "out"))


dequant_gemv_int4 = dequant_matmul_int4


def unpacked(w: Array, scale: Array, zero_min: Array) -> Weights:
    """Return what unpacks tiles of a weight, whose rows are whole groups but for the last."""

    def weights(rows: slice, columns: slice) -> Array:
        scratch = _Scratch()
        tile = np.empty((rows.stop - rows.start, columns.stop - columns.start), np.float32)
        for part in _groups(rows, columns):
            inside = slice(part.rows.start - rows.start, part.rows.stop - rows.start)
            _unpack(w, scale, zero_min, part, scratch, tile[inside])
        return tile

    return weights


def _groups(rows: slice, columns: slice) -> Iterator[_Tile]:
    """Yield the whole groups of rows, then what is left of one."""
    across = columns.stop - columns.start
    first, whole = rows.start // GROUP, rows.stop // GROUP
    if whole > first:
        shape = (whole - first, GROUP, across)
        yield _Tile(slice(first, whole), slice(rows.start, whole * GROUP), columns, shape)
    rest = rows.stop - whole * GROUP
    if rest:
        yield _Tile(slice(whole, whole + 1), slice(whole * GROUP, rows.stop), columns, (1, rest, across))


def product(x: Array, weights: Weights, out: Array, k: int, n: int, *, width: int = COLUMNS) -> None:
    """Write ``x @ weights`` to ``out``, ``width`` columns at a time: panels of rows in order, added in float32."""

    def part(start: int, stop: int) -> None:
        for column in range(start * width, min(stop * width, n), width):
            columns = slice(column, min(column + width, n))
            total: Any = np.zeros((len(x), columns.stop - column), np.float32)
            for row in range(0, k, PANEL):
                rows = slice(row, min(row + PANEL, k))
                total += np.matmul(x[:, rows].astype(np.float32, copy=False), weights(rows, columns))
            np.copyto(out[:, columns], total, casting="unsafe")

    count = -(-n // width)
    nbytes = 4 * k * n
    if large(nbytes):
        spread(part, count, nbytes)
    else:
        part(0, count)
