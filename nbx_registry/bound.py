"""Bound: an op bound to arrays. Calling it again launches again; nothing is looked up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nbx_registry.call import Call, Fixed
from nbx_registry.cost import Cost
from nbx_registry.decision import Evidence
from nbx_registry.errors import SignatureError
from nbx_registry.launch import Launch
from nbx_registry.program import BoundProgram

if TYPE_CHECKING:
    from nbx_registry.dispatch import Dispatcher
    from nbx_registry.recording import Recording
    from nbx_registry.registry import Registry

recordings: dict[Registry, Recording] = {}
"""What sees bound calls of a registry, while a graph is captured. That it is empty is all that a call looks for."""


class Bound:
    """An op bound to kernel, device, settings and arrays.

    Calling it runs the op on its arrays and returns the outputs, which are the same arrays every time. A Bound belongs
    to one thread at a time.

    Workspace is its own, allocated when it is bound: a call allocates nothing, and can be part of a graph that another
    library captures. Such a graph uses that memory for as long as it is replayed, so that the Bound has to be kept, and
    not rebound.

    Attributes
    ----------
    fixed : Fixed
        The call with its arrays settled.
    out
        The outputs written by each call: an array, a tuple of arrays, or None.
    program : BoundProgram
        The program behind it.
    """

    __slots__ = ("_args", "_call", "_dispatcher", "_rest", "_run", "fixed", "out", "program")

    fixed: Fixed
    program: BoundProgram

    def __init__(
        self,
        dispatcher: Dispatcher,
        tensors: tuple[Any, ...],
        attributes: dict[str, Any],
        out: Any,
        device: str | None,
        kernel: str | None,
        require: str | None,
    ) -> None:
        self._dispatcher = dispatcher
        # The arrays are kept: the call runs on their addresses.
        self._call, self._args = dispatcher.prepare(tensors, attributes, out, device, kernel, require)
        names = {param.name for param in dispatcher.op.tensors}
        self._rest = ({n: v for n, v in attributes.items() if n not in names}, device, kernel, require)
        self._fix(self._call, self._args, out)

    def __call__(self) -> Any:
        """Run; return the outputs."""
        if recordings:
            recording = recordings.get(self._dispatcher.registry)
            if recording is not None:
                return recording.observe_bound(self)
        self._run()
        return self.out

    def _fix(self, call: Call, args: tuple[Any, ...], out: Any) -> None:
        self.fixed = fixed = call.fix(args, out)
        self._call, self._args = call, args
        self.program, self.out, self._run = fixed.bound, fixed.outputs, fixed.again

    def rebind(self, *tensors: Any, out: Any = None) -> None:
        """Put other arrays of the same kind in place of the bound ones; ``out`` keeps the old outputs if None.

        Raises `SignatureError` if their dtypes, shapes, strides or devices differ from the bound ones'.
        """
        attributes, device, kernel, require = self._rest
        # A view has no outputs of its own to keep.
        target = self.out if out is None and self.program.view is None else out
        call, args = self._dispatcher.prepare(tensors, attributes, target, device, kernel, require)
        ours, theirs = self._call.bound, call.bound
        if theirs.signature.key != ours.signature.key or theirs.target is not ours.target:
            raise SignatureError(
                f"rebind: {theirs.signature} on {theirs.target} is of another kind than {ours.signature} on "
                f"{ours.target}; bind anew"
            )
        self._fix(call, args, target)

    @property
    def arrays(self) -> tuple[Any, ...]:
        """The tensors bound, by position."""
        return self._args

    @property
    def kernel(self) -> str:
        """The kernel's id."""
        return self.program.choice.kernel.id

    @property
    def evidence(self) -> Evidence:
        """What has been checked about the kernel here."""
        return self.program.choice.evidence

    @property
    def settings(self) -> Mapping[str, object]:
        """The launch settings in force."""
        return self.program.settings

    @property
    def cost(self) -> Cost:
        """Nominal and least cost of one call."""
        signature = self.program.signature
        return signature.op.cost(signature)

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The launches of one call, in order."""
        return self.program.launches
