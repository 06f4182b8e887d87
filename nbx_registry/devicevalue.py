"""Values of device facts: the types there are, their units, and what a value must be."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeGuard

from nbx_registry.errors import MissingFact, NbxError
from nbx_registry.yamlfile import Table, is_list, kind

FactType = Literal["integer", "number", "string", "capability", "integers", "strings", "matrix_unit"]

UNITS: Mapping[str, re.Pattern[str] | None] = {
    "bytes": re.compile(r"(?<![a-z])bytes(?!_per_s(?![a-z]))(?![a-z])"),
    "bytes/s": re.compile(r"bytes_per_s\Z"),
    "FLOP/s": re.compile(r"_flop_per_s\Z"),
    "OP/s": re.compile(r"(?<!fl)op_per_s\Z"),
    "s": re.compile(r"(?<!_per)_s\Z"),
    "Hz": re.compile(r"_hz\Z"),
    "count": None,
    "ratio": None,
    "of bound": None,
}
"""Units of numeric facts, with what a key must contain to say so; counts, ratios and shares of a bound have nothing to
say."""

RATES = frozenset({"bytes/s", "FLOP/s", "OP/s"})
LEAST_RATE = 1e6
"""Below this a rate is taken for one in other units, like 3.35 for 3.35 TB/s."""

_OPERAND = re.compile(r"[a-z_][a-z0-9_]*\Z")


def is_unit(value: Any) -> TypeGuard[Mapping[str, tuple[str, ...]]]:
    """Whether a fact's value describes a matrix unit."""
    return isinstance(value, Mapping)


def convert(given: Any, type_: FactType) -> Any | None:
    """Return a value in the form that facts hold it, or None where it is of another type."""
    return _CHECKS[type_](given)


def complaint(given: Any, type_: FactType, unit: str) -> str | None:
    """Return what is wrong with a value, to be read after the name of its fact; None where nothing is."""
    value = convert(given, type_)
    said = f" ({unit})" if unit else ""
    # There can be no bytes of something; of what counts, divides or is divided by there is some.
    if value is None or (unit not in ("", "bytes") and _has_zero(value)):
        shown = f"{given!r}, {kind(given)}" if isinstance(given, (str, int, float)) else kind(given)
        if type_ == "integer" and isinstance(given, float) and given.is_integer() and given > 0:
            shown += f"; write {int(given)}"
        words = _TYPE_WORDS[type_].format("zero or more" if unit == "bytes" else "above zero")
        return f"is {words}{said}; got {shown}"
    if unit in RATES and value < LEAST_RATE:
        return f"is a rate{said}, written in full like 3.35e12; got {given!r}, and no device is that slow"
    if unit == "of bound" and isinstance(value, (int, float)) and value > 1:
        return (
            f"is at most 1{said}; got {given!r}: a device only tightens what the contract allows; a looser bound is a "
            "waiver of conformance, shown in the support matrix"
        )
    return None


def miscomputed(formula: str, value: Any, fact: Callable[[str], Any]) -> str | None:
    """Return what is wrong with a value that is said to be arithmetic; None where it comes out, or nobody can tell.

    A number is compared in the digits it is written with.

    Parameters
    ----------
    fact
        Gives the value of another fact of the device. Raises `MissingFact` where nobody states it.
    """
    from nbx_registry import expr  # asked for when files are checked, not when they are read

    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return "only a number comes from a formula"
    try:
        computed = expr.parse(formula).evaluate(fact)
    except MissingFact:
        # An architecture's arithmetic may rest on what a product has yet to state.
        return None
    except NbxError as error:
        return f"its formula cannot be computed: {error}"
    if isinstance(computed, (int, float)) and math.isfinite(computed):
        mantissa, _, exponent = f"{value:.12e}".partition("e")
        unit = 10.0 ** (int(exponent) - len(mantissa.rstrip("0").partition(".")[2]))
        # Half a unit is rounding; one document rounds twice.
        if computed == value or (isinstance(value, float) and abs(computed - value) <= 0.6 * unit):
            return None
    return f"{formula} is {computed}, and the value {value}; correct one of them"


def _has_zero(value: Any) -> bool:
    return 0 in value if isinstance(value, tuple) else value == 0


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _number(value: Any) -> int | float | None:
    if isinstance(value, float):
        return value if math.isfinite(value) and value >= 0 else None
    return _integer(value)


def _string_value(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _capability(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _integers(value: Any) -> tuple[int, ...] | None:
    return _items(value, _integer)


def _strings(value: Any) -> tuple[str, ...] | None:
    return _items(value, _string_value)


def _items(value: Any, check: Callable[[Any], Any]) -> tuple[Any, ...] | None:
    if not is_list(value) or not value or any(check(item) is None for item in value):
        return None
    return tuple(value)


def _matrix_unit(value: Any) -> Mapping[str, tuple[str, ...]] | bool | None:
    if value is False:
        return False
    if not isinstance(value, Table) or not value:
        return None
    unit: dict[str, tuple[str, ...]] = {}
    for operand, accumulators in value.items():
        checked = () if accumulators == [] else _strings(accumulators)
        if checked is None or not _OPERAND.match(operand):
            return None
        unit[operand] = checked
    return MappingProxyType(unit)


_CHECKS: Mapping[str, Callable[[Any], Any]] = {
    "integer": _integer,
    "number": _number,
    "string": _string_value,
    "capability": _capability,
    "integers": _integers,
    "strings": _strings,
    "matrix_unit": _matrix_unit,
}
_TYPE_WORDS: Mapping[str, str] = {
    "integer": "an integer, {}",
    "number": "a finite number, {}",
    "string": "a string",
    "capability": "a capability, true or false",
    "integers": "a list of integers, {}",
    "strings": "a list of strings",
    "matrix_unit": "a matrix unit: false, or a mapping of operand dtypes to lists of accumulators",
}

TYPES: tuple[str, ...] = tuple(_CHECKS)
"""The types there are."""
