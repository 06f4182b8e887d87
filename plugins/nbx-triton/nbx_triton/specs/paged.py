"""Specs of the paged cache. Lengths and tables are read on the device, so that a recorded graph follows them."""

from __future__ import annotations

from nbx_registry.contracts.decoding import splits_rule
from nbx_triton.specs.attention import direct_rows, split_attention
from nbx_triton.specs.common import HALVES, kernel

_SPLITS = splits_rule("T")

KERNELS = (
    *split_attention(
        "paged_decode_attention@1",
        "paged_attention",
        direct=(
            ("direct-64",),
            "bind_paged",
            "page_tokens % 64 == 0 and page_tokens * block_table.shape[1] < 2**30",
            *direct_rows("k_pool"),
            *direct_rows("v_pool"),
        ),
        when=(f"q.dtype in {HALVES}", f"k_pool.dtype in {HALVES}", "D <= 256", "Dv <= 256"),
        key=(
            "q.dtype",
            "q.shape",
            "q.strides",
            "k_pool.dtype",
            "k_pool.shape",
            "k_pool.strides",
            "v_pool.shape",
            "v_pool.strides",
            "block_table.shape",
            "block_table.strides",
            "seq_lens.strides",
            _SPLITS,
            "q_dtype",
        ),
    ),
    kernel(
        "paged_kv_append_step@1",
        "rows",
        "paged_cache:bind_append_step",
        when=(
            f"k_new.dtype in {HALVES} and k_pool.dtype in {HALVES}"
            " or k_new.dtype == k_pool.dtype and not saturate and bits(k_pool.dtype) in (8, 16, 32, 64)",
        ),
        key=(
            "k_new.dtype",
            "k_new.shape",
            "k_new.strides",
            "v_new.shape",
            "v_new.strides",
            "k_pool.dtype",
            "k_pool.shape",
            "k_pool.strides",
            "v_pool.strides",
            "block_table.shape",
            "block_table.strides",
            "lens.strides",
            "saturate",
        ),
        batch_invariant=True,
        doc="One program stores the rows of some heads of one sequence; where the table has no page it writes nothing.",
    ),
    kernel(
        "paged_lens_advance@1",
        "blocks",
        "paged_cache:bind_advance",
        key=("lens.shape", "lens.strides", "n"),
        batch_invariant=True,
        doc="One program adds to 256 lengths.",
    ),
)
