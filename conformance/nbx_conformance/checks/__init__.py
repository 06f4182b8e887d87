"""The checks, in the order in which they look at a trial. Refusals, and what is only built, go by themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from nbx_conformance.checks import (
    aliasing,
    allocation,
    batch,
    built,
    cold,
    cost,
    determinism,
    fresh,
    guards,
    in_place,
    inputs,
    numbers,
    outputs,
    poison,
    process,
    refusals,
    replay,
    settings,
    special,
    stream,
)
from nbx_conformance.trials.trial import Outcome, Trial

Check = Callable[[Trial], "Outcome | None"]
"""Looks at a trial; None where the check has nothing to say about it."""

CHECKS: Final[dict[str, Check]] = {
    module.NAME: module.check
    for module in (
        numbers,
        special,
        poison,
        guards,
        inputs,
        in_place,
        fresh,
        determinism,
        batch,
        stream,
        replay,
        allocation,
        process,
        aliasing,
        outputs,
        cost,
        settings,
        cold,
    )
}

OF_LARGE: Final[frozenset[str]] = frozenset(
    {
        "numbers",
        "special",
        "poison",
        "guards",
        "inputs",
        "in_place",
        "fresh",
        "determinism",
        "allocation",
        "process",
        "cost",
        "cold",
    }
)
"""What is asked about a case too large to be looked at everywhere; the rest is for smaller ones."""

UNGUARDED: Final[frozenset[str]] = frozenset({"allocation"})
"""What runs a kernel on memory without guard bands, as a call does: asked only of those that keep to theirs."""

NAMES: Final[tuple[str, ...]] = (*CHECKS, refusals.NAME, built.NAME)

REQUIRED: Final[frozenset[str]] = frozenset({"numbers", "allocation"})
"""What every measured kernel has passed on some case, views too."""

REQUIRED_OF_LAUNCHES: Final[frozenset[str]] = frozenset({"poison", "guards", "inputs", "fresh"})
"""What a kernel that launches anything has passed beside those."""
