"""The census of a plan: every launch key that it needs on a device, which may be absent. Nothing is loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from nbx_registry.catalog import Catalog
from nbx_registry.choice import Choice
from nbx_registry.decision import Decision
from nbx_registry.plan import Plan
from nbx_registry.planentry import PlanEntry
from nbx_registry.selection import Selector
from nbx_registry.signature import Signature
from nbx_registry.target import Target


@dataclass(frozen=True, slots=True)
class LaunchKey:
    """What identifies a launch: a kernel, where it runs, its key and its settings."""

    kernel: str
    device: str
    """Product id."""
    arch: str
    """The compile target."""
    key: tuple[tuple[str, object], ...]
    """Each expression of the kernel's key with its value; a dtype is its short name, what is left out None."""
    settings: tuple[tuple[str, object], ...]
    """The launch settings in force, by name."""

    def __str__(self) -> str:
        shown = ", ".join(f"{name}={value}" for name, value in self.key)
        settings = ", ".join(f"{name}={value}" for name, value in self.settings)
        return f"{self.kernel} [{self.arch}] ({shown}){f' {{{settings}}}' if settings else ''}"


@dataclass(frozen=True, slots=True)
class Census(Sequence[LaunchKey]):
    """Launch keys, each once, in the order of first need. What has no kernel on the device is told beside them."""

    keys: tuple[LaunchKey, ...]
    refused: tuple[tuple[PlanEntry, Decision], ...] = ()
    """Entries that nothing may run on the device, each with why."""

    @overload
    def __getitem__(self, index: int) -> LaunchKey: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[LaunchKey, ...]: ...
    def __getitem__(self, index: int | slice) -> LaunchKey | tuple[LaunchKey, ...]:
        """Return a key by its place."""
        return self.keys[index]

    def __len__(self) -> int:
        return len(self.keys)

    def __str__(self) -> str:
        return "\n".join([*map(str, self.keys), *(f"refused: {decision}" for _, decision in self.refused)])


def census(plan: Plan, catalog: Catalog, selector: Selector, target_of: Callable[[str], Target]) -> Census:
    """Return the launch keys of a plan, each entry decided anew on the target that ``target_of`` gives its device.

    Raises as `Plan.requests`, and `PluginFault` for a key that cannot be formed.
    """
    found: dict[LaunchKey, None] = {}
    refused: list[tuple[PlanEntry, Decision]] = []
    for entry, signature in plan.requests(catalog):
        target = target_of(entry.device)
        choice = selector.choose(signature, target, entry.require, entry.pin)
        if choice is None:
            refused.append((entry, selector.decide(signature, target, entry.require, entry.pin)))
        else:
            found.update(dict.fromkeys(keys_of(selector, choice, signature, target)))
    return Census(tuple(found), tuple(refused))


def keys_of(selector: Selector, choice: Choice, signature: Signature, target: Target) -> Iterator[LaunchKey]:
    """Yield the launch keys of a choice: of a composite those of its parts, of a view none."""
    if choice.expansion is not None:
        for step, part in zip(choice.expansion.steps, choice.parts, strict=True):
            yield from keys_of(selector, part, step.signature, target)
        return
    kernel, device = choice.kernel, target.device
    if kernel.backend == "view":
        return
    assert device is not None
    values = selector.key(kernel, signature, device)
    yield LaunchKey(
        kernel=kernel.id,
        device=device.id,
        arch=device.arch,
        key=tuple(zip(kernel.key, values, strict=True)),
        settings=tuple(sorted((name, _hashable(value)) for name, value in choice.settings.items())),
    )


def _hashable(value: object) -> object:
    return tuple(map(_hashable, value)) if isinstance(value, (list, tuple)) else value  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
