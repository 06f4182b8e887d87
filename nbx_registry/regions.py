"""Regions: which value lies where in memory, while a run is watched."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import count


@dataclass(eq=False, slots=True)
class _Value:
    nbytes: int
    given: bool


@dataclass(eq=False, slots=True)
class _Region:
    start: int
    end: int
    number: int
    """Of its value, as it was when the region was found."""
    parts: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    """Where tensors were seen that are not all of it."""

    def outside(self, start: int, end: int) -> list[_Region]:
        """Return what is left of it when other memory is found in a range."""
        left: list[_Region] = []
        for low, high in sorted(self.parts):
            if low < end and start < high:
                continue
            if left and low < left[-1].end:
                left[-1].end = max(left[-1].end, high)
            else:
                left.append(_Region(low, high, self.number))
            left[-1].parts.add((low, high))
        return left


class Regions:
    """Tells values apart by the memory they lie in, on one device.

    A tensor inside the memory of a known value is that value, or a view of it. One that reaches over several, or
    beyond, joins them into one: a buffer that was filled in slices. Memory that was never seen before is a value that
    was given. What is freshly made takes the place of whatever was known to lie there; smaller tensors that were seen
    beside it in the same region may be of their own, and stay. Memory that a library hands out again to an array that
    no call made is taken for the value that was there before, so that lives may come out longer than they are, never
    shorter.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._regions: list[_Region] = []
        self._values: dict[int, _Value] = {}
        self._joined: dict[int, int] = {}
        self._numbers = count()

    def read(self, start: int, nbytes: int) -> int:
        """Return the number of the value that a tensor read here is."""
        return self._at(start, nbytes, given=True)

    def written(self, start: int, nbytes: int) -> int:
        """Return the number of the value that a tensor written here, into memory the caller brought, is."""
        return self._at(start, nbytes, given=False)

    def made(self, start: int, nbytes: int) -> int:
        """Return the number of the new value of a tensor that was just made here."""
        if nbytes:
            end = start + nbytes
            first, last = self._overlapping(start, end)
            left = [piece for region in self._regions[first:last] for piece in region.outside(start, end)]
            self._regions[first:last] = left
            self._starts[first:last] = [piece.start for piece in left]
        return self._insert(start, start + nbytes, given=False)

    def overwritten(self, start: int, nbytes: int) -> bool:
        """Return whether exactly one value that was made lies here, so that writing all of it begins a new one."""
        first, last = self._overlapping(start, start + nbytes)
        if last - first != 1:
            return False
        region = self._regions[first]
        exactly = (region.start, region.end) == (start, start + nbytes)
        return exactly and not self._values[self.final(region.number)].given

    def values(self) -> dict[int, tuple[int, bool]]:
        """Return bytes, and whether it was given, of every value by number."""
        return {number: (value.nbytes, value.given) for number, value in self._values.items()}

    def final(self, number: int) -> int:
        """Return the number that a value has in the end, when what it was joined with is known."""
        last = number
        while last in self._joined:
            last = self._joined[last]
        while number != last:
            # Long chains are walked once.
            self._joined[number], number = last, self._joined[number]
        return last

    def _at(self, start: int, nbytes: int, *, given: bool) -> int:
        end = start + nbytes
        first, last = self._overlapping(start, end) if nbytes else (0, 0)
        if first == last:
            return self._insert(start, end, given=given)
        region, *others = self._regions[first:last]
        number, whole = self.final(region.number), (min(region.start, start), max(self._regions[last - 1].end, end))
        value = self._values[number]
        parts = max((one.parts for one in (region, *others)), key=len)
        for one in (region, *others):
            parts |= one.parts
            parts.add((one.start, one.end))
            other = self.final(one.number)
            if other != number:
                value.given = self._values.pop(other).given or value.given
                self._joined[other] = number
        parts.add((start, end))
        parts.discard(whole)
        region.parts, (region.start, region.end) = parts, whole
        value.nbytes = max(value.nbytes, region.end - region.start)
        self._starts[first] = region.start
        del self._regions[first + 1 : last], self._starts[first + 1 : last]
        return number

    def _insert(self, start: int, end: int, *, given: bool) -> int:
        number = next(self._numbers)
        self._values[number] = _Value(end - start, given)
        if end > start:
            place = bisect_left(self._starts, start)
            self._starts.insert(place, start)
            self._regions.insert(place, _Region(start, end, number))
        return number

    def _overlapping(self, start: int, end: int) -> tuple[int, int]:
        """Return the places, from first to one past the last, of the regions that share a byte with a range."""
        first = bisect_left(self._starts, start)
        if first and self._regions[first - 1].end > start:
            first -= 1
        return first, max(first, bisect_left(self._starts, end))
