"""Products on the matrix unit of sm_90 are issued one after the other; the last of a step alone is waited for."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.parametrize("filters", [128, 256])
def test_products_do_not_wait_for_one_another(
    bind: Callable[..., Any], sass: Callable[[bytes], str], filters: int
) -> None:
    tensors = ["float16[8, 128, 64, 64]", f"float16[{filters}, 128, 3, 3]", None]
    launch = bind("nbx-triton/conv2d/channels-last", tensors, "nvidia/h200-sxm", padding=1).launches[-1]
    text = sass(launch.function.image)
    products = re.findall(r"HGMMA\.64x\d+x16\.F32 [^;]*;", text)
    assert len(products) == 4
    assert sum("gsb0" in product for product in products) == 1
