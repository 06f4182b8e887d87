"""The group ``nbx``: its commands, and how errors leave it."""

from __future__ import annotations

import importlib
import importlib.util
import traceback
import warnings
from typing import Any

import click

import nbx_registry as nbx
from nbx_registry.cli.console import lines, print_json, stop, wants_json
from nbx_registry.errors import (
    EnvironmentVariableError,
    NbxError,
    PluginFault,
    Refused,
    SignatureError,
    SpecError,
    UnknownName,
)

REFUSED = 3
USAGE = 2
FAULT = 1
"""Exit code of what is neither an answer nor a wrong question: a plugin's fault, a malformed or missing file."""
INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""

_COMMANDS = {
    "ops": "listings",
    "devices": "listings",
    "kernels": "listings",
    "plugins": "listings",
    "doctor": "doctor",
    "explain": "requests",
    "price": "requests",
    "tune": "tune",
    "demo": "demo",
    "new-plugin": "new_plugin",
}
_USAGE_ERRORS = (SignatureError, UnknownName, SpecError, EnvironmentVariableError)


class Commands(click.Group):
    """The group, importing a command's module when the command is asked for, and turning errors into exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of all commands, in the order the help shows them."""
        return [*_COMMANDS, "conformance"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        """Import and return a command; None for an unknown name."""
        if cmd_name == "conformance":
            return conformance
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"nbx_registry.cli.{_COMMANDS[cmd_name]}")
        return getattr(module, cmd_name.replace("-", "_"))

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; an `NbxError` becomes a message and an exit code, never a traceback of ours."""
        warnings.formatwarning = _one_line
        try:
            return super().invoke(ctx)
        except Refused as error:
            report(ctx, error)
            ctx.exit(REFUSED)
        except NbxError as error:
            report(ctx, error)
            ctx.exit(USAGE if isinstance(error, _USAGE_ERRORS) else FAULT)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED)


def _one_line(message: Warning | str, *where: Any) -> str:  # noqa: ARG001 - the standard library's form
    """Return a warning as a person reads it: without the line of code that gave it."""
    return f"warning: {message}\n"


def report(context: click.Context, error: NbxError) -> None:
    """Print an error: its message, and the traceback only where the bug is a plugin's."""
    trace = ""
    if isinstance(error, PluginFault) and error.__cause__ is not None:
        trace = "".join(traceback.format_exception(error.__cause__))
    if wants_json(context):
        decision = error.decision.to_dict() if isinstance(error, Refused) else None
        print_json({"error": {"code": error.code, "message": str(error), "traceback": trace, "decision": decision}})
        return
    lines(f"error: {error}", lambda _: "red", error=True)
    if trace:
        lines(trace, error=True)


@click.command(
    "conformance",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    short_help="Check kernels, and show what has been checked.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def conformance(context: click.Context, arguments: tuple[str, ...]) -> None:
    """Hand the rest of the line to the suite, which is a distribution of its own, imported only now."""
    if importlib.util.find_spec("nbx_conformance") is None:
        stop("the conformance suite is not installed; install it with: pip install 'nbx-registry[conformance]'", FAULT)
    group: click.Group = importlib.import_module("nbx_conformance.cli").conformance
    with group.make_context("conformance", list(arguments), parent=context.parent) as inner:
        group.invoke(inner)


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--block", multiple=True, metavar="NAME", help="Leave a plugin or kernel out, by name. May be repeated.")
@click.version_option(package_name="nbx-registry")
@click.pass_context
def main(context: click.Context, block: tuple[str, ...]) -> None:
    """Ask a kernel registry: which kernel runs, at what cost, and if none, exactly why not.

    Exit codes: 0 accepted, 3 refused, 2 the question is wrong, 1 something is broken or missing here.
    """
    context.obj = block


def registry(context: click.Context) -> nbx.Registry:
    """Load the registry that a command asks, without what ``--block`` names."""
    block: tuple[str, ...] = context.find_root().obj
    return nbx.load(block=block)
