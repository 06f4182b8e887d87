"""Specs of pow: `dense` where what is raised is without gaps and in one order, `strided` for the rest."""

from __future__ import annotations

from nbx_triton.specs.common import NUMBERS, kernel

_DTYPES = (f"x.weak or x.dtype in {NUMBERS}", f"e.weak or e.dtype in {NUMBERS}")
_METHOD = "1 to 8 for all by multiplication, others by a logarithm in two parts; integers by squaring."

KERNELS = (
    kernel(
        "pow@1",
        "dense",
        "power:bind_dense",
        when=(
            *_DTYPES,
            "x.weak or x.size == out.size",
            "e.weak or e.size == out.size or e.size == 1",
            "x.contiguous",
            "e.contiguous",
            "x.weak or x.align >= 16",
            "e.weak or e.size == 1 or e.align >= 16",
            "out.contiguous",
            "out.align >= 16",
        ),
        key=("x.dtype", "x.weak", "e.dtype", "e.weak", "e.size == 1", "out.size"),
        batch_invariant=True,
        overlap="same",
        preference=1,
        defaults={"vectors": 2, "warps": 4},
        settings="nbx_triton.kernels.power:SETTINGS",
        doc=f"One program raises 256 to 8192 consecutive elements. Exponents {_METHOD}",
    ),
    kernel(
        "pow@1",
        "strided",
        "power:bind_strided",
        when=_DTYPES,
        key=("x.dtype", "x.shape", "x.strides", "x.weak", "e.dtype", "e.shape", "e.strides", "e.weak", "out.strides"),
        batch_invariant=True,
        overlap="same",
        doc=f"One program raises a tile of 1024 elements. Exponents {_METHOD}",
    ),
)
