"""Consistency of bundles: whether what one says of the whole is borne out by what it says of the parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from fnmatch import fnmatchcase
from typing import Any, Final, cast

from nbx_conformance import checks, plugin_checks
from nbx_conformance.bundles import shape
from nbx_conformance.bundles.bundle import DISTRIBUTION
from nbx_conformance.cases import SIZES
from nbx_conformance.checks import built, refusals
from nbx_registry.bundle import Bundle
from nbx_registry.kernel import Kernel
from nbx_registry.op import Op

Data = Mapping[str, Any]


def of_file(data: Data, found: Bundle) -> Iterator[str]:
    """Yield what does not fit in everything but the kernels' own records."""
    yield from _selection(data)
    yield from _route(found)
    yield from _versions(found)
    yield from _handles(data, found)
    yield from _plugins(data)
    yield from _waivers(data, found)


def of_kernel(
    identifier: str, data: Data, found: Bundle, op: Op | None = None, kernel: Kernel | None = None
) -> Iterator[str]:
    """Yield how a kernel's verdict is not borne out by its cases; of an op that is not known everything is asked."""
    entry = data["kernels"][identifier]
    seen: set[tuple[str, str]] = set()
    passed: set[str] = set()
    for case in entry["cases"]:
        where = f"case {case['case']}"
        yield from (f"{where}: {problem}" for problem in shape.of_case(case))
        names = case["check"].split(" ")
        for name in names:
            if name not in checks.NAMES:
                yield f"{where}: {name!r} is no check of the suite"
            if (case["case"], name) in seen:
                yield f"{where}: check {name} is recorded twice"
            seen.add((case["case"], name))
        if case["verdict"] == "pass":
            passed.update(names)
        yield from (f"{where}: {problem}" for problem in _verdict(identifier, case, names, data))
    yield from _measured(entry, data["waivers"])
    yield from _expected(entry)
    yield from _whole(entry, found, passed, op, kernel)


def _whole(entry: Data, found: Bundle, passed: set[str], op: Op | None, kernel: Kernel | None) -> Iterator[str]:
    verdict = entry["verdict"]
    if verdict == "pass":
        launched = entry["backend"] != "view" or "poison" in passed
        required = checks.REQUIRED | checks.REQUIRED_OF_LAUNCHES if launched else checks.REQUIRED
        if op is not None and not op.tensors:
            # What is given nothing can neither write it nor answer for what it was given before.
            required -= {"inputs", "fresh"}
        elif op is not None and all(param.mutable for param in op.tensors):
            required -= {"inputs"}
        if kernel is not None and launched:
            claims = {"determinism": kernel.deterministic, "batch": kernel.batch_invariant}
            required |= {check for check, claimed in claims.items() if claimed}
        if missing := sorted(required - passed):
            yield f"verdict pass, but no case passed {', '.join(missing)}"
    if verdict in ("fail", "incomplete"):
        yield f"verdict {verdict}: it proves nothing about this kernel"
    if verdict == "built":
        if not entry["built"]:
            yield "verdict built, but nothing that was built is recorded"
        if built.NAME not in passed:
            yield "verdict built, but no case passed the check built"
    if verdict in ("pass", "built") and any(case["verdict"] in ("fail", "error") for case in entry["cases"]):
        yield f"verdict {verdict}, but a case failed"
    if found.reach == "built" and passed - {built.NAME}:
        yield f"nothing was run, yet {', '.join(sorted(passed - {built.NAME}))} passed"


def _verdict(identifier: str, case: Data, names: Sequence[str], data: Data) -> Iterator[str]:
    """Yield what does not fit in one entry."""
    verdict = case["verdict"]
    if verdict == "refused":
        if names != [refusals.NAME]:
            yield f"is refused by the check {case['check']}; only {refusals.NAME} refuses"
        if not case.get("reason"):
            yield "is refused without a reason"
    if (verdict == "waived") != ("waiver" in case):
        yield f"is {verdict}, " + ("yet names a waiver" if "waiver" in case else "but names no waiver")
    if "waiver" in case:
        yield from _waived(identifier, case, names, data)


def _measured(entry: Data, waivers: Sequence[Data]) -> Iterator[str]:
    """Yield what does not fit among the entries of a case: what was measured stands in one of them."""
    cases: dict[str, list[Data]] = {}
    for case in entry["cases"]:
        cases.setdefault(case["case"], []).append(case)
    for name, entries in cases.items():
        if len({str(case.get("seed")) for case in entries}) > 1:
            yield f"case {name}: its entries have different seeds"
        verdicts = {check: case["verdict"] for case in entries for check in case["check"].split(" ")}
        yield from (f"case {name}: {problem}" for problem in _share(entries, verdicts, waivers))
        cold = next((case["cold"] for case in entries if "cold" in case), None)
        if cold is None:
            if verdicts.get("cold") == "pass":
                yield f"case {name}: cold passed, but no time is recorded"
            continue
        seconds, least, sets = shape.number(cold, "seconds"), shape.number(cold, "least_s"), shape.number(cold, "sets")
        if seconds is None or least is None or sets is None or sets < 1:
            yield f"case {name}: cold must hold seconds, least_s and sets"
        elif "cold" not in verdicts:
            yield f"case {name}: a cold time is recorded, but not the check"
        elif seconds < least and verdicts["cold"] != "error":
            yield f"case {name}: took {seconds:g} s cold, less than the least cost, {least:g} s, which is an error"


def _share(entries: Sequence[Data], verdicts: Mapping[str, str], waivers: Sequence[Data]) -> Iterator[str]:
    """Yield how the error of a case is not what its verdict needs."""
    profile: object = next((case["profile"] for case in entries if "profile" in case), None)
    share = shape.number(profile, "share") or 0.0
    if verdicts.get("numbers") == "pass":
        if not any("output_digest" in case for case in entries):
            yield "numbers passed, but no digest of the output is recorded"
        if share > 1:
            yield f"numbers passed, but the error is {share:g} times what the contract allows"
    for case in entries:
        if "numbers" in case["check"].split(" ") and "waiver" in case:
            allowed = next((shape.number(w, "share") for w in waivers if w.get("id") == case["waiver"]), None)
            if allowed is not None and not 1 < share <= allowed:
                yield f"is waived by {case['waiver']} up to {allowed:g} times the bound; the error takes {share:g}"


def _expected(entry: Data) -> Iterator[str]:
    recorded, expected = len({case["case"] for case in entry["cases"]}), entry["expected"]
    if recorded > expected:
        yield f"{recorded} cases are recorded, of {expected} in the whole run"


def _selection(data: Data) -> Iterator[str]:
    selection = data["selection"]
    if selection.get("size") not in SIZES:
        yield f"selection: size {selection.get('size')!r} is none of {', '.join(SIZES)}"
    for name in ("plugins", "ops", "kernels"):
        if not shape.strings(selection.get(name)):
            yield f"selection: {name} must be a list of strings"
            return
    ops, kernels = selection["ops"], selection["kernels"]
    for identifier, entry in data["kernels"].items():
        if kernels and identifier not in kernels:
            yield f"selection: {identifier} was not asked for"
        if ops and entry["op"] not in ops and entry["op"].partition("@")[0] not in ops:
            yield f"selection: {entry['op']}, which {identifier} implements, was not asked for"
    if not isinstance(selection.get("keyword"), str | None):
        yield "selection: keyword must be a string or null"
    shards = selection.get("shards")
    if shards is not None and not _is_shards(shards):
        yield "selection: shards must hold their number and the parts that are here"


def _is_shards(shards: object) -> bool:
    if not isinstance(shards, dict):
        return False
    content = cast("dict[str, object]", shards)
    of, parts = content.get("of"), content.get("parts")
    if content.keys() != {"of", "parts"} or not shape.is_count(of) or not isinstance(parts, list):
        return False
    numbers = cast("list[object]", parts)
    return (
        bool(numbers)
        and all(shape.is_count(part) for part in numbers)
        and numbers == sorted({part for part in cast("list[int]", numbers) if 1 <= part <= cast("int", of)})
    )


_REACHES: Final = {"device": "here", "build": "built"}
"""How far a route goes; any other is an emulator, and goes elsewhere."""


def _route(found: Bundle) -> Iterator[str]:
    reach = _REACHES.get(found.via, "elsewhere")
    if found.reach != reach:
        yield f"reach: is {found.reach}, yet the route {found.via} is one to {reach}"


def _versions(found: Bundle) -> Iterator[str]:
    """Yield which versions are given twice, and differ."""
    suite = found.distributions.get(DISTRIBUTION)
    if suite is not None and suite != found.suite:
        yield f"suite: its version is {found.suite}, of which {suite} was installed"
    for kernel, record in found.records.items():
        name, _, version = (record.toolkit or "").rpartition(" ")
        other = found.distributions.get(name)
        if other is not None and version != other:
            yield f"{kernel}: its toolkit is {record.toolkit}, of which {other} was installed"


def _handles(data: Data, found: Bundle) -> Iterator[str]:
    named = {
        case["handle"]
        for entry in data["kernels"].values()
        for case in entry["cases"]
        if shape.is_text(case.get("handle"))
    }
    stated = set(found.handles)
    if unstated := sorted(named - stated):
        yield f"device: cases ran on {', '.join(unstated)}, which handles does not name"
    if unused := sorted(stated - named):
        yield f"device: handles names {', '.join(unused)}, on which no case ran"
    if found.reach != "here" and named:
        yield f"device: cases ran on {', '.join(sorted(named))}, yet the reach is {found.reach}"


def _plugins(data: Data) -> Iterator[str]:
    for name, entry in data["plugins"].items():
        where = f"plugin {name}"
        if problems := list(shape.of_plugin(entry)):
            yield from (f"{where}: {problem}" for problem in problems)
            continue
        said = entry["checks"]
        names = [check["check"] for check in said]
        yield from (
            f"{where}: {name!r} is no check of the suite" for name in names if name not in plugin_checks.PLUGIN_CHECKS
        )
        if len(set(names)) < len(names):
            yield f"{where}: a check is recorded twice"
        if data["selection"].get("keyword") is None and (missing := sorted(plugin_checks.ALWAYS - set(names))):
            yield f"{where}: {', '.join(missing)} is missing of its checks"
        for check in said:
            if check["verdict"] == "fail":
                yield f"{where}: {check['check']} failed: {check.get('reason', 'without a reason')}"
        verdict = "fail" if any(check.get("verdict") != "pass" for check in said) else "pass"
        if entry.get("verdict") != verdict:
            yield f"{where}: verdict {entry.get('verdict')!r}, but its checks come to {verdict!r}"
        distribution = str(entry.get("distribution"))
        other = data["distributions"].get(distribution)
        if other is not None and entry.get("version") != other:
            yield f"{where}: version {entry.get('version')!r} of {distribution}, of which {other} was installed"


def _waivers(data: Data, found: Bundle) -> Iterator[str]:
    used = [case.get("waiver") for entry in data["kernels"].values() for case in entry["cases"]]
    seen: set[str] = set()
    for waiver in data["waivers"]:
        if problems := list(shape.of_waiver(waiver)):
            yield from problems
            continue
        identifier = waiver["id"]
        if identifier in seen:
            yield f"waiver {identifier} is listed twice"
        seen.add(identifier)
        if identifier not in used:
            yield f"waiver {identifier} is listed, but no case is waived by it"
        if not fnmatchcase(found.via, str(waiver.get("via", "*"))):
            yield f"waiver {identifier} is for the route {waiver['via']}, not for {found.via}"
        if not any(fnmatchcase(place, waiver["device"]) for place in (found.device, found.evidence_class)):
            yield f"waiver {identifier} is for {waiver['device']}, not for {found.device}"
        expires = _date(waiver["expires"])
        if expires is None:
            yield f"waiver {identifier}: expires {waiver['expires']!r}, which is no date"
        elif expires < found.created.date():
            yield f"waiver {identifier} expired on {expires}, before the run of {found.created.date()}"


def _waived(identifier: str, case: Data, names: Sequence[str], data: Data) -> Iterator[str]:
    """Yield why the waiver that an entry names does not cover it."""
    waiver = next((waiver for waiver in data["waivers"] if waiver.get("id") == case["waiver"]), None)
    if waiver is None:
        yield f"is waived by {case['waiver']!r}, which is no waiver of this bundle"
        return
    for key, given in (("kernel", identifier), ("case", case["case"])):
        if not fnmatchcase(given, str(waiver.get(key))):
            yield f"is waived by {case['waiver']}, which is for the {key} {waiver.get(key)}"
    for name in names:
        if name not in str(waiver.get("check")).split(" "):
            yield f"is waived by {case['waiver']}, which is for the check {waiver.get('check')}, not for {name}"


def _date(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None
