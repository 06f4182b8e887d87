"""Programs: the bound programs of a catalog, each chosen and bound once, and counted."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from nbx_registry import space as spaces
from nbx_registry.catalog import Catalog
from nbx_registry.choice import Choice
from nbx_registry.counters import Counter, Counters
from nbx_registry.decision import Decision
from nbx_registry.device import Device
from nbx_registry.errors import NbxError, PluginFault, Refused
from nbx_registry.kernel import Kernel
from nbx_registry.program import BoundProgram, build
from nbx_registry.selection import Selector
from nbx_registry.signature import Signature
from nbx_registry.target import Target, load

if TYPE_CHECKING:
    from nbx_registry.settings import TunedEntry

LIMIT = 4096
"""How many bound programs are remembered."""


class Programs:
    """Bound programs by what was asked for. Safe to use from many threads.

    Attributes
    ----------
    counters : Counters
        Calls of what was bound, kept when programs are forgotten.
    """

    def __init__(self, catalog: Catalog, selector: Selector, counters: Counters) -> None:
        self.counters = counters
        self._catalog = catalog
        self._selector = selector
        self._bound: OrderedDict[tuple[object, ...], BoundProgram] = OrderedDict()
        self._kept: dict[tuple[object, ...], BoundProgram] = {}
        self._lock = threading.Lock()
        self._gates = [threading.RLock() for _ in range(64)]
        readers = (k for k in catalog.kernels.values() if any(".align" in text for text in (*k.when, *k.key)))
        # A composite runs anywhere, and an advisory may be about any kernel.
        self._align_readers = {runtime for kernel in readers for runtime in (kernel.runtimes or ("any",))}
        if any(".align" in advisory.when for advisory in catalog.advisories.advisories if advisory.when is not None):
            self._align_readers.add("any")

    def get(
        self, signature: Signature, target: Target, require: str, pin: str | None, *, keep: bool = False
    ) -> BoundProgram:
        """Return the bound program of a signature, made if new; with ``keep`` it is never forgotten.

        Raises `Refused` with the whole decision, or `PluginFault`.
        """
        key = (signature.op.id, signature.key, target, require, pin)
        found = self._kept.get(key) if self._kept else None
        if found is None:
            found = self._found(key, signature, target, require, pin)
        if keep:
            self._kept[key] = found
        return found

    def _found(
        self, key: tuple[object, ...], signature: Signature, target: Target, require: str, pin: str | None
    ) -> BoundProgram:
        found = self._bound.get(key)
        if found is not None:
            return found
        # Who asks for the same at the same time waits, rather than compile it once more.
        with self._gates[hash(signature.outputs) % len(self._gates)]:
            found = self._bound.get(key)
            if found is None:
                found = build(self.settle(signature, target, require, pin), signature, target, require, pin)
                with self._lock:
                    while len(self._bound) >= LIMIT:
                        self._bound.popitem(last=False)
                    self._bound[key] = found
        return found

    def choose(self, signature: Signature, target: Target, require: str, pin: str | None) -> Choice:
        """Return what runs a signature. Raises as `get`."""
        choice = self._selector.choose(signature, target, require, pin)
        if choice is None:
            raise why_not(self._selector.decide(signature, target, require, pin))
        return choice

    def settle(self, signature: Signature, target: Target, require: str, pin: str | None) -> Choice:
        """Return what runs a signature, as `choose` does, with settings that the kernel's space has for this device.

        Tuned ones that it has not become a miss, told by name, and what runs is chosen anew. Spaces lie beside the code
        of kernels, which is imported for that: only what is about to be bound is settled. Raises as `get`.
        """
        while True:
            choice = self.choose(signature, target, require, pin)
            found = next(self._outside(choice, signature, target), None)
            if found is None:
                return choice
            self._catalog.settings.reject(*found)
            self._selector.forget()

    def _outside(self, choice: Choice, signature: Signature, target: Target) -> Iterator[tuple[TunedEntry, str]]:
        """Yield the tuned settings of a choice, those of a composite's parts included, that are in no space here."""
        if choice.expansion is not None:
            for step, part in zip(choice.expansion.steps, choice.parts, strict=True):
                yield from self._outside(part, step.signature, target)
        kernel, device = choice.kernel, target.device
        if choice.tuned is None or kernel.settings is None or device is None:
            return
        space = spaces.of(kernel, signature.op, load(kernel.settings))
        why = space.outside(kernel, signature, device, choice.settings)
        if why:
            yield choice.tuned, why

    def key(self, kernel: Kernel, signature: Signature, device: Device) -> tuple[object, ...]:
        """Return the values of a kernel's launch key, in its order. Raises `PluginFault` where one cannot be told."""
        return self._selector.key(kernel, signature, device)

    def refused(self, signature: Signature, target: Target, kernel: str) -> bool:
        """Return whether a kernel may not run a signature, whatever has been checked about it."""
        return self._selector.choose(signature, target, "any", kernel) is None

    def reads_alignment(self, runtime: str) -> bool:
        """Return whether something in the way of a runtime's kernels may ask how operands are aligned."""
        return runtime in self._align_readers or "any" in self._align_readers

    def realigned(self, bound: BoundProgram, aligns: Sequence[int]) -> BoundProgram:
        """Return the program for operands that are aligned as given, parameters first, then outputs.

        It is decided anew: another kernel may be the one that takes them. Raises as `get`.
        """
        signature = bound.signature
        given = iter(aligns)
        tensors = [
            tuple(spec.aligned(next(given)) for spec in operand)
            if isinstance(operand, tuple)
            else None
            if operand is None
            else operand.aligned(next(given))
            for operand in signature.tensors
        ]
        changed = signature.op.signature(tensors, signature.attributes)
        changed.outputs = tuple(spec.aligned(next(given)) for spec in signature.outputs)
        return self.get(changed, bound.target, bound.require, bound.pin)

    def decision(self, bound: BoundProgram) -> Decision:
        """Return the decision behind a bound program."""
        return self._selector.decide(bound.signature, bound.target, bound.require, bound.pin)

    def counter(self, bound: BoundProgram) -> Counter:
        """Return the counter of calls of a bound program, shared by all of its op, kernel and device."""
        choice = bound.choice
        return self.counters.counter(bound.signature.op.id, choice.kernel.id, bound.target.name, choice.evidence)

    def fault(self, kernel: Kernel, error: BaseException) -> PluginFault:
        """Return the fault of a kernel that raised while it ran."""
        owner = self._catalog.owners[kernel.id]
        return PluginFault(
            f"{kernel.id} of {owner} raised {type(error).__name__}: {error}", plugin=owner, where=str(kernel.bind)
        )


def why_not(decision: Decision) -> NbxError:
    """Return the error for a decision without a kernel: `Refused`, or the fault of a plugin."""
    if not decision.faults:
        return Refused(decision)
    fault = decision.faults[0]
    return PluginFault(
        f"{fault.kernel}: fault in {fault.where} of {fault.plugin}: {fault.message}; block the kernel "
        f"(block=[{fault.kernel!r}]) to go on without it\n{fault.traceback}",
        plugin=fault.plugin,
        where=fault.where,
    )
