"""The host's normalization kernels, as data."""

from __future__ import annotations

from nbx_registry.host.specs.composed import WIDE, composed
from nbx_registry.host.specs.numpy_kernel import numpy_kernel

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
    composed("rms_norm", "multiply", "mean", "add", "rsqrt", when=(WIDE,)),
    composed(
        "group_norm",
        "layer_norm",
        "multiply",
        "add",
        # Groups are rows of a dense tensor; without weight and bias the rows would have to be copied into its shape.
        when=(WIDE, "x.contiguous", "x.size > 0", "weight.given or bias.given"),
    ),
)
