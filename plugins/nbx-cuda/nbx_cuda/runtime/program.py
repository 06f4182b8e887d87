"""Programs: launches with their arguments packed once. A run writes addresses into place and calls the driver.

Every argument has a cell of 8 bytes; the driver gets pointers to cells and copies their contents before it returns.
A set of cells serves one thread at a time, so a program keeps a list of free sets: a run takes one, or packs another.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from nbx_cuda.runtime.code import Function
from nbx_cuda.runtime.launch import Prepared
from nbx_registry import dtypes
from nbx_registry.errors import NbxError
from nbx_registry.launch import Launch, Scalar, ScalarOf
from nbx_registry.runtime import Slot

CELL = 8
GRID_LIMIT = (2**31 - 1, 65535, 65535)
STREAMS_LIMIT = 64
"""How many streams `CudaProgram.fixed` keeps prepared launches for."""

_CODES = {
    "bool": "?",
    "int8": "b",
    "uint8": "B",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "uint64": "Q",
    "float16": "e",
    "float32": "f",
    "float64": "d",
}
"""`struct`'s letter of a dtype."""

_LARGEST = {"float16": 65520.0, "float32": 2.0**128 * (1 - 2.0**-25)}
"""The least magnitude that rounds to infinity, where `struct` raises instead."""


@dataclass(frozen=True, slots=True)
class Dynamic:
    """A cell written at each run: operand ``index``, as ``ctype``; ``offset`` bytes on for an address."""

    index: int
    ctype: str
    offset: int = 0


@dataclass(frozen=True)
class Layout:
    """Which cell holds what. The dynamic cells come first, then the static ones with their bytes."""

    dynamic: tuple[Dynamic, ...]
    static: tuple[bytes, ...]
    launches: tuple[tuple[Launch, tuple[int, ...]], ...]
    """Each launch that runs at all, with the cells of its arguments."""

    @cached_property
    def format(self) -> struct.Struct:
        """How a run writes the dynamic cells."""
        return struct.Struct("<" + "".join(_cell(dynamic.ctype) for dynamic in self.dynamic))

    def direct(self, operands: int) -> bool:
        """Whether the dynamic cells are the operands, all of them, in order and as they are."""
        return [(d.index, d.offset, d.ctype in _CODES) for d in self.dynamic] == [
            (index, 0, True) for index in range(operands)
        ]


def lay_out(launches: Sequence[Launch], slots: Sequence[Slot]) -> Layout:
    """Give every argument of every launch a cell; equal ones share it.

    Launches over an empty grid are left out: they compute nothing. Raises `NbxError` for an argument that names no
    slot, an offset of no address, a scalar that its type cannot hold.
    """
    index = {slot.name: position for position, slot in enumerate(slots)}
    # Addresses of slots that no launch takes get a cell too, so that a run can pack its operands as they come.
    dynamic: dict[Dynamic, None] = {
        Dynamic(position, "uint64"): None for position, slot in enumerate(slots) if not slot.spec.weak
    }
    static: dict[bytes, None] = {}
    wanted: list[tuple[Launch, list[Dynamic | bytes]]] = []
    for launch in launches:
        if 0 in launch.grid:
            continue
        offsets = dict(launch.offsets)
        cells: list[Dynamic | bytes] = []
        for argument in launch.args:
            if isinstance(argument, Scalar):
                cell: Dynamic | bytes = _static(argument)
                static[cell] = None
            else:
                name = argument.name if isinstance(argument, ScalarOf) else argument
                if name not in index:
                    raise NbxError(f"a launch takes {name!r}, which is none of its slots: {', '.join(index) or 'none'}")
                if isinstance(argument, ScalarOf):
                    cell = Dynamic(index[name], argument.ctype)
                else:
                    cell = Dynamic(index[name], "uint64", offsets.pop(name, 0))
                dynamic[cell] = None
            cells.append(cell)
        if offsets:
            raise NbxError(f"a launch offsets {', '.join(map(repr, offsets))}, which it does not take as an address")
        wanted.append((launch, cells))
    ordered = sorted(dynamic, key=lambda cell: cell.index)
    position = {cell: number for number, cell in enumerate([*ordered, *static])}
    return Layout(
        dynamic=tuple(ordered),
        static=tuple(static),
        launches=tuple((launch, tuple(position[cell] for cell in cells)) for launch, cells in wanted),
    )


class Packed:
    """One set of cells and the launches over it."""

    __slots__ = ("_prepared", "calls", "cells", "stream")

    def __init__(self, layout: Layout) -> None:
        cells = len(layout.dynamic) + len(layout.static)
        self.cells = ctypes.create_string_buffer(max(1, cells) * CELL)
        start = len(layout.dynamic) * CELL
        for number, value in enumerate(layout.static):
            self.cells[start + number * CELL : start + (number + 1) * CELL] = value
        base = ctypes.addressof(self.cells)
        self._prepared = [
            Prepared(
                launch.function.handle,
                launch.grid,
                launch.block,
                launch.shared_bytes,
                tuple(base + cell * CELL for cell in positions),
                early=launch.early and number > 0,
            )
            for number, (launch, positions) in enumerate(layout.launches)
        ]
        self.calls = tuple(prepared.arguments for prepared in self._prepared)
        self.stream: int | None = None

    def on(self, stream: int) -> None:
        """Send the launches that follow to ``stream``."""
        for prepared in self._prepared:
            prepared.on(stream)
        self.stream = stream


FailedLaunch = Callable[[Launch, tuple[Any, ...], int], None]
"""Called with a launch, its arguments and the driver's code when that is not 0. Returns if a second try succeeded,
raises otherwise."""


class CudaProgram:
    """Launches over named slots. ``run(operands, stream)`` enqueues them, from any thread.

    Parameters
    ----------
    launches, slots
        As the binder and the core give them.
    launch
        The driver's call: takes the arguments of a `Prepared`, returns 0 or an error code.
    failed
        What to do about a code.
    default_stream
        Handle of the stream for runs that name none.
    """

    __slots__ = ("_default_stream", "_failed", "_launch", "_slots", "layout", "run")

    def __init__(
        self,
        launches: Sequence[Launch],
        slots: Sequence[Slot],
        *,
        launch: Callable[..., int],
        failed: FailedLaunch,
        default_stream: int,
    ) -> None:
        for one in launches:
            _check_launch(one)
        self.layout = lay_out(launches, slots)
        self._slots = tuple(slots)
        self._launch = launch
        self._failed = failed
        self._default_stream = default_stream
        self.run = self._runner()

    def fixed(self, operands: Sequence[Any]) -> Callable[[int | None], None]:
        """Return ``launch(stream)`` over these operands: nothing is written at a launch, the stream alone may differ.

        May be called from several threads, as `run` may.
        """
        # Cells and stream of a set never change once it is in the table, so that threads may share it.
        ready: dict[int | None, Packed] = {}
        launch, failed, layout, default_stream = self._launch, self._failed, self.layout, self._default_stream

        def prepare(stream: int | None) -> Packed:
            packed = Packed(layout)
            self._pack(packed, operands)
            packed.on(default_stream if stream is None else stream)
            if len(ready) >= STREAMS_LIMIT:
                ready.clear()
            ready[stream] = packed
            return packed

        def launch_fixed(stream: int | None = None) -> None:
            """Enqueue every launch on ``stream``."""
            packed = ready.get(stream) or prepare(stream)
            for arguments in packed.calls:
                code = launch(*arguments)
                if code:
                    failed(_launch_of(layout, packed.calls, arguments), arguments, code)

        prepare(None)
        return launch_fixed

    def _runner(self) -> Callable[[Sequence[Any], int | None], None]:
        # A closure: its names are faster to reach than attributes, and this runs at every call of every op.
        layout, launch, failed, pack = self.layout, self._launch, self._failed, self._pack
        write = layout.format.pack_into
        default_stream = self._default_stream
        direct = layout.direct(len(self._slots))
        free = [Packed(layout)]
        take, give = free.pop, free.append

        def run_one(operands: Sequence[Any], stream: int | None = None) -> None:
            """Enqueue the one launch, whose dynamic cells are the operands: `run` without what cannot happen here."""
            try:
                packed = take()
            except IndexError:
                packed = Packed(layout)
            try:
                write(packed.cells, 0, *operands)
            except (struct.error, TypeError, OverflowError):
                pack(packed, operands)
            if stream is None:
                stream = default_stream
            if packed.stream != stream:
                packed.on(stream)
            arguments = packed.calls[0]
            code = launch(*arguments)
            if code:
                failed(_launch_of(layout, packed.calls, arguments), arguments, code)
            give(packed)

        def run(operands: Sequence[Any], stream: int | None = None) -> None:
            """Enqueue every launch over ``operands`` (addresses, and Python scalars for scalar slots) on ``stream``."""
            try:
                packed = take()
            except IndexError:
                packed = Packed(layout)
            pack(packed, operands)
            if stream is None:
                stream = default_stream
            if packed.stream != stream:
                packed.on(stream)
            for arguments in packed.calls:
                code = launch(*arguments)
                if code:
                    failed(_launch_of(layout, packed.calls, arguments), arguments, code)
            give(packed)

        return run_one if direct and len(layout.launches) == 1 else run

    def _pack(self, packed: Packed, operands: Sequence[Any]) -> None:
        dynamic = self.layout.dynamic
        try:
            if len(operands) != len(self._slots):
                raise TypeError("their count")
            values = [_value(operands[cell.index], cell) for cell in dynamic]
            self.layout.format.pack_into(packed.cells, 0, *values)
        except (struct.error, TypeError, OverflowError) as error:
            raise NbxError(_misfit(self._slots, operands, error)) from error


def _value(operand: Any, cell: Dynamic) -> Any:
    """Return what `struct` packs for an operand; a number beyond a floating type rounds to infinity, as in IEEE 754."""
    if cell.ctype not in _CODES:
        return _bits(operand, cell.ctype)
    if cell.ctype in _LARGEST and abs(operand) >= _LARGEST[cell.ctype]:
        return math.copysign(math.inf, operand)
    # A sum of -0.0 and 0 has lost the sign.
    return operand + cell.offset if cell.offset else operand


def _launch_of(layout: Layout, calls: tuple[tuple[Any, ...], ...], arguments: tuple[Any, ...]) -> Launch:
    return next(launch for (launch, _), call in zip(layout.launches, calls, strict=True) if call is arguments)


def _cell(ctype: str) -> str:
    """`struct`'s format of one cell."""
    if ctype in _CODES:
        size = struct.calcsize("<" + _CODES[ctype])
        return _CODES[ctype] + (f"{CELL - size}x" if size < CELL else "")
    return "8s"


def _bits(value: float, ctype: str) -> bytes:
    """Bytes of one cell holding ``value`` as a dtype that `struct` does not know (bfloat16, float8, ...)."""
    return np.asarray(value, dtype=dtypes.get(ctype).numpy).tobytes().ljust(CELL, b"\0")


def _static(scalar: Scalar) -> bytes:
    try:
        if scalar.ctype in _CODES:
            return struct.pack("<" + _cell(scalar.ctype), scalar.value)
        return _bits(scalar.value, scalar.ctype)
    except (struct.error, OverflowError) as error:
        raise NbxError(f"a launch passes {scalar.value!r} as {scalar.ctype}: {error}") from error


def _size(argument: str | Scalar | ScalarOf) -> int:
    return CELL if isinstance(argument, str) else dtypes.get(argument.ctype).itemsize


def _check_launch(launch: Launch) -> None:
    """Raise `NbxError` for a launch that the driver would refuse, or worse, would run with arguments shifted."""
    function = launch.function
    if not isinstance(function, Function):
        raise NbxError(
            f"a launch on the CUDA runtime takes what its load() returned, not {type(function).__name__} {function!r}"
        )
    if len(launch.args) != function.parameters:
        raise NbxError(
            f"{function.entry} takes {function.parameters} parameters, the launch gives {len(launch.args)} arguments"
        )
    for position, (argument, size) in enumerate(zip(launch.args, function.sizes or (), strict=False)):
        if _size(argument) != size:
            raise NbxError(
                f"parameter {position} of {function.entry} has {size} bytes, the launch gives {argument!r} of "
                f"{_size(argument)} bytes"
            )
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    if not 1 <= threads <= function.threads:
        raise NbxError(f"{function.entry} runs with 1 to {function.threads} threads a block, not {launch.block}")
    if any(not 0 <= extent <= limit for extent, limit in zip(launch.grid, GRID_LIMIT, strict=True)):
        raise NbxError(f"the grid {launch.grid} of {function.entry} is beyond {GRID_LIMIT}")
    function.allow_shared(launch.shared_bytes)


def _misfit(slots: Sequence[Slot], operands: Sequence[Any], error: Exception) -> str:
    names = ", ".join(slot.name for slot in slots)
    if len(operands) != len(slots):
        return f"the program takes {len(slots)} operands ({names}), got {len(operands)}"
    return f"the program's operands ({names}) cannot be {list(operands)!r}: {error}"
