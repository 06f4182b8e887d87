"""``nbx explain`` and ``nbx price``: one op on described tensors, on a device that need not be present."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from nbx_registry.cli.arguments import parse
from nbx_registry.cli.console import figure_bytes, figure_flops, figure_seconds, json_option, lines, print_json, table
from nbx_registry.cli.main import FAULT, REFUSED, registry
from nbx_registry.decision import Decision
from nbx_registry.errors import MissingFact
from nbx_registry.policy import REQUIRE
from nbx_registry.price import Price


def _request_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add what both commands take."""
    for decorate in (
        json_option,
        click.option("--device", metavar="D", help="A product (nvidia/h200-sxm) or a live device (cpu, cuda:0)."),
        click.option("--attr", "attributes", multiple=True, metavar="K=V", help="An attribute. May be repeated."),
        click.argument("arguments", nargs=-1, metavar="ARG..."),
        click.argument("op"),
    ):
        function = decorate(function)
    return function


@click.command(short_help="Say which kernel runs an op, and why not the others.")
@_request_options
@click.option("--require", type=click.Choice(REQUIRE), help="What must have been checked about a kernel.")
@click.option("--kernel", "pin", metavar="ID", help="Ask about this kernel alone.")
@click.pass_context
def explain(
    context: click.Context,
    op: str,
    arguments: tuple[str, ...],
    attributes: tuple[str, ...],
    device: str | None,
    require: str | None,
    pin: str | None,
    as_json: bool,
) -> None:
    """Say which kernel runs OP on the given tensors, and of every other one why not.

    ARG is a spec, x=float16[1,256,64,64] or by position float16[1,256,64,64], or a Python literal. Quote it: shells
    read brackets.
    """
    positional, keywords = parse(arguments, attributes)
    options = {"device": device, "require": require, "kernel": pin}
    keywords |= {name: value for name, value in options.items() if value is not None}
    decision = registry(context).decide(op, *positional, **keywords)
    if as_json:
        print_json(decision.to_dict())
    else:
        print_decision(decision)
        for fault in decision.faults:
            lines(fault.traceback, error=True)
    context.exit(FAULT if decision.faults else 0 if decision.chosen else REFUSED)


def print_decision(decision: Decision) -> None:
    """Print a decision as ``print(decision)`` does, in colour where there is any."""
    lines(str(decision), _style)


def _style(line: str) -> str:
    marks = {"->": "bold green", "+": "green", "-": "yellow", "!": "bold red", "hint:": "cyan"}
    return marks.get(line.split(" ", 1)[0] if line[:1] != " " else line.split(None, 1)[0], "")


@click.command(short_help="Say what an op costs, and its time at best.")
@_request_options
@click.pass_context
def price(
    context: click.Context,
    op: str,
    arguments: tuple[str, ...],
    attributes: tuple[str, ...],
    device: str | None,
    as_json: bool,
) -> None:
    """Say what OP costs on the given tensors: operations, bytes, the least of both, and the time they take at best.

    The floor is the time a device needs for the least bytes or operations at the rates its file states.
    """
    positional, keywords = parse(arguments, attributes)
    if device is not None:
        keywords["device"] = device
    priced = registry(context).price(op, *positional, **keywords)
    if as_json:
        print_json(_plain(priced))
        return
    place = f" on {priced.device.id}" if priced.device is not None else ""
    lines(f"{priced.signature}{place}")
    rows = [
        ("operations", priced.flops, figure_flops(priced.flops), f"{priced.cost.unit} unit, {priced.cost.dtype}"),
        ("  at least", priced.least_flops, figure_flops(priced.least_flops), ""),
        ("bytes read", priced.bytes_read, figure_bytes(priced.bytes_read), ""),
        ("bytes written", priced.bytes_written, figure_bytes(priced.bytes_written), ""),
        ("bytes moved at least", priced.least_bytes, figure_bytes(priced.least_bytes), ""),
    ]
    table(
        {"cost": "left", "exactly": "right", "about": "right", "": "left"}, [(a, f"{b:,}", c, d) for a, b, c, d in rows]
    )
    for output in priced.outputs:
        lines(f"output     {output}")
    if priced.device is None:
        lines(f"floor      {f'none, {priced.absent}' if priced.absent else 'name a device with --device'}")
        return
    chosen = priced.decision.chosen if priced.decision is not None else None
    lines(f"kernel     {chosen or 'none would run; nbx explain says why'}")
    for name, spec in priced.declared_workspace:
        lines(f"workspace  {name}: {spec}, {figure_bytes(spec.nbytes)}")
    seconds, bound, missing = _floor(priced)
    lines(f"floor      {f'unknown: {missing}' if seconds is None else f'{figure_seconds(seconds)}, bound by {bound}'}")


def _floor(priced: Price) -> tuple[float | None, str | None, str | None]:
    """Seconds and what bounds them, or the fact that is missing."""
    try:
        return *priced.floor(), None
    except MissingFact as error:
        return None, None, str(error)


def _plain(priced: Price) -> dict[str, Any]:
    seconds, bound, missing = _floor(priced)
    return {
        "request": str(priced.signature),
        "device": priced.device.id if priced.device is not None else None,
        "kernel": priced.decision.chosen if priced.decision is not None else None,
        "unit": priced.cost.unit,
        "dtype": str(priced.cost.dtype),
        "flops": priced.flops,
        "least_flops": priced.least_flops,
        "bytes_read": priced.bytes_read,
        "bytes_written": priced.bytes_written,
        "least_bytes": priced.least_bytes,
        "outputs": [str(spec) for spec in priced.outputs],
        "workspace": [{"name": n, "spec": str(s), "bytes": s.nbytes} for n, s in priced.declared_workspace],
        "floor_s": seconds,
        "bound_by": bound,
        "floor_missing": missing,
    }
