"""DLPack taken in and given out: every dtype, the protocol's keywords, and producers that break it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from capsules import Producer

import nbx_registry as nbx
from nbx_registry import dtypes, tensor
from nbx_registry.errors import SignatureError
from nbx_registry.interop import capsule
from nbx_registry.interop.memory import address_of


class Exporter:
    """Hands over the capsule of an array, asked for as ``keywords`` say."""

    def __init__(self, array: Any, **keywords: Any) -> None:
        self.array, self.keywords = array, keywords

    def __dlpack__(self, **_: Any) -> Any:
        return self.array.__dlpack__(**self.keywords)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def numbers(name: str) -> np.ndarray:
    return np.array([[0, 1, 1], [1, 0, 1]]).astype(dtypes.get(name).numpy)


@pytest.mark.parametrize("version", [None, (1, 0), (1, 1), (1, 3), (2, 0)], ids=str)
@pytest.mark.parametrize("name", dtypes.TABLE)
def test_every_dtype_goes_out_and_comes_back(name: str, version: tuple[int, int] | None) -> None:
    t = tensor.asarray(numbers(name))
    back = tensor.from_dlpack(Exporter(t, max_version=version))
    assert (back.dtype, back.shape, back.strides, back.address) == (t.dtype, t.shape, t.strides, t.address)
    assert back.numpy().tolist() == t.numpy().tolist()
    assert back.readonly
    out = t.__dlpack__(max_version=version)
    versioned, held = capsule._parts(out)
    assert (held.dtype.code, held.dtype.bits, held.dtype.lanes) == (*dtypes.get(name).dlpack, 1)
    assert (versioned is None) == (version is None)
    if versioned is not None and version is not None and version[0] == 1:
        assert (versioned.major, versioned.minor) <= version


@pytest.mark.parametrize("name", dtypes.TABLE)
def test_torch_and_numpy_take_what_they_have_and_say_what_they_have_not(name: str) -> None:
    t = tensor.asarray(numbers(name))
    if hasattr(torch, name) and not t.dtype.packed:
        assert torch.from_dlpack(t).dtype is getattr(torch, name)
        source = torch.zeros(2, 3).to(getattr(torch, name))
        assert tensor.from_dlpack(source).dtype.name == name
        assert tensor.from_dlpack(source).address == source.data_ptr()
    else:
        with pytest.raises((RuntimeError, BufferError)):
            torch.from_dlpack(t)
    if (t.dtype.numpy_name or "").startswith("numpy:"):
        assert np.from_dlpack(t).dtype == t.dtype.numpy
    else:
        with pytest.raises((RuntimeError, BufferError)):
            np.from_dlpack(t)


def test_keywords_of_the_array_api() -> None:
    t = tensor.asarray(np.arange(6.0))
    assert tensor.from_dlpack(Exporter(t, dl_device=(1, 0), copy=False)).address == t.address
    copied = tensor.from_dlpack(Exporter(t, copy=True, max_version=(1, 1)))
    assert copied.address != t.address
    assert copied.numpy().tolist() == t.numpy().tolist()
    versioned, _ = capsule._parts(t.__dlpack__(copy=True, max_version=(1, 1)))
    assert versioned is not None
    assert versioned.flags & 2
    versioned, _ = capsule._parts(t.__dlpack__(max_version=(1, 1)))
    assert versioned is not None
    assert versioned.flags == 0
    with pytest.raises(BufferError, match=r"device \(2, 0\)"):
        t.__dlpack__(dl_device=(2, 0))


def test_what_is_only_read_says_so_or_is_copied() -> None:
    frozen = np.arange(6.0)
    frozen.flags.writeable = False
    t = tensor.asarray(frozen)
    versioned, _ = capsule._parts(t.__dlpack__(max_version=(1, 0)))
    assert versioned is not None
    assert versioned.flags & 1
    with pytest.raises(BufferError, match="readonly"):
        t.__dlpack__()
    assert np.from_dlpack(Exporter(t, copy=True, max_version=(1, 0))).flags.writeable


@pytest.mark.parametrize("version", [None, (1, 0), (1, 1)], ids=str)
def test_a_capsule_is_given_back_once_when_the_last_view_goes(version: tuple[int, int] | None) -> None:
    producer = Producer((3, 4), version=version, byte_offset=8, strides=(4, 1))
    t = tensor.from_dlpack(producer)
    assert producer.asked == [{"max_version": (1, 1)}]
    assert (str(t.spec), t.readonly) == ("float32[3, 4]", True)
    assert t.numpy().view(np.uint8)[0, :2].tolist() == [producer.start + 8, producer.start + 9]
    view = t[1:]
    del t
    gc.collect()
    assert producer.deleted == 0
    del view
    gc.collect()
    assert producer.deleted == 1


def test_strides_may_be_left_out_or_zero() -> None:
    assert tensor.from_dlpack(Producer((2, 3))).strides == (3, 1)
    assert tensor.from_dlpack(Producer((2, 3), strides=(0, 1))).strides == (0, 1)
    assert tensor.from_dlpack(Producer((0, 3), null=True)).shape == (0, 3)
    assert tensor.from_dlpack(Producer(())).shape == ()
    assert tensor.from_dlpack(Producer((2,), dtype=(5, 64, 1), byte_offset=4)).dtype.name == "complex64"


def test_packed_elements_are_taken_packed() -> None:
    producer = Producer((2, 3), dtype=(1, 4, 1))
    t = tensor.from_dlpack(producer)
    first = producer.start
    halves = [half for byte in range(first, first + 3) for half in (byte & 15, byte >> 4)]
    assert t.numpy().astype(int).ravel().tolist() == halves


BROKEN: dict[str, tuple[Callable[[], Producer], str]] = {
    "unknown dtype": (lambda: Producer(dtype=(2, 128, 1)), "type code 2, 128 bits, 1 lanes is not in the dtype table"),
    "opaque handle": (lambda: Producer(dtype=(3, 64, 1)), "type code 3"),
    "lanes": (lambda: Producer(dtype=(2, 32, 4)), "4 lanes is not in the dtype table"),
    "padded": (lambda: Producer(dtype=(0, 4, 1), flags=4), "int4 is padded, one element a byte"),
    "negative extent": (lambda: Producer((2, -3)), r"shape \(2, -3\)"),
    "extents beyond memory": (lambda: Producer((2**40, 2**40)), "fit an address space"),
    "negative rank": (lambda: Producer(rank=-1), "of -1 axes"),
    "too many axes": (lambda: Producer((1,) * 33), "of 33 axes"),
    "negative stride": (lambda: Producer((2, 3), strides=(-3, 1)), "negative stride"),
    "misaligned": (lambda: Producer(byte_offset=2), r"float32 at an address.*4 bytes \(byte_offset 2\)"),
    "no memory": (lambda: Producer(null=True), "data pointer is null"),
    "next major version": (lambda: Producer(version=(2, 0)), r"version 2\.0; version 1 can be read"),
    "unknown device": (lambda: Producer(device=(8, 0)), "device type 8, index 0 cannot be read"),
    "negative device": (lambda: Producer(device=(1, -1)), "index -1 cannot be read"),
    "no device": (lambda: Producer(device=None), "None is no DLPack device"),
    "words for a device": (lambda: Producer(device=("cpu", 0)), "is no DLPack device"),
    "another device inside": (lambda: Producer(inside=(9, 0)), "device type 9"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_producer_is_refused_by_name_and_gets_its_capsule_back(kind: str) -> None:
    make, words = BROKEN[kind]
    producer = make()
    with pytest.raises(SignatureError, match=f"capsules.Producer: .*{words}"):
        tensor.from_dlpack(producer)
    gc.collect()
    assert producer.deleted == len(producer.asked) <= 1
    with pytest.raises(SignatureError, match=words):
        tensor.asarray(producer)


class Raising:
    """A producer that fails in one of its methods."""

    def __init__(self, answer: Callable[[], Any], device: Callable[[], Any] = lambda: (1, 0)) -> None:
        self.answer, self.device = answer, device

    def __dlpack__(self, **_: Any) -> Any:
        return self.answer()

    def __dlpack_device__(self) -> Any:
        return self.device()


def fail(error: Exception) -> Any:
    raise error


def consumed() -> Any:
    taken = np.zeros(3).__dlpack__()
    np.from_dlpack(Raising(lambda: taken))
    return taken


@pytest.mark.parametrize(
    ("producer", "words"),
    [
        (Raising(lambda: fail(BufferError("not today"))), "BufferError: not today; give numpy.asarray"),
        (Raising(lambda: fail(TypeError("no"))), "TypeError: no"),
        (Raising(lambda: None, lambda: fail(RuntimeError("lost"))), "RuntimeError: lost"),
        (Raising(lambda: None), "None is no unused DLPack capsule"),
        (Raising(lambda: np.zeros(3)), "is no unused DLPack capsule"),
        (Raising(consumed), "is no unused DLPack capsule"),
    ],
    ids=["buffer-error", "type-error", "device-raises", "none", "no-capsule", "consumed"],
)
def test_a_producer_that_fails_is_named(producer: Raising, words: str) -> None:
    with pytest.raises(SignatureError, match=f"test_dlpack.Raising.*{words}"):
        tensor.from_dlpack(producer)
    reg = nbx.load(require="any")
    with pytest.raises(SignatureError, match=words):
        reg.call("add", producer, 1.0)


def test_arrays_of_any_exporter_are_arguments_and_never_written() -> None:
    reg = nbx.load(require="any")
    x = Exporter(np.arange(6, dtype=np.float32))
    found = reg.call("add", x, np.ones(6, np.float32))
    assert isinstance(found, nbx.Tensor)
    assert found.numpy().tolist() == [1, 2, 3, 4, 5, 6]
    mixed = reg.call("add", np.ones(6, np.float32), x)
    assert isinstance(mixed, np.ndarray)
    assert isinstance(reg.call("add", torch.ones(6), x), torch.Tensor)
    out = np.empty(6, np.float32)
    assert reg.call("add", x, x, out=out) is out
    with pytest.raises(
        SignatureError, match=r"add: out= is written, but arrays of .*test_dlpack\.Exporter are only read"
    ):
        reg.call("add", x, 1.0, out=x)
    pool = Exporter(np.zeros((1, 1, 4, 2), np.float32))
    new, slot = np.ones((1, 1, 2), np.float32), np.array([0], np.int32)
    with pytest.raises(SignatureError, match=r"paged_kv_append: pool is written, but arrays of"):
        reg.call("paged_kv_append", new, slot, pool)
    assert not pool.array.any()


def test_the_result_of_an_exporter_goes_on_without_a_copy() -> None:
    reg = nbx.load(require="any")
    y = reg.call("add", Exporter(np.arange(6, dtype=np.float32)), 1.0)
    assert address_of(np.from_dlpack(y)) == y.address
