"""A session of tuning: the jobs of a request or a plan, on one device or several, each written when it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nbx_registry.errors import NbxError, SignatureError
from nbx_registry.plan import Plan
from nbx_registry.target import Target
from nbx_registry.tuning import store
from nbx_registry.tuning.jobs import Job, Jobs, of_plan, of_request
from nbx_registry.tuning.key import Excluded, Stopwatch, Tell, Tuned, tune_key

if TYPE_CHECKING:
    from nbx_registry.registry import Registry


@dataclass(frozen=True)
class Failure:
    """A key for which nothing was found, and why."""

    kernel: str
    key: Mapping[str, Any]
    code: str
    message: str


@dataclass(frozen=True)
class Outcome:
    """What came of a session.

    Attributes
    ----------
    tuned
        Keys for which settings were found, and are written.
    failed
        Keys for which none were.
    left
        What was not tuned, in words: kernels without a space, entries that nothing may run.
    files
        Where settings were written.
    """

    tuned: tuple[Tuned, ...]
    failed: tuple[Failure, ...]
    left: tuple[str, ...]
    files: tuple[Path, ...]


Watch = Callable[[Tuned | Failure], None]
"""Is told of each key when it is done."""


def tune(
    registry: Registry,
    op: str | Plan,
    tensors: Sequence[Any] = (),
    attributes: Mapping[str, Any] | None = None,
    *,
    devices: Sequence[str] | None = None,
    kernel: str | None = None,
    out: Path | None = None,
    apart: bool = False,
    stopwatch: Stopwatch | None = None,
    watch: Watch | None = None,
) -> Outcome:
    """Tune the keys of a request, or of a plan, and write what was found.

    Parameters
    ----------
    op, tensors, attributes
        As `Registry.decide` takes them. Values of arrays and Python scalars are those that is tuned on; for specs they
        are drawn. A plan stands alone.
    devices
        Live handles, or products of which all that are here are meant: they share the keys. Left out, those of a plan,
        else where the arrays are.
    kernel
        This one alone.
    out
        A folder, or a file that ends in ``.json``; by default the user's folder of settings.
    apart
        Whether another process tunes, where it is not the host that is tuned for, so that a candidate that ends its
        process, hangs, or leaves the device of no use to it is excluded like any other. It has the plugins that are
        installed, and no others. Keys that several devices share are always tuned so.
    stopwatch, watch
        What takes the times, for tests, in this process; who is told of each key.

    Raises
    ------
    SignatureError
        The request does not fit, or an extent of its key is 0.
    Refused
        Nothing may run it.
    NbxError
        A device is not here, or what is in ``out`` is no settings file of the product.
    """
    from nbx_registry.tuning import processes  # most sessions have one device

    found: list[Tuned | Failure] = []
    left: dict[str, None] = {}
    files: dict[Path, None] = {}
    for targets, jobs in _groups(registry, op, tensors, attributes or {}, devices, kernel):
        left |= jobs.left
        if not jobs.jobs:
            continue
        product = _product(targets[0])
        file = store.file_for(product, out)
        store.check(file, product)
        files[file] = None
        several = len(targets) > 1 and len(jobs.jobs) > 1
        if (several or (apart and targets[0].runtime_name != "host")) and all(map(processes.can_send, jobs.jobs)):
            results = processes.shared(registry, jobs.jobs, targets, file)
        else:
            results = _alone(registry, jobs.jobs, targets[0], file, stopwatch)
        for result in results:
            found.append(result)
            if watch is not None:
                watch(result)
    return Outcome(
        tuple(one for one in found if isinstance(one, Tuned)),
        tuple(one for one in found if isinstance(one, Failure)),
        tuple(left),
        tuple(files),
    )


def finish(
    registry: Registry,
    job: Job,
    target: Target,
    file: Path,
    stopwatch: Stopwatch | None = None,
    avoided: Sequence[Excluded] = (),
    tell: Tell | None = None,
) -> Tuned | Failure:
    """Tune one key, as `tune_key` does, and write it; what stands in the way of that key is a `Failure`."""
    try:
        tuned = tune_key(registry, job, target, stopwatch, avoided, tell)
        store.merge(file, tuned.device, [tuned.entry()])
    except NbxError as error:
        return Failure(job.kernel.id, job.key, error.code, str(error))
    return tuned


def _alone(
    registry: Registry, jobs: Sequence[Job], target: Target, file: Path, stopwatch: Stopwatch | None
) -> Iterator[Tuned | Failure]:
    for job in jobs:
        yield finish(registry, job, target, file, stopwatch)


def _groups(
    registry: Registry,
    op: str | Plan,
    tensors: Sequence[Any],
    attributes: Mapping[str, Any],
    devices: Sequence[str] | None,
    pin: str | None,
) -> Iterator[tuple[list[Target], Jobs]]:
    """Yield, for each product, the devices that are here and what there is to tune on them."""
    if isinstance(op, Plan):
        if tensors or attributes or pin is not None:
            raise SignatureError("a plan holds its requests and pins; beside it only devices and out= are taken")
        for targets in present(registry, op.devices if devices is None else devices):
            yield targets, of_plan(registry, op, targets[0])
        return
    signature, place = registry.signature(op, *tensors, **attributes)
    given = _given(registry, op, tensors, attributes)
    for targets in present(registry, [place] if devices is None else devices):
        yield targets, of_request(registry, signature, targets[0], pin, given)


def _given(registry: Registry, op: str, tensors: Sequence[Any], attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that a request holds: those of arrays on the host, and Python scalars."""
    contract = registry.catalog.op(op)
    values, _ = contract.arguments(tensors, attributes)
    known = (bool, int, float, np.ndarray)
    return {p.name: v for p, v in zip(contract.tensors, values, strict=True) if isinstance(v, known)}


def present(registry: Registry, names: Sequence[str]) -> list[list[Target]]:
    """Return the live devices that names mean, by product. Raises `NbxError` for one that is not here."""
    groups: dict[str, dict[str, Target]] = {}
    for name in names:
        target = registry.target(name)
        if target.device is None:
            raise NbxError(f"{name} cannot be tuned: {target.why}; would do if {target.way}")
        found = [target] if target.present else []
        if not found and target.runtime_name in registry.catalog.runtimes:
            found = [live for live in registry.live(target.runtime_name) if live.device is target.device]
        if not found:
            raise NbxError(f"{name} is not present here, and times are taken on the device itself (nbx devices)")
        for live in found:
            groups.setdefault(_product(live), {})[live.name] = live
    return [list(targets.values()) for targets in groups.values()]


def alike(registry: Registry, names: Sequence[str], count: int | None) -> list[str]:
    """Return handles of so many devices here, of the products of those named; of all for None.

    Raises `NbxError` where there are fewer.
    """
    found: list[str] = []
    for targets in present(registry, names):
        first = targets[0]
        live = [target for target in registry.live(first.runtime_name) if target.device is first.device]
        chosen = [*targets, *(target for target in live if target not in targets)]
        if count is not None and count > len(chosen):
            raise NbxError(f"{count} devices of {_product(first)} are asked for, and {len(chosen)} here (nbx devices)")
        found += [target.name for target in (chosen if count is None else chosen[:count])]
    return found


def _product(target: Target) -> str:
    assert target.device is not None
    return target.device.id
