"""Guarded buffers of large tensors, of which no image is kept: every byte is looked at, a piece at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from nbx_conformance.cases import layouts
from nbx_conformance.cases.values import Array
from nbx_conformance.problems.tiled import Tiled
from nbx_conformance.trials.buffers import Allocator, GuardedBuffer, elements_of
from nbx_registry.bands import BAND, Damage
from nbx_registry.runtime import Stream
from nbx_registry.spec import TensorSpec

if TYPE_CHECKING:
    from nbx_conformance.problems.sample import Sample


WORD: Final = 8
"""Bytes that are poisoned, or not, together."""

SPARSE: Final = 2**16
"""Bytes up to which memory is read in one go, however little of it is asked for."""


def buffer_for(name: str, spec: TensorSpec, allocate: Allocator, sample: Sample | None = None) -> GuardedBuffer:
    """Return a buffer of the kind that an operand of a problem, looked at everywhere or at a sample, needs."""
    if sample is not None and sample.wide(spec):
        return TiledBuffer(name, spec, allocate, sample.block)
    return GuardedBuffer(name, spec, allocate)


class TiledBuffer(GuardedBuffer):
    """A buffer whose tensor holds `Tiled` values or poison. ``block`` is the length of the values' block."""

    def __init__(self, name: str, spec: TensorSpec, allocate: Allocator, block: int) -> None:
        super().__init__(name, spec, allocate)
        self.piece = block * WORD * 8
        """Bytes looked at together: whole blocks, and words whose bits fill bytes."""
        self._values: Tiled | None = None
        self._guard = 0

    def prepare(self, values: Array | Tiled | None, *, guard: int, poison: int) -> None:
        """Take in what memory is to hold: bands of one byte; values (None: the poison byte), in gaps too."""
        assert values is None or isinstance(values, Tiled)
        self._values, self._guard, self.poison = values, guard, poison

    def upload(self, stream: Stream | None = None) -> None:
        """Write it to memory."""
        for start, stop in self._bands():
            self.memory.fill(self._guard, start, stop - start, stream)
        if self._values is None:
            self.memory.fill(self.poison, BAND, self.end - BAND, stream)
        else:
            _, first = next(self._expected(self._values))
            self.memory.write(first, stream, BAND)
            self.memory.repeat(BAND, first.size, self.end - BAND, stream)

    def download(self, stream: Stream | None = None) -> Scan:
        """Look at memory: at bands, at values, which must be what they were, or for what is left of the poison."""
        outside = self._damage(
            ((start, np.full(stop - start, self._guard, np.uint8)) for start, stop in self._bands()), stream
        )
        if self._values is not None:
            anywhere = _sum(outside, self._damage(self._expected(self._values), stream))
            return Scan(self, stream, outside, anywhere, None)
        return Scan(self, stream, outside, outside, self._poisoned(stream))

    def read(self, spec: TensorSpec, stream: Stream | None) -> Array:
        """Return the elements of a view of the tensor, dense; much memory between them is not read."""
        low, high = layouts.span(spec)
        itemsize = spec.dtype.itemsize
        nbytes = (high - low) * itemsize
        if nbytes <= SPARSE or (nbytes <= self.piece and high - low <= WORD * spec.size):
            raw = self.memory.look(stream, BAND + low * itemsize, nbytes)
            return np.array(elements_of(raw, (spec.offset - low) * itemsize, spec), order="C")
        axis = max(range(spec.rank), key=lambda axis: (spec.shape[axis] - 1) * abs(spec.strides[axis]))
        half = spec.shape[axis] // 2
        return np.concatenate([self.read(part, stream) for part in _halves(spec, axis, half)], axis)

    def _scratch(self) -> Array:
        """Return memory for one look at a time: at a piece, or at a band with the rest of the last line."""
        return np.empty(min(max(self.piece, 2 * BAND), self.nbytes), np.uint8)

    def _bands(self) -> tuple[tuple[int, int], ...]:
        return (0, BAND), (self.end, self.nbytes)

    def _expected(self, values: Tiled) -> Iterator[tuple[int, Array]]:
        """Yield, piece by piece, where in memory it begins and the bytes it was given."""
        whole = np.tile(values.block, self.piece // values.block.nbytes).view(np.uint8)
        for start in range(BAND, self.end, self.piece):
            yield start, whole[: self.end - start]

    def _damage(self, expected: Iterator[tuple[int, Array]], stream: Stream | None) -> Damage | None:
        count = first = 0
        scratch = self._scratch()
        for start, before in expected:
            after = self.memory.look(stream, start, before.size, scratch)
            if _differ(after, before):
                changed = after != before
                first = first if count else start + int(np.argmax(changed)) - self.start
                count += int(np.count_nonzero(changed))
        return Damage(self.name, count, first, self.end - self.start) if count else None

    def _poisoned(self, stream: Stream | None) -> Array:
        """Return a bit for each word of the tensor: whether it is all poison. The last one may be shorter."""
        found: list[Array] = []
        scratch = self._scratch()
        for start in range(self.start, self.end, self.piece):
            after = self.memory.look(stream, start, min(self.piece, self.end - start), scratch)
            words = after[: after.size // WORD * WORD].view(np.uint64) == int.from_bytes(bytes([self.poison]) * WORD)
            rest = after[words.size * WORD :]
            found.append(np.append(words, (rest == self.poison).all()) if rest.size else words)
        return np.concatenate([np.packbits(words) for words in found])


@dataclass(frozen=True)
class Scan:
    """What a look at a `TiledBuffer` found after a run. Elements are read when they are asked for: before the next."""

    buffer: TiledBuffer
    stream: Stream | None
    outside: Damage | None
    anywhere: Damage | None
    bits: Array | None

    def values(self, view: TensorSpec | None = None) -> Array:
        """Return the elements of a view of the tensor, dense."""
        return self.buffer.read(self.buffer.spec if view is None else view, self.stream)

    def damage(self, *, elements: bool) -> Damage | None:
        """Return what changed in the bands or, with ``elements``, in values too; None where nothing did."""
        return self.anywhere if elements else self.outside

    def poisoned(self) -> Array:
        """Return which words still hold poison, as bits."""
        assert self.bits is not None
        return self.bits

    def unwritten(self, kept: Array) -> str:
        """Return in words what was never written: ``kept`` are words that held poison after runs on different ones."""
        first = int(np.argmax(kept != 0))
        word = first * 8 + int(np.argmax(np.unpackbits(kept[first : first + 1])))
        spec = self.buffer.spec
        where = np.unravel_index(word * WORD // spec.dtype.itemsize, spec.shape)
        total = -(-(self.buffer.end - self.buffer.start) // WORD)
        count = int(np.bitwise_count(kept).sum(dtype=np.int64))
        return (
            f"{count} of {total} words of {WORD} bytes of {self.buffer.name} were never written, first {_plain(where)}"
        )


def _plain(where: tuple[Any, ...]) -> list[int]:
    return [int(i) for i in where]


def _differ(first: Array, second: Array) -> bool:
    """Whether bytes differ, told quickly where they do not."""
    whole = first.size // WORD * WORD
    return not (
        np.array_equal(first[:whole].view(np.uint64), second[:whole].view(np.uint64))
        and np.array_equal(first[whole:], second[whole:])
    )


def _sum(first: Damage | None, second: Damage | None) -> Damage | None:
    if first is None or second is None:
        return first or second
    return Damage(first.name, first.count + second.count, min(first.offset, second.offset), first.extent)


def _halves(spec: TensorSpec, axis: int, half: int) -> Iterator[TensorSpec]:
    for first, count in ((0, half), (half, spec.shape[axis] - half)):
        shape = (*spec.shape[:axis], count, *spec.shape[axis + 1 :])
        yield TensorSpec(spec.dtype, shape, spec.strides, spec.offset + first * spec.strides[axis])
