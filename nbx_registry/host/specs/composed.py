"""What the host's composites have in common: ops made of others, on whatever device has kernels for these."""

from __future__ import annotations

from nbx_registry.kernel import Kernel

WIDE = "x.dtype in (float32, float64)"
"""For ops whose parts would each round once more in narrower dtypes than the contract allows."""


def composed(op: str, *parts: str, when: tuple[str, ...] = ()) -> Kernel:
    """Return a kernel ``nbx-host/<op>/composed`` traced by ``composites:<op>`` of `host.kernels`."""
    return Kernel(
        id=f"nbx-host/{op}/composed",
        op=f"{op}@1",
        backend="composite",
        runtimes=(),
        bind=f"nbx_registry.host.kernels.composites:{op}",
        parts=tuple(f"{part}@1" for part in parts),
        when=when,
        preference=-10,
        doc=f"{', '.join(parts)}, on whatever device has kernels for these.",
    )
