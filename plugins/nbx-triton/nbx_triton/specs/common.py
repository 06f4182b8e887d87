"""What the specs of all families share."""

from __future__ import annotations

from typing import Any

from nbx_registry.kernel import Kernel

HALVES = "(float16, bfloat16, float32)"
FLOATS = "(float16, bfloat16, float32, float64)"
INTEGERS = "(int8, int16, int32, int64, uint8, uint16, uint32, uint64)"
NUMBERS = "(int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, bfloat16, float32, float64)"
ALL = "(bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, bfloat16, float32, float64)"


def kernel(op: str, variant: str, reference: str, **facts: Any) -> Kernel:
    """Return a kernel of this distribution. All are deterministic, and replay: what they read is what pointers show."""
    return Kernel(
        id=f"nbx-triton/{op.partition('@')[0]}/{variant}",
        op=op,
        backend="triton",
        runtimes=("cuda", "hip"),
        bind=f"nbx_triton.kernels.{reference}",
        deterministic=True,
        replayable=True,
        **facts,
    )
