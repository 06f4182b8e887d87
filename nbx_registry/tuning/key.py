"""One key: every candidate of a kernel's space is excluded by name, or is right and raced; the winner has a proof."""

from __future__ import annotations

import datetime
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from nbx_registry import space
from nbx_registry.errors import NbxError, one_line
from nbx_registry.planentry import kernel_digest, toolkit
from nbx_registry.program import BoundProgram
from nbx_registry.target import Target
from nbx_registry.tuning import race
from nbx_registry.tuning.bench import Bench, Run, machine
from nbx_registry.tuning.jobs import Job, plain, shown
from nbx_registry.tuning.problem import Array, Judgement, Problem
from nbx_registry.tuning.race import Kind

if TYPE_CHECKING:
    from nbx_registry.registry import Registry

WRONG = "wrong"
"""The name under which a candidate is excluded whose results the oracle refuses."""

UNUSABLE = "unusable"
"""The name under which one is that cannot be compiled, bound or run."""

BROKEN = "DEVICE_UNUSABLE"
"""The code of the error that a candidate left the device of no more use to this process."""

_LONGEST = 300
"""Characters of a reason: compilers print pages."""

Stopwatch = Callable[[Mapping[str, Any], Kind, Callable[[], float]], float]
"""Seconds of one run with some settings: what the function measures, or, in a test, what it makes up."""

Tell = Callable[[Mapping[str, Any]], None]
"""Is told of a candidate's settings each time before it is tried or timed."""


@dataclass(frozen=True, slots=True)
class Excluded:
    """A candidate that was not timed to the end, and why."""

    settings: Mapping[str, Any]
    rule: str
    """The rule of the space, ``shared memory``, ``wrong`` or ``unusable``."""
    reason: str
    by_rule: bool = False
    """Whether a rule of the space excludes it, so that it was not compiled."""


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """What came of tuning one key.

    Attributes
    ----------
    settings
        The winner's: the default's, where nothing beat it.
    times
        Seconds: ``tuned_s`` and ``default_s``, by what decided; the same cold and warm.
    timed
        Candidates that were timed, the default among them, and of these ``dropped`` early as too slow.
    """

    kernel: str
    device: str
    key: Mapping[str, Any]
    settings: Mapping[str, Any]
    default: Mapping[str, Any]
    times: Mapping[str, float]
    deviation: float
    bound: float
    date: str
    toolkit: str
    kernel_digest: str | None
    machine: Mapping[str, Any]
    timed: int
    dropped: int
    excluded: tuple[Excluded, ...]

    @property
    def gain(self) -> float:
        """How many times faster than the default the winner is."""
        return self.times["default_s"] / self.times["tuned_s"]

    def entry(self) -> dict[str, Any]:
        """Return the entry of a settings file."""
        proof: dict[str, Any] = {
            "date": self.date,
            "toolkit": self.toolkit,
            "deviation": self.deviation,
            "bound": self.bound,
            "times": dict(self.times),
            "default": dict(self.default),
            "machine": dict(self.machine),
            "timed": self.timed,
            "dropped": self.dropped,
            "pruned": dict(sorted(Counter(one.rule for one in self.excluded if one.by_rule).items())),
            "excluded": [
                {"settings": dict(one.settings), "rule": one.rule, "reason": one.reason}
                for one in self.excluded
                if not one.by_rule
            ],
        }
        if self.kernel_digest is not None:
            proof["kernel_digest"] = self.kernel_digest
        return {"kernel": self.kernel, "key": dict(self.key), "settings": dict(self.settings), "proof": proof}


def tune_key(
    registry: Registry,
    job: Job,
    target: Target,
    stopwatch: Stopwatch | None = None,
    avoided: Sequence[Excluded] = (),
    tell: Tell | None = None,
) -> Tuned:
    """Tune one key on a live device.

    Parameters
    ----------
    avoided
        Candidates that are excluded already: what they do ends the process.

    Raises
    ------
    SignatureError
        An extent of the key is 0.
    NbxError
        The default itself is wrong or cannot run, or a candidate left the device unusable (`BROKEN`). Nothing is found
        then.
    PluginFault
        The kernel's space is none.
    """
    space.given(job.kernel, job.signature, {})
    stopwatch = stopwatch or (lambda _settings, _kind, measured: measured())
    return _Trial(registry, job, target, stopwatch, avoided, tell or (lambda _settings: None)).run()


@dataclass
class _Runner:
    """A candidate that is right, ready to be timed."""

    settings: Mapping[str, Any]
    bound: BoundProgram
    run: Run
    worst: Judgement
    launches: int = 0
    """In a window; 0 where it was not timed yet."""
    failed: bool = False
    """Whether it could not run while it was timed."""


@dataclass
class _Trial:
    """The candidates of one key, on their way."""

    registry: Registry
    job: Job
    target: Target
    stopwatch: Stopwatch
    avoided: Sequence[Excluded]
    tell: Tell
    excluded: list[Excluded] = field(default_factory=list[Excluded])

    def __post_init__(self) -> None:
        device, live, runtime = self.target.device, self.target.live, self.target.runtime
        assert device is not None
        assert live is not None
        assert runtime is not None
        self.device, self.live = device, live
        self.problem = Problem(self.job.signature, self.job.given, device)
        self.bench = Bench(self.problem, runtime, live, device)
        self.right: dict[int, tuple[Mapping[str, Array], Judgement]] = {}
        self.most_launches = 1

    def run(self) -> Tuned:
        kernel = self.job.kernel
        found = self.registry.space(kernel.id)
        if found is None:
            raise NbxError(f"{kernel.id} states no settings, and so has nothing to tune")
        default = dict(kernel.defaults)
        runners = [self._default(default)]
        for candidate in found.candidates(kernel, self.job.signature, self.device):
            if same(candidate.settings, default):
                continue
            plainly = _plainly(candidate.settings)
            known = next((one for one in self.avoided if same(one.settings, plainly)), None)
            if known is not None:
                self.excluded.append(known)
            elif candidate.excluded:
                self._exclude(candidate.settings, candidate.excluded, candidate.reason, by_rule=True)
            elif (runner := self._candidate(candidate.settings)) is not None:
                runners.append(runner)
        self.bench.fill()
        self.most_launches = runners[0].launches = self.bench.launches(runners[0].run)
        kinds: tuple[Kind, ...] = ("cold", "warm") if self.bench.cold else ("warm",)
        measure = self._measure(runners)
        standings = race.race(len(runners), measure, kinds)
        winner = 0
        times: dict[Kind, tuple[float, ...]] = {kind: (standings[0].median(kind),) * 2 for kind in kinds}
        for challenger in race.order(standings, kinds):
            met = race.duel(challenger, measure, kinds)
            if met.won and self._still_right(runners[challenger]):
                winner = challenger
                times = {kind: (met.challenger[kind], met.default[kind]) for kind in kinds}
                break
            # The default's times are those taken last, whoever it met.
            times = {kind: (met.default[kind],) * 2 for kind in kinds}
        if winner == 0 and not self._still_right(runners[0]):
            raise NbxError(f"{self.job}: the default is wrong {self.excluded[-1].reason}; nothing is tuned")
        timed = [s for s, runner in zip(standings, runners, strict=True) if not runner.failed]
        return self._tuned(runners[winner], default, times, kinds, len(timed), sum(s.dropped for s in timed))

    def _default(self, settings: Mapping[str, Any]) -> _Runner:
        """Return the default, which must be right: a key without an entry runs it."""
        self.tell(settings)
        try:
            runner = self._try(settings)
        except NbxError:
            raise
        except (Exception, SystemExit) as error:
            raise self._cannot_run(error) from error
        if isinstance(runner, str):
            raise NbxError(f"{self.job}: the default ({shown(settings)}) is wrong: {runner}; nothing is tuned")
        return runner

    def _candidate(self, settings: Mapping[str, Any]) -> _Runner | None:
        """Return a candidate that is right, or None where it is excluded."""
        self.tell(settings)
        try:
            beyond = self._beyond(settings)
            if beyond:
                self._exclude(settings, space.SHARED, beyond)
                return None
            runner = self._try(settings)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a kernel may raise anything; it is why it is excluded
            self._cannot_use(settings, error)
            return None
        if isinstance(runner, str):
            self._exclude(settings, WRONG, runner)
            return None
        return runner

    def _exclude(self, settings: Mapping[str, Any], rule: str, reason: str, *, by_rule: bool = False) -> None:
        self.excluded.append(Excluded(_plainly(settings), rule, one_line(reason, _LONGEST), by_rule))

    def _cannot_run(self, error: BaseException) -> NbxError:
        return NbxError(f"{self.job}: the default cannot run: {type(error).__name__}: {error}")

    def _cannot_use(self, settings: Mapping[str, Any], error: BaseException, when: str = "") -> None:
        """Exclude a candidate that raised; raise `NbxError` where it is the default, or where nothing runs any more."""
        if same(settings, self.job.kernel.defaults):
            raise self._cannot_run(error) from error
        self._exclude(settings, UNUSABLE, f"{when}{type(error).__name__}: {error}")
        self._check_device(settings)

    def _beyond(self, settings: Mapping[str, Any]) -> str:
        """Return what of the code compiled for a candidate is beyond the device; nothing where nothing is compiled."""
        if self.target.runtime_name == "host":
            return ""
        return space.over_limit(self._bind(self.device.id, settings).launches, self.device)

    def _bind(self, device: str, settings: Mapping[str, Any]) -> BoundProgram:
        job = self.job
        return self.registry.bind_specs(
            job.kernel.op, job.signature, device=device, kernel=job.kernel.id, settings=settings
        )

    def _try(self, settings: Mapping[str, Any]) -> _Runner | str:
        """Bind a candidate and check it on every input; return it, or what is wrong with it."""
        bound = self._bind(self.target.name, settings)
        if bound.program is None:
            raise NbxError(f"{self.job} launches nothing, and so has nothing to tune")
        worst = Judgement()
        for number in range(self.problem.count):
            found = self._judge(bound, number)
            if found.wrong:
                return f"on input {number}: {found.wrong}"
            worst = max(worst, found, key=lambda one: (one.share, one.bound))
        return _Runner(settings, bound, self.bench.runner(bound), worst)

    def _judge(self, bound: BoundProgram, number: int) -> Judgement:
        results, astray = self.bench.results(bound, number)
        if astray is not None:
            return Judgement(f"written where nothing may be: {astray}")
        known = self.right.get(number)
        # What has the very bits of a result that the oracle found right is right.
        if known is not None and all(_same_bits(known[0][name], values) for name, values in results.items()):
            return known[1]
        found = self.problem.judge(number, results)
        if not found.wrong:
            self.right.setdefault(number, (results, found))
        return found

    def _check_device(self, settings: Mapping[str, Any]) -> None:
        """Raise `NbxError` where the default no longer runs: what a candidate did ended more than itself."""
        try:
            again = self._try(dict(self.job.kernel.defaults))
        except (Exception, SystemExit) as error:
            raise NbxError(
                f"{self.job}: {shown(settings)} left {self.target.name} unusable ({self.excluded[-1].reason}; then "
                f"{error}); exclude it by a rule of {self.job.kernel.settings}, and start again",
                code=BROKEN,
            ) from error
        if isinstance(again, str):
            raise NbxError(f"{self.job}: after {shown(settings)} the default is wrong: {again}; nothing is tuned")

    def _still_right(self, runner: _Runner) -> bool:
        """Whether a candidate is right after it was timed; one that is not is excluded."""
        for number in range(self.problem.count):
            self.tell(runner.settings)
            try:
                found = self._judge(runner.bound, number)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - as above
                self._cannot_use(runner.settings, error, "after it was timed: ")
                return False
            if found.wrong:
                self._exclude(runner.settings, WRONG, f"after it was timed, on input {number}: {found.wrong}")
                return False
        return True

    def _measure(self, runners: Sequence[_Runner]) -> race.Measure:
        def measure(number: int, kind: Kind) -> float:
            runner = runners[number]
            if runner.failed:
                return math.inf
            self.tell(runner.settings)
            try:
                return self.stopwatch(runner.settings, kind, lambda: self._seconds(runner, kind))
            except (Exception, SystemExit) as error:  # noqa: BLE001 - as above
                self._cannot_use(runner.settings, error, "while it was timed: ")
                runner.failed = True
                return math.inf

        return measure

    def _seconds(self, runner: _Runner, kind: Kind) -> float:
        if not runner.launches:
            # One that takes far longer than the default is not to be run as often.
            runner.launches = min(self.bench.launches(runner.run), self.most_launches)
        return self.bench.seconds(runner.run, runner.launches, warm=kind == "warm")

    def _tuned(
        self,
        winner: _Runner,
        default: Mapping[str, Any],
        times: Mapping[Kind, tuple[float, ...]],
        kinds: Sequence[Kind],
        timed: int,
        dropped: int,
    ) -> Tuned:
        kernel, catalog = self.job.kernel, self.registry.catalog
        tuned_s, default_s = times[kinds[0]]
        seconds = {"tuned_s": tuned_s, "default_s": default_s}
        for kind in kinds:
            seconds[f"tuned_{kind}_s"], seconds[f"default_{kind}_s"] = times[kind]
        now = datetime.datetime.now(datetime.UTC)
        return Tuned(
            kernel=kernel.id,
            device=self.device.id,
            key=self.job.key,
            settings=_plainly(winner.settings),
            default=_plainly(default),
            times=seconds,
            deviation=winner.worst.deviation,
            bound=winner.worst.bound,
            date=now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            toolkit=toolkit(catalog, kernel) or kernel.backend,
            kernel_digest=kernel_digest(kernel),
            machine=machine(self.live),
            timed=timed,
            dropped=dropped,
            excluded=tuple(self.excluded),
        )


def _plainly(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: plain(value) for name, value in settings.items()}


def same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether settings are the same: 1, 1.0 and True are three."""
    return one.keys() == other.keys() and all(
        type(value) is type(other[name]) and value == other[name] for name, value in one.items()
    )


def _same_bits(one: Array, other: Array) -> bool:
    # Copies of small ones; large ones word by word.
    if one.nbytes < 2**20:
        return one.tobytes() == other.tobytes()
    return bool(np.array_equal(one.view(np.uint8), other.view(np.uint8)))
