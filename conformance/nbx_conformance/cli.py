"""The command group ``nbx conformance``. The only module here that imports click."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext, redirect_stdout
from importlib import resources
from pathlib import Path
from typing import Any

import click

import nbx_registry as nbx
from nbx_conformance import runner
from nbx_conformance.cases import SIZES

NOT_PASSED = 3
USAGE = 2

_CODES = {0: 0, 1: NOT_PASSED, 2: 130, 4: USAGE, 5: NOT_PASSED}
"""Exit codes of pytest, as ours: passed, failed, interrupted, wrong usage, nothing collected."""


@click.group()
def conformance() -> None:
    """Check kernels against their contracts, and verify what others found."""


@conformance.command()
@click.option("--device", default="cpu", show_default=True, help="A live handle (cuda:0) or a product (nvidia/b200).")
@click.option("--plugin", multiple=True, help="Only kernels of this plugin; may be repeated.")
@click.option("--op", multiple=True, help="Only kernels of this op; may be repeated.")
@click.option("--kernel", multiple=True, help="Only this kernel; may be repeated.")
@click.option("--size", type=click.Choice(SIZES), default="smoke", show_default=True, help="Which cases.")
@click.option("--via", default="auto", show_default=True, help="auto, device, interpreter, build, or an emulator.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write what was found into this bundle.")
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
    size: str,
    via: str,
    out: Path | None,
    keyword: str | None,
    verbose: bool,
    as_json: bool,
) -> None:
    """Try every kernel on every case, as far as the device can be reached from here.

    Exit codes: 0 all passed, 3 something failed or nothing was measured, 2 wrong usage.
    """
    import pytest

    from nbx_conformance.options import Options
    from nbx_conformance.session import Session
    from nbx_registry.errors import UnknownName

    try:
        # Unknown names are told before pytest starts.
        session = Session(Options(device=device, via=via, size=size, plugins=plugin, ops=op, kernels=kernel))
        kernels = {item.kernel.id for item in session.items}
        what = f"{_count(len(kernels), 'kernel')}, {_count(len(session.items), f'{size} trial')}"
        click.echo(f"{session.route}: {what}", err=as_json)
        if session.route.why:
            click.echo(f"  not more, because {session.route.why}", err=as_json)
    except UnknownName as error:
        click.echo(f"error: {error}", err=True)
        context.exit(USAGE)
    except nbx.NbxError as error:
        click.echo(f"error: {error}", err=True)
        context.exit(NOT_PASSED)
    arguments = [f"--nbx-device={device}", f"--nbx-via={via}", f"--nbx-size={size}"]
    for option, names in (("plugin", plugin), ("op", op), ("kernel", kernel)):
        arguments += (f"--nbx-{option}={name}" for name in names)
    if out is not None:
        arguments.append(f"--nbx-out={out.absolute()}")
    if keyword is not None:
        arguments += ["-k", keyword]
    arguments.append("-v" if verbose else "-q")
    package = resources.files("nbx_conformance")
    with resources.as_file(package / "whole_suite.py") as file, resources.as_file(package / "pytest.ini") as settings:
        heard = _Heard()
        with redirect_stdout(sys.stderr) if as_json else nullcontext():
            code = pytest.main([str(file), "-c", str(settings), "--rootdir", str(file.parent), *arguments], [heard])
    if as_json:
        click.echo(json.dumps({"exit_code": _CODES.get(int(code), 1), **heard.found}, indent=1))
    if code == pytest.ExitCode.NO_TESTS_COLLECTED:
        click.echo("nothing was measured: no trial matches", err=True)
    context.exit(_CODES.get(int(code), 1))


class _Heard:
    """Keeps what the suite's own pytest plugin collected, past pytest's end."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {"runs": [], "problems": [], "bundle": None}

    def pytest_unconfigure(self, config: Any) -> None:
        """Take it before pytest lets go of it."""
        from nbx_conformance.report import summary

        collector = config.pluginmanager.get_plugin("nbx-conformance-collector")
        if collector is not None:
            runs = [summary(run) for run in collector.runs.values() if run.records]
            bundle = config.getoption("--nbx-out") if collector.written else None
            self.found = {"runs": runs, "problems": list(collector.failed), "bundle": bundle}


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number != 1 else ''}"


@conformance.command()
@click.argument("bundle", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Plain data, for programs.")
@click.pass_context
def verify(context: click.Context, bundle: tuple[Path, ...], as_json: bool) -> None:
    """Check that bundles are whole, consistent, and about what is installed here.

    Exit codes: 0 all verify, 3 one does not, 2 wrong usage.
    """
    from nbx_conformance.verify import verify as check

    registry = nbx.load()
    cases = runner.case_table(registry)
    found = [check(path, registry, cases) for path in bundle]
    if as_json:
        click.echo(json.dumps([result.to_dict() for result in found], indent=1))
    else:
        for result in found:
            click.echo(f"{result.path}: {'verified (self-reported, unsigned)' if not result.code else 'NOT verified'}")
            for label, lines in (("", result.problems), ("stale: ", result.stale), ("note: ", result.notes)):
                for line in lines:
                    click.echo(f"  {label}{line}")
    context.exit(max(result.code for result in found))


@conformance.command()
@click.option("--json", "as_json", is_flag=True, help="Plain data, for programs.")
@click.pass_context
def lint(context: click.Context, as_json: bool) -> None:
    """Check the cases of every op against its contract.

    Exit codes: 0 nothing found, 3 something is wrong.
    """
    from nbx_conformance.lint import lint as check

    registry = nbx.load()
    table = runner.case_table(registry)
    problems = check(table, registry.ops.values())
    count = sum(len(table.of(op)) for op in table.ops)
    if as_json:
        click.echo(json.dumps({"cases": count, "ops": len(table.ops), "problems": list(problems)}, indent=1))
    else:
        for problem in problems:
            click.echo(problem)
        click.echo(f"{count} cases of {len(table.ops)} ops, {len(problems)} problems")
    context.exit(NOT_PASSED if problems else 0)
