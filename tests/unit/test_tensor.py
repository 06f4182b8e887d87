"""nbx.Tensor: views, conversions, DLPack, other devices, and the stream that is current."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from nbx_registry import dtypes, registry, streams, tensor
from nbx_registry.dtypes import DType
from nbx_registry.errors import SignatureError, UnknownName
from nbx_registry.host.runtime import HostRuntime, host_runtime
from nbx_registry.interop import capsule
from nbx_registry.interop.memory import address_of
from nbx_registry.tensor import Tensor


class Elsewhere(HostRuntime):
    """A device of its own in host memory: what is on it is reached by its runtime alone."""

    name = "elsewhere"

    def __init__(self) -> None:
        super().__init__()
        self.streams: list[object] = []

    def copy_in(self, device: int, address: int, source: np.ndarray, stream: object = None) -> None:
        self.streams.append(stream)
        super().copy_in(0, address, source)

    def copy_out(self, device: int, target: np.ndarray, address: int, stream: object = None) -> None:
        self.streams.append(stream)
        super().copy_out(0, target, address)

    def allocate(self, device: int, nbytes: int, stream: object = None):
        self.streams.append(stream)
        return super().allocate(0, nbytes)


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    runtime = Elsewhere()

    class Only:
        def runtime(self, name: str) -> Elsewhere:
            if name not in ("elsewhere", "cuda"):
                raise UnknownName.of("runtime", name, ["elsewhere", "cuda"])
            return runtime

    kept = registry.set_default(Only())
    yield runtime
    registry.set_default(kept)


@pytest.mark.parametrize("dtype", dtypes.TABLE)
def test_empty_of_every_dtype(dtype: str) -> None:
    x = tensor.empty((2, 3), dtype)
    assert (x.dtype, x.shape, x.strides, x.device) == (dtypes.get(dtype), (2, 3), (3, 1), "cpu")
    assert x.address % 256 == 0
    x.assign(np.ones((2, 3), dtypes.get(dtype).numpy))
    assert np.all(x.numpy() == 1)


def test_empty_refuses_by_name() -> None:
    with pytest.raises(UnknownName, match=r"floot16.*float16"):
        tensor.empty((2,), "floot16")
    shapes: list[Any] = [(-1,), (2.0,), (True,), ("a",), (1,) * 33, None, 2.0, "23", {2, 3}, True, -1]
    for shape in shapes:
        with pytest.raises(SignatureError, match="shape"):
            tensor.empty(shape)
    for device in ("cpu:0", "host", "", "cuda:x", "nvidia/h200-sxm", None, 0):
        with pytest.raises(SignatureError, match="no live device"):
            tensor.empty((2,), device=device)  # type: ignore[arg-type]
    for dtype in (None, np.float32, np.dtype("float32"), torch.float32, 4):
        with pytest.raises(UnknownName, match="unknown dtype"):
            tensor.empty((2,), dtype)  # type: ignore[arg-type]
    assert tensor.empty(5).shape == tensor.empty(np.int64(5)).shape == (5,)


def test_the_host_needs_no_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "default", lambda: pytest.fail("the registry was loaded"))
    assert tensor.empty((2,)).runtime is host_runtime()


def test_asarray_shares_what_is_right_already() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3).T
    t = tensor.asarray(x)
    assert (t.address, t.strides) == (address_of(x), (1, 3))
    t.numpy()[0, 0] = 7
    assert x[0, 0] == 7
    b = torch.zeros(3, dtype=torch.bfloat16)
    assert tensor.asarray(b).address == b.data_ptr()
    assert tensor.asarray(t) is t


def test_asarray_converts_where_asked() -> None:
    t = tensor.asarray(np.array([1.5, 2.0]), "bfloat16")
    assert t.dtype.name == "bfloat16"
    assert tensor.asarray([[1, 2], [3, 4]], "uint8").numpy().tolist() == [[1, 2], [3, 4]]
    assert tensor.asarray(3).dtype.name == "int64"
    assert tensor.asarray([0.5]).dtype.name == "float64"
    # Once, not through float32.
    assert float(tensor.asarray([1 + 2**-8 + 2**-40], "bfloat16").numpy()[0]) == 1 + 2**-7


def test_asarray_refuses_what_is_no_array() -> None:
    for x in ("text", [[1], [2, 3]], {"a": 1}, ["a"], [None]):
        with pytest.raises(SignatureError):
            tensor.asarray(x)
    with pytest.raises(SignatureError, match=r"do not all fit uint8"):
        tensor.asarray([1, 256], "uint8")
    with pytest.raises(SignatureError, match="do not all fit int4"):
        tensor.asarray([8], "int4")


def test_a_read_only_array_stays_so() -> None:
    x = np.zeros(3)
    x.flags.writeable = False
    t = tensor.asarray(x)
    assert t.readonly
    assert not t[1:].numpy().flags.writeable


def test_views_share_memory() -> None:
    t = tensor.asarray(np.arange(24, dtype=np.int32).reshape(2, 3, 4))
    x = t.numpy()
    assert t[1, ::2].numpy().tolist() == x[1, ::2].tolist()
    assert t[..., None, 2].numpy().tolist() == x[..., None, 2].tolist()
    assert t.permute((2, 0, 1)).numpy().tolist() == x.transpose(2, 0, 1).tolist()
    assert t.reshape((6, -1)).numpy().tolist() == x.reshape(6, 4).tolist()
    assert t[:, :1].expand((2, 3, 4)).strides == (12, 0, 1)
    t[1, 2, 3].numpy()[...] = 99
    assert x[1, 2, 3] == 99
    assert [int(row.numpy()[0, 0]) for row in t] == [0, 12]


def test_a_shape_that_needs_a_copy_is_refused() -> None:
    t = tensor.empty((2, 3)).permute((1, 0))
    with pytest.raises(SignatureError, match=r"no view of shape \(6,\).*copy=True"):
        t.reshape((6,))


def test_memory_lives_as_long_as_any_view() -> None:
    before = host_runtime().memory(0).live
    t = tensor.empty((1000,), "int8")
    view = t[500:]
    array = view.numpy()
    del t, view
    assert host_runtime().memory(0).live == before + 1000
    array[...] = 1
    del array
    assert host_runtime().memory(0).live == before


DLPACK = [name for name, dtype in dtypes.TABLE.items() if dtype.bits >= 8]


@pytest.mark.parametrize("dtype", DLPACK)
def test_torch_takes_every_dtype_through_dlpack(dtype: str) -> None:
    t = tensor.asarray(np.array([[0, 1, 1], [1, 0, 1]]).astype(dtypes.get(dtype).numpy))
    for x in (t, t[:, 1:], t.permute((1, 0))):
        y = torch.from_dlpack(x)
        assert y.dtype is getattr(torch, dtype)
        assert y.data_ptr() == x.address
        assert tuple(y.shape) == x.shape
        assert y.to(torch.complex64).tolist() == x.numpy().astype(np.complex64).tolist()


def test_what_was_exported_lives_as_long_as_the_consumer() -> None:
    before = host_runtime().memory(0).live
    t = tensor.empty((1000,), "bfloat16")
    t.numpy()[...] = 3
    y = torch.from_dlpack(t)
    del t
    assert host_runtime().memory(0).live == before + 2000
    assert bool((y == 3).all())
    del y
    assert host_runtime().memory(0).live == before


def test_a_capsule_that_nobody_took_gives_its_memory_back() -> None:
    before = host_runtime().memory(0).live
    capsule = tensor.empty((1000,), "bfloat16").__dlpack__()
    assert host_runtime().memory(0).live == before + 2000
    del capsule
    assert host_runtime().memory(0).live == before


@pytest.mark.parametrize("version", [None, (0, 8), (1, 0)])
def test_both_versions_of_dlpack_come_back_in(version: tuple[int, int] | None) -> None:
    t = tensor.asarray(np.arange(3), "bfloat16")

    class Asked:
        def __dlpack__(self, **_: object) -> object:
            return t.__dlpack__(max_version=version)

        def __dlpack_device__(self) -> tuple[int, int]:
            return t.__dlpack_device__()

    back = tensor.from_dlpack(Asked())
    assert (back.dtype, back.address, back.readonly) == (t.dtype, t.address, True)


def test_numpy_takes_what_it_knows() -> None:
    t = tensor.asarray(np.arange(6, dtype=np.int16).reshape(2, 3))
    assert np.from_dlpack(t).tolist() == t.numpy().tolist()
    assert np.from_dlpack(t, copy=True).ctypes.data != t.address
    assert np.asarray(t).ctypes.data == t.address
    assert np.asarray(t, dtype=np.float32).dtype == np.float32


def test_dlpack_refuses_what_it_cannot_say(elsewhere: Elsewhere) -> None:
    with pytest.raises(BufferError, match="elsewhere"):
        tensor.empty((2,), device="elsewhere:0").__dlpack__()
    with pytest.raises(BufferError, match=r"device \(2, 0\)"):
        tensor.empty((2,)).__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="acme8 has no DLPack type"):
        capsule.export(np.zeros(2, np.uint8), DType(name="acme8", kind="float", bits=8, key="acme8"), "cpu")
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    with pytest.raises(BufferError):
        tensor.asarray(frozen).__dlpack__()
    assert np.from_dlpack(tensor.asarray(frozen)).flags.writeable is False


def test_device_tensors_travel_as_such_through_dlpack(elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over host memory that is said to be a GPU's: nothing on the way reads it."""
    waited: list[object] = []

    class Stream:
        handle = 0
        device = 0

        def synchronize(self) -> None:
            waited.append(self)

    own = Stream()
    monkeypatch.setattr(elsewhere, "default_stream", lambda device: own)
    t = tensor.asarray(np.arange(6).reshape(2, 3), "bfloat16", device="cuda:1")[:, 1:]
    given: list[object] = []

    class Library:
        def __dlpack__(self, *, stream: object = None, **exchange: object) -> object:
            given.append(stream)
            return t.__dlpack__(**exchange)  # type: ignore[arg-type]

        def __dlpack_device__(self) -> tuple[int, int]:
            return t.__dlpack_device__()

    assert Library().__dlpack_device__() == (2, 1)
    back = tensor.from_dlpack(Library())
    assert (back.device, back.dtype, back.shape, back.strides) == ("cuda:1", t.dtype, (2, 2), (3, 1))
    assert (back.address, back.runtime, back.readonly) == (t.address, elsewhere, True)
    assert back.numpy().astype(int).tolist() == [[1, 2], [4, 5]]
    # The exporter is told the stream, the default one by DLPack's name for it; the export waits for its own.
    assert (given, waited) == ([1], [own])
    t.__dlpack__(stream=-1)
    assert waited == [own]


def test_there_and_back(elsewhere: Elsewhere) -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6).astype(ml_dtypes.bfloat16)
    t = tensor.asarray(x, device="elsewhere")
    assert (t.device, t.runtime, t.spec.contiguous) == ("elsewhere:0", elsewhere, True)
    assert t.numpy().tolist() == x.tolist()
    # What lies between the strides comes along, and stays behind.
    assert t[1:, ::2].numpy().tolist() == x[1:, ::2].tolist()
    assert t.permute((1, 0))[2:].to("cpu").numpy().tolist() == x.T[2:].tolist()
    assert t[:1].expand((4, 6)).numpy().tolist() == np.broadcast_to(x[:1], (4, 6)).tolist()
    assert t.to("elsewhere:0") is t
    assert tensor.asarray(x.T, device="elsewhere").numpy().tolist() == x.T.tolist()
    assert tensor.empty((0, 3), device="elsewhere").numpy().shape == (0, 3)


def test_a_device_tensor_is_not_read_by_accident(elsewhere: Elsewhere) -> None:
    t = tensor.empty((3,), device="elsewhere")
    for read in (t.host_array, lambda: np.asarray(t)):
        with pytest.raises(SignatureError, match=r"not on the host.*\.numpy\(\)"):
            read()
    with pytest.raises(SignatureError, match=r"astype\(x, dtype='float16'\)"):
        tensor.asarray(t, "float16")
    assert "elsewhere:0" in repr(t)


def test_repr_shows_small_host_tensors() -> None:
    assert repr(tensor.asarray([1, 2])) == "Tensor(int64[2], device='cpu',\n[1, 2])"
    assert repr(tensor.empty((1001,))) == "Tensor(float32[1001], device='cpu')"


def test_len_is_of_the_first_axis() -> None:
    assert len(tensor.empty((3, 2))) == 3
    with pytest.raises(TypeError, match="rank 0"):
        len(tensor.empty(()))


def test_the_current_stream_is_chosen_by_block(elsewhere: Elsewhere) -> None:
    first, second = elsewhere.stream(0), elsewhere.stream(0)
    assert streams.current_stream("elsewhere:0") is None
    with streams.stream(first, device="elsewhere"):
        with streams.stream(second, device="elsewhere:0"):
            assert streams.current_stream("elsewhere:0") is second
            tensor.asarray(np.zeros(3), device="elsewhere")
        assert streams.current_stream("elsewhere:0") is first
        assert streams.current_stream("cpu") is None
    assert streams.current_stream("elsewhere:0") is None
    assert elsewhere.streams == [second, second]


def test_a_stream_that_knows_its_place_needs_no_device() -> None:
    own = host_runtime().stream(0)
    with streams.stream(own) as chosen:
        assert chosen is own
        assert streams.current_stream("cpu") is own
    with pytest.raises(SignatureError, match="device 0, not of 'elsewhere:1'"), streams.stream(own, "elsewhere:1"):
        pass

    class Nameless:
        device = 0

    with pytest.raises(SignatureError, match="device='cuda:0'"), streams.stream(Nameless()):  # type: ignore[arg-type]
        pass


def test_threads_and_tasks_choose_for_themselves() -> None:
    own = host_runtime().stream(0)
    seen: list[object] = []

    async def other() -> None:
        with streams.stream(host_runtime().stream(0)):
            await asyncio.sleep(0)

    async def tasks() -> None:
        with streams.stream(own):
            await asyncio.gather(other(), other())
            seen.append(streams.current_stream("cpu"))

    with streams.stream(own):
        thread = threading.Thread(target=lambda: seen.append(streams.current_stream("cpu")))
        thread.start()
        thread.join()
    asyncio.run(tasks())
    assert seen == [None, own]


def test_a_tensor_can_be_weakly_held_and_not_extended() -> None:
    t = tensor.empty((1,))
    with pytest.raises(AttributeError):
        t.colour = "red"  # type: ignore[attr-defined]
    assert isinstance(t, Tensor)


def test_copy_is_what_the_array_api_says() -> None:
    x = np.arange(6, dtype=np.float32)
    assert tensor.asarray(x, copy=False).address == address_of(x)
    assert tensor.asarray(x, "float32", device="cpu", copy=False).address == address_of(x)
    for given in (x, torch.from_numpy(x), tensor.asarray(x)):
        copied = tensor.asarray(given, copy=True)
        assert copied.address != address_of(x)
        copied.numpy()[...] = 7
        assert x.tolist() == [0, 1, 2, 3, 4, 5]
    frozen = tensor.from_dlpack(tensor.asarray(x))
    assert not tensor.asarray(frozen, copy=True).readonly
    with pytest.raises(SignatureError, match=r"float32\[6\] on cpu needs a copy for dtype=float16"):
        tensor.asarray(x, "float16", copy=False)
    with pytest.raises(SignatureError, match="a list of numbers becomes a tensor by a copy"):
        tensor.asarray([1, 2], copy=False)


def test_copy_of_what_is_elsewhere(elsewhere: Elsewhere) -> None:
    t = tensor.asarray(np.arange(6), device="elsewhere")
    assert tensor.asarray(t, copy=False) is t
    copied = tensor.asarray(t, copy=True)
    assert (copied.device, copied.address != t.address) == ("elsewhere:0", True)
    assert copied.numpy().tolist() == t.numpy().tolist()
    with pytest.raises(SignatureError, match="needs a copy for device='cpu'"):
        tensor.asarray(t, device="cpu", copy=False)
    with pytest.raises(SignatureError, match="needs a copy for device='elsewhere:0'"):
        tensor.asarray(np.arange(6), device="elsewhere", copy=False)


def test_the_host_may_ask_for_a_devices_elements_through_dlpack(elsewhere: Elsewhere) -> None:
    t = tensor.asarray(np.arange(6), device="cuda:1")

    class Here:
        """Asks for the host's copy."""

        def __dlpack__(self, **exchange: Any) -> Any:
            return t.__dlpack__(dl_device=(1, 0), max_version=(1, 0))

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    assert np.from_dlpack(Here()).tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(BufferError, match=r"not on DLPack device \(1, 0\)"):
        t.__dlpack__(dl_device=(1, 0), copy=False)


def test_asarray_converts_as_astype_does() -> None:
    assert tensor.asarray(np.array([300.0, np.nan, -1.5]), "int16").numpy().tolist() == [300, 0, -1]
    assert tensor.asarray(np.array([300, -1]), "uint8").numpy().tolist() == [44, 255]
    assert tensor.asarray(np.array([np.nan, 0.0, 1e-40]), "bool").numpy().tolist() == [True, False, True]
    # Halfway between two bfloat16, and a little more that float32 drops.
    assert float(tensor.asarray(np.array([2**62 + 2**54 + 1]), "bfloat16").numpy()[0]) == 2.0**62 + 2.0**55
    assert tensor.asarray(1 + 2j).dtype.name == "complex64"
    with pytest.raises(SignatureError, match="complex64 does not convert to float32; take the real part"):
        tensor.asarray(np.array([1j], np.complex64), "float32")
    assert tensor.asarray(np.ones((2, 3), np.float32).T, "float16").shape == (3, 2)


def test_array_follows_numpys_protocol() -> None:
    t = tensor.asarray(np.arange(6, dtype=np.float32))
    assert np.asarray(t, copy=False).ctypes.data == t.address
    assert np.array(t, copy=True).ctypes.data != t.address
    with pytest.raises(ValueError, match="copy"):
        np.asarray(t, dtype=np.float64, copy=False)


def test_expanding_keeps_what_is_not_named() -> None:
    t = tensor.asarray(np.arange(3)).reshape((3, 1))
    assert t.expand((-1, 4)).numpy().tolist() == [[0] * 4, [1] * 4, [2] * 4]
    assert t.expand((2, -1, -1)).shape == (2, 3, 1)


def test_integers_beyond_int64_become_no_floating_numbers_unasked() -> None:
    for numbers, span in (
        ([2**63], "from 9223372036854775808 to 9223372036854775808"),
        ([-1, 2**63], "from -1 to 9223372036854775808"),
        ([[0], [2**64]], "from 0 to 18446744073709551616"),
        (2**200, "from one of 201 bits"),
    ):
        with pytest.raises(SignatureError, match=f"numbers {span} .*do not all fit int64; give a dtype"):
            tensor.asarray(numbers)
    with pytest.raises(SignatureError, match="do not all fit uint64"):
        tensor.asarray([-1, 2**63], "uint64")
    with pytest.raises(
        SignatureError, match="an integer among the numbers is beyond float64, by which they become float32"
    ):
        tensor.asarray([1, 10**400], "float32")
    assert tensor.asarray([2**64 - 1, 1], "uint64").numpy().tolist() == [2**64 - 1, 1]
    assert tensor.asarray([-1, 2**200], "float64").numpy().tolist() == [-1.0, 2.0**200]
    assert tensor.asarray([0.5, 2**64]).numpy().tolist() == [0.5, 2.0**64]
    assert tensor.asarray([-(2**63), 2**63 - 1]).numpy().tolist() == [-(2**63), 2**63 - 1]


def test_a_tensor_is_neither_true_nor_false() -> None:
    for numbers in ([0.0], [1.0, 0.0], []):
        with pytest.raises(TypeError, match="neither true nor false"):
            bool(tensor.asarray(numbers))


def test_elements_are_set_from_what_needs_no_conversion() -> None:
    t = tensor.asarray(np.zeros((2, 3), np.int16))
    for elements in (np.ones(3, np.int16), np.full((2, 3), 70000), np.ones((3, 2), np.int16)):
        with pytest.raises(SignatureError, match=r"int16\[2, 3\].*cannot be set from .*shape and dtype"):
            t.assign(elements)
    assert not t.numpy().any()
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    with pytest.raises(SignatureError, match="is only read; set a copy"):
        tensor.asarray(frozen).assign(np.ones(3))
