"""What nbx-simulated brings: the runtime ``sim``, two device files, and a loopback kernel for every op of the core."""

from pathlib import Path

from nbx_registry.hookspecs import hookimpl
from nbx_registry.kernel import Backend, Kernel
from nbx_registry.runtimespec import RuntimeSpec

NBX_HOOKS = 1

name = "nbx-simulated"

OPS = (
    "add@1",
    "multiply@1",
    "divide@1",
    "astype@1",
    "sum@1",
    "sqrt@1",
    "gelu@1",
    "subtract@1",
    "negative@1",
    "abs@1",
    "reciprocal@1",
    "pow@1",
    "rsqrt@1",
    "exp@1",
    "log@1",
    "tanh@1",
    "erf@1",
    "relu@1",
    "sigmoid@1",
    "silu@1",
    "maximum@1",
    "minimum@1",
    "clip@1",
    "where@1",
    "embedding@1",
    "layer_norm@1",
    "softmax@1",
    "matmul@1",
    "linear@1",
    "scaled_dot_product_attention@1",
    "permute_dims@1",
    "pixel_shuffle@1",
    "paged_kv_append@1",
    "decode_attention@1",
    "decode_attention_reduce@1",
    "full@1",
    "arange@1",
    "random_bits@1",
    "uniform@1",
    "normal@1",
    "mean@1",
    "prod@1",
    "max@1",
    "argmax@1",
    "rms_norm@1",
    "group_norm@1",
    "conv2d@1",
    "depthwise_conv2d@1",
    "pixel_unshuffle@1",
    "concat@1",
    "broadcast_to@1",
    "take@1",
    "topk@1",
    "rotary_embedding@1",
    "paged_kv_append_step@1",
    "paged_lens_advance@1",
    "paged_decode_attention@1",
    "rfft_basis@1",
    "irfft_basis@1",
    "rfft@1",
    "irfft@1",
    "quantize_int4@1",
    "dequant_int4@1",
    "dequant_gemv_int4@1",
    "dequant_matmul_int4@1",
)


@hookimpl
def nbx_register_runtimes() -> list[RuntimeSpec]:
    """Register the simulated runtime."""
    return [RuntimeSpec(name="sim", factory="nbx_simulated.runtime:create")]


@hookimpl
def nbx_register_backends() -> list[Backend]:
    """Register what loopback kernels are made with."""
    return [Backend(name="loopback", modules=("nbx_simulated",), distribution="nbx-simulated")]


@hookimpl
def nbx_register_devices() -> list[Path]:
    """Register the two products."""
    return [Path(__file__).parent / "devices"]


@hookimpl
def nbx_register_kernels() -> list[Kernel]:
    """Register a loopback kernel for every op."""
    return [loopback(op) for op in OPS]


def loopback(op: str) -> Kernel:
    """Return the loopback kernel of an op, ``add@1`` or one of a plugin's."""
    return Kernel(
        id=f"{name}/{op.partition('@')[0].replace('::', '.')}/loopback",
        op=op,
        backend="loopback",
        runtimes=("sim",),
        bind="nbx_simulated.kernels:bind",
        deterministic=True,
        batch_invariant=True,
        replayable=True,
        # Everything is read before anything is written.
        overlap="any",
        doc="The op's oracle, over simulated memory.",
    )
