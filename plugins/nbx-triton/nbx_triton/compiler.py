"""The `Compiler` protocol, and Triton's implementation of it, which needs neither torch nor a GPU.

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
`Triton` pins everything else that Triton would take from its own defaults or from the environment.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Protocol

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from nbx_registry.errors import NbxError
from nbx_registry.launch import Artifact
from nbx_triton import cubin

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


class Triton:
    """Triton's compiler, kept away from its launcher (which imports torch) and from its driver (which needs a GPU).

    Tested with Triton 3.6.0 on Python 3.11 and 3.12.

    Parameters
    ----------
    keep : int
        Artifacts kept in memory; the least recently used go first.
    """

    def __init__(self, keep: int = 2048) -> None:
        self._keep = keep
        self._kept: OrderedDict[tuple[Source, str, Options], Artifact] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def toolkit(self) -> str:
        """``triton`` and its version."""
        return f"triton {triton.__version__}"

    def compile(self, source: Source, target: str, options: Options) -> Artifact:
        """Compile ``source`` to a cubin, or return the one made before in this process.

        Raises `NbxError` for a target that is not NVIDIA's and for code that wants scratch memory from its launcher;
        whatever Triton raises for a source that does not compile.
        """
        # 1, 1.0 and True are equal as dictionary keys but not as constants; their types tell them apart.
        key = (source, target, options, tuple(type(value) for _, value in source.constants))
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                found = self._compile(source, target, options)
                self._kept[key] = found
                if len(self._kept) > self._keep:
                    self._kept.popitem(last=False)
            else:
                self._kept.move_to_end(key)
        return found

    def _compile(self, source: Source, target: str, options: Options) -> Artifact:
        try:
            return self._once(source, target, options)
        except (cubin.CubinError, OSError, ValueError, KeyError, StopIteration):
            # Triton 3.6 serves what lies in its cache on disk without a look at it: a file that was cut short shows
            # as a cubin that is not whole, as JSON that does not parse, or as a file that is missing. Compiling again
            # past the cache replaces the entry; if the cache was not the trouble, the same error comes back.
            with triton.knobs.compilation.scope():
                triton.knobs.compilation.always_compile = True
                return self._once(source, target, options)

    def _once(self, source: Source, target: str, options: Options) -> Artifact:
        capability = capability_of(target)
        wanted = _pinned(capability, options)
        compiled = triton.compile(
            ASTSource(
                source.function,
                dict(source.signature),
                constexprs=dict(source.constants),
                attrs={path: [["tt.divisibility", 16]] for path in source.divisible},
            ),
            target=GPUTarget("cuda", capability, THREADS_PER_WARP),
            options=wanted,
        )
        made = compiled.metadata
        for name, value in wanted.items():
            # Warp specialisation may add warps; the artifact's thread count says what was made.
            if name != "num_warps" and getattr(made, name) != value:
                raise NbxError(
                    f"Triton {triton.__version__} compiled {made.name!r} with {name}={getattr(made, name)!r} where "
                    f"{value!r} was asked for"
                )
        if made.global_scratch_size or made.profile_scratch_size:
            raise NbxError(f"kernel {made.name!r} wants scratch memory from its launcher, which gives none")
        image = compiled.asm["cubin"]
        facts = cubin.read(image, made.name)
        return Artifact(
            image=image,
            kind="cubin",
            entry=made.name,
            arch=target,
            toolkit=self.toolkit,
            shared_bytes=made.shared,
            registers=facts.registers,
            spills=facts.local_bytes,
            threads=made.num_warps * THREADS_PER_WARP,
            parameters=facts.parameters,
        )


TRITON = Triton()
"""The process's compiler, shared by all kernels."""


def capability_of(target: str) -> int:
    """Return 90 for ``sm_90`` and ``sm_90a``. Raises `NbxError` for other targets."""
    number = target.removeprefix("sm_").rstrip("a")
    if not target.startswith("sm_") or not number.isdigit():
        raise NbxError(f"target {target!r} is none of this compiler's: it makes code for sm_70, sm_80, sm_90, ...")
    return int(number)


def _pinned(capability: int, options: Options) -> dict[str, Any]:
    """Return every option that Triton would otherwise take from its defaults or from the environment."""
    return {
        "arch": f"sm{capability}",
        "num_warps": options.num_warps,
        "num_stages": options.num_stages,
        "num_ctas": 1,
        "enable_fp_fusion": options.enable_fp_fusion,
        # Subnormal results of erf and its like are results.
        "enable_reflect_ftz": False,
        "default_dot_input_precision": "ieee",
        "launch_cooperative_grid": False,
        "launch_pdl": False,
        "debug": False,
        "sanitize_overflow": False,
        "ptx_options": "",
    }
