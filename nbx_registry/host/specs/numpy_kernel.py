"""What every NumPy kernel of the host has in common."""

from __future__ import annotations

from typing import Any

from nbx_registry.kernel import Backend, Kernel

NUMPY = Backend(name="numpy", modules=("numpy",), distribution="numpy", install="pip install numpy")


def numpy_kernel(op: str, module: str, doc: str, **facts: Any) -> Kernel:
    """Return a kernel ``nbx-host/<op>/numpy`` bound by ``<module>:<op>`` (or ``name=``) of `host.kernels`."""
    name = facts.pop("name", op)
    return Kernel(
        id=f"nbx-host/{op}/numpy",
        op=f"{op}@1",
        backend="numpy",
        runtimes=("host",),
        bind=f"nbx_registry.host.kernels.{module}:{name}",
        # NumPy does on one machine what it did before, and a replay calls the same functions on the same arrays.
        deterministic=True,
        replayable=True,
        doc=doc,
        **facts,
    )
