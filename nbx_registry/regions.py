"""Regions: which value lies where in memory, while a run is watched."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass


@dataclass(eq=False, slots=True)
class _Region:
    start: int
    end: int
    given: bool
    number: int


class Regions:
    """Tells values apart by the memory they lie in, on one device.

    A tensor inside the memory of a known value is that value, or a view of it. One that reaches over several, or
    beyond, joins them into one: a buffer that was filled in slices. Memory that was never seen before is a value that
    was given. What is freshly made takes the place of whatever was known to lie there. Memory that a library hands out
    again to an array that no call made is taken for the value that was there before, so that lives may come out longer
    than they are, never shorter.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._regions: list[_Region] = []
        self._all: list[_Region] = []
        self._joined: dict[int, int] = {}

    def read(self, start: int, nbytes: int) -> int:
        """Return the number of the value that a tensor read here is."""
        return self._at(start, nbytes, given=True)

    def written(self, start: int, nbytes: int) -> int:
        """Return the number of the value that a tensor written here, into memory the caller brought, is."""
        return self._at(start, nbytes, given=False)

    def made(self, start: int, nbytes: int) -> int:
        """Return the number of the new value of a tensor that was just made here."""
        if nbytes:
            first, last = self._overlapping(start, start + nbytes)
            del self._regions[first:last], self._starts[first:last]
        return self._insert(start, start + nbytes, given=False)

    def overwritten(self, start: int, nbytes: int) -> bool:
        """Return whether exactly one value that was made lies here, so that writing all of it begins a new one."""
        first, last = self._overlapping(start, start + nbytes)
        if last - first != 1:
            return False
        region = self._regions[first]
        return not region.given and (region.start, region.end) == (start, start + nbytes)

    def values(self) -> dict[int, tuple[int, bool]]:
        """Return bytes, and whether it was given, of every value by number."""
        return {region.number: (region.end - region.start, region.given) for region in self._all}

    def final(self, number: int) -> int:
        """Return the number that a value has in the end, when what it was joined with is known."""
        while number in self._joined:
            number = self._joined[number]
        return number

    def _at(self, start: int, nbytes: int, *, given: bool) -> int:
        end = start + nbytes
        first, last = self._overlapping(start, end) if nbytes else (0, 0)
        if first == last:
            return self._insert(start, end, given=given)
        region, *others = self._regions[first:last]
        region.start, region.end = min(region.start, start), max(self._regions[last - 1].end, end)
        region.given = region.given or any(other.given for other in others)
        self._starts[first] = region.start
        for other in others:
            self._joined[other.number] = region.number
            self._all.remove(other)
        del self._regions[first + 1 : last], self._starts[first + 1 : last]
        return region.number

    def _insert(self, start: int, end: int, *, given: bool) -> int:
        number = len(self._all) + len(self._joined)
        region = _Region(start, end, given, number)
        self._all.append(region)
        if end > start:
            place = bisect_left(self._starts, start)
            self._starts.insert(place, start)
            self._regions.insert(place, region)
        return number

    def _overlapping(self, start: int, end: int) -> tuple[int, int]:
        """Return the places, from first to one past the last, of the regions that share a byte with a range."""
        first = bisect_left(self._starts, start)
        if first and self._regions[first - 1].end > start:
            first -= 1
        return first, max(first, bisect_left(self._starts, end))
