"""Settings spaces: what may be tried of a kernel's launch settings, as data. Imports no toolkit.

``Kernel.settings`` names one, ``module:NAME``, beside the kernel's code::

    SETTINGS = Space(
        parameters={"block": (64, 128, 256), "warps": (4, 8)},
        exclude={
            "a block wider than the row": "block > 2 * N",
            "shared memory": "4 * block * warps > device.shared.bytes_per_block",
        },
    )

Its candidates are the product of the parameters' values. A rule is an expression over these, the op's axes, attributes
and tensors, and ``device.<fact>``; where it holds the candidate is excluded by the rule's name, before anything is
compiled. What only the compiler knows is asked of what it made: `over_limit`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, Final, cast

from nbx_registry import expr
from nbx_registry.errors import ExpressionError, MissingFact, NbxError, PluginFault, SignatureError, UnknownName
from nbx_registry.expr import Expr
from nbx_registry.launch import Artifact, Launch

if TYPE_CHECKING:
    from nbx_registry.device import Device
    from nbx_registry.kernel import Kernel
    from nbx_registry.op import Op
    from nbx_registry.signature import Signature

MAX_CANDIDATES: Final = 1024
"""Of one space, the excluded ones among them: each of the others is compiled and run."""

SHARED: Final = "shared memory"
"""The name under which a candidate is excluded whose code takes more shared memory than the device has."""

_SHARED_FACTS: Final = ("shared.bytes_per_block_optin", "shared.bytes_per_block")
"""Most shared memory of a block, where it is asked for, and where it is not."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One choice of settings.

    Attributes
    ----------
    settings
        By parameter, those that the space leaves alone at their defaults.
    excluded
        The name of the rule that excludes it; empty where none does.
    reason
        That rule with its values, or the fact it lacks.
    """

    settings: Mapping[str, Any]
    excluded: str = ""
    reason: str = ""

    def __str__(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.settings.items())


@dataclass(frozen=True, kw_only=True)
class Space:
    """What may be tried of one kernel's settings.

    Attributes
    ----------
    parameters
        The values of each setting, its default among them: numbers, booleans, strings, None, or tuples of these.
    exclude
        Expressions by the name of the rule; a candidate for which one holds is not tried.
    """

    parameters: Mapping[str, tuple[Any, ...]]
    exclude: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def size(self) -> int:
        """How many candidates there are, excluded ones too."""
        return prod(len(values) for values in self.parameters.values())

    def candidates(self, kernel: Kernel, signature: Signature, device: Device) -> Iterator[Candidate]:
        """Yield every candidate for a signature on a device, which need not be here; nothing is compiled.

        A rule that asks for a fact that nobody stated excludes: what may be beyond a limit is not tried. Raises
        `PluginFault` for a rule that cannot be computed.
        """
        rules = [(name, expr.parse(text)) for name, text in self.exclude.items()]
        for values in itertools.product(*self.parameters.values()):
            settings = {**kernel.defaults, **dict(zip(self.parameters, values, strict=True))}
            yield _candidate(kernel, rules, settings, signature, device)

    def outside(self, kernel: Kernel, signature: Signature, device: Device, settings: Mapping[str, Any]) -> str:
        """Return why settings are none of its candidates for a signature on a device; empty where they are one.

        Settings that the space leaves alone may have any value.
        """
        for name, values in self.parameters.items():
            if not any(_same(settings[name], value) for value in values):
                return f"{name}={settings[name]!r} is none of {values!r}"
        rules = [(name, expr.parse(text)) for name, text in self.exclude.items()]
        candidate = _candidate(kernel, rules, settings, signature, device)
        return candidate.excluded and f"excluded by {candidate.excluded!r}: {candidate.reason}"


def of(kernel: Kernel, op: Op, found: object) -> Space:
    """Return what a kernel's ``settings`` led to, once it is known to be a space of that kernel.

    Raises `PluginFault` naming kernel and reference for anything else: a parameter without default, or whose default is
    none of its values; a parameter called as a name of the op; a rule that does not parse or reads an unknown name; too
    many candidates.
    """
    problem = next(_problems(kernel, op, found), None)
    if problem is not None:
        raise PluginFault(f"{kernel.settings!r}, settings of kernel {kernel.id!r}: {problem}", where=kernel.settings)
    return cast("Space", found)


def given(kernel: Kernel, signature: Signature, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a kernel's settings with those given in the place of defaults.

    Raises `UnknownName` for one that the kernel lacks, `SignatureError` where an extent in its key is 0.
    """
    for name in settings:
        if name not in kernel.defaults:
            has = f"it has {', '.join(kernel.defaults)}" if kernel.defaults else "it has none"
            raise UnknownName.of(f"setting of {kernel.id}", name, kernel.defaults, has)
    for text in extents(kernel, signature.op):
        if not expr.parse(text).evaluate(signature.value):
            raise SignatureError(
                f"{text} of the key of {kernel.id} is an extent of 0 in {signature}: there is nothing to run, and so "
                "nothing to set",
                code="SHAPE",
            )
    return {**kernel.defaults, **settings}


def extents(kernel: Kernel, op: Op) -> tuple[str, ...]:
    """Return the expressions of a kernel's key that are extents: where one is 0 there is nothing to run."""
    return _extents(kernel.key, op)


def over_limit(launches: Iterable[Launch], device: Device) -> str:
    """Return in words which launch takes more shared memory than a device has; empty where none does.

    What it takes is the compiler's word and the launch's own, the limit is the device file's. Only of compiled code
    that was not loaded can it be told: of a program bound for the product. Raises `MissingFact` where no limit is
    stated for code that takes some.
    """
    for launch in launches:
        artifact = launch.function
        if not isinstance(artifact, Artifact):
            continue
        used = max(artifact.shared_bytes, launch.shared_bytes)
        limit = next((device.fact(key) for key in _SHARED_FACTS if key in device.facts), None)
        if used and limit is None:
            raise device.missing(_SHARED_FACTS[0])
        if limit is not None and used > limit:
            return f"{artifact.entry} takes {used} bytes a block; {device.id} has {limit}"
    return ""


def _candidate(
    kernel: Kernel,
    rules: Iterable[tuple[str, Expr]],
    settings: Mapping[str, Any],
    signature: Signature,
    device: Device,
) -> Candidate:
    def look_up(path: str) -> Any:
        if path in settings:
            return settings[path]
        return device.values[path[7:]] if path.startswith("device.") else signature.value(path)

    for name, rule in rules:
        try:
            if rule.evaluate(look_up):
                return Candidate(settings, name, rule.explain(look_up))
        except MissingFact as missing:
            return Candidate(settings, name, f"{rule.text}: {missing}")
        except ExpressionError as error:
            raise PluginFault(
                f"rule {name!r} of {kernel.settings!r}, settings of kernel {kernel.id!r}: {error}",
                where=kernel.settings,
            ) from error
    return Candidate(settings)


def _is_extent(op: Op, text: str) -> bool:
    name = op.names.get(text.strip())
    return name is not None and (name.kind == "axis" or name.field in ("size", "nbytes"))


@lru_cache(maxsize=4096)
def _extents(key: tuple[str, ...], op: Op) -> tuple[str, ...]:
    return tuple(text for text in key if _is_extent(op, text))


def _problems(kernel: Kernel, op: Op, found: object) -> Iterator[str]:
    if not isinstance(found, Space):
        yield f"is a {type(found).__name__}; write nbx_registry.Space(parameters={{...}})"
        return
    # A module of a plugin's may hold anything, whatever the annotations say.
    parameters = cast("Mapping[object, object]", found.parameters)
    if not parameters:
        yield "has no parameters, and so nothing to try; leave out settings="
    for name, values in parameters.items():
        if not isinstance(name, str) or not name.isidentifier():
            yield f"parameter {name!r} is no identifier"
            continue
        if not isinstance(values, tuple) or not values or not all(map(_plain, cast("tuple[object, ...]", values))):
            yield f"values of {name!r} are {values!r}; write a tuple of numbers, booleans, printable strings or None"
            continue
        known = cast("tuple[Any, ...]", values)
        if any(_same(value, other) for value, other in itertools.combinations(known, 2)):
            yield f"values of {name!r} are {known!r}, one of them twice"
        if name not in kernel.defaults:
            yield f"parameter {name!r} has no default; write it in defaults="
        elif kernel.defaults[name] not in known:
            yield f"the default {name}={kernel.defaults[name]!r} is none of its values {known!r}"
        if name in op.names:
            yield f"parameter {name!r} is called as what {op.id} calls so already; give it another name"
    if found.size > MAX_CANDIDATES:
        yield f"has {found.size} candidates; at most {MAX_CANDIDATES}"
    for rule, text in found.exclude.items():
        yield from (f"rule {rule!r}: {problem}" for problem in _of_rule(text, kernel, op))


def _of_rule(text: str, kernel: Kernel, op: Op) -> Iterator[str]:
    try:
        names = expr.parse(text).names
    except NbxError as error:
        yield f"{error}"
        return
    for name in sorted(names):
        if name not in kernel.defaults and name not in op.names and not name.startswith("device."):
            yield str(UnknownName.of("name", name, (*kernel.defaults, *op.names), f"{text!r} reads it"))


def _same(one: object, other: object) -> bool:
    # 1, 1.0 and True are equal, and may be three settings.
    return type(one) is type(other) and one == other


def _plain(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(_plain, cast("tuple[object, ...]", value)))
    if isinstance(value, float) and not math.isfinite(value):
        return False
    if isinstance(value, str) and not value.isprintable():
        return False
    return value is None or type(value) in (bool, int, float, str)
