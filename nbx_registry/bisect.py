"""Finding a faulty kernel: a client's function is run with kernels swapped for the host's, by halves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from nbx_registry import interop, tensor
from nbx_registry.call import Call, flat
from nbx_registry.errors import NbxError, Refused, SignatureError
from nbx_registry.interop import Adapter
from nbx_registry.interop.memory import address_of
from nbx_registry.interop.nbx_tensors import NbxAdapter
from nbx_registry.items import told
from nbx_registry.program import BoundProgram
from nbx_registry.runtime import Runtime
from nbx_registry.spec import TensorSpec

if TYPE_CHECKING:
    from nbx_registry.registry import Registry

HOST = "nbx-host"
"""The plugin whose kernels are trusted."""

Outcome = Literal["right", "found", "reference refused", "not repeatable"]

_NBX: Adapter = NbxAdapter(tensor)


@dataclass(frozen=True, slots=True)
class FaultyKernel:
    """A kernel that makes a run wrong."""

    kernel: str
    op: str
    call: int
    """Which call of the run, from 0 on, counting every op, is the first of this kernel's that makes it wrong."""
    request: str
    """That call in words."""
    together: tuple[str, ...] = ()
    """Kernels without which it does no harm: only together do they make the run wrong."""
    raised: str = ""
    """What the run raises with it, in words; empty where the run ends and its result is wrong."""

    def __str__(self) -> str:
        text = f"{self.kernel}, from call {self.call} on: {self.request}"
        text += f", and the run raises {self.raised}" if self.raised else ""
        return text + (f" (only together with {', '.join(self.together)})" if self.together else "")


@dataclass(frozen=True, slots=True)
class Bisection:
    """What came of looking for a faulty kernel."""

    outcome: Outcome
    """``right``: the run is right as it is. ``found``: with ``faults`` swapped it is, with any of them it is not.
    ``reference refused``: the comparison refuses what the host's kernels give. ``not repeatable``: two runs with the
    same kernels differ.
    """
    faults: tuple[FaultyKernel, ...] = ()
    kept: tuple[str, ...] = ()
    """Kernels that ran all the time, because the host has none for what they did."""
    runs: int = 0
    """How often the client's function ran."""
    suspects: tuple[str, ...] = field(default=())
    """Kernels that were swapped."""

    @property
    def kernel(self) -> str | None:
        """The first faulty kernel's id."""
        return self.faults[0].kernel if self.faults else None

    @property
    def op(self) -> str | None:
        """The op it was called for, with version."""
        return self.faults[0].op if self.faults else None

    @property
    def call(self) -> int | None:
        """Its first call that makes the run wrong, counting the calls of the run from 0 on."""
        return self.faults[0].call if self.faults else None

    def __str__(self) -> str:
        words = {
            "right": f"the run is right with all its kernels: {', '.join(self.suspects) or 'the host runs it alone'}",
            "found": "faulty: " + "; ".join(map(str, self.faults)),
            "reference refused": "the comparison refuses what the host's kernels give: look elsewhere than at kernels",
            "not repeatable": "two runs with the same kernels differ: make the run, or the comparison, tell less",
        }
        kept = f"; not swapped, as the host has no kernel for it: {', '.join(self.kept)}" if self.kept else ""
        return f"{words[self.outcome]}{kept} ({self.runs} runs)"


def bisect(registry: Registry, run: Callable[[], Any], compare: Callable[[Any, Any], bool]) -> Bisection:
    """Find the kernel that makes a run wrong: see `Registry.bisect`."""
    return _Search(registry, run, compare).search()


class _Search:
    def __init__(self, registry: Registry, run: Callable[[], Any], compare: Callable[[Any, Any], bool]) -> None:
        self._registry = registry
        self._run = run
        self._compare = compare
        self._runs = 0
        self._raised = ""
        """What the last run that was compared raised."""
        self._held: list[bytes] = []
        """What the reference holds."""
        self._swapper = Swapper(registry)

    def search(self) -> Bisection:
        everything = _Real(None)
        nothing = _Real(())
        reference = self._result(nothing)
        self._held = self._bytes(reference)
        if not self._right(reference, reference):
            return self._answer("reference refused")
        if not self._right(reference, self._result(nothing)):
            return self._answer("not repeatable")
        if not self._wrong(reference, everything):
            return self._answer("right")
        suspects = list(self._swapper.suspects)
        faults: list[FaultyKernel] = []
        while self._wrong(reference, _Real(suspects)):
            if not suspects:
                # The host's kernels alone are wrong by now: no kernel made the difference.
                return self._answer("not repeatable")
            guilty = self._least(reference, [], suspects, [])
            if not guilty or not self._wrong(reference, _Real(guilty)):
                return self._answer("not repeatable", faults)
            for kernel in guilty:
                fault = self._first_call(reference, kernel, [other for other in guilty if other != kernel])
                if fault is None:
                    return self._answer("not repeatable", faults)
                faults.append(fault)
            suspects = [kernel for kernel in suspects if kernel not in guilty]
        # Nothing of the swapped kernels is wrong, yet the run as it is was.
        return self._answer("found" if faults else "not repeatable", faults)

    def _least(self, reference: Any, base: list[str], suspects: list[str], added: Sequence[str]) -> list[str]:
        """Return the fewest suspects that, with ``base``, make the run wrong; ``added`` is what last came to ``base``.

        By halves (U. Junker, QuickXplain, AAAI 2004): for one guilty kernel among n that is about 2 log2(n) runs.
        """
        if added and self._wrong(reference, _Real(base)):
            return []
        if len(suspects) == 1:
            return list(suspects)
        middle = len(suspects) // 2
        first, second = suspects[:middle], suspects[middle:]
        found = self._least(reference, [*base, *first], second, first)
        return self._least(reference, [*base, *found], first, found) + found

    def _first_call(self, reference: Any, kernel: str, together: Sequence[str]) -> FaultyKernel | None:
        """Return the first call of a kernel that makes the run wrong, while those of ``together`` run too.

        None where the run does not call it this time.
        """
        self._wrong(reference, _Real([kernel, *together]))
        raised = self._raised
        calls = self._swapper.calls.get(kernel)
        if not calls:
            return None
        low, high = 0, len(calls)
        while high - low > 1:
            middle = (low + high) // 2
            if self._wrong(reference, _Real([kernel, *together], {kernel: middle})):
                high, raised = middle, self._raised
            else:
                low = middle
        number, op, request = calls[high - 1]
        return FaultyKernel(kernel, op, number, request, tuple(together), raised)

    def _result(self, real: _Real) -> Any:
        self._runs += 1
        return self._swapper.run(self._run, real)

    def _wrong(self, reference: Any, real: _Real) -> bool:
        self._raised = ""
        try:
            result = self._result(real)
        except Exception as error:  # noqa: BLE001 - a client's code may raise anything; with the host's kernels it did not
            self._raised = told(error)
            return True
        return not self._right(reference, result)

    def _right(self, reference: Any, result: Any) -> bool:
        if self._bytes(reference) != self._held:
            raise NbxError(
                "what run() returned has changed since: its next run writes to the same memory, so that there is "
                "nothing to compare with; return a copy, and begin each time with the same data"
            )
        answer = cast("object", self._compare(reference, result))
        if answer is None:
            raise SignatureError("compare returned None; it returns whether the result is right")
        return bool(answer)

    def _bytes(self, result: Any) -> list[bytes]:
        """Return what the arrays of a result hold, those in lists, tuples and dictionaries too."""
        if isinstance(result, (list, tuple)):
            return [held for item in cast("Sequence[Any]", result) for held in self._bytes(item)]
        if isinstance(result, dict):
            return self._bytes(list(cast("dict[Any, Any]", result).values()))
        try:
            adapter = interop.adapter(result)
            if adapter is None or adapter.foreign:
                return []
            spec, target = adapter.spec(result), self._registry.target(adapter.place(result))
        except NbxError:
            # An array that no kernel could be given: the client's own.
            return []
        if target.name == "cpu":
            return [adapter.array(result).tobytes()]
        if target.runtime is None or target.live is None:
            return []
        found = np.zeros(spec.dtype.nbytes(spec.extent), np.uint8)
        if found.size:
            stream = adapter.streams(target.name)()
            target.runtime.copy_out(target.live.index, found, adapter.address(result), stream)
        return [found.tobytes()]

    def _answer(self, outcome: Outcome, faults: Sequence[FaultyKernel] = ()) -> Bisection:
        swapper = self._swapper
        return Bisection(outcome, tuple(faults), tuple(swapper.kept), self._runs, tuple(swapper.suspects))


@dataclass(frozen=True)
class _Real:
    """Which kernels run themselves: all (None) or those named, some in their first calls alone."""

    kernels: Collection[str] | None
    calls: dict[str, int] = field(default_factory=dict[str, int])

    def __call__(self, kernel: str, number: int) -> bool:
        if self.kernels is None:
            return True
        return kernel in self.kernels and number < self.calls.get(kernel, number + 1)


class Swapper:
    """Observes a run, and lets the host's kernels do what others would have done.

    Attributes
    ----------
    suspects
        Kernels met that the host can stand in for, in the order of their first calls.
    kept
        Kernels met that it cannot.
    calls
        Of the last run, by kernel: the number of each of its calls in the run, the op, and the call in words.
    """

    def __init__(self, registry: Registry) -> None:
        self.suspects: dict[str, None] = {}
        self.kept: dict[str, None] = {}
        self.calls: dict[str, list[tuple[int, str, str]]] = {}
        self._registry = registry
        self._real = _Real(None)
        self._number = 0
        self._substitutes: dict[BoundProgram, str | None] = {}

    def run(self, function: Callable[[], Any], real: _Real) -> Any:
        """Run a function with kernels swapped but for those of ``real``."""
        self.calls, self._real, self._number = {}, real, 0
        with self._registry.observed(self):
            return function()

    def observe(self, call: Call, args: Sequence[Any], out: Any) -> Any:
        """Run one call, by its own kernel or by the host's."""
        program = call.program_for(args, out)
        kernel, number = program.choice.kernel.id, self._number
        self._number += 1
        if self._trusted(program):
            return call.run(args, out)
        if program not in self._substitutes:
            self._substitutes[program] = self._substitute(program)
        substitute = self._substitutes[program]
        if substitute is None:
            self.kept[kernel] = None
            return call.run(args, out)
        self.suspects[kernel] = None
        calls = self.calls.setdefault(kernel, [])
        calls.append((number, program.signature.op.id, str(program.signature)))
        if self._real(kernel, len(calls) - 1):
            return call.run(args, out)
        swap = self._swapped if _on_host(program) else self._copied
        return swap(program, substitute, args, out)

    def _trusted(self, program: BoundProgram) -> bool:
        """Return whether a program is the host's own, through and through."""
        own = self._registry.catalog.owners[program.choice.kernel.id] == HOST and not program.choice.parts
        return own and (_on_host(program) or program.view is not None)

    def _substitute(self, program: BoundProgram) -> str | None:
        """Return the host's kernel for what a program does; None where there is none."""
        if program.view is not None and not _on_host(program):
            return None
        signature, registry = program.signature, self._registry
        decision = registry.decide(
            signature.op.id, *signature.tensors, device="cpu", require="any", **signature.attributes
        )
        # A composite may be made of the very kernels that are looked at.
        able = [
            c.kernel
            for c in decision.candidates
            if c.accepted and c.kernel != program.choice.kernel.id and registry.kernels[c.kernel].backend != "composite"
        ]
        owners = registry.catalog.owners
        # An op of a plugin's own is implemented for the host by that plugin.
        return next((k for owner in (HOST, owners[signature.op.id]) for k in able if owners[k] == owner), None)

    def _swapped(self, program: BoundProgram, kernel: str, args: Sequence[Any], out: Any) -> Any:
        """Run a call on the host by another kernel."""
        signature = program.signature
        prepare = self._registry.dispatcher(signature.op.id).prepare
        call, given = prepare(tuple(args), dict(signature.attributes), out, "cpu", kernel, "any")
        try:
            return call.run(given, out)
        except Refused as refusal:
            if out is None or all(c.code != "OVERLAP" for c in refusal.decision.candidates):
                raise
        # The kernel tolerates less than the one it stands in for: by way of memory of its own.
        call, given = prepare(tuple(args), dict(signature.attributes), None, "cpu", kernel, "any")
        fresh = call.run(given, None)
        for target, source in zip(flat((out,)), flat((fresh,)), strict=True):
            _array(target)[...] = _array(source)
        return out

    def _copied(self, program: BoundProgram, kernel: str, args: Sequence[Any], out: Any) -> Any:
        """Run a call on the host for a device: operands there, what is written back."""
        signature, place = program.signature, program.target.name
        arrays = [array for array in (*flat(args), *flat((out,))) if array is not None]
        like = next(((a, array) for array in arrays if (a := interop.adapter(array)) is not None), (_NBX, None))
        stream = like[0].streams(place)()
        host = self._registry.runtime("host")

        def twin(array: Any, *, filled: bool = True) -> Any:
            adapter = None if array is None else interop.adapter(array)
            return array if adapter is None else _Twin(program, adapter, array, host, stream, filled=filled)

        given = [list(map(twin, cast("Sequence[Any]", a))) if isinstance(a, (list, tuple)) else twin(a) for a in args]
        targets = flat((out,)) if out is not None else [like[0].empty(s, place, like[1]) for s in signature.outputs]
        outputs = [twin(array, filled=out is not None) for array in targets]
        result = tuple(twin.tensor for twin in outputs)
        tensors = [list(map(_tensor, cast("list[Any]", a))) if isinstance(a, list) else _tensor(a) for a in given]
        self._swapped(program, kernel, tensors, result if len(result) > 1 else result[0] if result else None)
        mutable = [a for param, a in zip(signature.op.tensors, given, strict=False) if param.mutable]
        for twin_ in (*flat(mutable), *outputs):
            if isinstance(twin_, _Twin):
                twin_.back()
        return out if out is not None else tuple(targets) if len(targets) > 1 else targets[0] if targets else None


class _Twin:
    """A copy on the host of a device's tensor, laid out alike, that can be copied back."""

    def __init__(
        self, program: BoundProgram, adapter: Adapter, array: Any, host: Runtime, stream: Any, *, filled: bool
    ) -> None:
        assert program.runtime is not None
        assert program.live is not None
        self._runtime, self._index, self._stream = program.runtime, program.live.index, stream
        self._address = adapter.address(array)
        spec = adapter.spec(array)
        self._bytes = np.zeros(spec.dtype.nbytes(spec.extent), np.uint8)
        if filled and self._bytes.size:
            self._runtime.copy_out(self._index, self._bytes, self._address, stream)
        owner = tensor.Borrowed(address_of(self._bytes), self._bytes.size, 0, self._bytes)
        self.tensor = tensor.Tensor(owner, TensorSpec(spec.dtype, spec.shape, spec.strides), "cpu", host)

    def back(self) -> None:
        """Write the bytes to the device."""
        if self._bytes.size:
            self._runtime.copy_in(self._index, self._address, self._bytes, self._stream)


def _tensor(value: Any) -> Any:
    return value.tensor if isinstance(value, _Twin) else value


def _array(value: Any) -> np.ndarray:
    adapter = interop.adapter(value)
    assert adapter is not None
    return adapter.array(value)


def _on_host(program: BoundProgram) -> bool:
    return program.target.name == "cpu"
