"""``nbx conformance merge``."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import click

from nbx_conformance.cli.codes import NOT_PASSED, PASSED
from nbx_conformance.cli.files import Output, line
from nbx_registry.errors import NbxError


@click.command()
@click.argument("bundle", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--out", required=True, type=Output(), help="The bundle to write.")
@click.option(
    "--sign",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Sign the bundle with the private key of this file.",
)
@click.option("--json", "as_json", is_flag=True, help="Plain data, for programs.")
@click.pass_context
def merge(context: click.Context, bundle: tuple[Path, ...], out: Path, sign: Path | None, as_json: bool) -> None:
    """Put bundles together: the shards of one run, or runs of different kernels on one device.

    Signatures of the parts do not cover the whole, and are dropped. What disagrees is refused, and nothing written.

    Exit codes: 0 merged, and every kernel passed; 3 refused, or something failed or is missing; 2 wrong usage.
    """
    from nbx_conformance.bundles import signing
    from nbx_conformance.bundles.bundle import put
    from nbx_conformance.bundles.merge import merge as merged

    try:
        key = None if sign is None else signing.read_key(sign)
        found = merged(bundle)
        written = put(found.data if key is None else signing.sign(found.data, key), out)
    except NbxError as error:
        click.echo(line(f"error: {error}"), err=True)
        context.exit(NOT_PASSED)
    verdicts = {kernel: record.verdict for kernel, record in written.records.items()}
    unproven = sorted(kernel for kernel, verdict in verdicts.items() if verdict not in ("pass", "built"))
    if as_json:
        told = {"bundle": str(out), "digest": written.digest, "verdicts": verdicts}
        click.echo(json.dumps({**told, "missing": list(found.missing), "notes": list(found.notes)}, indent=1))
    else:
        counted = ", ".join(f"{count} {verdict}" for verdict, count in sorted(Counter(verdicts.values()).items()))
        click.echo(f"{out}: {out.stat().st_size} bytes, digest {written.digest[:16]}: {counted}")
        for text in (*found.notes, *found.missing, *(f"{kernel}: {verdicts[kernel]}" for kernel in unproven)):
            click.echo(line(f"  {text}"))
    context.exit(NOT_PASSED if found.missing or unproven else PASSED)
