"""Recording: an observer that writes down a function's calls, then holds its later runs to them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from nbx_registry import interop
from nbx_registry.call import Call, Fixed, flat
from nbx_registry.contents import Area, Contents, area_of
from nbx_registry.errors import CaptureError, SignatureError
from nbx_registry.operands import unreplayable
from nbx_registry.program import BoundProgram
from nbx_registry.runtime import Runtime
from nbx_registry.streams import recorded

if TYPE_CHECKING:
    from nbx_registry.bound import Bound
    from nbx_registry.registry import Registry

Identity = tuple[object, ...]
"""What must be the same about an operand each time: where an array lies, what a scalar is."""

NUMBER: type = np.generic
"""NumPy's own scalars, which are read when a call is made."""
VALUES: tuple[type, ...] = (bool, int, float, complex, str, NUMBER)
"""Types of which the text tells one value from another."""


@dataclass(eq=False, slots=True)
class Recorded:
    """One call of the function."""

    number: int
    fixed: Fixed
    source: object
    """The `Bound` that made it, None for a call."""
    arrays: Sequence[Any]
    """Its tensors, kept alive."""
    operands: list[Identity]
    out: list[Identity] | None
    """Of the arrays given as ``out=``."""
    written: list[Area]

    @property
    def index(self) -> int:
        """The device's."""
        assert self.fixed.bound.live is not None
        return self.fixed.bound.live.index

    @property
    def kernel(self) -> str:
        """The kernel's id."""
        return self.fixed.bound.choice.kernel.id

    def __str__(self) -> str:
        return f"call {self.number}, {self.fixed.bound.signature} by {self.kernel}"


class Recording:
    """Sees every call of one thread: at first it writes them down as they run, then it compares.

    Attributes
    ----------
    calls
        The calls of the first run, in order.
    contents : Contents
        What they write, as it was before.
    stream
        Tells the raw handle of the stream that the arrays' library enqueues on.
    """

    calls: list[Recorded]
    contents: Contents
    runtime: Runtime
    stream: Callable[[], Any]

    def __init__(self, registry: Registry, device: str | None) -> None:
        self.calls = []
        self.place = None if device is None else registry.target(device).name
        self._thread = threading.get_ident()
        self._act: Callable[[Recorded], object] | None = None
        self._at = 0

    # The two kinds of run.

    def first(self, function: Callable[[], Any]) -> Any:
        """Run a function whose calls run, and are written down."""
        with recorded(True):
            result = function()
        if not self.calls:
            raise CaptureError(
                "nothing to capture: the function made no call of this registry in this thread", code="CHANGED"
            )
        return result

    def again(self, function: Callable[[], Any], act: Callable[[Recorded], object]) -> Any:
        """Run a function that must make the same calls, for each of which ``act`` is called in its place."""
        self._act, self._at = act, 0
        with recorded(True):
            result = function()
        if self._at < len(self.calls):
            raise CaptureError(f"{self.calls[self._at]}, was made the first time and not again{_SAME}", code="CHANGED")
        return result

    # What a registry calls.

    def observe(self, call: Call, args: Sequence[Any], out: Any) -> Any:
        """Take a call of the registry."""
        if threading.get_ident() != self._thread:
            return call.run(args, out)
        # What is allocated, copied and waited for in here is the graph's.
        with recorded(False):
            if self._act is not None:
                return self._compare(call.program_for(args, out), args, out, None, self._act)
            return self._note(call.fix(args, out), args, out, None)

    def observe_bound(self, bound: Bound) -> Any:
        """Take a call of a `Bound`."""
        if threading.get_ident() != self._thread:
            bound.fixed.again()
            return bound.out
        out = None if bound.program.view is not None else bound.out
        with recorded(False):
            if self._act is not None:
                return self._compare(bound.program, bound.arrays, out, bound, self._act)
            return self._note(bound.fixed, bound.arrays, out, bound)

    def _note(self, fixed: Fixed, args: Sequence[Any], out: Any, source: object) -> Any:
        program = fixed.bound
        self._begin(program, args, fixed.outputs)
        kernels = program.choice.unreplayable() if program.program is not None else []
        if kernels:
            raise unreplayable(program, kernels[0])
        outputs = _several(fixed.outputs, program)
        given = None if out is None else [_identity(array) for array in outputs]
        written = self._written(program, args, outputs, fresh=out is None)
        arrays = flat(args)
        one = Recorded(
            len(self.calls), fixed, source, arrays, [_identity(array) for array in arrays], given, written
        )  # fmt: skip
        self.calls.append(one)
        fixed.again()
        return fixed.outputs

    def _begin(self, program: BoundProgram, args: Sequence[Any], outputs: Any) -> None:
        place = program.target.name
        if self.place is None:
            self.place = place
        if place != self.place:
            raise CaptureError(
                f"{program.signature} runs on {place}, in a graph of {self.place}; capture one for each device",
                code="CHANGED",
            )
        if self.calls:
            return
        assert program.runtime is not None
        assert program.live is not None
        index = program.live.index
        found = (interop.adapter(array) for array in (*flat(args), *_several(outputs, program)) if array is not None)
        self.stream = next(adapter for adapter in found if adapter is not None).streams(place)
        self.runtime = program.runtime
        if self.runtime.operands == "address" and self.runtime.capturing(index, self.stream()):
            raise CaptureError(
                f"the stream that {place} works on is being captured already, by this program or another library; "
                "there the calls are captured as they are, without reg.capture"
            )
        self.contents = Contents(self.runtime, index)

    def _written(
        self, program: BoundProgram, args: Sequence[Any], outputs: Sequence[Any], *, fresh: bool
    ) -> list[Area]:
        """Return the areas that a call writes; what they hold is kept before."""
        for array in flat(args):
            area = area_of(array)
            if area is not None:
                self.contents.read(area)
        mutable = [array for param, array in zip(program.signature.op.tensors, args, strict=False) if param.mutable]
        in_place = [area for array in flat(mutable) if (area := area_of(array)) is not None]
        whole = [area for array in outputs if (area := area_of(array)) is not None]
        if program.view is not None:
            return []
        for area in in_place:
            self.contents.write(area, fresh=False, whole=False)
        for area in whole:
            self.contents.write(area, fresh=fresh, whole=True)
        return in_place + whole

    def _compare(
        self, program: BoundProgram, args: Sequence[Any], out: Any, source: object, act: Callable[[Recorded], object]
    ) -> Any:
        if self._at == len(self.calls):
            raise CaptureError(f"{program.signature} was not called the first time{_SAME}", code="CHANGED")
        one = self.calls[self._at]
        before = one.fixed.bound
        if program is not before and (
            program.signature.op is not before.signature.op
            or program.signature.key != before.signature.key
            or program.choice.kernel is not before.choice.kernel
        ):
            raise CaptureError(
                f"{one}, was made the first time, and {program.signature} by {program.choice.kernel.id} now{_SAME}",
                code="CHANGED",
            )
        given = None if out is None else [_identity(array) for array in _several(out, program)]
        names = program.signature.names
        operands = [_identity(array) for array in flat(args)]
        if source is not one.source or (given is None) != (one.out is None):
            raise CaptureError(
                f"{one}, was bound anew, or given other outputs{_SAME}; bind before the capture", code="MOVED"
            )
        now, then = operands + (given or []), one.operands + (one.out or [])
        for name, this, that in zip((*names, *("out",) * len(now)), now, then, strict=False):
            if this != that:
                raise _moved(one, name, this, that)
        self._at += 1
        act(one)
        return one.fixed.outputs


_SAME = "; a function that is captured makes the same calls each time, whatever its arrays hold"


def _moved(one: Recorded, name: str, this: Identity, that: Identity) -> CaptureError:
    if this[0] == that[0] == "array":
        return CaptureError(
            f"{one}: {name} lies elsewhere each time the function runs, or no recorded call made it; give the graph "
            "arrays that stay, and make the others by ops of this registry",
            code="MOVED",
            kernel=one.kernel,
        )
    return CaptureError(
        f"{one}: {name} was {that[-1]} the first time and is {this[-1]} now, which a graph keeps for good; give it "
        "as a tensor",
        code="CHANGED",
        kernel=one.kernel,
    )


def _identity(array: Any) -> Identity:
    area = area_of(array)
    if area is not None:
        return ("array", area.start)
    if array is not None and not isinstance(array, NUMBER) and interop.adapter(array) is not None:
        return ("array", 0)
    return scalar_identity(array)


def scalar_identity(value: object) -> Identity:
    """Return what tells a value from others: its text tells -0.0 from 0.0, and NaN is itself."""
    return ("scalar", type(value).__name__, repr(value))


def leaves(result: Any) -> list[Any]:
    """Return what a function returns one by one: what is in lists, tuples and dictionaries too."""
    if isinstance(result, dict):
        return leaves(list(cast("dict[Any, Any]", result).values()))
    if isinstance(result, (list, tuple)):
        return [found for item in cast("Sequence[Any]", result) for found in leaves(item)]
    return [result]


def identities(result: Any) -> list[Identity]:
    """Return where the arrays of what a function returns lie, and what its numbers and strings are."""
    found: list[Identity] = []
    for leaf in leaves(result):
        if isinstance(leaf, VALUES):
            found.append(scalar_identity(leaf))
            continue
        try:
            area = area_of(leaf)
        except SignatureError:
            # An array that no kernel could be given: the function's own.
            continue
        if area is not None:
            found.append(("array", area.start))
    return found


def _several(result: Any, program: BoundProgram) -> Sequence[Any]:
    count = len(program.signature.outputs)
    return () if not count else result if count > 1 else (result,)
