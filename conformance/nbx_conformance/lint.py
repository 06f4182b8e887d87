"""The linter of cases: every op has them, of every kind that applies to it, and every case fits its op's contract."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from nbx_conformance.cases import COSTS, Case, CaseTable, kinds, values
from nbx_conformance.checks import cost
from nbx_conformance.problems.parts import batch_of
from nbx_conformance.problems.problem import Problem
from nbx_conformance.problems.sample import LARGE, is_wide, problem_of
from nbx_registry import dtypes
from nbx_registry.dtypes import DType
from nbx_registry.errors import FileError, NbxError, SignatureError, nearest
from nbx_registry.op import Op, Signature
from nbx_registry.spec import TensorSpec

SMOKE_ELEMENTS = 2**21
"""Largest tensor of a smoke case: they also run interpreted."""

TRIED = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float8_e4m3fn"),
    *("float8_e5m2", "float16", "bfloat16", "float32", "float64", "complex64"),
)
"""Dtypes of which each has a case where a contract takes it: those that arrays of all libraries have."""

FEW = 8
"""Cases of a parameter in which another dtype is tried, the first ones."""

FEW_ELEMENTS = 2**13
"""Up to so many all values are made to see whether a strategy fits; of more, one row."""


def lint(table: CaseTable, ops: Iterable[Op]) -> list[str]:
    """Return what is wrong with the cases of these ops, a sentence each."""
    known = {op.id: op for op in ops}
    problems = [f"cases for {op}, which nobody registers{nearest(op, known)}" for op in sorted(table.ops - set(known))]
    for identifier, op in sorted(known.items()):
        if identifier not in table.ops:
            problems.append(f"op {identifier} has no conformance cases")
            continue
        cases = table.of(identifier, "large")
        problems += _of_op(op, cases)
        problems += _of_kinds(op, cases, table.without(identifier))
        problems += _of_costs(op, cases)
        for case in cases:
            problems += (f"{identifier}: case {case.id}: {problem}" for problem in _of_case(op, case))
    return problems


def _of_op(op: Op, cases: Iterable[Case]) -> Iterator[str]:
    computed = [case for case in cases if case.refuses is None]
    smoke = [case for case in computed if case.size == "smoke"]
    if not smoke:
        yield f"{op.id}: no smoke case is to be computed, so nothing would be measured"
    if not any(case.refuses for case in cases):
        yield f"{op.id}: no case is to be refused"
    if op.tensors and not any(spec.size == 0 for case in computed for spec in case.specs()):
        yield f"{op.id}: no case has a tensor without elements"
    used = {param.name for case in computed for param in op.tensors if param.name in case.tensors}
    for param in op.tensors:
        if param.name not in used:
            yield f"{op.id}: no case gives {param.name!r}"
        elif all(spec.contiguous for case in computed for spec in _given(case, param.name)):
            yield f"{op.id}: no case has a view for {param.name!r}"
    yield from _of_dtypes(op, computed)
    for attribute in op.attributes:
        if not any(attribute.name in case.attributes for case in computed):
            yield f"{op.id}: no case gives the attribute {attribute.name!r}"
    for field in COSTS:
        without = [case.id for case in computed if field not in case.cost]
        if without:
            yield f"{op.id}: no closed form of {field} in {len(without)} cases, {without[0]} first: give 'cost'"


def _given(case: Case, name: str) -> tuple[TensorSpec, ...]:
    """Return the specs of the arrays that a case gives for a parameter."""
    given = case.tensors.get(name)
    return (given,) if isinstance(given, TensorSpec) else given if isinstance(given, tuple) else ()


def _of_dtypes(op: Op, computed: Sequence[Case]) -> Iterator[str]:
    """Yield the dtypes that the contract takes for a parameter, alone or with all that share its dtype, in no case."""
    for param in op.tensors:
        own = [case for case in computed if _given(case, param.name)]
        seen = {spec.dtype for case in own for spec in _given(case, param.name)}
        others = [dtype for dtype in map(dtypes.get, TRIED) if dtype not in seen]
        missing = [dtype.name for dtype in others if any(_takes(op, case, param.name, dtype) for case in own[:FEW])]
        if missing:
            yield f"{op.id}: the contract takes {param.name} in {', '.join(missing)}, and no case is computed in that"


def _takes(op: Op, case: Case, name: str, dtype: DType) -> bool:
    (own, *_) = _given(case, name)
    for several in (False, True):

        def in_it(param: str, spec: TensorSpec, several: bool = several) -> TensorSpec:
            return TensorSpec(dtype, spec.shape) if param == name or (several and spec.dtype is own.dtype) else spec

        tensors = {
            param: in_it(param, value)
            if isinstance(value, TensorSpec)
            else tuple(in_it(param, item) for item in value)
            if isinstance(value, tuple)
            else value
            for param, value in case.tensors.items()
        }
        if _signature(op, replace(case, tensors=tensors)) is not None:
            return True
    return False


def _of_kinds(op: Op, cases: Sequence[Case], without: Mapping[str, str]) -> Iterator[str]:
    known = kinds.vocabulary()
    covered: set[str] = set()
    for case in cases:
        covered |= kinds.of_case(op, case, _signature(op, case))
        for name in case.kinds:
            if name not in known:
                yield f"{op.id}: case {case.id}: {name!r} is no kind{nearest(name, known)}"
            elif known[name].derived:
                yield f"{op.id}: case {case.id}: the kind {name!r} is not written: a case shows it by itself"
            elif not known[name].applies_to(op):
                yield f"{op.id}: case {case.id}: the kind {name!r} does not apply to this op: {kinds.FILE.name}"
            elif not known[name].counts(case):
                yield f"{op.id}: case {case.id}: the kind {name!r} takes cases that are {known[name].outcome}"
    for name, kind in known.items():
        if kind.applies_to(op) and name not in covered and name not in without:
            yield f"{op.id}: no case of the kind {name!r} ({kind.means}), and no reason under 'without'"
    if "batch" not in without and not any(case.batch for case in cases):
        yield f"{op.id}: no case gives 'batch', and no reason under 'without'"
    for name, reason in without.items():
        if name != "batch" and name not in known:
            yield f"{op.id}: without {name!r}, which is no kind{nearest(name, known)}"
        elif not reason.strip():
            yield f"{op.id}: without {name!r}, and no reason"
        elif name in covered or (name == "batch" and any(case.batch for case in cases)):
            yield f"{op.id}: without {name!r}, but cases have it"
        elif name != "batch" and not known[name].applies_to(op):
            yield f"{op.id}: without {name!r}, which does not apply to it in the first place"


def _signature(op: Op, case: Case) -> Signature | None:
    try:
        return Problem(op, case).signature
    except NbxError:
        return None


def _of_case(op: Op, case: Case) -> Iterator[str]:
    if case.size == "smoke" and any(spec.size > SMOKE_ELEMENTS for spec in case.specs()):
        yield f"a smoke case with a tensor of more than {SMOKE_ELEMENTS} elements; make it full"
    try:
        problem = problem_of(op, case)
        outputs = problem.signature.outputs
    except SignatureError as error:
        if case.refuses is None:
            yield f"does not fit the contract: {error}"
        elif error.code != case.refuses:
            yield f"is refused as {error.code} ({error}), not {case.refuses}"
        else:
            yield from (f"the refusal lacks {text!r}: {error}" for text in case.says if text not in str(error))
        return
    except NbxError as error:
        yield f"{error}"
        return
    if case.size == "large" and case.refuses is None:
        yield from _of_large(case, outputs)
    if case.refuses is None:
        yield from _of_batch(problem)
    if case.refuses is not None and case.runtime is None:
        yield f"is to be refused as {case.refuses}, but fits the contract, with outputs {list(map(str, outputs))}"
    for name, spec in case.tensors.items():
        if isinstance(spec, TensorSpec):
            yield from _of_values(problem, name, spec)


def _of_costs(op: Op, cases: Iterable[Case]) -> Iterator[str]:
    """Yield where closed forms differ from the contract: each once, with the first case that shows it."""
    found: dict[tuple[str, str], list[str]] = {}
    for case in cases:
        if case.refuses is not None:
            continue
        try:
            differences = cost.differences(problem_of(op, case))
        except NbxError:
            # What does not fit the contract is told with its case.
            continue
        for field, said in differences.items():
            found.setdefault((field, case.cost[field]), []).append(f"case {case.id}: {said}")
    for first, *others in found.values():
        more = f", and in {len(others)} more case{'' if len(others) == 1 else 's'}" if others else ""
        yield f"{op.id}: {first}{more}"


def _of_batch(problem: Problem) -> Iterator[str]:
    try:
        if problem.case.batch:
            batch_of(problem)
        _ = problem.sample
    except FileError as error:
        yield f"{error}"


def _of_large(case: Case, outputs: Sequence[TensorSpec]) -> Iterator[str]:
    largest = max((spec.size for spec in (*case.specs(), *outputs)), default=0)
    if largest <= kinds.MANY:
        yield f"a large case whose largest tensor has {largest} elements; it must have more than 2^31, or make it full"


def _of_values(problem: Problem, name: str, spec: TensorSpec) -> Iterator[str]:
    case = problem.case
    rng = values.generator(case.seed, case.id, name, 0)
    try:
        if is_wide(spec, LARGE):
            values.block(spec.dtype, case.strategy(name), 63, rng)
        elif spec.size <= FEW_ELEMENTS:
            values.generate(spec, case.strategy(name), rng)
        else:
            # Distinct indices and columns of a mask need the extents they have.
            row = TensorSpec(spec.dtype, (*(1,) * (spec.rank - 1), spec.shape[-1]))
            values.generate(row, case.strategy(name), rng)
    except (FileError, IndexError, ValueError) as error:
        yield f"values of {name!r}: {error}"
