"""Specs of random kernels. Seed and offset are passed when launched: one compilation draws from every stream."""

from __future__ import annotations

from nbx_triton.specs.common import FLOATS, HALVES, kernel

KERNELS = (
    kernel(
        "random_bits@1",
        "philox",
        "random:bind_random_bits",
        key=("out.shape", "out.strides"),
        batch_invariant=True,
        doc="One program computes 256 blocks of Philox 4x32-10, a thread two of them, and writes 1024 words.",
    ),
    *(
        kernel(
            f"{op}@1",
            "philox",
            f"random:bind_{op}",
            when=(f"dtype in {dtypes}",),
            key=("out.dtype", "out.shape", "out.strides"),
            batch_invariant=True,
            doc=f"One program computes 256 blocks of Philox 4x32-10 and writes 1024 numbers: {how}.",
        )
        for op, dtypes, how in (
            ("uniform", FLOATS, "the leading bits of each word"),
            ("normal", HALVES, "Wichura's quantile of each word, in float32"),
        )
    ),
)
