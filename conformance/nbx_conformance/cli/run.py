"""``nbx conformance run``."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext, redirect_stdout
from importlib import resources
from pathlib import Path
from typing import Any

import click

import nbx_registry as nbx
from nbx_conformance.cases import SIZES
from nbx_conformance.cli.codes import INTERRUPTED, NOT_PASSED, PASSED, USAGE

_CODES = {0: PASSED, 1: NOT_PASSED, 2: INTERRUPTED, 4: USAGE, 5: NOT_PASSED}
"""Exit codes of pytest, as ours: passed, failed, interrupted, wrong usage, nothing collected."""


@click.command()
@click.option("--device", default="cpu", show_default=True, help="A live handle (cuda:0) or a product (nvidia/b200).")
@click.option("--plugin", multiple=True, help="Only kernels of this plugin; may be repeated.")
@click.option("--op", multiple=True, help="Only kernels of this op; may be repeated.")
@click.option("--kernel", multiple=True, help="Only this kernel; may be repeated.")
@click.option("--profile", multiple=True, help="The ops of this profile, whose cases must pass; may be repeated.")
@click.option("--size", type=click.Choice(SIZES), help="Which cases; a profile's, or smoke.")
@click.option("--via", default="auto", show_default=True, help="auto, device, interpreter, build, or an emulator.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write what was found into this bundle.")
@click.option("--sign", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Sign it with this key.")
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
    out: Path | None,
    sign: Path | None,
    keyword: str | None,
    verbose: bool,
    as_json: bool,
) -> None:
    """Try every kernel on every case, as far as the device can be reached from here.

    Exit codes: 0 all passed, 3 something failed or nothing was measured, 2 wrong usage.
    """
    import pytest

    from nbx_conformance import profiles, signing
    from nbx_conformance.options import Options
    from nbx_conformance.session import Session
    from nbx_registry.errors import UnknownName

    if sign is not None and out is None:
        raise click.UsageError("--sign signs the bundle that --out writes; give both")
    try:
        # Unknown names, and keys that cannot sign, are told before pytest starts.
        key = signing.read_key(sign) if sign is not None else None
        op, size = profiles.asked(profile, op, size)
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
    for option, names in (("plugin", plugin), ("op", op), ("kernel", kernel), ("profile", profile)):
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
    if key is not None and out is not None and heard.found["bundle"]:
        signing.sign_file(out, key)
        click.echo(f"{out}: signed; the public key is {key.public}", err=as_json)
    if as_json:
        click.echo(json.dumps({"exit_code": _CODES.get(int(code), 1), **heard.found}, indent=1))
    if code == pytest.ExitCode.NO_TESTS_COLLECTED:
        click.echo("nothing was measured: no trial matches", err=True)
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


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number != 1 else ''}"
