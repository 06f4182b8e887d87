"""Trials: one kernel on one case, alone, with the runs that checks look at, each made once, when it is asked for."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import numpy as np

from nbx_conformance.cases import Case, CaseTable
from nbx_conformance.cases.values import Array
from nbx_conformance.problems.largest import Largest
from nbx_conformance.problems.problem import Problem
from nbx_conformance.problems.representatives import Representatives
from nbx_conformance.problems.roof import roof_of
from nbx_conformance.problems.sample import LARGE, LargeProblem, problem_of
from nbx_conformance.trials.bench import Bench, Execution
from nbx_conformance.trials.buffers import as_bytes
from nbx_conformance.trials.surroundings import watched
from nbx_registry.bands import PATTERNS, POISON
from nbx_registry.errors import NbxError
from nbx_registry.kernel import Kernel
from nbx_registry.program import BoundProgram
from nbx_registry.registry import Registry
from nbx_registry.runtime import Runtime
from nbx_registry.target import Target

if TYPE_CHECKING:
    from nbx_conformance.checks.judge import Judgement

T = TypeVar("T")
Reach = Literal["here", "elsewhere", "built"]
Verdict = Literal["pass", "refused", "waived", "fail", "error"]

_PROBLEMS: Final = 3
"""Problems kept: kernels of one op meet the same case one after another."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one check found."""

    check: str
    verdict: Verdict
    detail: str = ""


@dataclass
class Site:
    """Where kernels are tried.

    Attributes
    ----------
    target
        The device that the results are about, live on the route ``device``.
    reach
        What a result here proves: ``here``, ``elsewhere``, or that it can be ``built``.
    via
        How: ``device``, an emulator's name, or ``build``.
    emulator
        The runtime that stands in for the device's own.
    large
        Elements of a tensor above which a problem is looked at in parts.
    """

    registry: Registry
    cases: CaseTable
    target: Target
    reach: Reach
    via: str
    emulator: Runtime | None = None
    large: int = LARGE
    noted: set[str] = field(default_factory=set[str])
    """What was said once, and is not said again; `Trial.note`."""
    _lags: bool | None = None
    _cannot_capture: str | None = None
    _problems: OrderedDict[tuple[str, str], Problem] = field(default_factory=OrderedDict[tuple[str, str], Problem])

    @property
    def public(self) -> bool:
        """Whether the registry's own calls reach the device: an emulator is reached by binding to it alone."""
        return self.reach == "here"

    def reaches(self, kernel: Kernel) -> bool:
        """Whether a kernel can be tried here at all.

        On the device: what its runtime launches, and composites and views, which any runtime can run. Through an
        emulator: what the emulator stands in for, and views. To be built: what is compiled for the device's runtime.
        """
        name = self.target.runtime_name
        if self.reach == "here":
            return not kernel.runtimes or name in kernel.runtimes
        if self.reach == "built":
            return name in kernel.runtimes
        emulator = self.registry.catalog.emulators[self.via]
        if kernel.backend == "view":
            return True
        return kernel.backend == emulator.backend and bool(set(kernel.runtimes) & set(emulator.runtimes))

    @cached_property
    def _representatives(self) -> Representatives:
        return Representatives(self.registry, self.cases, self.target)

    def representative(self, kernel: Kernel, case: Case) -> bool:
        """Whether a case stands for others of a kernel, so that what takes long is tried on it; `Representatives`."""
        return case.id in self._representatives.of(kernel)

    def widest(self, kernel: Kernel, case: Case) -> bool:
        """Whether a case is among those of a kernel with most places along their batch axis; `Representatives`."""
        return case.id in self._representatives.widest(kernel)

    def foremost(self, kernel: Kernel, case: Case) -> bool:
        """Whether a case is the first of a kernel's representatives, which may take longer than the others."""
        return self._representatives.of(kernel)[:1] == (case.id,)

    @cached_property
    def _largest(self) -> Largest:
        device = self.target.device
        assert device is not None
        return Largest(self.registry, self.cases, self.target, roof_of(device))

    def is_largest(self, kernel: Kernel, case: Case) -> bool:
        """Whether a time on a case says whether the work was done; `Largest`.

        Raises `MissingFact` where nobody states the device's bandwidth, or its cache.
        """
        return case.id in self._largest.of(kernel)

    def lags(self, bench: Bench) -> bool:
        """Whether a stream here can be busy while its caller goes on; tried once."""
        if self._lags is None:
            # Where a machine is busy a caller may be held up for longer than a short delay lasts.
            self._lags = bench.lags(0.01) or bench.lags(0.2)
        return self._lags

    def cannot_capture(self, bench: Bench) -> str:
        """Return why nothing can be captured here; empty where it can. Tried once, with nothing to capture."""
        if self._cannot_capture is None:
            self._cannot_capture = bench.cannot_capture()
        return self._cannot_capture

    def problem(self, case: Case) -> Problem:
        """Return the case's problem, made if new."""
        key = (case.op, case.id)
        found = self._problems.pop(key, None) or problem_of(self.registry.catalog.op(case.op), case, self.large)
        self._problems[key] = found
        while len(self._problems) > _PROBLEMS:
            self._problems.popitem(last=False)
        return found


@dataclass(frozen=True)
class Disturbance:
    """What a result turned out to depend on that it must not: a message each, empty where it does not."""

    unwritten: str = ""
    """Elements that kept the poison they started with."""
    poison: str = ""
    """What outputs and workspace held before."""
    guards: str = ""
    """Bytes around the tensors, or in the gaps of their layouts."""
    repeats: str = ""
    """Nothing that was looked at: the same run gave another result."""


class Trial:
    """One kernel on one case, with launch settings of its own where some are given."""

    def __init__(
        self, site: Site, kernel: Kernel, case: Case, settings: Mapping[str, Any] | None = None, looser: float = 1
    ) -> None:
        self.site = site
        self.looser = looser
        """How many times the bound a waiver lets an error be."""
        self.kernel = kernel
        self.case = case
        self.settings = settings
        self.problem = site.problem(case)
        self.changes: dict[str, None] = {}
        """What of the process the first two runs changed, in words."""
        self.notes: dict[str, str] = {}
        """By check, why it says nothing, where no trial before has said so."""
        self.judged: list[Judgement] = []
        """The runs that were held against the oracle, in their order."""
        self._memo: dict[Any, Any] = {}

    @property
    def large(self) -> bool:
        """Whether the case has a tensor too large to be looked at everywhere."""
        return isinstance(self.problem, LargeProblem)

    def note(self, check: str, why: str) -> None:
        """Keep for the record why a check says nothing here, once in a run."""
        if why not in self.site.noted:
            self.site.noted.add(why)
            self.notes[check] = why

    def memo(self, key: Any, make: Callable[[], T]) -> T:
        """Return what ``make`` made the first time it was asked for under ``key``."""
        if key not in self._memo:
            self._memo[key] = make()
        return self._memo[key]

    @property
    def registry(self) -> Registry:
        """The registry under which the kernel runs."""
        return self.site.registry

    @cached_property
    def bound(self) -> BoundProgram:
        """The kernel, bound. Raises `Refused` or `PluginFault`."""
        return self.registry.bind_specs(
            self.case.op,
            self.problem.signature,
            device=self.site.target.name,
            kernel=self.kernel.id,
            require="any",
            runtime=self.site.emulator,
            settings=self.settings,
        )

    @cached_property
    def bench(self) -> Bench:
        """The bound kernel over guarded buffers."""
        return Bench(self.bound, self.problem.sample)

    @cached_property
    def other_bench(self) -> Bench:
        """The same program over other buffers."""
        return Bench(self.bound, self.problem.sample)

    @cached_property
    def first(self) -> Execution:
        """The first run."""
        return self._watched(0)

    @cached_property
    def fresh(self) -> Execution:
        """A second run of the same program in the same memory, on other inputs."""
        first = self.first
        del first  # It comes first: only then is there something stale to return.
        return self._watched(1)

    def _watched(self, repetition: int) -> Execution:
        bench, inputs = self.bench, self.problem.inputs(repetition)
        with watched(self.changes):
            return bench.run(inputs)

    @cached_property
    def again(self) -> Execution:
        """The first run again among other bytes: those of bands, gaps and poison."""
        first = self.first
        del first
        return self.bench.run(self.problem.inputs(0), guard=PATTERNS[1], poison=POISON[1])

    @property
    def looked_at(self) -> tuple[Execution, ...]:
        """The runs after which every byte is looked at: what is written may be the very bytes of one kind of bands."""
        return (self.first, self.fresh) if self.bound.view is not None else (self.first, self.again, self.fresh)

    @cached_property
    def disturbance(self) -> Disturbance:
        """What changes in the result when only bands, gaps and poison change."""
        inputs = self.problem.inputs(0)
        first, second = self.first, self.again
        unwritten = _unwritten(first, second)
        differed = differing(first, second)
        if not unwritten and not differed:
            return Disturbance()
        # Only a kernel that repeats itself can be told from what surrounds it.
        for _ in range(2):
            changed = differing(first, self.bench.run(inputs))
            if changed:
                return Disturbance(unwritten, repeats=f"{changed} differs when the same run is repeated")
        changed = differing(first, self.bench.run(inputs, guard=PATTERNS[1], poison=POISON[0]))
        guards = changed and f"{changed} depends on bytes outside the tensors"
        changed = differing(first, self.bench.run(inputs, guard=PATTERNS[0], poison=POISON[1]))
        poison = changed and f"{changed} depends on what outputs and workspace held before"
        if not unwritten and not guards and not poison:
            return Disturbance(repeats=f"{differed} differed in one run, and in none of those that were to show why")
        return Disturbance(unwritten, "" if unwritten else poison, guards)

    def results_digest(self) -> str:
        """Return a digest of the first run's results."""
        hasher = hashlib.sha256()
        for name, values in self.first.results.items():
            hasher.update(f"{name}\0{values.dtype}{values.shape}\0".encode())
            hasher.update(np.ascontiguousarray(values).tobytes())
        return hasher.hexdigest()[:16]


def _unwritten(first: Execution, second: Execution) -> str:
    """Return what of the outputs two runs left as they found it, though they found different things."""
    found: list[str] = []
    for name in first.outputs:
        contents = first.contents[name]
        kept = contents.poisoned() & second.contents[name].poisoned()
        if kept.any():
            found.append(contents.unwritten(kept))
    return "; ".join(found)


def differing(first: Execution, second: Execution) -> str:
    """Return a description of the first element that differs between two runs, or an empty string."""
    for name, others in second.results.items():
        differs = as_bytes(first.results[name]) != as_bytes(others)
        if differs.any():
            differs = differs.any(-1)
            return f"{name}{first_index(differs)} (and {int(differs.sum()) - 1} more)"
    return ""


def first_index(wrong: Array) -> list[int]:
    """Return the index of the first true element."""
    return [int(i) for i in np.unravel_index(int(np.argmax(wrong)), wrong.shape)] if wrong.shape else []


LONGEST_REASON: Final = 300
"""Characters of a reason in a bundle."""


def message(error: BaseException) -> str:
    """Return an error in one line for a record."""
    text = " ".join(str(error).split())
    name = error.code if isinstance(error, NbxError) else type(error).__name__
    return f"{name}: {text}"
