"""``nbx explain`` and ``nbx price``: one op on described tensors, on a device that need not be present."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from nbx_registry.cli.arguments import parse
from nbx_registry.cli.console import figure_bytes, figure_flops, figure_seconds, json_option, lines, print_json, table
from nbx_registry.cli.main import FAULT, REFUSED, registry
from nbx_registry.decision import REQUIRE, Decision


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


@click.command()
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


@click.command()
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
    cost = registry(context).price(op, *positional, **keywords)
    if as_json:
        print_json(cost.to_dict())
        return
    rows = [
        ("operations", figure_flops(cost.flops), f"{cost.flops:,}", f"on the {cost.unit} unit"),
        ("  at least", figure_flops(cost.least_flops), f"{cost.least_flops:,}", ""),
        ("bytes read", figure_bytes(cost.bytes_read), f"{cost.bytes_read:,}", ""),
        ("bytes written", figure_bytes(cost.bytes_written), f"{cost.bytes_written:,}", ""),
        ("  moved at least", figure_bytes(cost.least_bytes), f"{cost.least_bytes:,}", ""),
    ]
    lines(f"{cost.request} on {cost.device}")
    table({"": "left", "about": "right", "exactly": "right", " ": "left"}, rows)
    for output in cost.outputs:
        lines(f"output: {output}")
    for slot in cost.workspace:
        lines(f"workspace: {slot}")
    if cost.floor_s is None:
        lines(f"floor: unknown: {cost.floor_missing}")
    else:
        lines(f"floor: {figure_seconds(cost.floor_s)}, bound by {cost.bound_by}")
