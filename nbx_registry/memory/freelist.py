"""Free blocks of an address space without end, by address: where the first that is large enough begins."""

from __future__ import annotations

from bisect import bisect_left

CHUNK = 64
"""Free blocks in a row that share one note of their largest; twice as many are split."""


class FreeList:
    """Address-ordered first fit with coalescing. Addresses and sizes are whole numbers of whatever unit.

    Everything from `top` on is free. Free blocks below it are kept in rows of a few hundred, each with the size of its
    largest, so that looking for room skips whole rows: an operation costs about the square root of the number of
    blocks.

    Attributes
    ----------
    top : int
        One past the highest address in use.
    extent : int
        The highest ``top`` so far.
    """

    def __init__(self) -> None:
        self.top = 0
        self.extent = 0
        self._starts: list[list[int]] = []
        self._sizes: list[list[int]] = []
        self._largest: list[int] = []
        self._firsts: list[int] = []
        """The first start of each row."""
        self._ends: dict[int, int] = {}
        """Start of each free block, by its end."""
        self._by_start: dict[int, int] = {}
        """Size of each free block, by its start."""

    def take(self, size: int, limit: int | None = None) -> int:
        """Take the lowest address with room for ``size``, which is above 0; -1 where that would pass ``limit``."""
        for row, largest in enumerate(self._largest):
            if largest >= size:
                for position, free in enumerate(self._sizes[row]):
                    if free >= size:
                        return self._cut(row, position, size)
        start = self.top
        if limit is not None and start + size > limit:
            return -1
        self.top = start + size
        self.extent = max(self.extent, self.top)
        return start

    def give(self, start: int, size: int) -> None:
        """Free what was taken there, and join it with its free neighbours."""
        before = self._ends.get(start)
        end = start + size
        if before is not None:
            size += self._by_start[before]
            self._remove(before)
            start = before
        if end == self.top:
            self.top = start
            return
        after = self._by_start.get(end)
        if after is not None:
            size += after
            self._remove(end)
        self._insert(start, size)

    def _cut(self, row: int, position: int, size: int) -> int:
        start, free = self._starts[row][position], self._sizes[row][position]
        if free == size:
            self._remove_at(row, position)
            return start
        rest = start + size
        del self._by_start[start]
        self._by_start[rest] = free - size
        self._ends[start + free] = rest
        self._starts[row][position] = rest
        self._sizes[row][position] = free - size
        if position == 0:
            self._firsts[row] = rest
        if free == self._largest[row]:
            self._largest[row] = max(self._sizes[row])
        return start

    def _insert(self, start: int, size: int) -> None:
        self._by_start[start] = size
        self._ends[start + size] = start
        if not self._firsts:
            self._starts.append([start])
            self._sizes.append([size])
            self._firsts.append(start)
            self._largest.append(size)
            return
        row = max(bisect_left(self._firsts, start) - 1, 0)
        starts, sizes = self._starts[row], self._sizes[row]
        position = bisect_left(starts, start)
        starts.insert(position, start)
        sizes.insert(position, size)
        self._firsts[row] = starts[0]
        if size > self._largest[row]:
            self._largest[row] = size
        if len(starts) >= 2 * CHUNK:
            self._starts[row : row + 1] = [starts[:CHUNK], starts[CHUNK:]]
            self._sizes[row : row + 1] = [sizes[:CHUNK], sizes[CHUNK:]]
            self._firsts.insert(row + 1, starts[CHUNK])
            self._largest[row : row + 1] = [max(sizes[:CHUNK]), max(sizes[CHUNK:])]

    def _remove(self, start: int) -> None:
        row = bisect_left(self._firsts, start)
        if row == len(self._firsts) or self._firsts[row] != start:
            row -= 1
        self._remove_at(row, bisect_left(self._starts[row], start))

    def _remove_at(self, row: int, position: int) -> None:
        starts, sizes = self._starts[row], self._sizes[row]
        start, size = starts.pop(position), sizes.pop(position)
        del self._by_start[start]
        del self._ends[start + size]
        if not starts:
            for rows in (self._starts, self._sizes, self._firsts, self._largest):
                del rows[row]
            return
        self._firsts[row] = starts[0]
        if size == self._largest[row]:
            self._largest[row] = max(sizes)
