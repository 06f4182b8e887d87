"""The kernels as data: what each takes, what it depends on, what it promises. Imports no toolkit."""

from nbx_registry import Backend, Kernel

BACKEND = Backend(name="acme", modules=("numpy",), distribution="numpy", install="pip install numpy")
"""The toolkit; this one is NumPy, over the device's memory."""

KERNELS = (
    Kernel(
        id="nbx-acme/matmul/plain",
        op="matmul@1",
        backend="acme",
        runtimes=("acme",),
        bind="nbx_acme.kernels.matmul:bind",
        when=("x1.dtype == float32", "x1.rank >= 2", "x2.rank >= 2"),
        key=("M", "K", "N"),
        deterministic=True,
        replayable=True,
        doc="float32 products and sums, one matrix after another.",
    ),
    Kernel(
        id="nbx-acme/linear/parts",
        op="linear@1",
        backend="composite",
        runtimes=(),
        bind="nbx_acme.kernels.linear:linear",
        parts=("matmul@1", "add@1"),
        when=("device.vendor == 'acme'", "activation == None"),
        doc="A matmul with the weight transposed, for which nothing moves; then the bias.",
    ),
)
