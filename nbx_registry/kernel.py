"""Kernels as data: what one implementation of one op needs, promises, and how it is loaded. Imports no toolkit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


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
    """``module:function``. Takes a `launch.BindContext`; returns one `launch.Launch`, several, or a `launch.View`.
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
    defaults: Mapping[str, object] = field(default_factory=dict[str, object])
    """Launch settings used where nothing is tuned."""
    settings: str | None = None
    """``module:NAME`` of the settings space, for tuning."""
    parts: tuple[str, ...] = ()
    """Composites only: the ops it is made of, with versions."""
    preference: int = 0
    """Breaks ties of evidence and specificity; higher is preferred."""
    doc: str = ""
    """One line: the algorithm, the grid, what one program computes."""


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
