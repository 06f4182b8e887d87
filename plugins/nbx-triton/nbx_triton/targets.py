"""Compile targets of every vendor: what Triton calls them, the options it would otherwise choose, how to read its code.

Warps are those of the target: a kernel that asks for 4 has 128 threads on NVIDIA's and 256 on AMD's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from triton.backends.compiler import GPUTarget

from nbx_registry.errors import NbxError
from nbx_triton import cubin, hsaco
from nbx_triton.compiler import THREADS_PER_WARP, Options

THREADS_PER_WAVEFRONT = 64

_LDS_BYTES = 65536
_MOST_STAGES = 2


@dataclass(frozen=True, slots=True)
class Facts:
    """What a binary says about one kernel, in the words of `Artifact`."""

    registers: int
    spills: int
    parameters: int


@dataclass(frozen=True, slots=True)
class Target:
    """One compile target."""

    name: str
    """``sm_90``, ``gfx942``."""
    triton: GPUTarget
    kind: Literal["cubin", "hsaco"]
    """Triton's last stage, and the artifact's kind."""
    pinned: Mapping[str, Any]
    """Options beside those that a kernel states."""
    read: Callable[[bytes, str], Facts]
    shared_bytes: int | None = None
    """The shared memory of a block where every product of the target has the same, bytes."""

    def variants(self, options: Options) -> Iterator[Options]:
        """Yield the options to try in turn, at least one, until the code fits: each stage of a pipeline takes memory.

        Kernels state stages for NVIDIA's blocks, which have up to three times an AMD block's 64 KiB; on AMD's more than
        two stages hide nothing more.
        """
        if self.shared_bytes is None:
            yield options
        else:
            for stages in range(max(min(options.num_stages, _MOST_STAGES), 1), 0, -1):
                yield replace(options, num_stages=stages)

    def fits(self, shared_bytes: int) -> bool:
        """Whether every product of the target gives a block so much shared memory, as far as the target tells."""
        return self.shared_bytes is None or shared_bytes <= self.shared_bytes

    def options(self, options: Options) -> dict[str, Any]:
        """Return every option that Triton would otherwise take from its defaults or from the environment."""
        return {
            "num_warps": options.num_warps,
            "num_stages": options.num_stages,
            "enable_fp_fusion": options.enable_fp_fusion,
            **self.pinned,
        }


_BOTH = {
    "num_ctas": 1,
    "default_dot_input_precision": "ieee",
    "launch_cooperative_grid": False,
    "debug": False,
    "sanitize_overflow": False,
    "instrumentation_mode": "",
}
_NVIDIA = {
    # Subnormal results of erf and its like are results.
    "enable_reflect_ftz": False,
    "launch_pdl": False,
    "ptx_options": "",
    # Of Triton 3.9: sm_100's work stealing, another order of instructions, and what a sanitizer makes of conversions.
    "clc": False,
    "sched4reg": False,
    "fpsan_homomorphic_casts": False,
}
_AMD = {
    # 0 leaves it to the compiler, which no kernel has reason to overrule without measurements.
    "waves_per_eu": 0,
    "matrix_instr_nonkdim": 0,
    "kpack": 1,
    "allow_flush_denorm": False,
    "schedule_hint": "none",
    "wgp_cu_mode": "wgp",
    "fpsan_homomorphic_casts": False,
}


def capability(name: str) -> int | None:
    """Return the compute capability of a target of NVIDIA's: 90 of ``sm_90`` and ``sm_90a``; None for another's."""
    found = re.fullmatch(r"sm_(\d+)a?", name)
    return int(found[1]) if found else None


def of(name: str) -> Target:
    """Return the target of that name. Raises `NbxError` for one that is neither NVIDIA's nor AMD's."""
    if number := capability(name):
        pinned = {"arch": f"sm{number}", **_BOTH, **_NVIDIA}
        return Target(name, GPUTarget("cuda", number, THREADS_PER_WARP), "cubin", pinned, _read_cubin)
    if re.fullmatch(r"gfx9[0-9a-f]{2}", name):
        pinned = {"arch": name, **_BOTH, **_AMD}
        return Target(name, GPUTarget("hip", name, THREADS_PER_WAVEFRONT), "hsaco", pinned, _read_hsaco, _LDS_BYTES)
    raise NbxError(
        f"target {name!r} is none of this compiler's, which makes code for sm_70, sm_80, sm_90, ... and gfx90a, gfx942"
    )


def _read_cubin(image: bytes, entry: str) -> Facts:
    found = cubin.read(image, entry)
    return Facts(found.registers, found.local_bytes, found.parameters)


def _read_hsaco(image: bytes, entry: str) -> Facts:
    found = hsaco.read(image, entry)
    return Facts(found.registers, found.local_bytes, found.parameters)
