"""The pytest plugin: options of a run, one test for a kernel and a case, a table, and the bundle at the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from nbx_conformance.options import Options
    from nbx_conformance.runner import Item
    from nbx_conformance.session import Session

_SESSIONS = pytest.StashKey["dict[int, list[Session]]"]()
_FAILED = pytest.StashKey["list[str]"]()
_WRITTEN = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of a run."""
    group = parser.getgroup("nbx conformance")
    group.addoption("--nbx-device", metavar="DEVICE", help="a live handle (cpu, cuda:0) or a product (nvidia/b200)")
    group.addoption("--nbx-via", metavar="ROUTE", help="auto, device, interpreter, build, or an emulator by its name")
    group.addoption("--nbx-size", metavar="SIZE", help="smoke or full")
    group.addoption("--nbx-plugin", metavar="NAME", action="append", help="only kernels of this plugin (repeatable)")
    group.addoption("--nbx-op", metavar="OP", action="append", help="only kernels of this op (repeatable)")
    group.addoption("--nbx-kernel", metavar="ID", action="append", help="only this kernel (repeatable)")
    group.addoption("--nbx-out", metavar="FILE", help="write what was found into this bundle")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give a suite's function one parameter for each trial."""
    from nbx_conformance.pytest_suite import MARK

    options: Options | None = getattr(metafunc.function, MARK, None)
    if options is None:
        return
    from nbx_conformance.session import sessions
    from nbx_registry.errors import NbxError

    config = metafunc.config
    known = config.stash.setdefault(_SESSIONS, {})
    try:
        found = known.setdefault(id(metafunc.function), sessions(_overridden(options, config)))
        trials = [(session, item) for session in found for item in session.items]
    except NbxError as error:
        known.pop(id(metafunc.function), None)
        metafunc.parametrize("nbx_trial", [_failing(str(error))], ids=["nothing-measured"])
        return
    if not trials:
        metafunc.parametrize("nbx_trial", [_failing(_nothing(found))], ids=["nothing-measured"])
        return
    prefix = len(found) > 1
    metafunc.parametrize(
        "nbx_trial",
        [_trial(session, item) for session, item in trials],
        ids=[f"{session.options.device}/{item.id}" if prefix else item.id for session, item in trials],
    )


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run that measured nothing about a kernel, and write the bundle."""
    config = session.config
    failed = config.stash.setdefault(_FAILED, [])
    if hasattr(config, "workerinput"):
        # A part of a run under pytest-xdist knows only its own trials.
        return
    from nbx_conformance.session import unmeasured

    found = _sessions(config)
    for run in found:
        for kernel in unmeasured(run.verdicts()):
            failed.append(f"nothing was measured about {kernel}: it refused every case on {run.route}")
    out = config.getoption("--nbx-out")
    if out is not None:
        failed += _write(config, found, Path(out))
    for run in found:
        run.close()
    if failed and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print a table for each session, and what failed beside its tests."""
    from nbx_conformance.report import table

    for run in _sessions(config):
        if run.records:
            terminalreporter.section(f"conformance on {run.route}", sep="-")
            for line in table(run):
                terminalreporter.write_line(line)
    if _WRITTEN in config.stash:
        terminalreporter.write_line(config.stash[_WRITTEN])
    for problem in config.stash.setdefault(_FAILED, []):
        terminalreporter.write_line(problem, red=True)


def _sessions(config: pytest.Config) -> list[Session]:
    return [session for found in config.stash.setdefault(_SESSIONS, {}).values() for session in found]


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
    return replace(options, **given)


def _trial(session: Session, item: Item) -> Callable[[pytest.FixtureRequest], None]:
    def run(request: pytest.FixtureRequest) -> None:
        from nbx_conformance.report import failure

        record = session.run(item)
        request.node.user_properties.append(("nbx_verdict", record.verdict))
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


def _write(config: pytest.Config, found: list[Session], out: Path) -> list[str]:
    from nbx_conformance.bundle import write
    from nbx_registry.errors import NbxError

    if len(found) != 1:
        return [f"{out} is not written: a bundle holds one run, and there are {len(found)}; name one device"]
    try:
        written, left_out = write(found[0], out)
        names = ", ".join(sorted(written.records))
        config.stash[_WRITTEN] = f"{out}: {out.stat().st_size} bytes, digest {written.digest[:16]}: {names}"
    except NbxError as error:
        return [f"{out} is not written: {error}"]
    return [f"not in {out}: {problem}" for problem in left_out]
