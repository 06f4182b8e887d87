"""Kernels as data: what one implementation of one op needs, promises, and how it is loaded. Imports no toolkit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from nbx_registry.device import Device
    from nbx_registry.runtime import LiveDevice, Runtime
    from nbx_registry.op import Signature


@dataclass(frozen=True, kw_only=True, slots=True)
class Workspace:
    """Scratch memory a kernel needs beside its outputs."""

    name: str
    """How launches refer to it; distinct from the op's parameters and outputs."""
    dtype: str
    """Name of its dtype."""
    shape: tuple[str, ...]
    """Extents as expressions over the op's axes, attributes and the kernel's settings."""
    lifetime: tuple[int, int] = (0, -1)
    """First and last launch (indices, -1 is the last) between which its contents matter."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Kernel:
    """One implementation of one op. Pure data: the strings are references and expressions."""

    id: str
    """``distribution/op/variant``, unique in a catalog."""
    op: str
    """The contract implemented, with its version: ``matmul@1``."""
    backend: str
    """The toolkit that makes it: ``numpy``, ``triton``, ``cuda``, ``composite``, ``view``, ..."""
    runtimes: tuple[str, ...]
    """Runtimes it can be launched on (``("host",)``, ``("cuda",)``); empty for composites and views: any."""
    bind: str | Callable[..., Any]
    """``module:function``. Takes a `BindContext`; returns one `Launch`, several, or a `View`.
    For a composite it takes ``(trace, *tensors, **attributes)`` and returns the traced outputs.
    A kernel registered in this process may give the function itself; evidence cannot bind to such a one."""
    when: tuple[str, ...] = ()
    """Conditions, all of which must hold. Expressions over axes, attributes, tensors and ``device.<fact>``."""
    key: tuple[str, ...] = ()
    """What the launch depends on: expressions whose values identify a launch for settings and plans."""
    workspace: tuple[Workspace, ...] = ()
    deterministic: bool = False
    """Bitwise equal results for bitwise equal inputs, always."""
    batch_invariant: bool = False
    """A row's bits do not depend on how many rows travel with it."""
    replayable: bool = False
    """A captured launch replays correctly on new contents of the same buffers."""
    overlap: Literal["refuse", "same", "any"] = "refuse"
    """What it tolerates between an output and an input: nothing; exactly the same elements; anything."""
    defaults: Mapping[str, object] = field(default_factory=dict)
    """Launch settings used where nothing is tuned."""
    settings: str | None = None
    """``module:NAME`` of the settings space, for tuning."""
    parts: tuple[str, ...] = ()
    """Composites only: the ops it is made of, with versions."""
    preference: int = 0
    """Breaks ties of evidence and specificity; higher is preferred."""
    doc: str = ""
    """One line: the algorithm, the grid, what one program computes."""


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
    registers: int | None = None
    spills: int | None = None
    threads: int | None = None
    """Threads of one block, where the compiler fixed it."""
    parameters: int | None = None
    """Count of kernel parameters the image takes, hidden ones included."""


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


Binder = Callable[[BindContext], "Launch | Sequence[Launch] | View"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Backend:
    """A toolkit that kernels are made with."""

    name: str
    modules: tuple[str, ...] = ()
    """Importable modules that must be present; looked up without importing."""
    distribution: str | None = None
    """The distribution whose version is the toolkit's version."""
    install: str = ""
    """The command that installs it, for refusals."""
