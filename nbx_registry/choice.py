"""Choices: what becomes of a kernel while a request is decided, and the order of those that may run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from nbx_registry.conditions import Conditions
from nbx_registry.decision import NO_EVIDENCE, Candidate, Evidence, Fault, Proven, Refusal
from nbx_registry.kernel import Kernel

if TYPE_CHECKING:
    from nbx_registry.advisory import Revocation
    from nbx_registry.composite import Expansion
    from nbx_registry.settings import TunedEntry
    from nbx_registry.signature import Signature

Order = tuple[int, int, int, str]
"""What kernels are ordered by, least first: evidence, specificity, preference, id."""

LEVELS = {"here": 0, "elsewhere": 1, "built": 2, "none": 3}
"""Evidence, best first."""
SPECIFICITY = {"arch": 0, "fact": 1, "nothing": 2}
"""What conditions name of the device, most specific first."""
_SPECIFIC_WORDS = {"arch": "names an arch or capability", "fact": "names a device fact", "nothing": ""}


@dataclass(eq=False, slots=True)
class Choice:
    """A kernel that may run, and what is needed to bind it."""

    kernel: Kernel
    plugin: str
    """Who brought it."""
    evidence: Evidence
    settings: Mapping[str, object]
    tuned: TunedEntry | None = None
    expansion: Expansion | None = None
    parts: tuple[Choice, ...] = ()

    def unreplayable(self) -> list[str]:
        """Return the kernels, by id, that do not say that they can be replayed: of a composite those of its parts."""
        if self.parts:
            return [kernel for part in self.parts for kernel in part.unreplayable()]
        return [] if self.kernel.replayable else [self.kernel.id]


@dataclass(slots=True)
class Entry:
    """One kernel, as far as the static kind of a signature settles it."""

    kernel: Kernel
    plugin: str
    conditions: Conditions | None = None
    refusal: Refusal | None = None
    """Settled: it cannot run any signature of this kind."""
    advisories: Sequence[Revocation] = ()
    """Those about it here, whose conditions on sizes are open."""
    late: Refusal | None = None
    """Settled, but told only if every condition holds: runtime, toolkit, evidence."""
    evidence: Evidence = NO_EVIDENCE
    fault: Fault | None = None
    order: Order = (9, 9, 0, "")

    def revoked(self, signature: Signature) -> Refusal | None:
        """Return the refusal of the first advisory that is about a request, None where none is."""
        for advisory in self.advisories:
            if (refusal := advisory.refusal(signature)) is not None:
                return refusal
        return None


@dataclass(slots=True)
class Settled:
    """What a static kind of signature settles of every kernel of an op."""

    entries: list[Entry]
    """By kernel id."""
    open: list[Entry] = field(default_factory=list[Entry])
    """Those without refusal or fault, best first; composites last."""
    faulty: bool = False


def tuned_choice(entry: Entry, tuned: TunedEntry) -> Choice:
    """Return a kernel with the settings proven for the key."""
    return Choice(
        entry.kernel,
        entry.plugin,
        replace(entry.evidence, tuned=True),
        {**entry.kernel.defaults, **tuned.settings},
        tuned,
    )


def not_tuned(kernel: Kernel, key: tuple[object, ...]) -> Refusal:
    """Return the refusal of a kernel that has no settings for a key where they are asked for."""
    if kernel.settings is None:
        way = "require='checked': the kernel states no settings, so that there is nothing to tune"
    else:
        way = "settings proven for this key are installed (nbx tune finds some), or require='checked'"
    return Refusal(
        code="KEY_NOT_TUNED",
        reason=f"no settings are proven for key {dict(zip(kernel.key, key, strict=True))}",
        would_run_if=way,
    )


def candidate(entry: Entry, choice: Choice, pin: str | None) -> Candidate:
    """Return a kernel that may run as a decision tells it, with what it was ordered by in words."""
    words = [
        "pinned" if pin else "",
        f"{choice.tuned.seconds:.3g} s on this key" if choice.tuned else "",
        _SPECIFIC_WORDS[entry.conditions.specificity] if entry.conditions else "",
        f"preference {choice.kernel.preference}" if choice.kernel.preference else "",
        "made of " + ", ".join(p.kernel.id for p in choice.parts) if choice.parts else "",
    ]
    return Candidate(
        kernel=choice.kernel.id,
        accepted=True,
        evidence=choice.evidence,
        rank=tuple(w for w in words if w),
        tuned=None
        if choice.tuned is None
        else Proven(choice.tuned.settings, choice.tuned.file, choice.tuned.proof.date),
    )


def by_time(accepted: list[tuple[Order, Entry, Choice]]) -> list[tuple[Order, Entry, Choice]]:
    """Refill the places of the kernels timed on this key in order of their times."""
    times = {one[2].kernel.id: one[2].tuned.seconds for one in accepted if one[2].tuned is not None}
    timed = iter(sorted((one for one in accepted if one[2].kernel.id in times), key=lambda one: _time(one[2], times)))
    return [next(timed) if one[2].kernel.id in times else one for one in accepted]


def _time(choice: Choice, times: Mapping[str, float]) -> tuple[float, str]:
    return times[choice.kernel.id], choice.kernel.id
