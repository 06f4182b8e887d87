"""``nbx tune``: launch settings for the keys of a request or a plan, found on a device that is here."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nbx_registry.cli.arguments import parse
from nbx_registry.cli.console import figure_seconds, json_option, lines, print_json, stop
from nbx_registry.cli.main import FAULT, USAGE, registry

if TYPE_CHECKING:
    from nbx_registry.tuning import Failure, Outcome, Tuned

_SHOWN = 5
"""Candidates that a key names, of those that are excluded and not by a rule."""

MAX_PROCESSES = 4096


def _processes(_context: click.Context, _param: click.Parameter, value: str | None) -> int | str | None:
    if value is None or value == "auto":
        return value
    if not value.isdecimal() or not 1 <= int(value) <= MAX_PROCESSES:
        raise click.BadParameter(f"{value!r} is no number of devices: write one from 1 on, or auto for all there are")
    return int(value)


@click.command(short_help="Find launch settings for an op or a plan, on a device that is here.")
@click.argument("op", required=False)
@click.argument("arguments", nargs=-1, metavar="ARG...")
@click.option("--attr", "attributes", multiple=True, metavar="K=V", help="An attribute. May be repeated.")
@click.option("--plan", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Every key of this plan.")
@click.option("--device", metavar="D[,D...]", help="Live devices (cpu, cuda:0), or a product. Several share the keys.")
@click.option(
    "-n", "count", callback=_processes, metavar="N", help="So many devices of that product, or auto: all here."
)
@click.option("--kernel", "pin", metavar="ID", help="Tune this kernel alone.")
@click.option("--out", type=click.Path(path_type=Path), help="A folder, or a .json file; by default your own settings.")
@json_option
@click.pass_context
def tune(
    context: click.Context,
    op: str | None,
    arguments: tuple[str, ...],
    attributes: tuple[str, ...],
    plan: Path | None,
    device: str | None,
    count: int | str | None,
    pin: str | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Find launch settings for OP on the given tensors, or for every key of a plan, and write them down.

    Each candidate of a kernel's space is checked against the oracle before it is timed. The fastest is written with its
    proof if it beats the default once more; else the default is. ARG is as nbx explain takes it.

    Exit codes: 0 done, 3 nothing may run it, 2 the question is wrong, 1 a key could not be tuned.
    """
    from nbx_registry.plan import Plan
    from nbx_registry.tuning import tune as run
    from nbx_registry.tuning.session import alike

    if (op is None) == (plan is None):
        stop("name an OP with its ARGs, or a plan with --plan FILE", USAGE)
    if plan is not None and (attributes or pin is not None):
        stop("a plan holds its requests and pins: --attr and --kernel go with an OP", USAGE)
    reg = registry(context)
    positional, keywords = parse(arguments, attributes)
    request: str | Plan = Plan.load(plan) if plan is not None else str(op)
    devices = None if device is None else [name.strip() for name in device.split(",")]
    if count is not None:
        named = devices or (request.devices if isinstance(request, Plan) else ["cpu"])
        devices = alike(reg, named, count if isinstance(count, int) else None)
    watch = None if as_json else _show
    found = run(reg, request, positional, keywords, devices=devices, kernel=pin, out=out, apart=True, watch=watch)
    if as_json:
        print_json(_plain(found))
    else:
        _sum_up(found)
    context.exit(FAULT if found.failed else 0)


def _show(found: Tuned | Failure) -> None:
    from nbx_registry.tuning import Failure
    from nbx_registry.tuning.jobs import shown

    lines(f"{found.kernel}  {shown(found.key)}")
    if isinstance(found, Failure):
        lines(f"  {found.code}: {found.message}", lambda _: "red")
        return
    times = found.times
    kept = "the default stays" if dict(found.settings) == dict(found.default) else f"{found.gain:.2f} times as fast"
    lines(
        f"  {shown(found.settings)}: {figure_seconds(times['tuned_s'])}, default {figure_seconds(times['default_s'])}; "
        f"{kept}"
    )
    rules = sum(one.by_rule for one in found.excluded)
    lines(f"  {found.timed} timed, {found.dropped} of them dropped early; {rules} excluded by rules")
    others = [one for one in found.excluded if not one.by_rule]
    for one in others[:_SHOWN]:
        lines(f"  excluded {shown(one.settings)}: {one.rule}: {one.reason}", lambda _: "yellow")
    if len(others) > _SHOWN:
        lines(f"  and {len(others) - _SHOWN} more, which the file names")


def _sum_up(found: Outcome) -> None:
    for text in found.left:
        lines(text)
    if found.tuned:
        lines(f"written to {', '.join(map(str, found.files))}")
    elif not found.failed:
        lines("nothing to tune")


def _plain(found: Outcome) -> dict[str, Any]:
    return {
        "tuned": [{"device": one.device, **one.entry()} for one in found.tuned],
        "failed": [asdict(one) for one in found.failed],
        "left": list(found.left),
        "files": list(map(str, found.files)),
    }
