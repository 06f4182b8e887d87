from __future__ import annotations

import numpy as np
import pytest

from nbx_conformance.cases import layouts
from nbx_conformance.trials.buffers import GuardedBuffer, HostMemory
from nbx_registry.bands import BAND
from nbx_registry.spec import parse


def prepared(text: str, layout: layouts.Layout = "contiguous") -> GuardedBuffer:
    spec = layouts.apply(parse(text), layout)
    buffer = GuardedBuffer("x", spec, HostMemory)
    buffer.prepare(np.ones(spec.shape, spec.dtype.numpy), guard=0xFF, poison=0)
    buffer.upload()
    return buffer


@pytest.mark.parametrize("at", [-BAND, -1, 12], ids=["start", "before", "behind"])
def test_a_byte_changed_in_a_band_is_found_where_it_is(at: int) -> None:
    buffer = prepared("float32[3]")
    memory: np.ndarray = buffer.memory.array  # type: ignore[attr-defined]
    memory[buffer.start + at] ^= 1
    damage = buffer.download().damage(elements=False)
    assert damage is not None
    assert (damage.count, damage.offset, damage.extent) == (1, at, 12)


def test_a_byte_changed_in_the_gap_of_a_layout_is_found() -> None:
    buffer = prepared("float32[3]", "strided")
    memory: np.ndarray = buffer.memory.array  # type: ignore[attr-defined]
    memory[buffer.start + 5] ^= 1
    assert str(buffer.download().damage(elements=False)) == (
        "1 byte of x changed, the first 5 bytes from the first element of its 20"
    )


def test_a_changed_element_is_damage_only_where_elements_count() -> None:
    buffer = prepared("float32[3]")
    buffer.operand()[1] = 7
    contents = buffer.download()
    assert contents.damage(elements=False) is None
    assert contents.damage(elements=True) is not None
    np.testing.assert_array_equal(contents.values(), [1, 7, 1])


@pytest.mark.parametrize("text", ["float32[0]", "float32[3, 0]", "float32[]"])
def test_tensors_of_no_or_one_element_have_bands_too(text: str) -> None:
    buffer = prepared(text)
    assert buffer.operand().shape == buffer.spec.shape
    assert buffer.operand().ctypes.data == buffer.address
    assert buffer.nbytes >= 2 * BAND
    assert buffer.download().damage(elements=True) is None


def test_poison_fills_the_elements_and_nothing_else() -> None:
    buffer = GuardedBuffer("out", parse("float32[3]"), HostMemory)
    buffer.prepare(None, guard=0x7B, poison=0xFF)
    buffer.upload()
    assert np.isnan(buffer.operand()).all()
    assert (buffer.image[: buffer.start] == 0x7B).all()
