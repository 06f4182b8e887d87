"""The host's quantized kernels, as data."""

from __future__ import annotations

from nbx_registry.host.specs.numpy_kernel import numpy_kernel
from nbx_registry.kernel import Kernel

KERNELS = (
    numpy_kernel(
        "quantize_int4",
        "quantized",
        "Tiles of whole groups in float32, on every core where they are many.",
        batch_invariant=True,
    ),
    numpy_kernel(
        "dequant_int4",
        "quantized",
        "Tiles of whole groups, a nibble of all words at a time, on every core where they are many.",
        batch_invariant=True,
    ),
    # One vector: there is no batch for its bits to depend on.
    numpy_kernel(
        "dequant_gemv_int4",
        "quantized",
        "Tiles of 512 rows and 1024 columns, unpacked and multiplied by BLAS, added in order of rows.",
    ),
    # BLAS picks another kernel, and another order of adding up, for another number of rows.
    numpy_kernel(
        "dequant_matmul_int4",
        "quantized",
        "Tiles of 512 rows and 1024 columns, unpacked and multiplied by BLAS, added in order of rows.",
    ),
    *(
        Kernel(
            id=f"nbx-host/{op}/composed",
            op=f"{op}@1",
            backend="composite",
            runtimes=(),
            bind="nbx_registry.host.kernels.composites:dequant_product",
            parts=("astype@1", "dequant_int4@1", "matmul@1"),
            preference=-10,
            doc="dequant_int4, and matmul in float32, on whatever device has kernels for these.",
        )
        for op in ("dequant_gemv_int4", "dequant_matmul_int4")
    ),
)
