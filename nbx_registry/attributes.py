"""Attribute values: strictly checked against their declared type, and normalised."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from nbx_registry import dtypes
from nbx_registry.dtypes import DType
from nbx_registry.errors import SignatureError, UnknownName
from nbx_registry.schema import Attribute


def normaliser(attribute: Attribute, op: str) -> Callable[[Any], Any]:
    """Return the function that checks and normalises values of an attribute; it raises `SignatureError`."""
    if attribute.type.startswith("int["):
        convert = _integers(attribute.type)
    else:
        convert = _CONVERTERS[attribute.type] if len(attribute.kinds) == 1 else _any_of(attribute.kinds)
    name, nullable = attribute.name, attribute.nullable

    def normalise(value: Any) -> Any:
        if value is None and nullable:
            return None
        try:
            return convert(value)
        except UnknownName as error:
            raise SignatureError(f"{op}: attribute {name}: {error}", code="ATTRIBUTE") from None
        except (TypeError, ValueError) as error:
            wanted = str(error) + (", or None" if nullable else "")
            raise SignatureError(
                f"{op}: attribute {name} is {short(value)}, but takes {wanted}", code="ATTRIBUTE"
            ) from None

    return normalise


_BOOLS: tuple[type, ...] = (bool, np.bool_)
_NUMBERS: tuple[type, ...] = (int, float, np.integer, np.floating)


def _int(value: Any) -> int:
    if type(value) is not int:
        if isinstance(value, _BOOLS):
            raise TypeError("an integer")
        try:
            value = operator.index(value)
        except TypeError:
            raise TypeError("an integer") from None
    if not -(2**63) <= value < 2**64:
        raise ValueError("an integer of at most 64 bits")
    return value


def _float(value: Any) -> float:
    if type(value) is float:
        return value
    if isinstance(value, _BOOLS) or not isinstance(value, _NUMBERS):
        raise TypeError("a number")
    try:
        return float(value)
    except OverflowError:
        raise ValueError("a number in the range of float64") from None


def _bool(value: Any) -> bool:
    if not isinstance(value, _BOOLS):
        raise TypeError("True or False")
    return bool(value)


def _str(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a string")
    return str(value)


def _dtype(value: Any) -> DType:
    if not isinstance(value, (str, DType)):
        raise TypeError("a dtype or its name, like 'float32'")
    return dtypes.get(value)


def _integers(kind: str) -> Callable[[Any], tuple[int, ...]]:
    length = int(kind[4:-1]) if kind != "int[]" else None
    wanted = "integers, as (0, 1) or one integer" if length is None else f"{length} integers, or one for all"

    def convert(value: Any) -> tuple[int, ...]:
        try:
            if isinstance(value, (tuple, list)):
                found = tuple(_int(item) for item in value)  # pyright: ignore[reportUnknownVariableType]
                if len(found) > 64:
                    raise ValueError
            else:
                found = (_int(value),) * (1 if length is None else length)
        except (TypeError, ValueError):
            raise TypeError(wanted) from None
        if length is not None and len(found) != length:
            raise TypeError(wanted)
        return found

    return convert


def _any_of(kinds: tuple[str, ...]) -> Callable[[Any], Any]:
    """Return what takes a value of any of these types as it is: an integer stays one beside ``float``."""

    def convert(value: Any) -> Any:
        if isinstance(value, _BOOLS):
            kind = "bool"
        else:
            kind = "float" if isinstance(value, (float, np.floating)) or "int" not in kinds else "int"
        if kind not in kinds:
            raise TypeError(" or ".join(_NAMES[kind] for kind in kinds))
        try:
            return _CONVERTERS[kind](value)
        except TypeError:
            raise TypeError(" or ".join(_NAMES[kind] for kind in kinds)) from None

    return convert


_NAMES = {"int": "an integer", "float": "a float", "bool": "True or False"}

_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "int": _int,
    "float": _float,
    "bool": _bool,
    "str": _str,
    "dtype": _dtype,
}


def short(value: Any) -> str:
    """Return a value's repr, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
