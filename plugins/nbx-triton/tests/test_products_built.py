"""Products by large tiles and of few rows, built: pieces are copied whole, products do not wait, nothing spills."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import triton

AMPERE_AND_LATER = (
    "nvidia/a100-sxm4-80gb",
    "nvidia/l40s",
    "nvidia/h200-sxm",
    "nvidia/b200",
    "nvidia/rtx-5090",
)
BLOCKS = ("matmul/blocks", ["float16[1000, 1024]", "float16[1024, 1000]"], {})
TRANSPOSED = ("matmul/blocks", ["float16[1000, 1024]", "float16[1024, 1000];strides=[1, 1024]"], {})
LINEAR = ("linear/blocks", ["bfloat16[32, 128, 384]", "bfloat16[1536, 384]", "bfloat16[1536]"], {"activation": "gelu"})
STREAMED = ("matmul/streamed-128", ["float16[80, 4096]", "float16[4096, 4096]"], {})
STREAMED_LINEAR = ("linear/streamed", ["float16[32, 2048]", "float16[8192, 2048]", None], {"activation": "silu"})
SHORT = ("linear/blocks-64", ["float16[32, 128, 384]", "float16[1536, 384]", "float16[1536]"], {"activation": "gelu"})
LONG = ("linear/blocks-128", ["float16[4096, 1536]", "float16[384, 1536]", "float16[384]"], {"activation": "gelu"})
ODD = ("linear/streamed-128", ["bfloat16[100, 2048]", "bfloat16[8193, 2048]", "bfloat16[8193]"], {"activation": "gelu"})
WIDER = ("linear/blocks-192", ["float16[32, 128, 384]", "float16[1152, 384]", "float16[1152]"], {"activation": "gelu"})
"""For sm_90 alone."""
CASES = [BLOCKS, TRANSPOSED, LINEAR, SHORT, LONG, STREAMED, STREAMED_LINEAR, ODD]
BULK = [
    ("matmul/bulk", ["float16[1000, 1024]", "float16[1024, 1000]"], {}),
    ("matmul/bulk", ["bfloat16[3, 1000, 1024]", "bfloat16[3, 1024, 1000];strides=[1024000, 1, 1024]"], {}),
    ("linear/bulk", ["float16[32, 128, 384]", "float16[1536, 384]", "float16[1536]"], {"activation": "gelu"}),
]
RAGGED = (
    "linear/bulk",
    ["float16[40000, 65536]", "float16[1537, 65536]", "float16[1537]"],
    {"activation": "gelu_tanh"},
)
"""Not for sm_100, whose tiles leave the shared memory too small for rows of no whole pieces."""


def assembly(image: bytes, folder: Path) -> str:
    path = folder / "kernel.cubin"
    path.write_bytes(image)
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    return subprocess.run([tool, "-sass", path], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("device", AMPERE_AND_LATER)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_the_sums_stay_in_registers(bind: Callable[..., Any], case: Any, device: str) -> None:
    kernel, tensors, attributes = case
    for launch in bind(f"nbx-triton/{kernel}", tensors, device, **attributes).launches:
        assert launch.function.spills == 0


def test_sums_of_192_columns_stay_in_registers(bind: Callable[..., Any]) -> None:
    kernel, tensors, attributes = WIDER
    (launch,) = bind(f"nbx-triton/{kernel}", tensors, "nvidia/h200-sxm", **attributes).launches
    assert launch.function.spills == 0
    # Three run at once on a multiprocessor.
    assert 3 * launch.function.registers * launch.function.threads <= 65536
    assert 3 * (launch.shared_bytes + 1024) <= 228 * 1024


@pytest.mark.parametrize(
    ("case", "device"),
    [*((case, device) for case in BULK for device in ("nvidia/h200-sxm", "nvidia/b200")), (RAGGED, "nvidia/h200-sxm")],
    ids=lambda part: part if isinstance(part, str) else part[0],
)
def test_the_sums_of_what_the_engine_brings_stay_in_registers(bind: Callable[..., Any], case: Any, device: str) -> None:
    kernel, tensors, attributes = case
    (launch,) = bind(f"nbx-triton/{kernel}", tensors, device, **attributes).launches
    assert launch.function.spills == 0
    assert launch.args[-2] == "descriptions"


@pytest.mark.parametrize("case", [*CASES, WIDER, *BULK, RAGGED], ids=lambda case: case[0])
def test_products_on_sm_90_do_not_wait_for_one_another(bind: Callable[..., Any], tmp_path: Path, case: Any) -> None:
    kernel, tensors, attributes = case
    text = assembly(
        bind(f"nbx-triton/{kernel}", tensors, "nvidia/h200-sxm", **attributes).launches[0].function.image, tmp_path
    )
    products = re.findall(r"HGMMA\.64x\d+x16\.F32[^;]*;", text)
    assert products
    # What is waited for is a step's products by one group of rows or columns.
    assert sum("gsb0" in product for product in products) == (2 if case in (STREAMED, WIDER) else 1)


@pytest.mark.parametrize("extents", [(1000, 1024, 1000), (1000, 1000, 520), (40, 1000, 264)], ids=str)
def test_copies_are_of_whole_pieces(bind: Callable[..., Any], tmp_path: Path, extents: tuple[int, int, int]) -> None:
    m, k, n = extents
    kernel = "nbx-triton/matmul/streamed-128" if m < 128 else "nbx-triton/matmul/blocks"
    for layout in ("", f";strides=[1, {k}]"):
        bound = bind(kernel, [f"float16[{m}, {k}]", f"float16[{k}, {n}]{layout}"], "nvidia/h200-sxm")
        text = assembly(bound.launches[0].function.image, tmp_path)
        copies = re.findall(r"LDGSTS[^ ]*", text)
        assert copies
        assert all(copy.endswith("128") for copy in copies)
