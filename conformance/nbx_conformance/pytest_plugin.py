"""The pytest plugin: options of a run, one test for a kernel and a case, a table, and the bundle at the end.

Records travel with pytest's reports, so that a run spread over processes by pytest-xdist is judged as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from nbx_conformance.options import Options
    from nbx_conformance.profiles import Judged
    from nbx_conformance.runner import Item
    from nbx_conformance.session import Session

PROPERTY = "nbx_record"
"""The name under which a report carries what its trial found."""


class Collector:
    """The runs of one pytest session, each by its test function and device, and what is wrong with them as wholes."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.runs: dict[str, Session] = {}
        self.failed: list[str] = []
        self.judged: list[Judged] = []
        self.written = ""

    @property
    def part(self) -> bool:
        """Whether this process has a part of the trials only."""
        return hasattr(self.config, "workerinput")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take in a trial's record, made here or in another process."""
        from nbx_conformance.options import Options
        from nbx_conformance.runner import Record
        from nbx_conformance.session import Session

        for name, value in report.user_properties if report.when == "call" else ():
            if name == PROPERTY:
                found: Any = value
                key = found["run"]
                if key not in self.runs:
                    self.runs[key] = Session(Options(**found["options"]))
                self.runs[key].add(Record(**found["record"]))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run that measured nothing about a kernel, and write the bundle."""
        if not self.part:
            from nbx_conformance.session import unmeasured

            for run in self.runs.values():
                for kernel in unmeasured(run.verdicts()):
                    self.failed.append(f"nothing was measured about {kernel}: it refused every case on {run.route}")
            self._judge(self.config.getoption("--nbx-profile") or ())
            out = self.config.getoption("--nbx-out")
            if out is not None:
                self.failed += self._write(Path(out))
            if self.failed and session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
        for run in self.runs.values():
            run.close()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print a table for each run, and what failed beside its tests."""
        from nbx_conformance.report import table

        for run in self.runs.values():
            if run.records:
                terminalreporter.section(f"conformance on {run.route}", sep="-")
                for line in table(run):
                    terminalreporter.write_line(line)
        for judged in self.judged:
            for line in judged.lines() if judged.satisfied else ():
                terminalreporter.write_line(line, green=True)
        if self.written:
            terminalreporter.write_line(self.written)
        for problem in self.failed:
            terminalreporter.write_line(problem, red=True)

    def _judge(self, names: Iterable[str]) -> None:
        """Judge the profiles that were asked for, by each run that tried anything."""
        for name in names:
            from nbx_conformance import profiles

            for run in self.runs.values():
                if run.records:
                    judged = profiles.of_run(run, name)
                    self.judged.append(judged)
                    self.failed += judged.lines() if not judged.satisfied else ()

    def _write(self, out: Path) -> list[str]:
        from nbx_conformance.bundle import write
        from nbx_registry.errors import NbxError

        if len(self.runs) != 1:
            return [f"{out} is not written: a bundle holds one run, and there are {len(self.runs)}; name one device"]
        try:
            (run,) = self.runs.values()
            written, left_out = write(run, out)
        except NbxError as error:
            return [f"{out} is not written: {error}"]
        names = ", ".join(sorted(written.records))
        self.written = f"{out}: {out.stat().st_size} bytes, digest {written.digest[:16]}: {names}"
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
    group.addoption("--nbx-out", metavar="FILE", help="write what was found into this bundle")


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
    from nbx_conformance.session import sessions
    from nbx_registry.errors import NbxError

    try:
        found = sessions(_overridden(options, metafunc.config))
        trials = [(session, item) for session in found for item in session.items]
    except NbxError as error:
        metafunc.parametrize("nbx_trial", [_failing(str(error))], ids=["nothing-measured"])
        return
    if not trials:
        metafunc.parametrize("nbx_trial", [_failing(_nothing(found))], ids=["nothing-measured"])
        return
    keys = {id(session): f"{metafunc.definition.nodeid}@{session.options.device}" for session in found}
    metafunc.config.stash[_COLLECTOR].runs.update((keys[id(session)], session) for session in found)
    prefix = len(found) > 1
    metafunc.parametrize(
        "nbx_trial",
        [_trial(keys[id(session)], session, item) for session, item in trials],
        ids=[f"{session.options.device}/{item.id}" if prefix else item.id for session, item in trials],
    )


def _overridden(options: Options, config: pytest.Config) -> Options:
    """Return a suite's options with those of the command line in their place."""
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
        from nbx_conformance import profiles

        given["ops"], given["size"] = profiles.asked(names, given.get("ops", options.ops), given.get("size"))
    return replace(options, **given)


def _trial(key: str, session: Session, item: Item) -> Callable[[pytest.FixtureRequest], None]:
    def run(request: pytest.FixtureRequest) -> None:
        from nbx_conformance.report import failure

        record = session.run(item)
        options = {name: value for name, value in vars(session.options).items() if name != "extra"}
        found = {"run": key, "options": options, "record": asdict(record)}
        request.node.user_properties.append((PROPERTY, found))
        if record.verdict in ("fail", "error"):
            pytest.fail(failure(session, item, record), pytrace=False)

    return run


def _failing(reason: str) -> Callable[[pytest.FixtureRequest], None]:
    def run(request: pytest.FixtureRequest) -> None:
        del request
        pytest.fail(reason, pytrace=False)

    return run


def _nothing(found: list[Session]) -> str:
    asked = found[0].options
    named = ", ".join([*asked.plugins, *asked.ops, *asked.kernels]) or "all plugins"
    return f"nothing was measured: {named} have no kernel that can be tried on {found[0].route}"
