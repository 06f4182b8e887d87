"""Bound: an op bound to arrays. Calling it again launches again; nothing is looked up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nbx_registry.cost import Cost
from nbx_registry.decision import Evidence
from nbx_registry.errors import SignatureError
from nbx_registry.kernel import Launch
from nbx_registry.program import BoundProgram

if TYPE_CHECKING:
    from nbx_registry.dispatch import Call, Dispatcher


class Bound:
    """An op bound to kernel, device, settings and arrays.

    Calling it runs the op on its arrays and returns the outputs, which are the same arrays every time. A Bound belongs
    to one thread at a time.

    Attributes
    ----------
    out
        The outputs written by each call: an array, a tuple of arrays, or None.
    """

    __slots__ = ("_args", "_call", "_dispatcher", "_rest", "_run", "out")

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
        self._rest = (attributes, device, kernel, require)
        self._bind(tensors, out)

    def _bind(self, tensors: tuple[Any, ...], out: Any) -> None:
        attributes, device, kernel, require = self._rest
        call, args = self._dispatcher.prepare(tensors, attributes, out, device, kernel, require)
        names = {param.name for param in self._dispatcher.op.tensors}
        self._rest = ({n: v for n, v in attributes.items() if n not in names}, device, kernel, require)
        self._call: Call = call
        self._args = args
        self.out, self._run = call.fix(args, out)

    def __call__(self) -> Any:
        """Run; return the outputs."""
        self._run()
        return self.out

    def rebind(self, *tensors: Any, out: Any = None) -> None:
        """Put other arrays of the same kind in place of the bound ones; ``out`` keeps the old outputs if None.

        Raises `SignatureError` if their dtypes, shapes, strides or devices differ from the bound ones'.
        """
        attributes, device, kernel, require = self._rest
        target = self.out if out is None else out
        call, args = self._dispatcher.prepare(tensors, attributes, target, device, kernel, require)
        if call.bound.signature.key != self._call.bound.signature.key:
            raise SignatureError(
                f"rebind: {call.bound.signature} is of another kind than {self._call.bound.signature}; bind anew"
            )
        self._call, self._args = call, args
        self.out, self._run = call.fix(args, target)

    @property
    def kernel(self) -> str:
        """The kernel's id."""
        return self._call.bound.choice.kernel.id

    @property
    def evidence(self) -> Evidence:
        """What has been checked about the kernel here."""
        return self._call.bound.choice.evidence

    @property
    def settings(self) -> Mapping[str, object]:
        """The launch settings in force."""
        return self._call.bound.settings

    @property
    def cost(self) -> Cost:
        """Nominal and least cost of one call."""
        signature = self._call.bound.signature
        return signature.op.cost(signature)

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The launches of one call, in order."""
        return self._call.bound.launches

    @property
    def program(self) -> BoundProgram:
        """The program behind it."""
        return self._call.bound
