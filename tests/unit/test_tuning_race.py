"""The race alone, with times that are made: drift, drops, the duel."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from nbx_registry.tuning.race import DROPPED, Kind, Measure, duel, order, race

COLD: tuple[Kind, ...] = ("cold", "warm")


def steady(*seconds: float) -> Measure:
    return lambda number, kind: seconds[number] * (1 if kind == "cold" else 0.5)


def drifting(*seconds: float, per_call: float) -> Measure:
    """A clock that slows down all the time: each measurement takes longer than the one before."""
    calls = count()
    return lambda number, kind: seconds[number] * (1 + per_call * next(calls))


def test_the_fastest_is_first_and_the_default_ends_the_list() -> None:
    standings = race(4, steady(3.0, 2.0, 4.0, 2.5), COLD)
    assert order(standings, COLD) == [1, 3]
    assert standings[1].median("warm") == 1.0


def test_a_candidate_over_twice_the_best_is_dropped_after_one_round() -> None:
    asked: list[int] = []

    def measure(number: int, kind: Kind) -> float:
        asked.append(number)
        return (1.0, 2.1, 1.9)[number]

    standings = race(3, measure, ("cold",), rounds=5)
    assert [standing.dropped for standing in standings] == [False, True, False]
    assert (asked.count(0), asked.count(1), asked.count(2)) == (5, 1, 5)


def test_the_default_is_never_dropped_however_slow() -> None:
    standings = race(2, steady(100.0, 1.0), COLD)
    assert not standings[0].dropped
    assert len(standings[0].times["cold"]) == len(standings[1].times["cold"])
    assert DROPPED < 100


def test_each_round_has_another_order() -> None:
    rounds: list[list[int]] = [[]]

    def measure(number: int, kind: Kind) -> float:
        if len(rounds[-1]) == 3:
            rounds.append([])
        rounds[-1].append(number)
        return 1.0

    race(3, measure, ("cold",), rounds=3)
    assert all(sorted(order) == [0, 1, 2] for order in rounds)
    assert len({tuple(order) for order in rounds}) == 3


def test_drift_makes_no_winner_of_two_alike() -> None:
    for per_call in (0.02, -0.002):
        assert not duel(1, drifting(1.0, 1.0, per_call=per_call), ("cold",)).won


def test_drift_hides_no_winner() -> None:
    assert duel(1, drifting(1.0, 0.8, per_call=0.02), ("cold",)).won


def test_less_than_the_margin_is_noise() -> None:
    assert not duel(1, steady(1.0, 0.995), COLD).won
    assert duel(1, steady(1.0, 0.98), COLD).won


def test_what_is_faster_cold_and_slower_warm_does_not_win() -> None:
    def measure(number: int, kind: Kind) -> float:
        return {("cold", 0): 1.0, ("cold", 1): 0.8, ("warm", 0): 0.5, ("warm", 1): 0.6}[kind, number]

    assert not duel(1, measure, COLD).won
    assert duel(1, measure, ("cold",)).won


@pytest.mark.parametrize("spike", [0, 1, 5])
def test_one_disturbed_time_decides_nothing(spike: int) -> None:
    def spiky(seconds: tuple[float, ...]) -> Callable[[int, Kind], float]:
        calls = count()
        return lambda number, kind: seconds[number] * (1000 if next(calls) == spike else 1)

    assert duel(1, spiky((1.0, 0.9)), ("cold",)).won
    assert not duel(1, spiky((1.0, 1.0)), ("cold",)).won
