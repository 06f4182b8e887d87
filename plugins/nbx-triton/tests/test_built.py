"""Kernels compile for every NVIDIA architecture that has device files, within its limits, without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import nbx_registry as nbx

DEVICES = ["nvidia/v100-sxm2-16gb", "nvidia/h200-sxm", "nvidia/b200"]


class Case(NamedTuple):
    kernel: str
    tensors: list[str | float | None]
    attributes: dict[str, Any] = {}  # noqa: RUF012 - never written

    def __str__(self) -> str:
        return f"{self.kernel}-{self.tensors[0] if self.tensors else self.attributes['shape']}"


def attention(dtype: str, queries: int, width: int, mask: str | None = None) -> Case:
    kv = f"{dtype}[2, 2, 1000, {width}]"
    return Case(
        "scaled_dot_product_attention/online",
        [f"{dtype}[2, 8, {queries}, {width}]", kv, kv, mask],
        {"causal": mask is None},
    )


def decode(dtype: str, heads: int, width: int) -> Case:
    kv = f"{dtype}[2, 2, 1000, {width}]"
    return Case("decode_attention/split", [f"{dtype}[2, {heads}, {width}]", kv, kv, None])


CASES = [
    Case("add/strided", ["float16[63, 129]", "float16[129]"]),
    Case("add/strided", ["float32[3, 5, 7, 9];strides=[1, 1000, 100, 10]", "float32[7, 1]"]),
    Case("multiply/strided", ["int16[1000]", "uint8[1000]"]),
    Case("divide/strided", ["bfloat16[1000]", 3.0]),
    Case("sqrt/dense", ["float64[1000]"]),
    Case("gelu/dense", ["bfloat16[1000]"]),
    Case("astype/strided", ["float64[1000]"], {"dtype": "bfloat16"}),
    Case("astype/dense", ["uint64[1000]"], {"dtype": "float16", "saturate": True}),
    Case("astype/dense", ["float32[1000]"], {"dtype": "uint8", "saturate": True}),
    Case("sum/columns", ["bfloat16[63, 1000]"], {"axis": 0}),
    Case("sum/columns", ["float32[5, 7, 9, 11, 13]"], {"axis": (1, 3)}),
    Case("sum/split-rows", ["float16[200000]"]),
    Case("sum/split-rows", ["float64[200000]"]),
    Case("sum/split-rows", ["bool[200000]"]),
    Case("softmax/rows", ["float16[63, 16384]"]),
    Case("softmax/rows", ["bfloat16[63, 20000]"]),
    Case("softmax/rows", ["float64[63, 129]"]),
    Case("layer_norm/rows", ["float32[63, 16384]", "float32[16384]", "float32[16384]"]),
    Case("layer_norm/rows", ["bfloat16[63, 20000]", None, None]),
    Case("matmul/tiles", ["float16[1000, 1024]", "float16[1024, 1000]"]),
    Case("matmul/tiles", ["float32[1000, 63]", "float32[63, 1000]"]),
    Case("matmul/tiles", ["float64[63, 63]", "float64[63, 63]"]),
    Case("linear/tiles", ["bfloat16[7, 1024]", "bfloat16[1000, 1024]", "bfloat16[1000]"], {"activation": "silu"}),
    Case("linear/tiles", ["float32[63, 1024]", "float32[1000, 1024]", "float32[1000]"], {"activation": "gelu"}),
    attention("float16", 1000, 128),
    attention("bfloat16", 1000, 256, "bool[1000, 1000]"),
    attention("float16", 3, 129),
    attention("float32", 1000, 256),
    decode("float16", 8, 256),
    decode("bfloat16", 2, 128),
    decode("float32", 64, 256),
    Case("decode_attention_reduce/rows", ["float32[63, 7, 129]", "float32[63, 7]", "float32[63, 7]"]),
    Case("embedding/rows", ["bfloat16[1000, 129]", "int64[63]"]),
    Case("paged_kv_append/rows", ["float32[63, 8, 128]", "int32[63]", "bfloat16[9, 8, 16, 128]"], {"saturate": True}),
    Case("permute_dims/tiles", ["float16[63, 129]"], {"axes": (1, 0), "copy": True}),
    Case("permute_dims/tiles", ["float64[3, 65, 5, 7, 33]"], {"axes": (4, 3, 0, 2, 1), "copy": True}),
    Case("permute_dims/tiles", ["int8[3, 5, 7, 2]"], {"axes": (2, 0, 3, 1), "copy": True}),
    Case("matmul/tiles", ["float16[3, 1, 5, 63, 65]", "float16[7, 1, 65, 33]"]),
    Case("pixel_shuffle/rows", ["bool[2, 12, 63, 129]"], {"r": 2}),
    Case("random_bits/philox", [], {"shape": (63, 129), "seed": 2**64 - 1, "offset": 3}),
    Case("uniform/philox", [], {"shape": (1000,), "seed": 7, "dtype": "bfloat16"}),
    Case("normal/philox", [], {"shape": (1000,), "seed": 7, "offset": 2**63}),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_builds_within_the_devices_limits(
    registry: nbx.Registry, bind: Callable[..., Any], case: Case, device: str
) -> None:
    bound = bind(f"nbx-triton/{case.kernel}", case.tensors, device, **case.attributes)
    facts = registry.devices[device]
    assert bound.launches
    for launch in bound.launches:
        made = launch.function
        assert made.arch == facts.arch
        assert made.shared_bytes == launch.shared_bytes <= facts.fact("shared.bytes_per_block_optin")
        assert launch.block == (made.threads, 1, 1)
        assert made.registers * made.threads <= facts.fact("registers.per_block")
        assert len(launch.args) == made.parameters
        # A few registers may spill; a tile that does not fit by far is a mistake in its size.
        assert made.spills <= 256


WIDE_CASES = [
    Case("multiply/strided", ["float16[65537, 65537]", "float16[65537]"]),
    Case("gelu/dense", ["bfloat16[3000000000]"]),
    Case("astype/strided", ["int8[3000000000]"], {"dtype": "bool"}),
    Case("sum/columns", ["float16[65537, 65537]"], {"axis": 0}),
    Case("sum/split-rows", ["int8[3000000000]"]),
    Case("softmax/rows", ["float16[65537, 65537]"]),
    Case("softmax/rows", ["float16[65537, 65537]"], {"axis": 0}),
    Case("layer_norm/rows", ["bfloat16[65537, 65537]", "bfloat16[65537]", None]),
    Case("layer_norm/rows", ["float32[1000000, 4096]", None, None]),
    Case("embedding/rows", ["float16[1000000, 4096]", "int32[63]"]),
    Case("paged_kv_append/rows", ["float16[63, 8, 128]", "int32[63]", "float16[200000, 8, 16, 128]"]),
    Case("permute_dims/tiles", ["int8[65537, 65537]"], {"axes": (1, 0), "copy": True}),
    Case("permute_dims/tiles", ["int8[3, 3, 3, 1000000000]"], {"axes": (1, 0, 2, 3), "copy": True}),
    Case("pixel_shuffle/rows", ["float16[8, 256, 1024, 1025]"], {"r": 2}),
    Case("matmul/tiles", ["float16[65537, 65537]", "float16[65537, 63]"]),
    Case("linear/tiles", ["bfloat16[65537, 63]", "bfloat16[65537, 63]", "bfloat16[65537]"], {"activation": "gelu"}),
    Case(
        "scaled_dot_product_attention/online",
        [*["float16[32, 64, 16384, 128]"] * 3, "bool[16384, 16384]"],
        {"causal": True},
    ),
    Case("decode_attention/split", ["float16[64, 64, 128]", *["float16[64, 8, 100000, 128]"] * 2, "float32[100000]"]),
    Case("decode_attention_reduce/rows", ["float32[1000000, 32, 128]", "float32[1000000, 32]", "float32[1000000, 32]"]),
    Case("uniform/philox", [], {"shape": (65537, 65537), "seed": 7, "dtype": "float16"}),
    Case("normal/philox", [], {"shape": (3000000000,), "seed": 7}),
]


@pytest.mark.parametrize("case", WIDE_CASES, ids=str)
def test_more_than_2_to_the_31_elements_build(bind: Callable[..., Any], case: Case) -> None:
    bound = bind(f"nbx-triton/{case.kernel}", case.tensors, "nvidia/h200-sxm", **case.attributes)
    for launch in bound.launches:
        assert launch.function.spills <= 256


def test_kernels_for_sm_80_build_too() -> None:
    """No device file has this architecture yet; the compiler's target is what counts."""
    from types import SimpleNamespace

    from nbx_registry import contracts, spec
    from nbx_registry.launch import BindContext
    from nbx_triton.kernels import attention, product
    from nbx_triton.specs import KERNELS

    ops = {op.id: op for op in contracts.ALL}
    kernels = {kernel.id: kernel for kernel in KERNELS}
    facts = {"shared.bytes_per_block_optin": 163 * 1024, "multiprocessors": 108}
    device = SimpleNamespace(arch="sm_80", fact=facts.__getitem__)
    for name, binder, texts in (
        ("matmul/tiles", product.bind, ["float16[1000, 1024]", "float16[1024, 1000]"]),
        ("scaled_dot_product_attention/online", attention.bind, [*["float16[2, 2, 1000, 128]"] * 3, None]),
    ):
        kernel = kernels[f"nbx-triton/{name}"]
        signature = ops[kernel.op].signature([text and spec.parse(text) for text in texts], {})
        ctx = BindContext(kernel=kernel, signature=signature, device=device, settings={})
        (launch,) = binder(ctx)
        assert launch.function.arch == "sm_80"
        assert launch.shared_bytes <= 163 * 1024
