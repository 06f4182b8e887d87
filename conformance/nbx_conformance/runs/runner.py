"""The runner: what is tried where, and one trial's record."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np

from nbx_conformance.cases import FOLDER, Case, CaseTable, Size
from nbx_conformance.checks import CHECKS, OF_LARGE, UNGUARDED, built, cold, guards, numbers, refusals
from nbx_conformance.checks.judge import profile_of
from nbx_conformance.trials import public
from nbx_conformance.trials.trial import Outcome, Site, Trial, Verdict, message
from nbx_registry.choice import Choice
from nbx_registry.errors import NbxError, PluginFault, Refused, shortened
from nbx_registry.kernel import Kernel
from nbx_registry.registry import Registry

_RANK: Final[Mapping[Verdict, int]] = {"pass": 0, "refused": 1, "waived": 2, "fail": 3, "error": 4}

LONGEST: Final = 600
"""Characters of why a check did not pass."""

KernelVerdict = Literal["pass", "fail", "error", "unmeasured", "elsewhere"]
"""``unmeasured``: it took no case that has elements. ``elsewhere``: it is for other devices, as it says."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What of the registry is tried; empty means everything."""

    plugins: frozenset[str] = frozenset()
    ops: frozenset[str] = frozenset()
    kernels: frozenset[str] = frozenset()
    size: Size = "smoke"


@dataclass(frozen=True)
class Item:
    """One kernel on one case."""

    kernel: Kernel
    case: Case
    looser: float = 1
    """How many times the bound a waiver lets an error be."""

    @property
    def id(self) -> str:
        """``add/nbx-host/add/numpy/awkward-f32-N63``."""
        return f"{self.kernel.op.partition('@')[0]}/{self.kernel.id}/{self.case.id}"


@dataclass(frozen=True, kw_only=True)
class Record:
    """What a trial found.

    Attributes
    ----------
    checks
        Names of checks by verdict.
    details
        Why, for each check that did not pass; a refusal's code and reason; once in a run, why a check says nothing.
    built
        What the compiler said, a row for each launch.
    """

    op: str
    kernel: str
    case: str
    seed: int
    verdict: Verdict
    checks: Mapping[str, Sequence[str]]
    details: Mapping[str, str]
    profile: Mapping[str, Any] = field(default_factory=dict[str, Any])
    output: str | None = None
    cold: Mapping[str, float] = field(default_factory=dict[str, float])
    """The cold time, where one was taken: ``seconds``, ``least_s``, ``sets``."""
    seconds: float = 0.0
    built: Sequence[Mapping[str, Any]] = ()
    handle: str | None = None
    """The device it ran on, where it ran on one."""
    view: bool = False
    """Whether the answer was a view, so that nothing was launched."""
    parts: Sequence[str] = ()
    """The kernels that ran within a composite."""
    waivers: Mapping[str, tuple[str, Verdict]] = field(default_factory=dict[str, tuple[str, Verdict]])
    """By check that is waived: the waiver's id, and the verdict in the place of which that stands."""
    looser: float = 1
    """How many times the bound an error could be."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, of which `Record` makes the same record."""
        return dict(vars(self))


def case_table(registry: Registry) -> CaseTable:
    """Return the cases of every op of a registry. An op without is an error when a kernel of it is to be tried."""
    return CaseTable([FOLDER, *(folder for plugin in registry.catalog.active for folder in plugin.cases)])


def kernels_of(site: Site, selection: Selection) -> list[Kernel]:
    """Return the kernels that a selection names and the site can reach, by op and id."""
    catalog = site.registry.catalog
    found: list[Kernel] = []
    for kernel in sorted(catalog.kernels.values(), key=lambda k: (k.op, k.id)):
        if selection.kernels and kernel.id not in selection.kernels:
            continue
        if selection.plugins and catalog.owners[kernel.id] not in selection.plugins:
            continue
        op = catalog.op(kernel.op)
        if selection.ops and not selection.ops & {op.id, op.name}:
            continue
        if site.reaches(kernel):
            found.append(kernel)
    return found


def items(site: Site, selection: Selection) -> list[Item]:
    """Return every trial of a selection: kernels of an op meet each case one after another."""
    by_op: dict[str, list[Kernel]] = {}
    for kernel in kernels_of(site, selection):
        by_op.setdefault(kernel.op, []).append(kernel)
    return [
        Item(kernel, case)
        for op, kernels in by_op.items()
        for case in site.cases.of(op, selection.size)
        if case.runtime in (None, site.target.runtime_name)
        # A contract's refusal has nothing to build.
        if not (case.refuses and site.reach == "built")
        for kernel in kernels
    ]


def execute(site: Site, item: Item) -> Record:
    """Try one kernel on one case with every check."""
    # Special values make NumPy complain of what the case asks for, in the oracle and in kernels of the host.
    with np.errstate(all="ignore"):
        return _execute(site, item)


def _execute(site: Site, item: Item) -> Record:
    trial = Trial(site, item.kernel, item.case, looser=item.looser)
    began = time.perf_counter()
    outcomes = list(_outcomes(trial))
    measured = site.reach != "built" and any(o.check in CHECKS and o.verdict in ("pass", "fail") for o in outcomes)
    checks: dict[str, list[str]] = {}
    for outcome in outcomes:
        checks.setdefault(outcome.verdict, []).append(outcome.check)
    return Record(
        op=item.kernel.op,
        kernel=item.kernel.id,
        case=item.case.id,
        seed=item.case.seed,
        verdict=worst(outcome.verdict for outcome in outcomes),
        checks=checks,
        details={**{o.check: shortened(o.detail, LONGEST) for o in outcomes if o.detail}, **trial.notes},
        cold=cold.record(trial),
        profile=profile_of(trial).to_dict() if measured else {},
        output=trial.results_digest() if measured else None,
        seconds=time.perf_counter() - began,
        built=_built(trial) if not item.case.refuses else (),
        handle=site.target.live.handle if site.reach == "here" and site.target.live is not None else None,
        view=measured and trial.bound.view is not None,
        looser=item.looser,
        parts=_parts(trial.bound.choice) if measured else (),
    )


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict that the verdicts of a trial's checks come to."""
    found: Verdict = "pass"
    for verdict in verdicts:
        if _RANK[verdict] > _RANK[found]:
            found = verdict
    return found


def _outcomes(trial: Trial) -> Iterable[Outcome]:
    if trial.case.refuses:
        yield refusals.of_contract(trial)
        return
    try:
        ran = trial.bound.choice.kernel.id
    except Refused as refused:
        yield refusals.of_kernel(trial, refused)
        return
    except PluginFault as fault:
        yield Outcome(refusals.NAME, "error", f"{message(fault)}; what a kernel cannot take it refuses by a condition")
        return
    except NbxError as error:
        # A device that was lost, a case that does not fit its contract.
        yield Outcome(numbers.NAME, "error", f"it could not be bound: {message(error)}")
        return
    if ran != trial.kernel.id:
        yield Outcome(numbers.NAME, "error", f"{ran} ran in the place of {trial.kernel.id}")
        return
    if trial.site.reach == "built":
        yield built.check(trial)
        return
    astray = False
    for name, check in CHECKS.items():
        if trial.large and name not in OF_LARGE:
            continue
        # A kernel that writes beside its memory is given none that has no bands: others' would be damaged there.
        if astray and name in UNGUARDED:
            continue
        try:
            outcome = check(trial)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a kernel under test may raise anything; it becomes the finding
            yield Outcome(name, "error", f"raised while it ran: {message(error)}")
            return
        if outcome is not None:
            astray = astray or (name == guards.NAME and outcome.verdict == "fail")
            yield outcome


def _parts(choice: Choice) -> Sequence[str]:
    """Return the ids of the kernels that a composite's steps chose, those within them too."""
    return sorted({part.kernel.id for part in choice.parts}.union(*map(_parts, choice.parts)))


def _built(trial: Trial) -> Sequence[Mapping[str, Any]]:
    """Return what was compiled; on a live device its code is compiled again without loading it, to be described."""
    device = trial.site.target.device
    if device is None or (trial.site.public and public.device_of(trial.site)[0].operands == "array"):
        # What takes arrays compiles nothing.
        return ()
    try:
        bound = trial.bound
        if trial.site.reach == "here":
            bound = trial.registry.bind_specs(
                trial.case.op, trial.problem.signature, device=device.id, kernel=trial.kernel.id, require="any"
            )
    except NbxError:
        # Why it was not bound is the trial's own finding.
        return ()
    return [facts for launch in bound.launches if (facts := built.describe(launch)) is not None]


def _proves(record: Record) -> bool:
    passed = record.checks.get("pass", ())
    return numbers.NAME in passed or (built.NAME in passed and bool(record.built))


def verdict_of(records: Sequence[Record]) -> KernelVerdict:
    """Return a kernel's verdict over all its records."""
    verdicts = {record.verdict for record in records}
    if "error" in verdicts:
        return "error"
    if "fail" in verdicts:
        return "fail"
    # A case without elements passes without anything computed, one that launches nothing without anything built.
    if any(record.verdict == "pass" and _proves(record) for record in records):
        return "pass"
    codes = {record.details.get(refusals.NAME, "").partition(":")[0] for record in records}
    return "elsewhere" if codes & refusals.OF_DEVICE else "unmeasured"
