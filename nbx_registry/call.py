"""Calls: a bound program together with how one caller's arrays become its operands.

What the kind of call settles is settled when the call is made; what is left out of ``run`` is what cannot matter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from nbx_registry.counters import Counter
from nbx_registry.errors import NbxError, SignatureError
from nbx_registry.guards import out_of_range
from nbx_registry.interop import Adapter
from nbx_registry.interop.numpy_arrays import NumpyAdapter, no_room
from nbx_registry.program import BoundProgram
from nbx_registry.programs import Programs
from nbx_registry.silence import give, make, take


@dataclass(eq=False, slots=True)
class CallShape:
    """What the kind of a call settles.

    Attributes
    ----------
    names
        Of the tensors as given, by parameter; of those of a list ``xs.0``, ``xs.1``.
    adapters
        One a name; None for scalars and for those left out.
    out_adapters
        One an output.
    out_given
        Whether the caller brings the outputs.
    """

    bound: BoundProgram
    counter: Counter
    names: Sequence[str]
    adapters: Sequence[Adapter | None]
    out_adapters: Sequence[Adapter]
    place: str
    out_given: bool


class Fixed(NamedTuple):
    """A call on arrays that stay the same, which whoever holds it keeps alive."""

    bound: BoundProgram
    outputs: Any
    """Allocated where the caller gave none."""
    again: Callable[[], object]
    """Runs on the arrays."""
    enqueue: Callable[[Any], object] | None = None
    """Launches on a stream, its raw handle, with no look at values; None where there is more to do, or nothing."""


class Call(Protocol):
    """A kind of call, ready to be repeated."""

    bound: BoundProgram

    def run(self, args: Sequence[Any], out: Any, /) -> Any:
        """Run on arrays of this kind; return the outputs."""
        ...

    def program_for(self, args: Sequence[Any], out: Any, /) -> BoundProgram:
        """Return the program that such a run takes: another than ``bound`` for arrays aligned worse than is said."""
        ...

    def fix(self, args: Sequence[Any], out: Any, /) -> Fixed:
        """Settle arrays of this kind, with workspace of their own; nothing runs yet."""
        ...


def flat(items: Sequence[Any]) -> list[Any]:
    """Return what is given for the tensors of a call, those of lists in a row with the others."""
    found: list[Any] = []
    for item in items:
        if isinstance(item, (list, tuple)):
            found += item
        else:
            found.append(item)
    return found


class ListCall:
    """A call with lists of tensors: these in a row with the others, it is as any other."""

    __slots__ = ("_call", "bound")

    def __init__(self, call: Call) -> None:
        self._call = call
        self.bound = call.bound

    def run(self, args: Sequence[Any], out: Any, /) -> Any:
        """Run on arrays of this kind; return the outputs."""
        return self._call.run(flat(args), out)

    def program_for(self, args: Sequence[Any], out: Any, /) -> BoundProgram:
        """Return the program that such a run takes."""
        return self._call.program_for(flat(args), out)

    def fix(self, args: Sequence[Any], out: Any, /) -> Fixed:
        """Settle arrays of this kind."""
        return self._call.fix(flat(args), out)


class DirectCall:
    """NumPy arrays straight into one function of the host, NumPy's floating-point reports off."""

    __slots__ = ("_advance", "_dtype", "_extent", "_function", "_programs", "_whole", "bound")

    def __init__(self, programs: Programs, shape: CallShape, function: Callable[..., Any]) -> None:
        self.bound = shape.bound
        self._programs = programs
        self._function = function
        self._advance = shape.counter.advance
        spec = shape.bound.signature.outputs[0]
        self._extent, self._dtype = spec.shape, spec.dtype.numpy
        self._whole = None not in flat(shape.bound.signature.tensors)[: len(shape.adapters)]

    def run(self, args: Sequence[Any], out: Any, /) -> Any:
        """Run on arrays of this kind; return the output."""
        self._advance()
        if out is None:
            try:
                out = np.empty(self._extent, self._dtype)
            except (MemoryError, ValueError) as error:
                raise no_room(self.bound.signature.outputs[0]) from error
        if not self._whole:
            args = [array for array in args if array is not None]
        # As `silent` does, without a function of its own around the call.
        try:
            enter = take()
        except IndexError:
            enter = make()
        try:
            enter(self._function, *args, out)
        except (NbxError, MemoryError):
            raise
        except Exception as error:
            raise self._diagnose(error, args, out) from error
        finally:
            give(enter)
        return out

    def program_for(self, args: Sequence[Any], out: Any, /) -> BoundProgram:  # noqa: ARG002 - the protocol's form
        """Return the program."""
        return self.bound

    def fix(self, args: Sequence[Any], out: Any, /) -> Fixed:
        """Settle arrays of this kind; nothing runs yet."""
        advance, diagnose = self._advance, self._diagnose
        target = NumpyAdapter().empty(self.bound.signature.outputs[0], "cpu") if out is None else out
        given = [array for array in args if array is not None]
        work = (self._function, *given, target)

        def again() -> None:
            advance()
            try:
                enter = take()
            except IndexError:
                enter = make()
            try:
                enter(*work)
            except (NbxError, MemoryError):
                raise
            except Exception as error:
                raise diagnose(error, given, target) from error
            finally:
                give(enter)

        return Fixed(self.bound, target, again)

    def _diagnose(self, error: Exception, args: Sequence[Any], out: Any) -> NbxError:
        """Tell the caller's mistake, which NumPy found, from the kernel's."""
        signature = self.bound.signature
        if not out.flags.writeable:
            return SignatureError(f"{signature.op.name}: out= is read-only")
        integers = [value for value in args if type(value) is int]
        if isinstance(error, OverflowError) and integers:
            return out_of_range(signature.op.name, integers, signature.outputs[0].dtype.name)
        return self._programs.fault(self.bound.choice.kernel, error)


class ViewCall:
    """An output that is one of the inputs seen otherwise: nothing runs."""

    __slots__ = ("_advance", "_view", "bound")

    def __init__(self, shape: CallShape) -> None:
        self.bound = shape.bound
        self._advance = shape.counter.advance
        view, signature = shape.bound.view, shape.bound.signature
        assert view is not None
        if shape.out_given:
            raise SignatureError(
                f"{signature.op.name}: the result is a view of {view.of}; out= needs a copy (copy=True)"
            )
        position = shape.names.index(view.of)
        adapter = shape.adapters[position]
        assert adapter is not None
        look, extents, strides, offset = adapter.view, view.shape, view.strides, view.offset

        def see(args: Sequence[Any]) -> Any:
            return look(args[position], extents, strides, offset)

        self._view = see

    def run(self, args: Sequence[Any], out: Any, /) -> Any:  # noqa: ARG002 - the protocol's form
        """Return the view."""
        self._advance()
        return self._view(args)

    def program_for(self, args: Sequence[Any], out: Any, /) -> BoundProgram:  # noqa: ARG002 - the protocol's form
        """Return the program."""
        return self.bound

    def fix(self, args: Sequence[Any], out: Any, /) -> Fixed:  # noqa: ARG002 - as above
        """Return the view, and the counting of another look at it."""
        return Fixed(self.bound, self._view(args), self._advance)
