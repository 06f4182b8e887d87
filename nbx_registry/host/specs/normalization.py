"""The host's normalization kernels, as data."""

from __future__ import annotations

from nbx_registry.host.specs.numpy_kernel import numpy_kernel
from nbx_registry.kernel import Kernel

KERNELS = (
    numpy_kernel(
        "softmax",
        "normalization",
        "Blocks of rows: maximum, exponentials, pairwise sum, quotient.",
        batch_invariant=True,
        overlap="same",
    ),
    numpy_kernel(
        "layer_norm",
        "normalization",
        "Blocks of rows: mean, deviations, their mean square; pairwise sums.",
        batch_invariant=True,
    ),
    numpy_kernel(
        "rms_norm",
        "normalization",
        "Blocks of rows: their mean square, pairwise, then one product.",
        batch_invariant=True,
    ),
    numpy_kernel(
        "group_norm",
        "normalization",
        "Blocks of groups as rows: mean, deviations, their mean square; pairwise sums; then channel by channel.",
        batch_invariant=True,
    ),
    Kernel(
        id="nbx-host/rms_norm/composed",
        op="rms_norm@1",
        backend="composite",
        runtimes=(),
        bind="nbx_registry.host.kernels.composites:rms_norm",
        parts=("multiply@1", "mean@1", "add@1", "rsqrt@1"),
        # In narrower dtypes each part would round once more than the contract allows.
        when=("x.dtype in (float32, float64)",),
        preference=-10,
        doc="multiply, mean, add, rsqrt, multiply, on whatever device has kernels for these.",
    ),
    Kernel(
        id="nbx-host/group_norm/composed",
        op="group_norm@1",
        backend="composite",
        runtimes=(),
        bind="nbx_registry.host.kernels.composites:group_norm",
        parts=("layer_norm@1", "multiply@1", "add@1"),
        # Groups are rows of a dense tensor; without weight and bias the rows would have to be copied into its shape.
        when=("x.dtype in (float32, float64)", "x.contiguous", "x.size > 0", "weight.given or bias.given"),
        preference=-10,
        doc="layer_norm of the groups, multiply, add, on whatever device has kernels for these.",
    ),
)
