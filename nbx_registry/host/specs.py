"""The host's kernels, as data."""

from __future__ import annotations

from typing import Any

from nbx_registry.kernel import Backend, Kernel

NUMPY = Backend(name="numpy", modules=("numpy",), distribution="numpy", install="pip install numpy")


def _kernel(op: str, module: str, doc: str, **facts: Any) -> Kernel:
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


KERNELS = (
    _kernel("add", "elementwise", "numpy.add", batch_invariant=True, overlap="any"),
    _kernel("multiply", "elementwise", "numpy.multiply", batch_invariant=True, overlap="any"),
    _kernel("divide", "elementwise", "numpy.divide", batch_invariant=True, overlap="any"),
    _kernel("sqrt", "elementwise", "numpy.sqrt", batch_invariant=True, overlap="any"),
    _kernel(
        "gelu",
        "elementwise",
        "Blocks of 16384 elements: exp and a polynomial of degree 7 in float32 (22 in float64).",
        batch_invariant=True,
        overlap="any",
    ),
    _kernel(
        "astype",
        "conversion",
        "numpy.copyto; in blocks where NumPy would round twice, saturating, and from floating to integers.",
        batch_invariant=True,
    ),
    # The order in which NumPy adds up depends on all of an array's extents.
    _kernel("sum", "reduction", "numpy.add.reduce: pairwise along the fastest axis, else row after row."),
    _kernel(
        "softmax",
        "normalization",
        "Blocks of rows: maximum, exponentials, pairwise sum, quotient.",
        batch_invariant=True,
        overlap="same",
    ),
    _kernel(
        "layer_norm",
        "normalization",
        "Blocks of rows: mean, deviations, their mean square; pairwise sums.",
        batch_invariant=True,
    ),
    # BLAS picks another kernel, and another order of adding up, for another number of rows.
    _kernel("matmul", "linalg", "BLAS through numpy.matmul; narrow dtypes in float32."),
    _kernel("linear", "linalg", "One BLAS product into the output; bias and activation on blocks of rows, in place."),
    _kernel("embedding", "indexing", "numpy.take.", batch_invariant=True),
    _kernel(
        "scaled_dot_product_attention",
        "attention",
        "Scores of 131072 pairs at a time: BLAS, softmax, BLAS; keys past a causal block are left out.",
    ),
    _kernel("decode_attention", "attention", "The heads of a group as one product by BLAS; all keys in one pass."),
    _kernel("decode_attention_reduce", "attention", "Split after split, all rows at once.", batch_invariant=True),
    _kernel(
        "paged_kv_append",
        "attention",
        "One indexed assignment; rows rounded first where the dtypes differ.",
        batch_invariant=True,
    ),
    _kernel(
        "permute_dims",
        "layout",
        "numpy.copyto of the transposed view.",
        name="permute_copy",
        when=("copy",),
        batch_invariant=True,
    ),
    _kernel(
        "pixel_shuffle",
        "layout",
        "One strided copy; for a broadcast view whose repeats do not divide up, one a channel.",
        batch_invariant=True,
    ),
    Kernel(
        id="nbx-host/permute_dims/view",
        op="permute_dims@1",
        backend="view",
        runtimes=(),
        bind="nbx_registry.host.kernels.layout:permute_view",
        when=("not copy",),
        deterministic=True,
        batch_invariant=True,
        replayable=True,
        overlap="any",
        doc="The same memory under permuted strides: nothing runs, on any runtime.",
    ),
    Kernel(
        id="nbx-host/linear/composed",
        op="linear@1",
        backend="composite",
        runtimes=(),
        bind="nbx_registry.host.kernels.composites:linear",
        parts=("matmul@1", "add@1", "gelu@1"),
        # In narrower dtypes each part would round once more than the contract allows.
        when=("x.dtype in (float32, float64)", "activation in (None, 'gelu', 'gelu_tanh')"),
        preference=-10,
        doc="matmul, add, gelu, on whatever device has kernels for these.",
    ),
)
