"""The largest cases of each kernel: those on which a time says whether the work was done."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from nbx_conformance.cases import Case, CaseTable, values
from nbx_conformance.problems.problem import Problem
from nbx_conformance.problems.roof import Roof
from nbx_registry.errors import NbxError
from nbx_registry.kernel import Kernel
from nbx_registry.op import Signature
from nbx_registry.registry import Registry
from nbx_registry.spec import TensorSpec
from nbx_registry.target import Target

SPAN: Final = 5
"""How many times the caches the sets of a cold time hold: beyond four, of which a cache could keep a quarter."""

MOST_SETS: Final = 64
"""Of one case: smaller operands are a matter of launching."""

LEAST_S: Final = 20e-6
"""Seconds of one run by the roof, ten times what launching nothing takes."""

DENSE: Final = frozenset({"normal", "large_mean", "opposed", "uniform", "nonzero", "wide"})
"""Value strategies of which no element decides a result by itself, as a NaN or a 0 can."""


@dataclass
class Largest:
    """Of each kernel, and of each size beyond smoke, the case with the greatest least time that it computes.

    Only cases whose values hide no work count, and whose least time is well above that of a launch. Nothing but
    decisions is asked for, so that every process of a run finds the same.
    """

    registry: Registry
    cases: CaseTable
    target: Target
    roof: Roof
    _found: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    _times: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])

    def of(self, kernel: Kernel) -> frozenset[str]:
        """Return the ids of a kernel's largest cases."""
        found = self._found.get(kernel.id)
        if found is None:
            found = self._found[kernel.id] = frozenset(self._choose(kernel))
        return found

    def _choose(self, kernel: Kernel) -> Iterator[str]:
        times = self._of_op(kernel.op)
        for size in ("full", "large"):
            cases = [case for case in self.cases.of(kernel.op, "large") if case.size == size and case.id in times]
            for case in sorted(cases, key=lambda case: -times[case.id]):
                if self._takes(kernel, case):
                    yield case.id
                    break

    def _of_op(self, op: str) -> dict[str, float]:
        """Return the least time of each case that has one, whatever the kernel."""
        found = self._times.get(op)
        if found is None:
            found = self._times[op] = {}
            for case in self.cases.of(op, "large"):
                if case.refuses or case.size == "smoke" or case.runtime not in (None, self.target.runtime_name):
                    continue
                seconds = self.least_s(case)
                if seconds >= LEAST_S:
                    found[case.id] = seconds
        return found

    def least_s(self, case: Case) -> float:
        """Return the least time of a run on a case; 0 where its values may hide work, or its operands are too small."""
        try:
            signature = Problem(self.registry.catalog.op(case.op), case).signature
            cost = signature.op.cost(signature)
        except NbxError:
            # That a case does not fit its contract is for its own trial, and for the linter, to say.
            return 0.0
        runs = sets(cost.least_bytes, self.roof)
        return self.roof.least_s(cost, runs) if runs <= MOST_SETS and is_dense(case, signature) else 0.0

    def _takes(self, kernel: Kernel, case: Case) -> bool:
        signature = Problem(self.registry.catalog.op(case.op), case).signature
        try:
            self.registry.programs.choose(signature, self.target, "any", kernel.id)
        except NbxError:
            # As for representatives: the case's own trial says whether that is right.
            return False
        return True


def sets(least_bytes: int, roof: Roof) -> int:
    """Return how many sets of operands are together `SPAN` times the caches."""
    return -(-SPAN * roof.cache_bytes // max(least_bytes, 1))


def is_dense(case: Case, signature: Signature) -> bool:
    """Whether no value of a case lets a kernel that is right do less than the contract's least cost.

    What indices, lengths and masks hide the contract knows. It knows no single elements: a product of integers is 0 at
    the first 0, a maximum NaN at the first NaN, and a power 1 where the exponent is 0.
    """
    inexact = any(spec.dtype.floating or spec.dtype.kind == "complex" for spec in _results(signature))
    for name, value in case.tensors.items():
        if isinstance(value, bool | int | float):
            if any(values.scalar(value, repetition) in (0, 1) for repetition in (0, 1)):
                return False
            continue
        strategy, _ = values.split(case.strategy(name))
        for spec in (value,) if isinstance(value, TensorSpec) else value:
            dense = strategy in DENSE if spec.dtype.floating or spec.dtype.kind == "complex" else inexact
            if not dense:
                return False
    return True


def _results(signature: Signature) -> Iterator[TensorSpec]:
    yield from signature.outputs
    for param, operand in zip(signature.op.tensors, signature.tensors, strict=True):
        if param.mutable and isinstance(operand, TensorSpec):
            yield operand
