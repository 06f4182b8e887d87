"""``nbx conformance run``."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Generator
from contextlib import contextmanager, nullcontext, redirect_stdout
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

import nbx_registry as nbx
from nbx_conformance.cases import SIZES
from nbx_conformance.cli.codes import INTERRUPTED, NOT_PASSED, PASSED, USAGE
from nbx_conformance.cli.files import Output

if TYPE_CHECKING:
    from nbx_conformance.runs.session import Session

_CODES = {0: PASSED, 1: NOT_PASSED, 2: INTERRUPTED, 4: USAGE, 5: NOT_PASSED}
"""Exit codes of pytest, as ours: passed, failed, interrupted, wrong usage, nothing collected."""

_THREADS = ("NBX_HOST_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""What says how many cores one process may take."""

MAX_PROCESSES = 4096

_RESTARTS = 1000
"""How many processes may end before a run with ``-n`` is given up."""


def _processes(_context: click.Context, _param: click.Parameter, value: str | None) -> int | None:
    """Return the number of processes; ``auto`` is one a core."""
    if value is None or value == "auto":
        return _cores() if value else None
    if not value.isdecimal() or not 1 <= int(value) <= MAX_PROCESSES:
        raise click.BadParameter(f"{value!r} is no number of processes: write one from 1 on, or auto for one a core")
    return int(value)


@click.command()
@click.option(
    "--device",
    default="cpu",
    show_default=True,
    help="A product (nvidia/b200), a live handle (cuda:0), a runtime (cuda).",
)
@click.option("--plugin", multiple=True, help="Only kernels of this plugin; may be repeated.")
@click.option("--op", multiple=True, help="Only kernels of this op; may be repeated.")
@click.option("--kernel", multiple=True, help="Only this kernel; may be repeated.")
@click.option("--profile", multiple=True, help="The ops of this profile, whose cases must pass; may be repeated.")
@click.option("--size", type=click.Choice(SIZES), help="Which cases; by default a profile's, or smoke.")
@click.option("--via", default="auto", show_default=True, help="auto, device, interpreter, build, or an emulator.")
@click.option(
    "--waivers",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Failures that are known, in this file; may be repeated.",
)
@click.option("--out", type=Output(), help="Write what was found into this bundle.")
@click.option(
    "--sign",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Sign the bundle with the private key of this file.",
)
@click.option("--resume", is_flag=True, help="Go on from where a run with the same --out was broken off.")
@click.option(
    "-n",
    "processes",
    callback=_processes,
    metavar="N",
    help="Share the run among so many processes, or auto: one a core.",
)
@click.option("--shard", metavar="PART/PARTS", help="Only this part of the cases, as 2/3; see nbx conformance merge.")
@click.option("-k", "keyword", help="Only trials whose id matches, as pytest's -k.")
@click.option("--verbose", "-v", is_flag=True, help="A line for each trial.")
@click.option("--json", "as_json", is_flag=True, help="Plain data on standard output, for programs.")
@click.pass_context
def run(
    context: click.Context,
    device: str,
    plugin: tuple[str, ...],
    op: tuple[str, ...],
    kernel: tuple[str, ...],
    profile: tuple[str, ...],
    size: str | None,
    via: str,
    waivers: tuple[Path, ...],
    out: Path | None,
    sign: Path | None,
    resume: bool,
    processes: int | None,
    shard: str | None,
    keyword: str | None,
    verbose: bool,
    as_json: bool,
) -> None:
    """Try every kernel on every case, as far as the device can be reached from here.

    With -n the processes are dealt out over the live devices of the product. Interrupted or killed, a run with --out
    leaves FILE.partial behind, from which --resume goes on.

    Exit codes: 0 all passed, 3 something failed or nothing was measured, 2 wrong usage, 130 interrupted.
    """
    import pytest

    from nbx_conformance.bundles import signing
    from nbx_conformance.bundles.journal import beside
    from nbx_conformance.progress import Progress
    from nbx_conformance.runs import profiles, shards
    from nbx_conformance.runs.options import Options
    from nbx_conformance.runs.session import Session
    from nbx_registry.errors import FileError, UnknownName

    if resume and out is None:
        raise click.UsageError("--resume needs --out FILE, whose FILE.partial it goes on from")
    if sign is not None and out is None:
        raise click.UsageError("--sign needs --out FILE, which it signs")
    if not device:
        raise click.UsageError("--device names none; write a product, a live handle or a runtime")
    try:
        part = None if shard is None else shards.parse(shard)
        key = None if sign is None else signing.read_key(sign)
        op, size = profiles.asked(profile, op, size)
    except nbx.NbxError as error:
        raise click.UsageError(str(error)) from None
    options = Options(
        device=device,
        via=via,
        size=size,
        plugins=plugin,
        ops=op,
        kernels=kernel,
        keyword=keyword or None,
        shard=part,
        waivers=tuple(str(file.absolute()) for file in waivers),
    )
    # What is wrong with the request is told before pytest starts.
    session = Session(options)
    try:
        if processes is not None:
            # More would have nothing to do.
            processes = min(processes, max(1, len(session.items)))
        _say_what(session, processes or 1, err=as_json)
    except nbx.NbxError as error:
        click.echo(f"error: {error}", err=True)
        context.exit(USAGE if isinstance(error, UnknownName) else NOT_PASSED)
    try:
        _ = session.waivers
        if out is not None:
            _say_whence(session, beside(out), resume=resume, err=as_json)
    except FileError as error:
        click.echo(f"error: {error}", err=True)
        context.exit(USAGE)
    finally:
        # Asked for versions it may have started a process of its own; pytest's sessions start theirs.
        session.close()
    arguments = ["-p", "nbx_conformance.pytest_plugin"]
    arguments += [f"--nbx-device={device}", f"--nbx-via={via}", f"--nbx-size={size}"]
    for option, names in (("plugin", plugin), ("op", op), ("kernel", kernel), ("profile", profile)):
        arguments += (f"--nbx-{option}={name}" for name in names)
    arguments += (f"--nbx-waivers={file.absolute()}" for file in waivers)
    if shard is not None:
        arguments.append(f"--nbx-shard={shard}")
    if out is not None:
        arguments.append(f"--nbx-out={out.absolute()}")
    if resume:
        arguments.append("--nbx-resume")
    if keyword is not None:
        arguments += ["-k", keyword]
    if processes is None:
        arguments.append("--nbx-isolated")
    else:
        # Stretches of neighbours: kernels that meet one case share its oracle.
        arguments += [
            "-p",
            "xdist.plugin",
            "-p",
            "no:terminaldistreporter",
            "-n",
            str(processes),
            "--dist=worksteal",
            f"--max-worker-restart={_RESTARTS}",
        ]
    arguments.append("-v" if verbose else "-q")
    heard = _Heard()
    plugins = [heard] if verbose else [heard, Progress()]
    package = resources.files("nbx_conformance")
    with (
        resources.as_file(package / "whole_suite.py") as file,
        resources.as_file(package / "pytest.ini") as settings,
        redirect_stdout(sys.stderr) if as_json else nullcontext(),
        _environment(processes or 1),
    ):
        code = pytest.main([str(file), "-c", str(settings), "--rootdir", str(file.parent), *arguments], plugins)
    if key is not None and heard.found["bundle"] is not None:
        signing.sign_file(Path(heard.found["bundle"]), key)
        click.echo(f"{out}: signed; the public key is {key.public}", err=as_json)
    if as_json:
        click.echo(json.dumps({"exit_code": _CODES.get(int(code), 1), **heard.found}, indent=1))
    if code == pytest.ExitCode.NO_TESTS_COLLECTED:
        click.echo("nothing was measured: no trial matches", err=True)
    if out is not None and beside(out).exists():
        click.echo(f"to go on from {beside(out)}: {_again(context)}", err=True)
    context.exit(_CODES.get(int(code), 1))


class _Heard:
    """Keeps what the suite's own pytest plugin collected, past pytest's end."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {"runs": [], "problems": [], "profiles": [], "bundle": None}

    def pytest_unconfigure(self, config: Any) -> None:
        """Take it before pytest lets go of it."""
        from nbx_conformance.report import summary

        collector = config.pluginmanager.get_plugin("nbx-conformance-collector")
        if collector is not None:
            runs = [summary(run) for run in collector.runs.values() if run.records]
            bundle = config.getoption("--nbx-out") if collector.written else None
            judged = [one.to_dict() for one in collector.judged]
            self.found = {"runs": runs, "problems": list(collector.failed), "profiles": judged, "bundle": bundle}


def _say_what(session: Session, processes: int, *, err: bool) -> None:
    options, route = session.options, session.route
    kernels = {item.kernel.id for item in session.items}
    what = f"{_count(len(kernels), 'kernel')}, {_count(len(session.items), f'{options.size} trial')}"
    if options.shard is not None:
        what += f" of {len(session.whole)}, shard {options.shard[0]} of {options.shard[1]}"
    click.echo(f"{route}: {what}", err=err)
    if route.why:
        click.echo(f"  not more, because {route.why}", err=err)
    if len(route.handles) > 1:
        used = route.handles[:processes]
        more = "" if len(used) == len(route.handles) else f"; -n {len(route.handles)} shares the run among all of them"
        click.echo(f"  on {len(used)} of {len(route.handles)} devices: {', '.join(used)}{more}", err=err)


def _say_whence(session: Session, journal: Path, *, resume: bool, err: bool) -> None:
    """Say what is kept of an earlier run. Raises `FileError` where it was another."""
    from nbx_conformance.bundles.journal import keep

    if not journal.exists():
        if resume:
            click.echo(f"  from the beginning: there is no {journal}", err=err)
        return
    if not resume:
        click.echo(
            f"  {journal}, of a run that was broken off, is replaced; --resume would have gone on from it", err=err
        )
        return
    kept = keep(journal, session)
    click.echo(
        f"  going on from {journal}: {len(kept.records)} of {_count(len(session.items), 'trial')} are kept", err=err
    )
    if kept.changed:
        click.echo(f"  changed since, so tried again: {', '.join(kept.changed)}", err=err)


def _again(context: click.Context) -> str:
    """Return the command that resumes this one."""
    words = ["nbx", "conformance", "run"]
    for param in context.command.params:
        value: Any = context.params.get(param.name or "")
        name = param.opts[0]
        if isinstance(value, bool):
            words += [name] if value and name != "--resume" else []
        elif isinstance(value, tuple):
            words += [word for item in cast("tuple[str, ...]", value) for word in (name, item)]
        elif value is not None and value != param.default:
            words += [name, str(value)]
    return shlex.join([*words, "--resume"])


@contextmanager
def _environment(processes: int) -> Generator[None, None, None]:
    """Keep pytest, in every process, to the plugins it is given, and each process to its share of the cores."""
    wanted = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    if processes > 1:
        wanted |= {name: str(max(1, _cores() // processes)) for name in _THREADS}
    made = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(made)
    try:
        yield
    finally:
        for name in made:
            del os.environ[name]


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number != 1 else ''}"
