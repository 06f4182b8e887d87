"""What the kernels of sparse delta memory need and promise, as data: no toolkit is imported here."""

from __future__ import annotations

from nbx_registry.kernel import Kernel

KERNELS = (
    Kernel(
        id="nbx-sdm/wy_solve/numpy",
        op="sdm::wy_solve@1",
        backend="numpy",
        runtimes=("host",),
        bind="nbx_sdm.kernels.wy_solve_numpy:bind",
        key=("C",),
        deterministic=True,
        batch_invariant=True,
        replayable=True,
        doc="Forward substitution, chunk by chunk.",
    ),
    Kernel(
        id="nbx-sdm/wy_solve/blocks",
        op="sdm::wy_solve@1",
        backend="triton",
        runtimes=("cuda",),
        bind="nbx_sdm.kernels.wy_solve:bind",
        key=("N", "C", "A.strides", "beta.strides", "QK.strides"),
        deterministic=True,
        batch_invariant=True,
        replayable=True,
        doc="One program computes a block column of one chunk, in blocks of 16, by forward substitution.",
    ),
)
"""Every kernel of this distribution."""
