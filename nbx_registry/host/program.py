"""Programs of the host: launches compiled into one Python function over the operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nbx_registry.errors import NbxError
from nbx_registry.launch import Launch, Scalar, ScalarOf
from nbx_registry.runtime import Slot
from nbx_registry.silence import silent


class HostProgram:
    """Launches over named slots. They run with NumPy's floating-point reports off, whatever the caller's error state.

    Attributes
    ----------
    function : callable
        ``function(*operands)`` runs every launch, now. A single launch whose arguments are the slots in order is its
        own function, so that a caller may call it without going through `run`: with reports off, as `run` does;
        captures see only `run`.
    """

    __slots__ = ("_silent", "function")

    def __init__(self, launches: Sequence[Launch], slots: Sequence[Slot]) -> None:
        names = tuple([slot.name for slot in slots])
        for launch in launches:
            _check(launch, names)
        if len(launches) == 1 and launches[0].args == names:
            self.function: Callable[..., object] = launches[0].function
        else:
            self.function = _compile(launches, names)
        self._silent = silent(self.function)

    def run(self, operands: Sequence[Any], stream: Any) -> None:
        """Run every launch; if the stream (its handle) is being captured, record it instead."""
        if stream is not None and stream.recording is not None:
            function, held = self._silent, tuple(operands)
            stream.recording.append(lambda: function(*held))
        else:
            self._silent(*operands)


def _check(launch: Launch, names: tuple[str, ...]) -> None:
    if not callable(launch.function):
        raise NbxError(f"a launch on the host is a function over arrays, not {launch.function!r}")
    if launch.offsets:
        raise NbxError(f"a launch on the host has no byte offsets ({launch.offsets}); bind the arrays it reads")
    for argument in launch.args:
        name = argument if isinstance(argument, str) else argument.name if isinstance(argument, ScalarOf) else None
        if name is not None and name not in names:
            raise NbxError(f"launch argument {name!r} is no slot of the program; there are {', '.join(names)}")


def _compile(launches: Sequence[Launch], names: tuple[str, ...]) -> Callable[..., object]:
    # Slot names are the op's and may be anything; in the source they are numbered.
    scope: dict[str, Any] = {}
    lines: list[str] = []
    for number, launch in enumerate(launches):
        scope[f"f{number}"] = launch.function
        arguments: list[str] = []
        for position, argument in enumerate(launch.args):
            if isinstance(argument, Scalar):
                scope[f"c{number}_{position}"] = argument.value
                arguments.append(f"c{number}_{position}")
            else:
                name = argument.name if isinstance(argument, ScalarOf) else argument
                arguments.append(f"s{names.index(name)}")
        lines.append(f"    f{number}({', '.join(arguments)})")
    parameters = ", ".join(f"s{number}" for number in range(len(names)))
    source = f"def program({parameters}):\n" + ("\n".join(lines) or "    pass")
    exec(source, scope)
    return scope["program"]
