"""Batch: the bits of what lies at one place of the batch axis do not depend on what else lies along it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from nbx_conformance.problems.parts import Part, batch_of
from nbx_conformance.trials.bench import Bench
from nbx_conformance.trials.buffers import as_bytes
from nbx_conformance.trials.trial import Outcome, Trial, first_index
from nbx_registry.errors import Refused

NAME = "batch"

MODELS: Final = "model_"
"""How the kinds of cases begin that have a model's shapes: they are tried beside the representatives."""


def check(trial: Trial) -> Outcome | None:
    """Run parts by themselves, each bound anew, and compare them with the same places of the whole, bit by bit.

    None for a kernel that claims nothing or a view; where the case names no batch axis, its tensors are views, or the
    axis has but one place; and where the kernel takes no part.
    """
    case = trial.case
    if not trial.kernel.batch_invariant or not case.batch or not case.contiguous or trial.bound.program is None:
        return None
    if not _chosen(trial):
        return None
    batch = batch_of(trial.problem)
    tried = 0
    refused: list[str] = []
    for first, count in _runs(batch.extent):
        part = Part(trial.problem, batch, first, count)
        try:
            wrong = _compared(trial, part)
        except Refused as error:
            refused.append(f"{count} of {batch.extent}: {error.decision.candidate(trial.kernel.id).code}")
            continue
        if wrong:
            return Outcome(NAME, "fail", wrong)
        tried += 1
    return Outcome(NAME, "pass", "; ".join(refused) and f"refused: {'; '.join(refused)}") if tried else None


def _chosen(trial: Trial) -> bool:
    site, kernel, case = trial.site, trial.kernel, trial.case
    if site.representative(kernel, case) or any(kind.startswith(MODELS) for kind in case.kinds):
        return True
    return site.widest(kernel, case)


def _runs(extent: int) -> Iterator[tuple[int, int]]:
    """Yield first index and count of parts: one place, the first few, an odd number in the middle."""
    if extent > 1:
        found = {(extent - 1, 1), (0, 1 << (extent - 1).bit_length() - 1), (extent // 3, (extent // 3) | 1)}
        yield from sorted(found)


def _compared(trial: Trial, part: Part) -> str:
    """Return where a part's results have other bits than the whole's. Raises `Refused`."""
    bound = trial.registry.bind_specs(
        trial.case.op,
        part.signature,
        device=trial.site.target.name,
        kernel=trial.kernel.id,
        require="any",
        runtime=trial.site.emulator,
    )
    for name, values in Bench(bound).run(part.inputs(0)).results.items():
        differs = (as_bytes(values) != as_bytes(np.asarray(part.cut(name, trial.first.results[name])))).any(-1)
        if differs.any():
            share = f"{part.count} of {part.batch.extent} alone, from {part.first} on"
            more = int(differs.sum()) - 1
            return f"{name}{first_index(differs)} (and {more} more) has other bits with {share}, than among all of them"
    return ""
