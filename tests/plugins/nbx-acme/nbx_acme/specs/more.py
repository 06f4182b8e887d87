"""Kernels beyond those it began with, as data."""

from nbx_registry.kernel import Kernel

MORE = (
    Kernel(
        id="nbx-acme/add/plain",
        op="add@1",
        backend="acme",
        runtimes=("acme",),
        bind="nbx_acme.kernels.add:bind",
        when=("x1.dtype in (float32, int32)", "x2.weak or x2.dtype == x1.dtype"),
        deterministic=True,
        replayable=True,
        overlap="same",
        doc="Element by element, from memory.",
    ),
    Kernel(
        id="nbx-acme/add/scratchpad",
        op="add@1",
        backend="acme",
        runtimes=("acme",),
        bind="nbx_acme.kernels.add:bind",
        when=(
            "x1.dtype in (float32, int32)",
            "x2.weak or x2.dtype == x1.dtype",
            "x1.nbytes + x2.nbytes <= device.acme.scratchpad_bytes",
        ),
        deterministic=True,
        replayable=True,
        overlap="same",
        doc="Both operands moved to the scratchpad first.",
    ),
    Kernel(
        id="nbx-acme/acme::scale_shift/plain",
        op="acme::scale_shift@1",
        backend="acme",
        runtimes=("acme",),
        bind="nbx_acme.kernels.scale_shift:bind",
        when=("x.contiguous",),
        key=("x.size", "x.dtype"),
        deterministic=True,
        batch_invariant=True,
        replayable=True,
        overlap="same",
        doc="In 64-bit integers, saturating.",
    ),
)
