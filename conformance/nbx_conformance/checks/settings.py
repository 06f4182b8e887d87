"""Settings: every candidate of a kernel's space is excluded by name, or binds and is right."""

from __future__ import annotations

from collections import Counter

from nbx_conformance.checks import guards, in_place, inputs, poison
from nbx_conformance.checks.judge import judge
from nbx_conformance.trials.buffers import as_bytes
from nbx_conformance.trials.trial import Outcome, Trial, message
from nbx_registry.space import SHARED, Candidate, over_limit

NAME = "settings"

_SHOWN = 3
"""Candidates that a record names, of those that are wrong."""


def check(trial: Trial) -> Outcome | None:
    """Try the whole space on a representative case; None for a kernel that states none, and for a view.

    How many candidates were right, and by which rules the others are excluded, is recorded.
    """
    kernel, device = trial.kernel, trial.site.target.device
    if kernel.settings is None or device is None or not trial.site.representative(kernel, trial.case):
        return None
    if trial.bound.view is not None:
        return None
    space = trial.registry.space(kernel.id)
    assert space is not None
    right = 0
    excluded: Counter[str] = Counter()
    failures: list[str] = []
    errors: list[str] = []
    for candidate in space.candidates(kernel, trial.problem.signature, device):
        if candidate.excluded:
            excluded[candidate.excluded] += 1
            continue
        try:
            if _beyond(trial, candidate):
                excluded[SHARED] += 1
                continue
            wrong = _wrong(trial, candidate)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a kernel may raise anything; it becomes the finding
            errors.append(f"{candidate}: {message(error)}")
            continue
        if wrong:
            failures.append(f"{candidate}: {wrong}")
        else:
            right += 1
    counts = _counts(right, space.size, excluded)
    if errors:
        return Outcome(NAME, "error", _told(errors, f"what cannot be used is excluded by a rule; {counts}"))
    if failures:
        return Outcome(NAME, "fail", _told(failures, counts))
    return Outcome(NAME, "pass" if right else "fail", counts if right else f"nothing is left to try: {counts}")


def _beyond(trial: Trial, candidate: Candidate) -> str:
    """Return what of the code compiled for a candidate is beyond the device; empty on other routes than to it."""
    device = trial.site.target.device
    if trial.site.reach != "here" or device is None:
        return ""
    built = trial.registry.bind_specs(
        trial.case.op,
        trial.problem.signature,
        device=device.id,
        kernel=trial.kernel.id,
        require="any",
        settings=candidate.settings,
    )
    return over_limit(built.launches, device)


def _wrong(trial: Trial, candidate: Candidate) -> str:
    """Return in words what is wrong with a candidate's results, or with what it writes."""
    variant = Trial(trial.site, trial.kernel, trial.case, candidate.settings, trial.looser)
    wrong = judge(variant, variant.first, 0).wrong or judge(variant, variant.fresh, 1).wrong
    if wrong:
        return wrong
    for check in (poison.check, guards.check, inputs.check, in_place.check):
        outcome = check(variant)
        if outcome is not None and outcome.verdict != "pass":
            return outcome.detail
    if trial.kernel.deterministic and variant.disturbance.repeats:
        return variant.disturbance.repeats
    # What copies gives the same bits whatever its settings, NaN payloads too, which no comparison of numbers shows.
    if trial.problem.op.exact:
        for name, values in variant.first.results.items():
            if (as_bytes(values) != as_bytes(trial.first.results[name])).any():
                return f"{name} has other bits than with the settings in force"
    return ""


def _told(found: list[str], end: str) -> str:
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f"{'; '.join(found[:_SHOWN])}{more}; {end}"


def _counts(right: int, size: int, excluded: Counter[str]) -> str:
    by = "".join(f", {count} excluded by {rule!r}" for rule, count in sorted(excluded.items()))
    return f"{right} of {size} candidates right{by}"
