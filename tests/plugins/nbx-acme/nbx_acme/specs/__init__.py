"""Kernels of this hardware, as data."""

from nbx_registry.kernel import Backend, Kernel

BACKEND = Backend(name="acme", modules=("nbx_acme",), distribution="nbx-acme", install="pip install nbx-acme")

KERNELS = (
    Kernel(
        id="nbx-acme/add/plain",
        op="add@1",
        backend="acme",
        runtimes=("acme",),
        bind="nbx_acme.kernels.arithmetic:bind_add",
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
        bind="nbx_acme.kernels.arithmetic:bind_add",
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
        id="nbx-acme/matmul/plain",
        op="matmul@1",
        backend="acme",
        runtimes=("acme",),
        bind="nbx_acme.kernels.arithmetic:bind_matmul",
        when=("x1.dtype == float32", "x1.rank >= 2", "x2.rank >= 2"),
        deterministic=True,
        replayable=True,
        doc="float32 products and sums.",
    ),
    Kernel(
        id="nbx-acme/linear/parts",
        op="linear@1",
        backend="composite",
        runtimes=(),
        parts=("matmul@1", "add@1"),
        bind="nbx_acme.kernels.linear:linear",
        when=("activation == None", "device.vendor == 'acme'"),
        doc="A product, then the bias.",
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
