"""``nbx doctor``: what is wrong or missing here, and the way out of each."""

from __future__ import annotations

import click

from nbx_registry.cli.console import json_option


@click.command()
@click.option("--measure-host", is_flag=True, help="Measure the host's memory bandwidth into the user's device file.")
@json_option
@click.pass_context
def doctor(context: click.Context, measure_host: bool, as_json: bool) -> None:
    """Look for quarantined plugins, missing toolkits and runtimes, stale evidence, bad files and settings.

    Exits 1 where something is broken; what is only absent is told and exits 0.
    """
