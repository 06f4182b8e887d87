"""Launches: what a binder reads and what it answers. Imports no toolkit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from nbx_registry.device import Device
    from nbx_registry.kernel import Kernel
    from nbx_registry.runtime import LiveDevice, Runtime
    from nbx_registry.signature import Signature


@dataclass(frozen=True, slots=True)
class Scalar:
    """A launch argument passed by value. ``ctype`` names its C type by dtype name (``int32``, ``float32``, ...)."""

    value: int | float
    ctype: str


@dataclass(frozen=True, slots=True)
class ScalarOf:
    """A launch argument read at call time from the Python scalar given for tensor parameter ``name``."""

    name: str
    ctype: str


NULL = Scalar(0, "uint64")
"""A null pointer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """One launch. Nothing is left to a toolkit's default: the binder states it all."""

    function: Any
    """What the runtime runs: on the host a callable over NumPy arrays, elsewhere what `BindContext.load` returned."""
    args: tuple[str | Scalar | ScalarOf, ...]
    """In order: a string is a parameter, output or workspace by name (its array, or its address)."""
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (1, 1, 1)
    shared_bytes: int = 0
    """Dynamic shared memory, bytes."""
    offsets: tuple[tuple[str, int], ...] = ()
    """Byte offsets added to the address of an argument, by name."""
    early: bool = False
    """Whether it may begin before the launch before it in its program has ended, where the device can do that: its code
    waits by itself before it touches memory. Everything before that launch has ended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """A binder's answer when nothing need run: the output is ``of`` seen with other strides."""

    of: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In elements."""
    offset: int = 0
    """In elements, from the first element of ``of``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Artifact:
    """Compiled code, and what the compiler said about it."""

    image: bytes
    kind: Literal["cubin", "ptx", "hsaco", "python"]
    entry: str
    arch: str
    toolkit: str
    """Name and version: ``triton 3.6.0``."""
    shared_bytes: int = 0
    """Dynamic shared memory that the code needs, bytes: what its launches ask for, at least."""
    registers: int | None = None
    spills: int | None = None
    threads: int | None = None
    """Threads of one block, where the compiler fixed it."""
    parameters: int | None = None
    """Count of kernel parameters the image takes, hidden ones included."""
    scratch_bytes: int = 0
    """Device memory that each block needs beside its arguments, and a launch passes, bytes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BindContext:
    """What a binder may read. For an absent device ``runtime`` and ``live`` are None: compile, do not load."""

    kernel: Kernel
    signature: Signature
    device: Device
    settings: Mapping[str, Any]
    runtime: Runtime | None = None
    live: LiveDevice | None = None

    def load(self, artifact: Artifact) -> Any:
        """Load compiled code on the live device; without one, hand the artifact itself back."""
        if self.runtime is None or self.live is None:
            return artifact
        return self.runtime.load(self.live.index, artifact)
