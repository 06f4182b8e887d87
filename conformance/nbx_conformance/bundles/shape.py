"""Shape of bundles: that everything `nbx_registry.bundle` leaves unread has the type and keys it must have."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from nbx_registry.compare import QUANTILES

Data = Mapping[str, Any]

_PROFILE: Final = frozenset({"ulp", "l2", "share", "worst"})
_WAIVER: Final = ("id", "kernel", "case", "check", "device", "reason", "link", "expires")


def of_bundle(data: Data) -> Iterator[str]:
    """Yield what has not the shape it must have, in everything that a bundle holds."""
    for name, plugin in data["plugins"].items():
        yield from (f"plugin {name}: {problem}" for problem in of_plugin(plugin))
    for waiver in data["waivers"]:
        yield from of_waiver(waiver)
    for kernel, entry in data["kernels"].items():
        for case in entry["cases"]:
            yield from (f"{kernel}: case {case['case']}: {problem}" for problem in of_case(case))


def of_case(case: Data) -> Iterator[str]:
    """Yield what is wrong with the fields of one entry."""
    for key, fits, what in _FIELDS:
        if key in case and not fits(case[key]):
            yield f"{key} is {str(case[key])[:80]!r}; it must be {what}"
    if "seed" not in case:
        yield "has no seed"


def of_plugin(entry: object) -> Iterator[str]:
    """Yield what is wrong with what is said of a plugin as a whole; one thing at most."""
    if not isinstance(entry, dict) or not isinstance(cast("Data", entry).get("checks"), list):
        yield "must hold its checks"
        return
    plugin = cast("Data", entry)
    said = plugin["checks"]
    if not said or not all(isinstance(check, dict) and is_text(cast("Data", check).get("check")) for check in said):
        yield "each of its checks must have a name, and there must be some"
        return
    # What was registered in the process has no distribution.
    for key, optional in (("distribution", True), ("version", True), ("verdict", False)):
        if not is_text(plugin.get(key)) and not (optional and key in plugin and plugin[key] is None):
            yield f"{key} is {str(plugin.get(key))[:80]!r}; it must be a string"
            return
    for check in said:
        if check.get("verdict") not in ("pass", "fail"):
            yield f"the check {check['check']} has the verdict {check.get('verdict')!r}, not pass or fail"
            return
        if not isinstance(check.get("reason", ""), str):
            yield f"the reason of {check['check']} is {str(check['reason'])[:80]!r}; it must be a string"
            return


def of_waiver(waiver: Data) -> Iterator[str]:
    """Yield what is wrong with one waiver; one thing at most."""
    if absent := [key for key in _WAIVER if not is_text(waiver.get(key))]:
        yield f"waiver {waiver.get('id')!r} lacks {', '.join(absent)}"


def is_text(value: object) -> bool:
    """Whether a value is a string that is not empty."""
    return isinstance(value, str) and bool(value)


def is_count(value: object) -> bool:
    """Whether a value is an integer, zero or more."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def is_amount(value: object) -> bool:
    """Whether a value is a number, zero or more."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


def number(content: object, key: str) -> float | None:
    """Return the amount that an object holds; None where it holds none."""
    value = cast("Data", content).get(key) if isinstance(content, dict) else None
    return value if is_amount(value) else None


def strings(value: object) -> bool:
    """Whether a value is a list of strings."""
    return isinstance(value, list) and all(isinstance(item, str) for item in cast("list[object]", value))


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _is_output(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{16}", value) is not None


def _is_profile(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    profile = cast("Data", value)
    if set(profile) ^ _PROFILE:
        return False
    ulp = profile["ulp"]
    return (
        is_amount(profile["l2"])
        and is_amount(profile["share"])
        and _all(profile["worst"], is_count)
        and _all(ulp, is_amount)
        and len(ulp) == len(QUANTILES)
        and ulp == sorted(ulp)
    )


def _all(value: object, fits: Callable[[object], bool]) -> bool:
    return isinstance(value, list) and all(fits(item) for item in cast("list[object]", value))


_FIELDS: Final[Sequence[tuple[str, Callable[[object], bool], str]]] = (
    ("seed", is_count, "an integer, zero or more"),
    ("seconds", is_amount, "a number, zero or more"),
    ("output_digest", _is_output, "16 hexadecimal digits"),
    ("reason", is_text, "a string"),
    ("handle", is_text, "a string"),
    ("waiver", is_text, "a string"),
    (
        "profile",
        _is_profile,
        f"an object of ulp ({len(QUANTILES)} numbers that do not fall), l2, share (numbers) and worst (an index)",
    ),
    ("cold", _is_object, "an object"),
)
