"""``nbx devices --new``: begin a device file, with what a card that is here says of itself."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from nbx_registry.device import Device, Fact
from nbx_registry.devicetable import DeviceTable
from nbx_registry.devicevalue import complaint
from nbx_registry.errors import DuplicateError, FileError, UnknownName
from nbx_registry.runtime import LiveDevice

PRICING = (
    "memory.bytes",
    "memory.bandwidth_bytes_per_s",
    "multiprocessors",
    "l2.bytes",
    "peak.vector.float32_flop_per_s",
    "peak.matrix.float16_flop_per_s",
)
"""The facts that a file is first asked for: sizes of the machine, and what floors are computed with."""

_ID = re.compile(r"[a-z0-9][a-z0-9_.-]*/(?!arch\Z)[a-z0-9][a-z0-9_.-]*\Z")


def begin(
    table: DeviceTable, id: str, live: LiveDevice | None, like: Device | None, *, today: datetime.date | None = None
) -> tuple[Path, int]:
    """Write the beginning of a file into the user's folder; return its path and how many facts it states already.

    Parameters
    ----------
    live
        The card it describes, where that is here: what its driver reports becomes facts.
    like
        A product to take the architecture and the list of facts from.

    Raises
    ------
    UnknownName
        If the id is none.
    DuplicateError
        If a file describes that device already.
    FileError
        If the architecture's file is malformed, or the new one cannot be written.
    """
    folder = table.user_folder
    assert folder is not None, "the command line's table has the user's folder"
    if not _ID.match(id):
        raise UnknownName(
            f"{id!r} is no id of a device: write vendor/product in lower-case letters, digits, '.', '_' and '-', "
            f"like nvidia/rtx-4090"
        )
    path = folder / f"{id}.yml"
    if id in table:
        files = table.files(id)
        raise DuplicateError(
            f"{id} is described by {files[0]}; "
            + ("edit that file" if path in files else f"facts that it lacks go into an overlay, {path}")
        )
    extends = table.architecture(live.arch) if live is not None else like.extends if like is not None else None
    said: Mapping[str, Fact] = table.architecture_facts(extends) if extends is not None else {}
    date = (today or datetime.date.today()).isoformat()
    facts = _reported(table, live, said) if live is not None else {}
    lines = [
        f"# {' '.join(live.name.split()) if live is not None else id}.",
        "# Leave out what no document states: a guess would be a wrong answer that nobody can see.",
        "# nbx doctor checks this file; docs/how-to/write-a-device-file.md explains it.",
        *_head(table, id, extends, live, like),
        "sources:",
        '  # sheet: {document: "title, revision and page of the data sheet", publisher: "its publisher"}',
        "facts:",
        *(f"  {key}: {{value: {value}, source: device, date: {date}}}" for key, value in facts.items()),
        *_wanted(table, like, {*said, *facts}),
    ]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as stream:
            stream.write("\n".join(lines) + "\n")
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error.strerror or error}") from error
    return path, len(facts)


def _head(
    table: DeviceTable, id: str, extends: str | None, live: LiveDevice | None, like: Device | None
) -> Iterator[str]:
    model = live if live is not None else like
    if extends is not None:
        yield f"extends: {extends}"
    elif model is not None:
        yield f"arch: {_flow(model.arch)}  # the compile target"
        yield f"runtime: {_flow(model.runtime)}  # which runtime drives it"
    else:
        vendor = id.partition("/")[0]
        known = [one for one in table.architectures if one.startswith(f"{vendor}/")]
        others = f"  # or {', '.join(known[1:])}" if known[1:] else ""
        yield f"# extends: {known[0] if known else f'{vendor}/arch/name'}{others}"
        yield "# Where there is no file for its architecture, instead of that:"
        yield "# arch:  # the compile target"
        yield "# runtime:  # which runtime drives it"
    yield f"evidence_class: {id.replace('/', '-')}  # of products that run the same binaries within the same limits"
    if live is None:
        yield '# match: {names: ["as its driver names it"]}  # how a card that is here is recognised'
        return
    rule = f"names: [{_flow(live.name)}], archs: [{_flow(live.arch)}]"
    if isinstance(count := live.detected.get("multiprocessors"), int):
        rule += f", multiprocessors: {count}"
    yield f"match: {{{rule}}}"


def _reported(table: DeviceTable, live: LiveDevice, said: Mapping[str, Fact]) -> dict[str, int]:
    """Return what the driver reports and the architecture does not state."""
    facts: dict[str, int] = {}
    for key, value in sorted(live.detected.items()):
        known = table.schema.find(key)
        if known is None or key in said or not isinstance(value, int) or complaint(value, known.type, known.unit):
            continue
        facts[key] = value
    return facts


def _wanted(table: DeviceTable, like: Device | None, stated: set[str]) -> Iterator[str]:
    """Yield the facts to fill in, a line each: take its ``#`` away, and write the value."""
    keys = dict.fromkeys(PRICING)
    if like is not None:
        keys |= dict.fromkeys(key for key, fact in like.facts.items() if fact.file == like.file)
    for key in keys:
        known = table.schema.find(key)
        if known is not None and key not in stated:
            unit = f"{known.unit}: " if known.unit else ""
            yield f"  # {key}: {{value: , source: sheet}}  # {unit}{known.meaning}"


def _flow(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
