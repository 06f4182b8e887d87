"""A cubin is read whole or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nbx_triton import cubin


@pytest.fixture(scope="module")
def artifact(bind: Callable[..., Any]) -> Any:
    return bind("nbx-triton/sqrt/dense", ["float32[1000]"], "nvidia/h200-sxm").launches[0].function


def test_facts_of_a_kernel(artifact: Any) -> None:
    facts = cubin.read(artifact.image, artifact.entry)
    assert 8 <= facts.registers <= 255
    assert facts.local_bytes == 0
    # x, out, count, and two hidden pointers.
    assert facts.parameters == 5


def test_every_prefix_is_refused(artifact: Any) -> None:
    for length in range(0, len(artifact.image), 37):
        with pytest.raises(cubin.CubinError):
            cubin.read(artifact.image[:length], artifact.entry)
    with pytest.raises(cubin.CubinError, match="cut short"):
        cubin.read(artifact.image[:-1], artifact.entry)


def test_another_file_is_refused() -> None:
    with pytest.raises(cubin.CubinError, match="not a cubin"):
        cubin.read(b"\x7fELF" + bytes(200), "dense")


def test_a_missing_kernel_is_named(artifact: Any) -> None:
    with pytest.raises(cubin.CubinError, match="no kernel 'gelu'; it has dense"):
        cubin.read(artifact.image, "gelu")
