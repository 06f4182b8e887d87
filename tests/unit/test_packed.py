"""Elements of four bits: packed in tensors, one a byte in NumPy, whole bytes in views, unpacked for host kernels."""

from __future__ import annotations

import itertools
from typing import Any

import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from making import plugin

import nbx_registry as nbx
from nbx_registry import dtypes, tensor, views
from nbx_registry.dtypes import DType
from nbx_registry.errors import SignatureError, SpecError
from nbx_registry.interop.memory import address_of, array_at
from nbx_registry.interop.packed import elements_per_byte, pack, unpack
from nbx_registry.kernel import Kernel
from nbx_registry.op import op

PACKED = [name for name, dtype in dtypes.TABLE.items() if dtype.bits < 8]
NUMBERS = {"int4": range(-8, 8), "uint4": range(16), "float4_e2m1fn": (0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -6)}


@pytest.fixture(scope="module")
def reg() -> nbx.Registry:
    return nbx.load(require="any")


def elements(dtype: str, count: int) -> np.ndarray:
    return np.array(list(itertools.islice(itertools.cycle(NUMBERS[dtype]), count))).astype(dtypes.get(dtype).numpy)


def memory(t: nbx.Tensor) -> list[int]:
    return array_at(t.address, np.dtype(np.uint8), (t.nbytes,), owner=t).tolist()


def test_the_first_element_is_the_low_half_of_its_byte() -> None:
    assert memory(tensor.asarray([1, -2, 7], "int4")) == [0xE1, 0x07]
    assert memory(tensor.asarray([1, 2, 15], "uint4")) == [0x21, 0x0F]
    # E2M1: 1.0 is 0b0010, -6.0 is 0b1111 (OCP Microscaling Formats 1.0, 5.3.3).
    assert memory(tensor.asarray([1.0, -6.0], "float4_e2m1fn")) == [0xF2]


@pytest.mark.parametrize("count", [0, 1, 2, 63, 64, 127])
@pytest.mark.parametrize("dtype", PACKED)
def test_bytes_hold_what_was_packed(dtype: str, count: int) -> None:
    x = elements(dtype, count)
    packed = pack(x, dtypes.get(dtype))
    assert packed.size == (count + 1) // 2
    back = unpack(packed, dtypes.get(dtype), count)
    assert back.dtype == x.dtype
    assert back.view(np.uint8).tolist() == x.view(np.uint8).tolist()
    if count:
        low = [int(byte) & 15 for byte in packed]
        assert low == (x.view(np.uint8)[::2] & 15).tolist()


def test_jax_packs_in_the_same_order() -> None:
    import jax.numpy as jnp

    x = jnp.asarray(np.arange(-6, 7)).astype(jnp.float4_e2m1fn)
    assert tensor.asarray(x).numpy().tolist() == np.asarray(x).tolist()


def test_a_width_that_does_not_divide_a_byte_is_refused() -> None:
    odd = DType(name="float6_made", kind="float", bits=6, key="f6m")
    with pytest.raises(SpecError, match="float6_made has 6 bits, which do not divide a byte"):
        elements_per_byte(odd)
    with pytest.raises(SpecError, match="cannot be stored"):
        tensor.empty((2,), odd)


@pytest.mark.parametrize("dtype", PACKED)
def test_a_packed_tensor_has_half_the_bytes(dtype: str) -> None:
    t = tensor.empty((3, 21), dtype)
    assert (t.nbytes, t.buffer.nbytes, t.strides) == (32, 32, (21, 1))
    x = elements(dtype, 63).reshape(3, 21)
    t.assign(x)
    assert t.numpy().tolist() == x.tolist()
    assert tensor.asarray(x).numpy().tolist() == x.tolist()
    assert np.asarray(t, np.float32).tolist() == x.astype(np.float32).tolist()


def test_numpy_of_a_packed_tensor_is_a_copy_and_nothing_else_is_made_silently() -> None:
    t = tensor.asarray([1, 2, 3], "int4")
    t.numpy()[...] = 0
    assert t.numpy().tolist() == [1, 2, 3]
    with pytest.raises(SignatureError, match=r"packed.*\.numpy\(\)"):
        t.host_array()
    with pytest.raises(ValueError, match="needs a copy"):
        np.asarray(t, copy=False)
    with pytest.raises(SignatureError, match=r"int4\[3\] on cpu needs a copy for packing"):
        tensor.asarray(t.numpy(), copy=False)
    assert tensor.asarray(t) is t
    assert tensor.asarray(t, copy=True).address != t.address


def test_assigning_leaves_the_other_half_of_the_last_byte_alone() -> None:
    t = tensor.asarray([1, 2, 3, 4], "uint4")
    t.restrided((3,), (1,), 0).assign(np.array([7, 8, 9], ml_dtypes.uint4))
    assert t.numpy().tolist() == [7, 8, 9, 4]
    t.permute((0,)).reshape((2, 2)).permute((1, 0)).assign(np.array([[1, 2], [3, 4]], ml_dtypes.uint4))
    assert t.numpy().tolist() == [1, 3, 2, 4]


def test_views_take_whole_bytes() -> None:
    x = elements("int4", 24).reshape(4, 6)
    t = tensor.asarray(x)
    for item in [1, slice(1, 3), (slice(None), slice(2, 4)), (slice(None, None, 2), slice(0, 6)), (..., None), -1]:
        part = t[item]
        assert part.numpy().tolist() == x[item].tolist(), item
        assert part.address == t.address + part.spec.offset // 2
    for item in [(slice(None), 1), (0, 0), (slice(None), slice(1, 3)), (0, slice(0, 3)), (slice(None), slice(0, 6, 2))]:
        with pytest.raises(SignatureError, match=r"would split a byte, which holds 2 elements of int4.*astype"):
            t[item]


def test_rows_of_odd_length_split_bytes() -> None:
    t = tensor.asarray(elements("int4", 15).reshape(3, 5))
    assert t[:2].numpy().tolist() == elements("int4", 10).reshape(2, 5).tolist()
    assert t[2:].numpy().tolist() == elements("int4", 15).reshape(3, 5)[2:].tolist()
    for item in (0, 1, slice(1, 3), (slice(None), slice(0, 4))):
        with pytest.raises(SignatureError, match="split a byte"):
            t[item]
    assert t[1:1].shape == (0, 5)


@st.composite
def parts(draw: st.DrawFn) -> tuple[np.ndarray, tuple[int, ...], Any]:
    """The places of a dense tensor's elements, permuted; its strides; an index."""
    shape = draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    places = np.arange(int(np.prod(shape))).reshape(shape).transpose(draw(st.permutations(range(len(shape)))))
    item: list[Any] = []
    for extent in places.shape:
        if draw(st.booleans()):
            ends = st.none() | st.integers(0, extent)
            item.append(slice(draw(ends), draw(ends), draw(st.integers(1, 3))))
        else:
            item.append(draw(st.integers(0, extent - 1)))
    return places, tuple(step // places.itemsize for step in places.strides), tuple(item)


@given(parts(), st.sampled_from([2, 4]))
def test_a_part_that_is_taken_never_splits_a_byte(case: tuple[np.ndarray, tuple[int, ...], Any], per: int) -> None:
    places, strides, item = case
    layout = views.index(places.shape, strides, item)
    taken, every = set(np.asarray(places[item]).ravel().tolist()), set(places.ravel().tolist())
    whole = all(set(range(p - p % per, p - p % per + per)) & every <= taken for p in taken)
    begins = layout.offset % per == 0 or not taken
    if views.whole_bytes(places.shape, strides, layout, per):
        assert whole
        assert begins
    elif places.ndim == 1:
        # In one dimension nothing is refused that could be had.
        assert not (whole and begins)


@pytest.mark.parametrize("dtype", PACKED)
def test_packed_tensors_travel_packed_through_dlpack(dtype: str) -> None:
    t = tensor.asarray(elements(dtype, 30).reshape(5, 6))
    for x in (t, t[1:], t.permute((1, 0))):
        back = tensor.from_dlpack(x)
        assert (back.dtype, back.shape, back.strides, back.address) == (x.dtype, x.shape, x.strides, x.address)
        assert back.readonly
        assert back.numpy().tolist() == x.numpy().tolist()


@pytest.mark.parametrize("source", ["float64", "float32", "bfloat16", "int64", "uint8", "bool", "int4", "uint4"])
@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize("dtype", PACKED)
def test_the_host_converts_packed_tensors_as_it_does_arrays(
    reg: nbx.Registry, source: str, saturate: bool, dtype: str
) -> None:
    # No number beyond an integer range from floating dtypes without saturation: nothing is said about it.
    numbers = np.arange(63) % 7 if not saturate else np.arange(-63, 64)
    x = numbers.astype(dtypes.get(source).numpy)
    expected = reg.call("astype", x, dtype=dtype, saturate=saturate)
    assert isinstance(expected, np.ndarray)
    found = reg.call("astype", tensor.asarray(x), dtype=dtype, saturate=saturate)
    assert isinstance(found, nbx.Tensor)
    assert found.nbytes == (x.size + 1) // 2
    assert found.numpy().view(np.uint8).tolist() == expected.view(np.uint8).tolist()
    out = tensor.empty((x.size,), dtype)
    assert reg.call("astype", torch.from_numpy(np.arange(5)), dtype="int8").dtype is torch.int8
    assert reg.call("astype", x, dtype=dtype, saturate=saturate, out=out) is out
    assert out.numpy().tolist() == found.numpy().tolist()
    wide = reg.call("astype", found, dtype="float32")
    assert wide.numpy().tolist() == expected.astype(np.float32).tolist()


def test_views_of_packed_tensors_are_given_as_they_lie(reg: nbx.Registry) -> None:
    x = elements("int4", 24).reshape(4, 6)
    t = tensor.asarray(x)
    assert reg.call("astype", t.permute((1, 0))[2:4], dtype="int8").numpy().tolist() == x.T[2:4].tolist()
    assert reg.call("permute_dims", t, axes=(1, 0)).address == t.address
    copied = reg.call("permute_dims", t, axes=(1, 0), copy=True)
    assert copied.spec.contiguous
    assert copied.numpy().tolist() == x.T.tolist()


def test_a_bound_call_sees_what_its_packed_tensors_hold_by_then(reg: nbx.Registry) -> None:
    t, out = tensor.asarray([1, 2, 3], "int4"), tensor.empty((3,), "uint4")
    bound = reg.bind("astype", t, dtype="uint4", out=out)
    bound()
    assert out.numpy().tolist() == [1, 2, 3]
    t.assign(np.array([-1, 0, 5], ml_dtypes.int4))
    bound()
    assert out.numpy().tolist() == [15, 0, 5]


def test_a_packed_tensor_that_is_only_read_is_not_written(reg: nbx.Registry) -> None:
    t = tensor.from_dlpack(tensor.asarray([1, 2, 3], "int4"))
    for _ in range(2):
        with pytest.raises(SignatureError, match="out= is read-only"):
            reg.call("astype", np.arange(3), dtype="int4", out=t)
    own = tensor.empty((3,), "int4")
    reg.call("astype", np.arange(3), dtype="int4", out=own)
    with pytest.raises(SignatureError, match="out= is read-only"):
        reg.call("astype", np.arange(3), dtype="int4", out=t)


def test_arrays_of_one_element_a_byte_are_used_where_they_are(reg: nbx.Registry) -> None:
    x = elements("int4", 7)
    out = np.empty(7, np.int8)
    assert reg.call("astype", x, dtype="int8", out=out) is out
    assert out.tolist() == x.astype(int).tolist()
    assert address_of(x) != tensor.asarray(x).address


def test_torch_and_cupy_have_no_packed_dtypes_of_ours(reg: nbx.Registry) -> None:
    with pytest.raises(SignatureError, match="torch has no dtype int4; give out="):
        reg.call("astype", torch.arange(3), dtype="int4")
    with pytest.raises(SignatureError, match=r"torch\.float4_e2m1fn_x2, which torch packs.*nbx\.Tensor"):
        reg.call("astype", torch.empty(3, dtype=torch.float4_e2m1fn_x2), dtype="float32")


def test_a_composite_may_go_through_packed_elements() -> None:
    @op("made::through@1(x: F[N]) -> F[N]")
    def through(x: Any) -> Any:
        """Clamp to int4 and back."""
        return np.clip(np.trunc(x), -8, 7)

    def composed(trace: Any, x: Any) -> Any:
        return trace.call("astype", trace.call("astype", x, dtype="int4", saturate=True), dtype="float32")

    kernel = Kernel(
        id="made/through/composed",
        op="made::through@1",
        backend="composite",
        runtimes=(),
        bind=composed,
        parts=("astype@1",),
    )
    reg = nbx.load(plugins=[plugin("made", ops=[through], kernels=[kernel])], require="any")
    x = np.linspace(-20, 20, 10_007).astype(np.float32)
    assert reg.call("made::through", x).tolist() == np.clip(np.trunc(x), -8, 7).tolist()
