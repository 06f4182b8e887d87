"""The race: candidates are timed in turns, slow ones are dropped, and the fastest meets the default once more.

Nothing here runs anything: times come from a function, so that what is decided can be tried with times that are made.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

Kind = Literal["cold", "warm"]
Measure = Callable[[int, Kind], float]
"""Seconds of one run of a candidate, by its number; 0 is the default. Infinity where it cannot run any more."""

ROUNDS: Final = 7
"""Times of each candidate, of which the median counts."""

PAIRS: Final = 9
"""Times of default and challenger, one after the other, once more."""

DROPPED: Final = 2.0
"""How many times the best a candidate takes to be dropped."""

MARGIN: Final = 0.01
"""By which share of the time a challenger must be faster than the default: less is noise."""

CHALLENGERS: Final = 3
"""Of the fastest, how many meet the default, should the ones before not beat it."""


@dataclass
class Standing:
    """The times of one candidate.

    Attributes
    ----------
    dropped
        Whether it was not timed to the end, as too slow, or as it could not run.
    """

    times: dict[Kind, list[float]] = field(default_factory=lambda: {"cold": [], "warm": []})
    dropped: bool = False

    @property
    def failed(self) -> bool:
        """Whether it could not run any more."""
        return any(math.inf in times for times in self.times.values())

    def median(self, kind: Kind) -> float:
        """Return the median of its times."""
        return statistics.median(self.times[kind])


def race(count: int, measure: Measure, kinds: Sequence[Kind], rounds: int = ROUNDS) -> list[Standing]:
    """Time candidates ``0`` to ``count - 1`` by turns, in another order each round; drop what is far from the best.

    Parameters
    ----------
    kinds
        What is timed; the first one decides.
    """
    standings = [Standing() for _ in range(count)]
    for turn in range(rounds):
        live = [number for number, standing in enumerate(standings) if not standing.dropped]
        first = turn % len(live)
        order = live[first:] + live[:first]
        # Whatever drifts, drifts for all alike.
        for number in order if turn % 2 == 0 else order[::-1]:
            for kind in kinds:
                standings[number].times[kind].append(measure(number, kind))
        best = min(standings[number].median(kinds[0]) for number in live if not standings[number].failed)
        for number in live:
            # The default is what all the others are held against.
            standings[number].dropped = number > 0 and (
                standings[number].failed or standings[number].median(kinds[0]) > DROPPED * best
            )
    return standings


def order(standings: Sequence[Standing], kinds: Sequence[Kind]) -> list[int]:
    """Return the candidates that were faster than the default, fastest first; no more than `CHALLENGERS`."""
    live = [number for number, standing in enumerate(standings) if not standing.dropped]
    ranked = sorted(live, key=lambda number: (standings[number].median(kinds[0]), number))
    return ranked[: ranked.index(0)][:CHALLENGERS]


@dataclass(frozen=True)
class Duel:
    """Default and challenger, timed in pairs.

    Attributes
    ----------
    default, challenger
        Their medians by kind.
    won
        Whether the challenger is faster, beyond noise, in the kind that decides, and slower in none.
    """

    default: dict[Kind, float]
    challenger: dict[Kind, float]
    won: bool


def duel(challenger: int, measure: Measure, kinds: Sequence[Kind], pairs: int = PAIRS) -> Duel:
    """Measure a challenger against the default again, one after the other, each first by turns."""
    times: dict[int, dict[Kind, list[float]]] = {n: {kind: [] for kind in kinds} for n in (0, challenger)}
    for turn in range(pairs):
        for number in (0, challenger) if turn % 2 == 0 else (challenger, 0):
            for kind in kinds:
                times[number][kind].append(measure(number, kind))
    medians: dict[int, dict[Kind, float]] = {
        n: {kind: statistics.median(found[kind]) for kind in kinds} for n, found in times.items()
    }
    won = True
    for kind in kinds:
        ratios = [new / old for new, old in zip(times[challenger][kind], times[0][kind], strict=True)]
        ratio = max(statistics.median(ratios), medians[challenger][kind] / medians[0][kind])
        won = won and ratio < (1 - MARGIN if kind == kinds[0] else 1 + MARGIN)
    return Duel(medians[0], medians[challenger], won)
