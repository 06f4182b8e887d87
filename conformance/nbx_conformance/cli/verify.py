"""``nbx conformance verify``."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

import click

import nbx_registry as nbx
from nbx_conformance.cli.codes import NOT_PASSED, PASSED, USAGE
from nbx_conformance.cli.files import line
from nbx_conformance.runs import profiles, runner


@click.command()
@click.argument("bundle", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--profile", multiple=True, help="Judge this profile, by all bundles of a device; may be repeated.")
@click.option(
    "--keys",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Only what is signed by a key of this file.",
)
@click.option("--replay", "count", type=click.IntRange(min=1), help="Run so many trials of each again here.")
@click.option("--seed", type=click.IntRange(min=0), help="Which trials are run again; otherwise they are random.")
@click.option("--json", "as_json", is_flag=True, help="Plain data, for programs.")
@click.pass_context
def verify(
    context: click.Context,
    bundle: tuple[Path, ...],
    profile: tuple[str, ...],
    keys: Path | None,
    count: int | None,
    seed: int | None,
    as_json: bool,
) -> None:
    """Check that bundles are whole, consistent, and about what is installed here.

    Exit codes: 0 all verify, every profile is satisfied, and what was run again came out the same; 3 otherwise; 2 wrong
    usage.
    """
    from nbx_conformance.bundles import signing
    from nbx_conformance.bundles.replay import replay
    from nbx_conformance.bundles.verify import Trusted, judge
    from nbx_conformance.bundles.verify import verify as check
    from nbx_registry.errors import UnknownName

    if seed is not None and count is None:
        raise click.UsageError("--seed chooses what --replay runs again; give both")
    try:
        for name in profile:
            profiles.load(name)
        trusted = None if keys is None else Trusted(keys, signing.read_trusted(keys))
    except nbx.NbxError as error:
        click.echo(line(f"error: {error}"), err=True)
        context.exit(USAGE if isinstance(error, UnknownName) else NOT_PASSED)
    registry = nbx.load()
    cases = runner.case_table(registry)
    found = [check(path, registry, cases, trusted) for path in bundle]
    judged = [one for name in profile for one in judge(name, found, registry, cases)]
    if seed is None:
        seed = secrets.randbelow(2**32)
    replays = [replay(one, registry, count, seed, isolated=True) for one in found] if count is not None else []
    passed = (
        not any(one.code for one in found)
        and all(one.satisfied for one in judged)
        and all(one.passed for one in replays)
    )
    code = PASSED if passed else NOT_PASSED
    if as_json:
        told = {
            "exit_code": code,
            "bundles": [one.to_dict() for one in found],
            "profiles": [one.to_dict() for one in judged],
            "replays": [one.to_dict() for one in replays],
        }
        click.echo(json.dumps(told, indent=1))
        context.exit(code)
    for one in found:
        click.echo(line(f"{one.path}: {one.label}"))
        for label, texts in (("", one.problems), ("stale: ", one.stale), ("note: ", one.notes)):
            for text in texts:
                click.echo(line(f"  {label}{text}"))
    for one in (*judged, *replays):
        for text in one.lines():
            click.echo(line(text))
    context.exit(code)
