"""Representatives: the few cases of each kernel on which it is worth to look long."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

from nbx_conformance.cases import Case, CaseTable
from nbx_conformance.problems.parts import batch_of
from nbx_conformance.problems.problem import Problem
from nbx_registry.errors import NbxError
from nbx_registry.kernel import Kernel
from nbx_registry.registry import Registry
from nbx_registry.target import Target


@dataclass
class Representatives:
    """Of each kernel, the first case of each combination of dtypes that it computes.

    Only cases with elements count; those with an axis of one element only where the kernel takes no other of the same
    dtypes, and those of the size ``full`` only where it takes none of ``smoke``. Nothing but decisions is asked for, so
    that every process of a run finds the same.
    """

    registry: Registry
    cases: CaseTable
    target: Target
    _found: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    _widest: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])

    def of(self, kernel: Kernel) -> tuple[str, ...]:
        """Return the ids of a kernel's representatives, in the order of the cases."""
        found = self._found.get(kernel.id)
        if found is None:
            cases = self.cases.of(kernel.op, "full")
            smoke = [case for case in cases if case.size == "smoke"]
            found = tuple(self._first_of_each(kernel, smoke))
            if not found:
                found = tuple(self._first_of_each(kernel, [case for case in cases if case.size == "full"]))
            self._found[kernel.id] = found
        return found

    def widest(self, kernel: Kernel) -> frozenset[str]:
        """Return the ids of the smoke cases with most places along their batch axis, one of each combination of dtypes.

        A kernel may go another way from some number of rows on.
        """
        found = self._widest.get(kernel.id)
        if found is None:
            most: dict[Hashable, tuple[int, str]] = {}
            for case in self.cases.of(kernel.op, "smoke"):
                if case.refuses or not case.batch or not case.contiguous or case.runtime not in self._runtimes:
                    continue
                extent = batch_of(Problem(self.registry.catalog.op(case.op), case)).extent
                if extent > most.get(_dtypes(case), (1, ""))[0] and self._takes(kernel, case):
                    most[_dtypes(case)] = extent, case.id
            found = self._widest[kernel.id] = frozenset(name for _, name in most.values())
        return found

    @property
    def _runtimes(self) -> tuple[str | None, ...]:
        return (None, self.target.runtime_name)

    def _first_of_each(self, kernel: Kernel, cases: list[Case]) -> Iterator[str]:
        asked = [case for case in cases if not case.refuses and case.runtime in self._runtimes]
        seen: set[Hashable] = set()
        # In a single element there is nothing to be done in another order.
        for case in sorted(asked, key=lambda case: any(1 in spec.shape for spec in case.specs())):
            kind = _dtypes(case)
            if kind not in seen and self._takes(kernel, case):
                seen.add(kind)
                yield case.id

    def _takes(self, kernel: Kernel, case: Case) -> bool:
        try:
            signature = Problem(self.registry.catalog.op(case.op), case).signature
            if any(spec.size == 0 for spec in (*case.specs(), *signature.outputs)):
                return False
            self.registry.programs.choose(signature, self.target, "any", kernel.id)
        except NbxError:
            # Whether a refusal, or a predicate that raises, is right is for the case's own trial to say.
            return False
        return True


def _dtypes(case: Case) -> Hashable:
    """Return the dtypes of each tensor, those of a list once each; of an op without tensors its attributes decide."""
    if not case.tensors:
        return case.attributes.get("dtype")
    return tuple(
        (name, tuple(dict.fromkeys(spec.dtype.name for spec in value)))
        if isinstance(value, tuple)
        else (name, type(value).__name__)
        if isinstance(value, bool | int | float)
        else (name, value.dtype.name)
        for name, value in case.tensors.items()
    )
