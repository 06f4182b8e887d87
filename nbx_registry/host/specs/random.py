"""The host's random kernels, as data."""

from __future__ import annotations

from nbx_registry.host.specs.numpy_kernel import numpy_kernel

_FACTS = {"batch_invariant": True}

KERNELS = (
    numpy_kernel("random_bits", "random", "Philox 4x32-10 over blocks of 16384 counters.", **_FACTS),
    numpy_kernel("uniform", "random", "Philox 4x32-10 over blocks of 16384 counters; leading bits, scaled.", **_FACTS),
    numpy_kernel(
        "normal",
        "random",
        "Philox 4x32-10 over blocks of 16384 counters; quantiles by Wichura's rational functions.",
        **_FACTS,
    ),
)
