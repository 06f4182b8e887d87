"""The host's layout kernels, as data."""

from __future__ import annotations

from nbx_registry.host.specs.composed import composed
from nbx_registry.host.specs.numpy_kernel import numpy_kernel
from nbx_registry.kernel import Kernel


def _view(op: str, name: str, doc: str) -> Kernel:
    return Kernel(
        id=f"nbx-host/{op}/view",
        op=f"{op}@1",
        backend="view",
        runtimes=(),
        bind=f"nbx_registry.host.kernels.layout:{name}",
        when=("not copy",),
        deterministic=True,
        batch_invariant=True,
        replayable=True,
        overlap="any",
        doc=doc,
    )


KERNELS = (
    numpy_kernel(
        "permute_dims",
        "layout",
        "numpy.copyto of the transposed view.",
        name="permute_copy",
        when=("copy",),
        batch_invariant=True,
    ),
    numpy_kernel(
        "broadcast_to",
        "layout",
        "numpy.copyto, which broadcasts.",
        name="broadcast_copy",
        when=("copy",),
        batch_invariant=True,
    ),
    numpy_kernel("concat", "layout", "numpy.concatenate.", batch_invariant=True),
    numpy_kernel("pixel_unshuffle", "layout", "One strided copy.", batch_invariant=True),
    numpy_kernel(
        "pixel_shuffle",
        "layout",
        "One strided copy; for a broadcast view whose repeats do not divide up, one a channel.",
        batch_invariant=True,
    ),
    composed("broadcast_to", "permute_dims", when=("copy",)),
    _view("permute_dims", "permute_view", "The same memory under permuted strides: nothing runs, on any runtime."),
    _view("broadcast_to", "broadcast_view", "The same memory with strides of 0: nothing runs, on any runtime."),
)
