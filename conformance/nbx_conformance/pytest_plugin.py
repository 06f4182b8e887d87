"""The pytest plugin: options of a run, one test for a kernel and a case, a table, and the bundle at the end.

Records travel with pytest's reports, so that a run spread over processes by pytest-xdist is judged as a whole.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nbx_conformance.pytest_checks import OUTCOME, Looked, take
from nbx_conformance.pytest_trials import RECORD, TRIAL, Nothing, Tried, found_in

if TYPE_CHECKING:
    from nbx_conformance.bundles.journal import Journal
    from nbx_conformance.runs.options import Options
    from nbx_conformance.runs.profiles import Judged
    from nbx_conformance.runs.runner import Item, Record
    from nbx_conformance.runs.session import Session

_STOPPED = (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR)
"""Ends of a session that leave trials undone."""


_NAMED = 3
"""As many kernels of a bundle are named."""


class Collector:
    """The runs of one pytest session, each by its test function and device, and what is wrong with them as wholes."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.runs: dict[str, Session] = {}
        self.failed: list[str] = []
        self.notes: list[str] = []
        self.judged: list[Judged] = []
        self.written = ""
        self._began = time.perf_counter()
        self._started: dict[str, tuple[dict[str, Any], float]] = {}
        self._slots: dict[str, int] = {}
        self._journal: Journal | None = None

    @property
    def part(self) -> bool:
        """Whether this process has a part of the trials only."""
        return hasattr(self.config, "workerinput")

    @property
    def slot(self) -> int:
        """The number of this process among those that share the trials."""
        return getattr(self.config, "workerinput", {}).get("nbx_slot", 0)

    @property
    def out(self) -> Path | None:
        """The bundle to be written."""
        out = self.config.getoption("--nbx-out")
        return None if out is None else Path(out)

    def begin(self, key: str, run: Session) -> None:
        """Take in a run; it goes on from its journal if that is asked for. Raises `NbxError`."""
        from nbx_conformance.bundles.journal import beside, keep

        run.began = self._began
        if self.out is not None and self.config.getoption("--nbx-resume") and beside(self.out).exists():
            kept = keep(beside(self.out), run)
            run.kept, run.before = kept.records, kept.seconds
        self.runs[key] = run

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Give a process that shares the trials the lowest number that is free."""
        slot = min(set(range(len(self._slots) + 1)) - set(self._slots.values()))
        self._slots[node.gateway.id] = node.workerinput["nbx_slot"] = slot

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take the number back."""
        self._slots.pop(node.gateway.id, None)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Say which trial begins."""
        callspec = getattr(item, "callspec", None)
        tried = None if callspec is None else callspec.params.get("nbx_trial")
        if isinstance(tried, (Tried, Looked)):
            item.user_properties.append((TRIAL, tried.told()))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take in a trial's record, or what was found of a plugin, made here or in another process."""
        from nbx_conformance.runs.runner import Record

        trial, found = found_in(report, TRIAL), found_in(report, RECORD)
        if trial is None or report.when == "teardown":
            return
        if report.when == "setup":
            self._started[report.nodeid] = trial, time.monotonic()
            self._told(trial["run"], trial["options"])
        elif found is not None and trial["run"] in self.runs:
            record = Record(**found["record"])
            self.runs[trial["run"]].add(record)
            self._noted(record)
        elif (outcome := found_in(report, OUTCOME)) is not None and trial["run"] in self.runs:
            take(self.runs[trial["run"]], outcome)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport) -> None:
        """Make a record of a trial whose process ended; another goes on with the rest."""
        from nbx_conformance.report import failure
        from nbx_conformance.runs.worker import TRIAL_SECONDS, ended

        trial, began = self._started.get(crashitem, ({}, 0.0))
        run = self.runs.get(trial.get("run", ""))
        item = run and next(
            (i for i in run.items if (i.kernel.id, i.case.id) == (trial["kernel"], trial["case"])), None
        )
        if run is None or item is None:
            return
        limit = TRIAL_SECONDS[item.case.size]
        late = time.monotonic() - began >= limit
        why = f"took longer than {limit} s" if late else "the process ended"
        record = run.waivers.apply(ended(item, why, trial["handle"]))
        report.location = (report.location[0], None, crashitem.rpartition("::")[2])
        if record.verdict == "waived":
            report.outcome, report.longrepr = "passed", None
        else:
            report.longrepr = failure(run, item, record)
        report.user_properties += [(TRIAL, trial), (RECORD, {"record": record.to_dict()})]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run that measured nothing about a kernel, and write the bundle, if all was tried."""
        if not self.part:
            if session.exitstatus in _STOPPED:
                self._stop()
            else:
                self._finish()
            if self.failed and session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
        for run in self.runs.values():
            run.close()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print a table for each run, and what failed beside its tests."""
        from nbx_conformance.report import plugins, table, waived

        for run in self.runs.values():
            if run.records or run.outcomes:
                terminalreporter.section(f"conformance on {run.route}", sep="-")
                for line in (*(table(run) if run.records else ()), *plugins(run), *waived(run)):
                    terminalreporter.write_line(line)
        for note in self.notes:
            terminalreporter.write_line(note)
        if self.written:
            terminalreporter.write_line(self.written)
        for problem in self.failed:
            terminalreporter.write_line(problem, red=True)

    def _told(self, key: str, options: dict[str, Any]) -> None:
        """Begin a run that another process told of, and the journal."""
        from nbx_conformance.bundles.journal import Journal, beside
        from nbx_conformance.runs.options import Options
        from nbx_conformance.runs.session import Session
        from nbx_registry.errors import NbxError

        if self.part:
            return
        try:
            if key not in self.runs:
                self.begin(key, Session(Options(**options)))
            if self._journal is not None and len(self.runs) > 1:
                self._journal.remove()
                self._journal = None
            if self.out is not None and self._journal is None and len(self.runs) == 1:
                self._journal = Journal(beside(self.out), self.runs[key])
        except (NbxError, OSError) as error:
            self._lose(str(error))

    def _noted(self, record: Record) -> None:
        if self._journal is not None:
            try:
                self._journal.append(record)
            except OSError as error:
                self._lose(str(error))

    def _lose(self, why: str) -> None:
        """Go on without a journal: what was found so far is still here."""
        if self._journal is not None:
            self._journal.close()
        self._journal = None
        note = f"what is found is not on disk before the end: {why}"
        if note not in self.notes:
            self.notes.append(note)

    def _stop(self) -> None:
        if self._journal is not None:
            (run,) = self.runs.values()
            tried = f"{len(run.records)} of {len(run.items)} trials"
            self._journal.close()
            self.notes.append(f"broken off: {tried} are kept in {self._journal.path}; a run that resumes goes on there")
        elif self.out is not None:
            self.notes.append(f"broken off: {self.out} is not written")

    def _finish(self) -> None:
        from nbx_conformance.runs.session import unmeasured
        from nbx_conformance.runs.waivers import wrong

        for run in self.runs.values():
            self.failed += wrong(run)
            # What a shard refuses, others may compute; merge sees the whole.
            if run.options.shard is not None:
                continue
            verdicts = run.verdicts()
            for kernel in unmeasured(verdicts):
                self.failed.append(f"nothing was measured about {kernel}: none of its cases passed on {run.route}")
            if set(verdicts.values()) == {"elsewhere"}:
                self.failed.append(f"nothing was measured: what was tried is for other devices than {run.route}")
        self._judge()
        if self.out is not None:
            self.failed += self._write(self.out)
        if self._journal is not None and self.written:
            self._journal.remove()

    def _judge(self) -> None:
        """Judge the profiles that were asked for, by each run that tried anything."""
        for name in self.config.getoption("--nbx-profile") or ():
            from nbx_conformance.runs import profiles

            for run in self.runs.values():
                if run.records:
                    judged = profiles.of_run(run, name)
                    if not judged.wanted and run.options.shard is not None:
                        # Its cases are those of other shards.
                        continue
                    self.judged.append(judged)
                    (self.notes if judged.satisfied else self.failed).extend(judged.lines())

    def _write(self, out: Path) -> list[str]:
        from nbx_conformance.bundles.bundle import write
        from nbx_registry.errors import NbxError

        if not self.runs:
            return [f"{out} is not written: nothing was tried"]
        if len(self.runs) != 1:
            return [f"{out} is not written: a bundle holds one run, and there are {len(self.runs)}; name one device"]
        try:
            (run,) = self.runs.values()
            written, left_out = write(run, out)
        except NbxError as error:
            return [f"{out} is not written: {error}"]
        names = sorted(written.records)
        what = ", ".join(names) if len(names) <= _NAMED else f"{len(names)} kernels"
        self.written = f"{out}: {out.stat().st_size} bytes, digest {written.digest[:16]}: {what}"
        return [f"not in {out}: {problem}" for problem in left_out]


_COLLECTOR = pytest.StashKey[Collector]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of a run."""
    group = parser.getgroup("nbx conformance")
    group.addoption("--nbx-device", metavar="DEVICE", help="a live handle (cpu, cuda:0) or a product (nvidia/b200)")
    group.addoption("--nbx-via", metavar="ROUTE", help="auto, device, interpreter, build, or an emulator by its name")
    group.addoption("--nbx-size", metavar="SIZE", help="smoke, full or large")
    group.addoption("--nbx-plugin", metavar="NAME", action="append", help="only kernels of this plugin (repeatable)")
    group.addoption("--nbx-op", metavar="OP", action="append", help="only kernels of this op (repeatable)")
    group.addoption("--nbx-kernel", metavar="ID", action="append", help="only this kernel (repeatable)")
    group.addoption(
        "--nbx-profile", metavar="NAME", action="append", help="the ops of this profile, whose cases must pass"
    )
    group.addoption("--nbx-waivers", metavar="FILE", action="append", help="waivers beside the plugins' (repeatable)")
    group.addoption("--nbx-shard", metavar="PART/PARTS", help="only this part of the cases, as 2/3")
    group.addoption("--nbx-out", metavar="FILE", help="write what was found into this bundle")
    group.addoption("--nbx-resume", action="store_true", help="go on from the journal of a run with the same --nbx-out")
    group.addoption("--nbx-isolated", action="store_true", help="try kernels in a process of their own, without -n")


def pytest_configure(config: pytest.Config) -> None:
    """Start collecting."""
    config.stash[_COLLECTOR] = Collector(config)
    config.pluginmanager.register(config.stash[_COLLECTOR], "nbx-conformance-collector")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a suite's function one parameter for each trial."""
    from nbx_conformance.pytest_suite import MARK

    options: Options | None = getattr(metafunc.function, MARK, None)
    if options is None:
        return
    from nbx_conformance import plugin_checks
    from nbx_conformance.runs.session import sessions
    from nbx_registry.errors import NbxError

    collector = metafunc.config.stash[_COLLECTOR]
    name = metafunc.definition.nodeid
    found: list[Session] = []
    trials: list[tuple[Session, Item]] = []
    try:
        found = sessions(_overridden(options, metafunc.config), collector.slot)
        trials = [(session, item) for session in found for item in session.items]
        why = "" if trials else _nothing(found)
        for session in found if trials else ():
            # A malformed file is told before anything is tried.
            _ = session.waivers
            collector.begin(f"{name}@{session.options.device}", session)
            session.start()
    except NbxError as error:
        why = str(error)
    if why:
        metafunc.parametrize("nbx_trial", [Nothing(why)], ids=["nothing-measured"])
        return
    prefix = len(found) > 1
    # What a plugin is as a whole is the same on every device.
    checks = {item: session for session in reversed(found) for item in plugin_checks.items(session)}
    metafunc.parametrize(
        "nbx_trial",
        [Looked(f"{name}@{session.options.device}", session, item) for item, session in checks.items()]
        + [Tried(f"{name}@{session.options.device}", session, item) for session, item in trials],
        ids=[item.id for item in checks]
        + [f"{session.options.device}/{item.id}" if prefix else item.id for session, item in trials],
    )


def _overridden(options: Options, config: pytest.Config) -> Options:
    """Return a suite's options with those of the command line in their place."""
    from nbx_conformance.runs.shards import parse

    given: dict[str, Any] = {}
    for name in ("device", "via", "size"):
        value = config.getoption(f"--nbx-{name}")
        if value is not None:
            given[name] = value
    for name, many in (("plugin", "plugins"), ("op", "ops"), ("kernel", "kernels")):
        values = config.getoption(f"--nbx-{name}")
        if values:
            given[many] = tuple(values)
    if names := config.getoption("--nbx-profile"):
        from nbx_conformance.runs import profiles

        given["ops"], given["size"] = profiles.asked(names, given.get("ops", options.ops), given.get("size"))
    if files := config.getoption("--nbx-waivers"):
        given["waivers"] = tuple(str(Path(file).absolute()) for file in files)
    shard: str | None = config.getoption("--nbx-shard")
    if shard is not None:
        given["shard"] = parse(shard)
    given["keyword"] = config.getoption("keyword") or None
    # Processes that share the trials are their own; plugin objects are in this process alone.
    shared = hasattr(config, "workerinput")
    given["isolated"] = config.getoption("--nbx-isolated") and not shared and not options.extra
    return replace(options, **given)


def _nothing(found: list[Session]) -> str:
    asked = found[0].options
    named = ", ".join([*asked.plugins, *asked.ops, *asked.kernels])
    whose = f" of {named}" if named else ""
    part = "" if asked.shard is None else f" in shard {asked.shard[0]} of {asked.shard[1]}"
    return f"nothing was measured: no kernel{whose} can be tried on {found[0].route}{part}"
