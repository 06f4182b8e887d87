"""What a schema declares: tensor parameters, attributes and outputs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, Literal

from nbx_registry.expr import Expr

LETTER = re.compile(r"[FINBT][0-9]{0,2}\Z")
"""A dtype letter, with digits where one schema needs several of a class."""

CLASSES: dict[str, tuple[str, ...]] = {
    "F": ("float",),
    "I": ("int", "uint"),
    "N": ("int", "uint", "float", "complex"),
    "B": ("bool",),
    "T": ("bool", "int", "uint", "float", "complex"),
}
"""The dtype kinds that each class letter takes."""

CLASS_NAMES = {"F": "floating", "I": "an integer", "N": "numeric", "B": "boolean", "T": "any dtype"}

Axis = str | int | Expr
"""A name (``C``), leading axes (``*B``), a literal, or, of an output, an expression."""

AttributeType = Literal["int", "float", "bool", "str", "dtype", "int[]"] | str
"""``int[2]`` and its like carry their length; ``int|float|bool`` is any of these, told apart."""


Default = int | float | bool | str | tuple[int, ...] | None


class _Required:
    """The default of an attribute that has none."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()


@dataclass(frozen=True, slots=True)
class Param:
    """A tensor parameter, or a list of tensors."""

    name: str
    dtype: str
    """As written: a class letter with optional digits, or a dtype's name."""
    axes: tuple[Axis, ...]
    optional: bool = False
    mutable: bool = False
    """Written in place."""
    is_list: bool = False
    mixed: bool = False
    """Of a list (``list[*T[...]]``): each tensor has a dtype of its own, of the letter's class."""

    @property
    def letter(self) -> str | None:
        """The dtype letter (``F1``), or None where the dtype is a literal, or each tensor's own."""
        return self.dtype if LETTER.match(self.dtype) and not self.mixed else None

    @property
    def broadcast(self) -> bool:
        """Whether its axes are ``*X`` alone, so that a Python scalar may stand for it."""
        return len(self.axes) == 1 and isinstance(self.axes[0], str) and self.axes[0].startswith("*")

    def __str__(self) -> str:
        text = tensor_text(self.dtype, self.axes)
        if self.is_list:
            text = f"list[{'*' if self.mixed else ''}{text}]"
        return f"{self.name}: {'mut ' if self.mutable else ''}{text}{'? = None' if self.optional else ''}"


@dataclass(frozen=True, slots=True)
class Attribute:
    """A keyword that is no tensor."""

    name: str
    type: AttributeType
    """``int``, ``float``, ``bool``, ``str``, ``dtype``, ``int[]``, ``int[2]`` or ``int|float``, without the ``?``."""
    nullable: bool = False
    """Whether None is a value of it (``?`` in the schema)."""
    default: Any = REQUIRED

    @property
    def integral(self) -> bool:
        """Whether it may hold integers, so that sizes may depend on it."""
        return self.type.startswith("int[") or "int" in self.kinds

    @property
    def kinds(self) -> tuple[str, ...]:
        """The types it is any of: one, but for ``int|float`` and its like."""
        return tuple(self.type.split("|"))

    def __str__(self) -> str:
        text = f"{self.name}: {self.type}{'?' if self.nullable else ''}"
        return text if self.default is REQUIRED else f"{text} = {self.default!r}"


@dataclass(frozen=True, slots=True)
class Output:
    """An output; a single unnamed one is called ``out``."""

    name: str
    dtype: str
    axes: tuple[Axis, ...]

    @property
    def letter(self) -> str | None:
        """The dtype letter (``F1``), or None where the dtype is a literal."""
        return self.dtype if LETTER.match(self.dtype) else None

    def __str__(self) -> str:
        return f"{self.name}: {tensor_text(self.dtype, self.axes)}"


def tensor_text(dtype: str, axes: tuple[Axis, ...]) -> str:
    """Return dtype and axes as a schema has them: ``F[N, C]``."""
    return f"{dtype}[{', '.join(a.text if isinstance(a, Expr) else str(a) for a in axes)}]"
