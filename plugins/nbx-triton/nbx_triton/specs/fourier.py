"""Specs of Fourier transforms of real signals, and of their tables. Any strides."""

from __future__ import annotations

from nbx_triton.specs.common import kernel

_KEY = ("x.shape", "x.strides", "out.strides")
_POWERS = f"N in {tuple(2**bits for bits in range(4, 15))}"

KERNELS = (
    *(
        kernel(
            f"{op}@1",
            "tables",
            f"circle:bind_{op}",
            key=("n", "C.strides", "S.strides"),
            doc="One program writes 1024 entries of both tables, each from a part of the circle reduced in integers.",
        )
        for op in ("rfft_basis", "irfft_basis")
    ),
    *(
        kernel(
            f"{op}@1",
            "butterflies",
            f"butterflies:bind_{op}",
            when=(_POWERS,),
            key=(*_KEY, *more),
            batch_invariant=True,
            defaults={"warps": 1},
            settings="nbx_triton.kernels.butterflies:SETTINGS",
            preference=1,
            doc="One thread transforms up to 64 numbers of a row in registers; between passes they are exchanged.",
        )
        for op, more in (("rfft", ()), ("irfft", ("n",)))
    ),
    *(
        kernel(
            f"{op}@1",
            "products",
            f"fourier:bind_{op}",
            key=(*_KEY, *more),
            doc="One program computes a tile of sums over half of the length, with cosines and sines of its own.",
        )
        for op, more in (("rfft", ()), ("irfft", ("n",)))
    ),
)
