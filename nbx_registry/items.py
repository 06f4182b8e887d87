"""What hooks return, checked field by field: data of the wrong form is told when it is registered, not when it is used.

A plugin may be anything, so nothing here trusts what a value says of itself: see `shown` and `told`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast, get_args

from nbx_registry.dtypes import DType, Kind
from nbx_registry.kernel import Backend, Kernel, Workspace
from nbx_registry.runtimespec import Emulator, RuntimeSpec

_Check = tuple[str, Callable[[Any], bool], str]
"""A field, whether a value of it will do, and in words what will."""

_KERNEL_ID = re.compile(r"[a-z0-9][a-z0-9_.-]*(/(?!\.+(/|\Z))[A-Za-z0-9_.:+-]+)+\Z")
_REFERENCE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*\Z", re.ASCII)
_ID = re.compile(r"[A-Za-z0-9][\w.+-]*\Z", re.ASCII)
_OVERLAPS = ("refuse", "same", "any")
_ANYWHERE = ("composite", "view")
_MAPPINGS = (dict, MappingProxyType)
_LIMIT = 80
_NO_DEFAULT = object()


def shown(value: object) -> str:
    """Return the start of a value's repr, or what can be said of a value whose repr raises."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 - a plugin's object may raise anything, here too
        return f"<a {class_name(value)} whose repr raises {type(error).__name__}>"
    return text if len(text) <= _LIMIT else text[: _LIMIT - 3] + "..."


def class_name(value: object) -> str:
    """Return the name of a value's class, whatever its metaclass says."""
    return type.__dict__["__name__"].__get__(type(value))


def told(error: BaseException) -> str:
    """Return an error's type and message; of one that cannot be printed, its type."""
    try:
        text = str(error)
    except Exception as inner:  # noqa: BLE001 - as above
        text = f"(its message raises {type(inner).__name__})"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def wrong(item: object) -> tuple[str, str] | None:
    """Return what is wrong with the data of one thing registered, and the way out; None where it is well formed.

    Whether references resolve and expressions parse is not asked: that would read files, or every kernel's op.
    """
    if isinstance(item, Path):
        if not item.is_absolute():
            return (
                f"{item} is a relative path, which another working directory changes",
                "give Path(__file__).parent / ...",
            )
        return None
    for kind, checks in _CHECKS.items():
        if isinstance(item, kind):
            defaults = _DEFAULTS[kind]
            for field, holds, words in checks:
                value = getattr(item, field)
                # Most of what thousands of kernels hold are defaults.
                if value is not defaults.get(field, _NO_DEFAULT) and not holds(value):
                    return f"{_name(item)}: {field} is {shown(value)}", f"write {words}"
            break
    if isinstance(item, Kernel):
        return _wrong_kernel(item)
    if isinstance(item, DType) and (item.name != item.name.lower() or str(item.bits) not in item.name):
        # Conditions name dtypes and axes alike: one called N, axis or min would take the other's place.
        return f"dtype {item.name!r} is no lower-case word with its {item.bits} bits in it", "name it like float16"
    return None


def of_kind(item: object, kind: type) -> bool:
    """Return whether something is of the very class: a subclass may do as it likes, and anything may say it is one."""
    return type(item) is (type(Path()) if kind is Path else kind)


def _name(item: Any) -> str:
    kind = "runtime" if isinstance(item, RuntimeSpec) else next(k for k in _CHECKS if isinstance(item, k)).__name__
    return f"{kind.lower()} {shown(item.id if isinstance(item, Kernel) else item.name)}"


def _wrong_kernel(kernel: Kernel) -> tuple[str, str] | None:
    name = f"kernel {kernel.id!r}"
    if not _KERNEL_ID.match(kernel.id):
        return f"kernel id {kernel.id!r} is not of the form 'distribution/op/variant'", "rename the kernel"
    if kernel.backend == "composite" and not kernel.parts:
        return f"composite {name} names no parts", "list the ops it is made of in parts="
    if kernel.parts and kernel.backend != "composite":
        return f"{name} names parts, which only a composite has", "write backend='composite', or leave out parts="
    if not kernel.runtimes and kernel.backend not in _ANYWHERE:
        return f"{name} names no runtime that launches it", "name one in runtimes="
    for number, workspace in enumerate(kernel.workspace):
        for field, holds, words in _WORKSPACE:
            value = getattr(workspace, field)
            if not holds(value):
                return f"{name}: workspace {number}: {field} is {shown(value)}", f"write {words}"
    return None


# Of the very types: a subclass may compare, hash and print as it likes.


def _text(value: object) -> bool:
    return type(value) is str


def _texts(value: object) -> bool:
    # A loop, and no generator inside all(): it is run for every kernel five times.
    if type(value) is not tuple:
        return False
    for item in cast("tuple[object, ...]", value):  # noqa: SIM110
        if type(item) is not str:
            return False
    return True


def _flag(value: object) -> bool:
    return type(value) is bool


def _whole(value: object) -> bool:
    return type(value) is int


def _identifier(value: object) -> bool:
    return type(value) is str and value.isascii() and value.isidentifier()


def _runtime(value: object) -> bool:
    return _identifier(value) and value != "cpu"


def _id(value: object) -> bool:
    return type(value) is str and _ID.match(value) is not None


def _reference(value: object) -> bool:
    return type(value) is str and _REFERENCE.match(value) is not None


def _optional(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or holds(value)


def _named(value: object) -> bool:
    return type(value) in _MAPPINGS and all(type(key) is str for key in cast("Mapping[object, object]", value))


def _workspaces(value: object) -> bool:
    return type(value) is tuple and all(type(item) is Workspace for item in cast("tuple[object, ...]", value))


def _lifetime(value: object) -> bool:
    return type(value) is tuple and len(cast("tuple[object, ...]", value)) == 2 and all(map(_whole, value))  # pyright: ignore[reportUnknownArgumentType]


_TEXT = "a string"
_TEXTS = "a tuple of strings; one is ('...',)"
_MODULE_NAME = "'package.module:name'"

_WORKSPACE: tuple[_Check, ...] = (
    ("name", _identifier, "an identifier"),
    ("dtype", _text, "the name of a dtype"),
    ("shape", _texts, "a tuple of expressions; one is ('N',)"),
    ("lifetime", _lifetime, "the first and last launch, (0, -1)"),
)
_CHECKS: Mapping[type, tuple[_Check, ...]] = {
    Kernel: (
        ("id", _text, "'distribution/op/variant'"),
        ("op", _text, "an op with its version, 'matmul@1'"),
        ("backend", _text, "the name of a backend"),
        ("runtimes", _texts, _TEXTS),
        ("bind", lambda value: callable(value) or _reference(value), f"{_MODULE_NAME}, or a function"),
        ("when", _texts, _TEXTS),
        ("key", _texts, _TEXTS),
        ("workspace", _workspaces, "a tuple of Workspace objects"),
        ("deterministic", _flag, "True or False"),
        ("batch_invariant", _flag, "True or False"),
        ("replayable", _flag, "True or False"),
        ("overlap", lambda value: _text(value) and value in _OVERLAPS, " or ".join(map(repr, _OVERLAPS))),
        ("defaults", _named, "a mapping of setting names to values"),
        ("settings", _optional(_reference), f"{_MODULE_NAME}, or None"),
        ("parts", _texts, "a tuple of ops with their versions; one is ('matmul@1',)"),
        ("preference", _whole, "a whole number"),
        ("doc", _text, _TEXT),
    ),
    Backend: (
        ("name", _id, "letters, digits, '_', '.', '+' and '-'"),
        ("modules", _texts, _TEXTS),
        ("distribution", _optional(_text), "the name of a distribution, or None"),
        ("install", _text, _TEXT),
    ),
    RuntimeSpec: (
        ("name", _runtime, "an identifier other than 'cpu': devices are named after it, 'acme:0'"),
        ("factory", _reference, _MODULE_NAME),
        ("install", _text, _TEXT),
    ),
    Emulator: (
        ("name", _id, "letters, digits, '_', '.', '+' and '-'"),
        ("backend", _text, "the name of a backend"),
        ("runtimes", _texts, _TEXTS),
        ("factory", _reference, _MODULE_NAME),
        ("environment", lambda value: _named(value) and all(map(_text, value.values())), "a mapping of strings"),
    ),
    DType: (
        ("name", _identifier, "an identifier"),
        ("kind", lambda value: _text(value) and value in get_args(Kind), " or ".join(map(repr, get_args(Kind)))),
        ("bits", lambda value: _whole(value) and value > 0, "a count of bits"),
        ("numpy_name", _optional(_reference), "'module:name' of a NumPy scalar type, or None"),
        ("safetensors", _optional(_text), f"{_TEXT}, or None"),
        ("dlpack", lambda value: value is None or _lifetime(value), "DLPack's (type code, bits), or None"),
        ("key", _identifier, "a short identifier"),
    ),
}
_DEFAULTS: Mapping[type, Mapping[str, object]] = {
    kind: {field.name: field.default for field in fields(kind) if field.default is not MISSING} for kind in _CHECKS
}
