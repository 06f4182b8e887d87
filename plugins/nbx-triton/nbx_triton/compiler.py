"""The `Compiler` protocol; `nbx_triton.triton_compiler` has Triton's implementation: without torch, without a GPU.

What a compiler is
------------------
A kernel's binder knows the tensors, the device and the settings. From them it states a `Source` (a function of the
toolkit's language with the types of its arguments), a compile target and `Options`, and a compiler makes an
`Artifact` from the three: code in one of the kinds that a `Runtime` loads, with the name of its entry and what the
compiler found out about it. Nothing else goes in: two compilations of equal (source, target, options) are
interchangeable, so a compiler may keep artifacts for as long as it likes, in memory or on disk.

To implement one for another toolkit:

``toolkit``
    Name and version, ``triton 3.6.0``. Evidence is bound to it, so it changes whenever the produced code may.
``compile(source, target, options)``
    Must work on a machine without the device, may be called from several threads, and raises what the toolkit raises
    (a binder that raises is a fault, shown with its traceback). It returns an `Artifact` that is *whole*: what comes
    from a cache on disk is checked before it is handed out, since such files are cut short by full disks and killed
    processes, and a driver's answer to half a binary is not to be relied on.

Of the artifact's fields, ``threads``, ``shared_bytes``, ``registers`` and ``parameters`` are what the compiler
*did*, not what it was asked for, read from the binary where it states them: a runtime launches ``threads`` threads
with ``shared_bytes`` of dynamic shared memory and passes ``parameters`` arguments, and conformance compares the
figures with the device's limits. ``spills`` is the local memory of one thread in bytes, stack frame included.

Options are explicit and complete. A toolkit's defaults change between versions (Triton 3.10 is announced to turn
contraction off, 3.9 has it on), so there are none here: whoever launches says warps, stages and contraction, and
`nbx_triton.targets` pins everything else that Triton would take from its own defaults or from the environment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from nbx_registry.launch import Artifact

Path = tuple[int, ...]
"""Where a value sits in an argument list: ``(3,)`` is the fourth argument, ``(3, 1)`` the second of a tuple there."""

Type = str | tuple["Type", ...]
"""``*fp16``, ``i32``, ``constexpr``, or a tuple of them."""

TYPES = {
    "bool": "i1",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float64": "fp64",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
}
"""Triton's names of the dtypes that it has."""

THREADS_PER_WARP = 32


@dataclass(frozen=True, slots=True)
class Source:
    """A function with the types of its arguments."""

    function: Any
    """The function, decorated by ``triton.jit``."""
    signature: tuple[tuple[str, Type], ...]
    """Name and type of every argument, in the function's order."""
    constants: tuple[tuple[Path, Any], ...]
    """Values of the arguments of type ``constexpr``: None, bools, integers, floats and strings."""
    divisible: tuple[Path, ...]
    """Arguments that are multiples of 16: addresses in bytes, sizes and strides in elements."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """How a kernel is compiled, with no default for anything."""

    num_warps: int
    """Warps of one program; a power of two."""
    num_stages: int
    """Depth to which loads of a loop are pipelined; 1 does not pipeline."""
    enable_fp_fusion: bool
    """Whether a product and a sum may be contracted to one fused multiply-add."""


class Compiler(Protocol):
    """Makes artifacts; see the module's documentation for what an implementation owes."""

    @property
    def toolkit(self) -> str:
        """Name and version of the toolkit."""
        ...

    def compile(self, source: Source, target: str, options: Options) -> Artifact:
        """Compile ``source`` for ``target`` (``sm_90``)."""
        ...
