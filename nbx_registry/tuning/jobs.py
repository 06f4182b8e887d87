"""Jobs: what there is to tune of a request or a plan, each kernel's key once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nbx_registry.choice import Choice
from nbx_registry.errors import NbxError
from nbx_registry.kernel import Kernel
from nbx_registry.plan import Plan
from nbx_registry.planentry import PlanEntry
from nbx_registry.signature import Signature
from nbx_registry.target import Target

if TYPE_CHECKING:
    from nbx_registry.registry import Registry


@dataclass(frozen=True)
class Job:
    """One key of one kernel, to be tuned.

    Attributes
    ----------
    key
        Each expression of the kernel's key with its value, as settings files hold it.
    given
        Values by parameter that are to be taken as they are; others are drawn.
    """

    kernel: Kernel
    signature: Signature
    key: Mapping[str, Any]
    given: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __str__(self) -> str:
        return f"{self.kernel.id} for {shown(self.key)}"


@dataclass
class Jobs:
    """What there is to tune.

    Attributes
    ----------
    jobs
        In the order of first need.
    left
        What is not tuned, in words: kernels without a space, entries that nothing may run.
    """

    jobs: list[Job] = field(default_factory=list[Job])
    left: dict[str, None] = field(default_factory=dict[str, None])
    _known: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    def add(self, job: Job) -> None:
        """Append a job, unless its key is there already."""
        known = (job.kernel.id, repr(job.key))
        if known not in self._known:
            self._known.add(known)
            self.jobs.append(job)


def of_request(
    registry: Registry, signature: Signature, target: Target, pin: str | None, given: Mapping[str, Any]
) -> Jobs:
    """Return what there is to tune of a request: every kernel that may run it and states a space, or the pinned one.

    Of a composite that would run it, the same of its parts. Raises `Refused` or `PluginFault` where nothing may run it.
    """
    found = Jobs()
    registry.programs.choose(signature, target, "any", pin)
    _collect(found, registry, signature, target, pin, given)
    return found


def of_plan(registry: Registry, plan: Plan, target: Target) -> Jobs:
    """Return what there is to tune of a plan's entries on a target.

    A plan that has entries for the target's product has the others for other products, and only those are tuned here;
    one that has none may be of a machine of another kind, and all of it is. Raises as `Plan.requests`.
    """
    found = Jobs()
    assert target.device is not None
    for entry, signature in plan.requests(registry.catalog):
        if entry.device != target.device.id and target.device.id in plan.devices:
            continue
        try:
            registry.programs.choose(signature, target, "any", entry.pin)
        except NbxError as error:
            found.left[str(error)] = None
            continue
        _collect(found, registry, signature, target, entry.pin, {})
    return found


def _collect(
    found: Jobs, registry: Registry, signature: Signature, target: Target, pin: str | None, given: Mapping[str, Any]
) -> None:
    assert target.device is not None
    chosen = registry.programs.choose(signature, target, "any", pin)
    pins = [pin] if pin is not None else [kernel.id for kernel in registry.catalog.by_op.get(signature.op.id, ())]
    for identifier in pins:
        kernel = registry.catalog.kernel(identifier)
        if kernel.backend in ("composite", "view") or registry.programs.refused(signature, target, identifier):
            continue
        if kernel.settings is None:
            found.left[f"{kernel.id} states no settings, and so has nothing to tune"] = None
            continue
        values = registry.programs.key(kernel, signature, target.device)
        found.add(Job(kernel, signature, dict(zip(kernel.key, map(plain, values), strict=True)), given))
    for part, step in _parts(chosen):
        if part.kernel.backend != "composite":
            _collect(found, registry, step, target, None, {})


def _parts(choice: Choice) -> Iterator[tuple[Choice, Signature]]:
    if choice.expansion is None:
        return
    for step, part in zip(choice.expansion.steps, choice.parts, strict=True):
        yield part, step.signature
        yield from _parts(part)


def sent(registry: Registry, job: Job, target: Target) -> PlanEntry:
    """Return a job as another process is told of it."""
    choice = registry.programs.choose(job.signature, target, "any", job.kernel.id)
    return PlanEntry.of(registry.catalog, job.signature, choice, target, "any", job.kernel.id)


def received(registry: Registry, entry: PlanEntry, target: Target, given: Mapping[str, Any]) -> Job:
    """Return the job that another process told of. Raises `NbxError` where its op or kernel is not here."""
    assert target.device is not None
    signature = entry.signature(registry.catalog.op(entry.op))
    kernel = registry.catalog.kernel(entry.kernel)
    values = registry.programs.key(kernel, signature, target.device)
    return Job(kernel, signature, dict(zip(kernel.key, map(plain, values), strict=True)), given)


def plain(value: Any) -> Any:
    """Return a key's or setting's value as JSON gives it back."""
    return [plain(item) for item in value] if isinstance(value, (tuple, list)) else value  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def shown(values: Mapping[str, Any]) -> str:
    """Return names with their values in one line."""
    return ", ".join(f"{name}={value}" for name, value in values.items())
