"""Problems: a case with its tensors filled, its reference from the op's oracle, and the error the contract allows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from nbx_conformance.cases import Case, Scalar, values
from nbx_conformance.cases.values import Array
from nbx_conformance.problems.tiled import Tiled, Value
from nbx_registry import dtypes
from nbx_registry.errors import SignatureError
from nbx_registry.op import Op, Signature
from nbx_registry.signature import results_of
from nbx_registry.spec import TensorSpec, weak_spec

if TYPE_CHECKING:
    from nbx_conformance.problems.sample import Sample


STEPS: Final = (2, 3, 4, 5)
"""The repetitions in which what a case says grows has grown: by as much more each time."""


class Problem:
    """A case of an op. Repetition 0 is its first run, 1 a second one on fresh inputs; then come those of `STEPS`.

    In these, integers are those of repetition 0 with what they have grown by, and all else is fresh each time.
    """

    def __init__(self, op: Op, case: Case) -> None:
        self.op = op
        self.case = case
        self._inputs: dict[int, dict[str, Any]] = {}
        self._references: dict[int, dict[str, Array]] = {}
        self._bounds: dict[int, dict[str, Array]] = {}

    @cached_property
    def sample(self) -> Sample | None:
        """Where it is looked at; None: everywhere."""
        return None

    @cached_property
    def signature(self) -> Signature:
        """The op's signature for the case. Raises `SignatureError`."""
        return self.op.signature(self.specs(self.case.tensors), dict(self.case.attributes))

    def specs(self, tensors: Mapping[str, Any]) -> list[Any]:
        """Return what the op's signature is made from, in order. Raises `SignatureError` for a name it lacks."""
        known = {param.name for param in self.op.tensors}
        for name in tensors:
            if name not in known:
                raise SignatureError(f"{self.op.name} has no tensor {name!r}; it takes {', '.join(sorted(known))}")
        return [_spec(tensors.get(param.name)) for param in self.op.tensors]

    def given(self, repetition: int) -> dict[str, Any]:
        """Return each given parameter's value: an array, a Python scalar, or a list of arrays."""
        found = self._inputs.get(repetition)
        if found is None:
            found = self._inputs[repetition] = {
                name: self._value(name, spec, repetition) for name, spec in self.case.tensors.items()
            }
        return found

    def inputs(self, repetition: int) -> dict[str, Value]:
        """Return the values by operand: those of a list are ``xs.0``, ``xs.1``."""
        found: dict[str, Value] = {}
        for name, value in self.given(repetition).items():
            if isinstance(value, list):
                found.update((f"{name}.{i}", item) for i, item in enumerate(cast("list[Value]", value)))
            else:
                found[name] = value
        return found

    def arrays(self, repetition: int) -> list[Any]:
        """Return the values in parameter order, None for tensors left out."""
        given = self.given(repetition)
        return [given.get(param.name) for param in self.op.tensors]

    def reference(self, repetition: int) -> dict[str, Array]:
        """Return the oracle's outputs, then new values of parameters written in place, by name."""
        found = self._references.get(repetition)
        if found is None:
            results = _oracle(self.signature, self.arrays(repetition))
            found = self._references[repetition] = dict(zip(self.results, results, strict=True))
        return found

    def bounds(self, repetition: int) -> dict[str, Array]:
        """Return the largest error allowed, by element, of each of `results`."""
        found = self._bounds.get(repetition)
        if found is None:
            reference = tuple(self.reference(repetition).values())
            with np.errstate(all="ignore"):
                bounds = self.op.bound(self.signature, self.arrays(repetition), reference)
            found = self._bounds[repetition] = dict(zip(self.results, bounds, strict=True))
        return found

    @cached_property
    def results(self) -> dict[str, TensorSpec]:
        """Specs of the outputs, then of the parameters written in place."""
        return results_of(self.signature)

    def copied_bits(self, repetition: int) -> dict[str, Array] | None:
        """Return the outputs as unsigned words, for an op that copies elements of any dtype; None for any other.

        Such an op is computed on words of the same width, so that NaN payloads count too.
        """
        if not self.op.exact or not any(spec.dtype.floating for spec in self.signature.outputs):
            return None
        floating = {spec.dtype for spec in self.case.specs() if spec.dtype.floating}
        if len(floating) > 1 or any(isinstance(value, Scalar) for value in self.case.tensors.values()):
            # What is promoted is converted, not copied.
            return None
        words: dict[str, Any] = {}
        arrays: dict[str, Any] = {}
        for name, spec in self.case.tensors.items():
            value = self.given(repetition)[name]
            words[name], arrays[name] = spec, value
            if isinstance(spec, TensorSpec):
                words[name], arrays[name] = _as_words(spec, value)
            elif isinstance(spec, tuple):
                if len({item.dtype for item in spec}) > 1:
                    return None
                pairs = [_as_words(item, array) for item, array in zip(spec, value, strict=True)]
                words[name], arrays[name] = tuple(word for word, _ in pairs), [array for _, array in pairs]
        try:
            signature = self.op.signature(self.specs(words), dict(self.case.attributes))
        except SignatureError:
            return None
        if any(w.dtype.bits != s.dtype.bits for w, s in zip(signature.outputs, self.signature.outputs, strict=True)):
            return None
        if any(spec.dtype.kind == "float" for spec in signature.outputs):
            return None
        results = _oracle(signature, [arrays.get(param.name) for param in self.op.tensors])
        return dict(zip((output.name for output in self.op.outputs), results, strict=False))

    def untouched(self, repetition: int) -> dict[str, Array]:
        """Return, for each parameter written in place, which elements the op leaves alone.

        Those that keep their value whatever it is: the oracle is asked with two contents.
        """
        arrays = self.arrays(repetition)
        kept: dict[str, Array] = {}
        for position, param in enumerate(self.op.tensors):
            before = arrays[position]
            if not param.mutable or before is None:
                continue
            with np.errstate(all="ignore"):
                other = np.full_like(before, 0.123456 if before.dtype.kind not in "iub" else 77)
            changed = list(arrays)
            changed[position] = other
            results = _oracle(self.signature, changed)
            again = dict(zip(self.results, results, strict=True))[param.name]
            kept[param.name] = _equal(self.reference(repetition)[param.name], before) & _equal(again, other)
        return kept

    def before(self, repetition: int) -> dict[str, Array]:
        """Return what parameters written in place hold before a run."""
        given = self.given(repetition)
        return {param.name: given[param.name] for param in self.op.tensors if param.mutable and param.name in given}

    @cached_property
    def repeats_differ(self) -> bool:
        """Whether the fresh inputs differ from the first: an empty tensor, or one of zeros, has no others."""
        first, second = self.inputs(0), self.inputs(1)
        return any(not _same(first[name], second[name]) for name in first)

    def _value(self, name: str, spec: TensorSpec | Scalar | tuple[TensorSpec, ...], repetition: int) -> Any:
        if isinstance(spec, TensorSpec):
            return self._array(name, spec, repetition)
        if isinstance(spec, tuple):
            return [self._array(f"{name}.{i}", item, repetition, name) for i, item in enumerate(spec)]
        return values.scalar(spec, 0 if repetition in STEPS else repetition)

    def _array(self, name: str, spec: TensorSpec, repetition: int, strategy: str | None = None) -> Array:
        case = self.case
        if repetition in STEPS and spec.dtype.integral:
            first = self._array(name, spec, 0, strategy)
            grown = self.case.grows.get(name, 0) * (STEPS.index(repetition) + 1)
            return first + first.dtype.type(grown) if grown else first
        if repetition in STEPS:
            # Strategies take what they list in turn: with an even number, as in the first run.
            repetition *= 2
        rng = values.generator(case.seed, f"{case.op}/{case.id}", name, repetition)
        return values.generate(spec, case.strategy(strategy or name), rng, repetition)


def _as_words(spec: TensorSpec, value: Array) -> tuple[TensorSpec, Array]:
    if not spec.dtype.floating or spec.dtype.bits < 8:
        return spec, value
    dtype = dtypes.get(f"uint{spec.dtype.bits}")
    return TensorSpec(dtype, spec.shape, spec.strides, spec.offset, spec.align), value.view(dtype.numpy)


def _spec(value: Any) -> Any:
    return weak_spec(value) if isinstance(value, bool | int | float) else value


def _oracle(signature: Signature, arrays: list[Any]) -> tuple[Array, ...]:
    # Widening a signalling NaN, and all that special values do, is what the case asks for.
    with np.errstate(all="ignore"):
        return signature.op.run_oracle(signature, arrays)


def _equal(wide: Array, narrow: Array) -> Array:
    with np.errstate(all="ignore"):
        other = narrow.astype(wide.dtype)
    return (wide == other) | ((wide != wide) & (other != other))


def _same(first: Value, second: Value) -> bool:
    if isinstance(first, Tiled) and isinstance(second, Tiled):
        return _same(first.block, second.block)
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return first.tobytes() == second.tobytes()
    return first == second
