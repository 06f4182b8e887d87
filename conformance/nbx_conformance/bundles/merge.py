"""Merging bundles: one from the parts of a run that machines shared, or from runs of different kernels on one device.

What the parts say is compared before it is put together, and verdicts are found anew from all records. The result
depends on the bundles alone, not on their order or the time of day.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from nbx_conformance.bundles.agreement import difference
from nbx_conformance.bundles.bundle import stated
from nbx_conformance.runs.runner import Record, worst
from nbx_registry import bundle, jsonfile
from nbx_registry.errors import FileError

Data = Mapping[str, Any]

_RUN: Final = ("format", "suite", "runtime", "reach", "via")
"""Keys that all parts have in common."""

_KERNEL: Final = ("op", "op_digest", "kernel_digest", "backend", "toolkit", "expected")
"""Keys that a kernel's entries have in common."""


@dataclass(frozen=True)
class Merged:
    """A merged bundle, unsealed.

    Attributes
    ----------
    missing
        Shards that no bundle holds, a sentence each.
    notes
        What was left out on the way.
    """

    data: dict[str, Any]
    missing: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Part:
    path: Path
    data: dict[str, Any]
    created: datetime


def merge(paths: Iterable[Path]) -> Merged:
    """Return one bundle from several.

    Raises
    ------
    FileError
        For a file that is no bundle, and where two disagree: on suite, device, runtime, reach, route, distributions,
        or a kernel's contract and code; or on what came out for a case that both hold. The message names both files
        and both values.
    """
    parts = sorted(map(_read, paths), key=lambda part: (part.data["digest"], part.path))
    if not parts:
        raise FileError("there is nothing to merge: name a bundle")
    first = parts[0].data
    for one, other in pairwise(parts):
        _refuse_unlike(_run(one), _run(other), one, other)
    notes: list[str] = []
    kernels = {identifier: entry for identifier, entry in _kernels(parts, notes) if entry is not None}
    if not kernels:
        raise FileError("; ".join(["nothing was measured that a bundle could hold", *notes]))
    selection, missing = _selection(parts, kernels)
    if signed := [part.path.name for part in parts if "signature" in part.data]:
        notes.append(f"signatures are dropped, which cover the parts alone: {', '.join(sorted(signed))}")
    handles = {case["handle"] for entry in kernels.values() for case in entry["cases"] if "handle" in case}
    detected = [part.data["device"]["detected"] for part in parts]
    data: dict[str, Any] = {
        **{key: first[key] for key in _RUN},
        "created": max(parts, key=lambda part: (part.created, part.data["created"])).data["created"],
        "seconds": round(sum(sorted(part.data["seconds"] for part in parts)), 1),
        "selection": selection,
        "device": {
            **first["device"],
            "handles": sorted(handles),
            # What tells one machine from another is said of neither.
            "detected": {
                key: value for key, value in detected[0].items() if all(d.get(key) == value for d in detected)
            },
        },
        "distributions": _distributions(parts),
        "kernels": kernels,
        "plugins": dict(_plugins(parts)),
        "waivers": _waivers(parts, kernels),
    }
    return Merged(data, tuple(missing), tuple(notes))


def _read(path: Path) -> _Part:
    content = jsonfile.read(path)
    return _Part(path, jsonfile.parse(content, path), bundle.parse(content, path).created)


def _run(part: _Part) -> dict[str, Any]:
    """Return what parts of one bundle have in common."""
    device = _chosen(part.data["device"], ("id", "evidence_class", "digest"))
    return {**_chosen(part.data, _RUN), "device": device, "selection": {"size": part.data["selection"].get("size")}}


def _refuse_unlike(first: object, second: object, one: _Part, other: _Part, where: str = "") -> None:
    found = difference(first, second, where)
    if found is not None:
        raise FileError(
            f"{one.path} and {other.path} are no parts of one bundle: {found.key} is {found.first} in the one and "
            f"{found.second} in the other; run the suite again where it is not as it should be"
        )


def _distributions(parts: Sequence[_Part]) -> dict[str, str]:
    found: dict[str, tuple[_Part, str]] = {}
    for part in parts:
        for name, version in part.data["distributions"].items():
            one, before = found.setdefault(name, (part, version))
            _refuse_unlike(before, version, one, part, f"distributions.{name}")
    return {name: version for name, (_, version) in sorted(found.items())}


def _kernels(parts: Sequence[_Part], notes: list[str]) -> Iterator[tuple[str, dict[str, Any] | None]]:
    for identifier in sorted({identifier for part in parts for identifier in part.data["kernels"]}):
        holding = [part for part in parts if identifier in part.data["kernels"]]
        entries = [part.data["kernels"][identifier] for part in holding]
        for one, other in pairwise(holding):
            first, second = (_chosen(part.data["kernels"][identifier], _KERNEL) for part in (one, other))
            _refuse_unlike(first, second, one, other, f"kernels.{identifier}")
        cases = dict(_cases(identifier, holding))
        rows = _built(entries)
        records = [_record(identifier, entries[0]["op"], found, rows) for _, found in sorted(cases.items())]
        verdict = stated(records, entries[0]["expected"], parts[0].data["reach"])
        if verdict is None and len(records) == entries[0]["expected"]:
            notes.append(f"left out: {identifier} is for other devices, as it says")
            continue
        yield identifier, _entry(entries, [case for _, found in sorted(cases.items()) for case in found], rows, verdict)


def _entry(entries: Sequence[Data], cases: Sequence[Data], rows: Sequence[Data], verdict: str | None) -> dict[str, Any]:
    entry: dict[str, Any] = {
        **_chosen(entries[0], _KERNEL),
        "built": rows,
        "verdict": verdict or "incomplete",
        "cases": cases,
    }
    if ran := sorted({part for found in entries for part in found.get("parts", ())}):
        entry["parts"] = ran
    return entry


def _chosen(entry: Data, keys: Sequence[str]) -> dict[str, Any]:
    return {key: entry[key] for key in keys}


def _cases(identifier: str, holding: Sequence[_Part]) -> Iterator[tuple[str, list[Data]]]:
    """Yield the entries of every case. Raises `FileError` where two parts came to different ends."""
    found: dict[str, list[tuple[_Part, list[Data]]]] = {}
    for part in holding:
        by_case: dict[str, list[Data]] = {}
        for case in part.data["kernels"][identifier]["cases"]:
            by_case.setdefault(case["case"], []).append(case)
        for name, entries in by_case.items():
            found.setdefault(name, []).append((part, entries))
    for name, recorded in found.items():
        for (one, entries), (other, others) in pairwise(recorded):
            _refuse_unlike(_end(entries), _end(others), one, other, f"kernels.{identifier}, case {name}")
        # What was measured twice is said once, by a rule that knows no order.
        yield name, min((entries for _, entries in recorded), key=jsonfile.canonical)


def _end(entries: Sequence[Data]) -> dict[str, Any]:
    """Return what two records of a case have in common."""
    verdicts = {check: entry["verdict"] for entry in entries for check in entry["check"].split(" ")}
    outputs = [entry["output_digest"] for entry in entries if "output_digest" in entry]
    return {"verdict": verdicts, "seed": entries[0].get("seed"), "output_digest": outputs}


def _record(kernel: str, op: str, entries: Sequence[Data], rows: Sequence[Data]) -> Record:
    """Return a case's entries as the record that they were made from, as far as verdicts go by it.

    ``rows`` are what was compiled for the kernel, in whichever case.
    """
    checks: dict[str, list[str]] = {}
    details: dict[str, str] = {}
    for entry in entries:
        names = entry["check"].split(" ")
        checks.setdefault(entry["verdict"], []).extend(names)
        if "reason" in entry:
            details[names[0]] = entry["reason"]
    return Record(
        op=op,
        kernel=kernel,
        case=entries[0]["case"],
        seed=entries[0].get("seed", 0),
        verdict=worst(entry["verdict"] for entry in entries),
        checks=checks,
        details=details,
        output=next((entry["output_digest"] for entry in entries if "output_digest" in entry), None),
        built=rows,
    )


def _built(entries: Sequence[Data]) -> list[dict[str, Any]]:
    """Return what was compiled: of each entry point the most that was taken, and all images."""
    found: dict[tuple[str, ...], list[Data]] = {}
    for entry in entries:
        for row in entry["built"]:
            found.setdefault(tuple(str(row.get(key)) for key in ("arch", "toolkit", "entry")), []).append(row)
    rows: list[dict[str, Any]] = []
    for _, same in sorted(found.items()):
        row = dict(min(same, key=jsonfile.canonical))
        for key in sorted({key for one in same for key in one}):
            known = [one[key] for one in same if key in one]
            if all(isinstance(value, int) for value in known):
                row[key] = max(known)
            elif all(isinstance(value, list) for value in known):
                row[key] = sorted({item for value in known for item in value})
        rows.append(row)
    return rows


def _selection(parts: Sequence[_Part], kernels: Data) -> tuple[dict[str, Any], list[str]]:
    """Return what was asked for in all, and which shards are missing."""
    runs: dict[bytes, list[Data]] = {}
    for part in parts:
        asked = part.data["selection"]
        runs.setdefault(jsonfile.canonical({**asked, "shards": None}), []).append(asked)
    missing: list[str] = []
    left: list[dict[str, Any] | None] = []
    for _, run in sorted(runs.items()):
        shards = [asked["shards"] for asked in run if asked.get("shards") is not None]
        if len(shards) < len(run):
            # One of them is the whole.
            left.append(None)
            continue
        numbers = sorted({shard["of"] for shard in shards})
        if len(numbers) > 1:
            raise FileError(f"shards of {numbers[0]} and of {numbers[1]} cut a run differently; merge those of one cut")
        here = sorted({part for shard in shards for part in shard["parts"]})
        lacking = [part for part in range(1, numbers[0] + 1) if part not in here]
        left.append({"of": numbers[0], "parts": here} if lacking else None)
        missing += (f"shard {part} of {numbers[0]} is missing" for part in lacking)
    if len(runs) == 1:
        return {**parts[0].data["selection"], "shards": left[0]}, missing
    if missing:
        raise FileError(f"{'; '.join(missing)}: merge the shards of each run first, then the runs")
    # Other than kernel by kernel, what several runs were asked for has no common name.
    keywords = {part.data["selection"].get("keyword") for part in parts}
    keyword = None if None in keywords else " or ".join(f"({word})" for word in sorted(map(str, keywords)))
    size = parts[0].data["selection"].get("size")
    asked = {"size": size, "plugins": [], "ops": [], "kernels": sorted(kernels), "keyword": keyword, "shards": None}
    return asked, missing


def _plugins(parts: Sequence[_Part]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in sorted({name for part in parts for name in part.data["plugins"]}):
        holding = [part for part in parts if name in part.data["plugins"]]
        found: dict[str, list[Data]] = {}
        for one, other in pairwise(holding):
            first, second = (_plugin_end(part.data["plugins"][name]) for part in (one, other))
            _refuse_unlike(first, second, one, other, f"plugins.{name}")
        for part in holding:
            for check in part.data["plugins"][name]["checks"]:
                found.setdefault(check["check"], []).append(check)
        checks = [min(same, key=jsonfile.canonical) for _, same in sorted(found.items())]
        yield name, {**holding[0].data["plugins"][name], "checks": checks}


def _plugin_end(entry: Data) -> dict[str, Any]:
    """Return what two entries of a plugin have in common."""
    verdicts = {check["check"]: check["verdict"] for check in entry["checks"]}
    return {**{key: value for key, value in entry.items() if key != "checks"}, "checks": verdicts}


def _waivers(parts: Sequence[_Part], kernels: Data) -> list[Data]:
    """Return the waivers of those cases that are kept."""
    used = {case["waiver"] for entry in kernels.values() for case in entry["cases"] if "waiver" in case}
    found: dict[str, tuple[_Part, Data]] = {}
    for part in parts:
        for waiver in part.data["waivers"]:
            before = found.setdefault(waiver["id"], (part, waiver))
            _refuse_unlike(before[1], waiver, before[0], part, f"waiver {waiver['id']}")
    return [waiver for identifier, (_, waiver) in sorted(found.items()) if identifier in used]
