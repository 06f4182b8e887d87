"""Array libraries read as they are: specs, places, memory, and what is refused by name."""

import subprocess
import sys
import types
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from nbx_registry import dtypes, tensor
from nbx_registry.errors import SignatureError
from nbx_registry.interop import Adapter, adapter, not_a_tensor
from nbx_registry.interop.base import alignment
from nbx_registry.interop.memory import address_of, array_at
from nbx_registry.spec import TensorSpec, parse


def reader(x: object) -> Adapter:
    found = adapter(x)
    assert found is not None
    return found


class Exporter:
    """A library nobody knows, which speaks DLPack: the old protocol, or 1.0."""

    def __init__(self, array: Any, *, old: bool = False) -> None:
        self.array = array
        self.old = old

    def __dlpack__(self, stream: object = None, **exchange: Any) -> Any:
        if self.old and exchange:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        return self.array.__dlpack__(**exchange)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


TORCH = [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.int64, torch.uint16, torch.bool]
TORCH += [torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz]


def test_interop_loads_no_library() -> None:
    code = "import sys, nbx_registry.interop, nbx_registry.tensor; print({'torch', 'cupy', 'jax'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"


@pytest.mark.parametrize("name", dtypes.TABLE)
def test_numpy_arrays_of_every_dtype(name: str) -> None:
    x = np.zeros((3, 5), dtypes.get(name).numpy)[:, 1:4]
    assert reader(x).spec(x) == TensorSpec(dtypes.get(name), (3, 3), (5, 1))
    assert reader(x).place(x) == "cpu"
    assert reader(x).array(x) is x


@pytest.mark.parametrize("dtype", TORCH, ids=str)
def test_torch_tensors_on_the_host_are_seen_in_place(dtype: torch.dtype) -> None:
    x = torch.arange(12).reshape(3, 4).to(dtype).T[1:]
    a = reader(x)
    name = str(dtype).removeprefix("torch.")
    assert a.spec(x) == TensorSpec(dtypes.get(name), (3, 3), (1, 4))
    array = a.array(x)
    assert array.dtype == dtypes.get(name).numpy
    assert address_of(array) == a.address(x) == x.data_ptr()
    assert array.strides == (x.element_size(), 4 * x.element_size())
    assert array.astype(np.complex64).tolist() == x.to(torch.complex64).tolist()


def test_a_view_of_a_torch_tensor_outlives_the_name() -> None:
    x = torch.full((1000,), 3.0, dtype=torch.bfloat16)
    array = reader(x).array(x)
    del x
    assert np.all(torch.empty(1000, dtype=torch.bfloat16).fill_(7).float().numpy() == 7)
    assert np.all(array.astype(np.float32) == 3)


@pytest.mark.parametrize("make", [lambda shape: np.zeros(shape, np.float16), lambda shape: torch.zeros(shape)])
def test_tensors_without_elements_or_axes(make: Any) -> None:
    for shape in ((0,), (3, 0, 2), ()):
        x = make(shape)
        assert reader(x).spec(x).shape == shape
        assert reader(x).array(x).shape == shape
    narrow = torch.zeros(0, 3, dtype=torch.bfloat16)
    assert reader(narrow).array(narrow).shape == (0, 3)


def test_keys_settle_the_spec_and_differ_where_it_does() -> None:
    base = np.zeros((4, 4), np.float32)
    arrays = [base, base.T, base[:2], base.astype(np.float64), base[:1], base.astype(ml_dtypes.bfloat16)]
    arrays += [torch.zeros(4, 4), torch.zeros(4, 4).T, torch.zeros(4, 4).bfloat16(), torch.zeros(1, 1).expand(4, 4)]
    arrays += [torch.zeros(4, 4, requires_grad=True), torch.empty(4, 4, device="meta")]
    arrays += [torch.zeros(4, 4, dtype=torch.complex64), torch.zeros(4, 4, dtype=torch.complex64).conj()]
    arrays += [torch.zeros(4, 4, dtype=torch.complex64).conj().imag]
    arrays += [tensor.asarray(base), tensor.asarray(base).permute((1, 0))]
    keys = [reader(x).key(x) for x in arrays]
    assert len(set(keys)) == len(arrays)
    same = np.ones((4, 4), np.float32)
    assert reader(same).key(same) == keys[0]


def test_alignment_is_measured_only_if_asked_for() -> None:
    room = np.zeros(4096, np.uint8)
    start = -address_of(room) % 256
    x = room[start + 4 : start + 12].view(np.float32)
    assert reader(x).spec(x).align == 16
    assert reader(x).spec(x, measure_align=True).align == 4
    t = torch.from_numpy(x)
    assert reader(t).spec(t, measure_align=True).align == 4
    assert [alignment(a) for a in (1, 6, 48, 256, 512, 0)] == [1, 2, 16, 256, 256, 256]


REFUSED = {
    "byte-swapped": (lambda: np.zeros(3, ">f4"), "byte-swapped.*newbyteorder"),
    "object": (lambda: np.array([1, "a"], object), "object dtype"),
    "structured": (lambda: np.zeros(3, [("x", "f4")]), "structured"),
    "unknown": (lambda: np.zeros(3, np.longdouble), "not in the dtype table"),
    "reversed": (lambda: np.zeros(3)[::-1], r"negative stride \(-8 bytes on axis 0\).*ascontiguousarray"),
    "uneven": (lambda: np.zeros(8, [("a", "u1"), ("b", "<f4")])["b"], "stride of 5 bytes on axis 0, no multiple.*4"),
    "masked": (lambda: np.ma.masked_array([1.0], [True]), "filled"),
    "grad": (lambda: torch.zeros(3, requires_grad=True), r"requires grad.*detach\(\)"),
    "parameter": (lambda: torch.nn.Parameter(torch.zeros(3)), r"detach\(\)"),
    "sparse": (lambda: torch.eye(3).to_sparse(), r"to_dense\(\)"),
    "conjugate": (lambda: torch.zeros(3, dtype=torch.complex64).conj(), "resolve_conj"),
    "negation": (lambda: torch.zeros(3, dtype=torch.complex64).conj().imag, "resolve_neg"),
    "complex128": (lambda: torch.zeros(3, dtype=torch.complex128), "complex128"),
    "meta": (lambda: torch.zeros(3, device="meta"), "on meta"),
    "text": (lambda: np.array(["a"]), "dtype <U1, not in the dtype table"),
    "dates": (lambda: np.array(["2020-01-01"], "M8[D]"), r"datetime64\[D\], not in the dtype table"),
    "raw": (lambda: np.zeros(3, "V4"), "V4, not in the dtype table"),
    "complex128 of numpy": (lambda: np.zeros(3, complex), "complex128, not in the dtype table"),
    "rows of another layout": (lambda: torch.eye(3).to_mkldnn(), r"_mkldnn.*to_dense\(\)"),
    "quantized": (lambda: torch.quantize_per_tensor(torch.zeros(3), 0.1, 0, torch.quint8), r"quint8.*int_repr\(\)"),
    "nested": (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "nested torch tensor"),
    "jagged": (
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
        "NestedTensor wraps other tensors",
    ),
    "four bits of torch": (
        lambda: torch.empty(3, dtype=torch.uint4),
        r"torch\.uint4, which torch packs in its own way",
    ),
}


# torch says of quantized and nested tensors that they are on their way out.
@pytest.mark.filterwarnings("ignore::UserWarning:torch", "ignore:.*(quantize|nested tensors|jit.script):")
@pytest.mark.parametrize("kind", REFUSED)
def test_refused_by_name(kind: str) -> None:
    make, message = REFUSED[kind]
    x = make()
    with pytest.raises(SignatureError, match=message):
        reader(x).spec(x)


def test_a_sparse_tensor_is_refused_even_where_its_key_was_accepted() -> None:
    with pytest.raises(SignatureError, match=r"to_dense\(\)"):
        reader(torch.eye(3)).array(torch.eye(3).to_sparse())


def test_a_torch_subclass_without_memory_is_refused() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.empty(3)
    with pytest.raises(SignatureError, match="FakeTensor wraps"):
        adapter(fake)


class Units(np.ndarray):
    """An array that computes in its own way."""

    def __array_ufunc__(self, *inputs: Any, **keywords: Any) -> None:
        raise TypeError("apples and pears")


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: np.matrix([[1.0]]), "numpy.matrix multiplies as matrices do.*asarray"),
        (lambda: np.ones(3).view(Units), r"Units has a __array_ufunc__ of its own.*numpy\.asarray\(x\)"),
    ],
    ids=["matrix", "units"],
)
def test_arrays_that_mean_more_than_their_elements_are_refused(make: Any, words: str) -> None:
    with pytest.raises(SignatureError, match=words):
        adapter(make())


TRANSFORMS = {
    "vmap": lambda see: torch.func.vmap(see)(torch.ones(3, 3)),
    "functionalize": lambda see: torch.func.functionalize(see)(torch.ones(3)),
    "grad": lambda see: torch.func.grad(lambda x: see(x).sum())(torch.ones(3)),
    "jvp": lambda see: torch.func.jvp(see, (torch.ones(3),), (torch.ones(3),)),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_tensors_under_a_transform_of_torch_are_refused_by_name(transform: str, dtype: torch.dtype) -> None:
    seen: list[str] = []

    def see(x: torch.Tensor) -> torch.Tensor:
        y = x.to(dtype)
        for look in (reader(y).array, reader(y).address, reader(y).spec):
            with pytest.raises(SignatureError, match=r"torch\.func|requires grad") as caught:
                look(y)
            seen.append(str(caught.value))
        return x

    TRANSFORMS[transform](see)
    assert len(seen) == 3


def test_negative_strides_of_single_elements_move_nothing() -> None:
    x = np.zeros((1, 3), np.float32)[::-1]
    assert reader(x).spec(x).shape == (1, 3)


@pytest.mark.parametrize(
    "x", [1, 2.0, True, None, "float32[3]", [1.0, 2.0], (1, 2), {"a": 1}, object()], ids=lambda x: type(x).__name__
)
def test_what_is_no_array_has_no_adapter(x: object) -> None:
    assert adapter(x) is None


def test_lists_are_told_how_to_become_arrays() -> None:
    assert "numpy.asarray(x1" in str(not_a_tensor([1, 2], "x1"))
    assert "builtins.dict" in str(not_a_tensor({}, "x1"))


def test_numpy_scalars_are_rank_0_inputs_that_are_never_written() -> None:
    x = np.float32(2.5)
    a = reader(x)
    assert a.spec(x) == parse("float32[]")
    assert a.array(x).tolist() == 2.5
    assert not a.writable(x)


def test_subclasses_of_arrays_are_given_as_arrays() -> None:
    x = np.zeros((2, 3)).view(np.recarray)
    assert type(reader(x).array(x)) is np.ndarray


def test_read_only_arrays_are_told() -> None:
    x = np.zeros(3)
    assert reader(x).writable(x)
    x.flags.writeable = False
    assert not reader(x).writable(x)
    assert reader(torch.zeros(1)).writable(torch.zeros(1))


LIBRARIES = {"numpy": np.zeros((2, 3), np.float32), "torch": torch.zeros(2, 3), "nbx": tensor.empty((2, 3))}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    "text", ["float32[2, 3]", "bfloat16[5]", "int8[2, 3];strides=[1, 2]", "float16[0, 4]", "bool[]"]
)
def test_empty_has_the_spec(library: str, text: str) -> None:
    a = reader(LIBRARIES[library])
    spec = parse(text)
    made = a.empty(spec, "cpu", LIBRARIES[library])
    assert type(made) is type(LIBRARIES[library])
    assert a.spec(made) == spec


@pytest.mark.parametrize("library", LIBRARIES)
def test_view_is_the_same_memory(library: str) -> None:
    a = reader(LIBRARIES[library])
    x = a.empty(parse("bfloat16[4, 6]"), "cpu")
    a.array(x)[...] = np.arange(24).reshape(4, 6)
    y = a.view(x, (3, 2), (1, 6), 7)
    assert type(y) is type(x)
    assert a.array(y).astype(int).tolist() == [[7, 13], [8, 14], [9, 15]]
    assert a.address(y) == a.address(x) + 14
    again = a.view(y, (2,), (6,), 1)
    assert a.array(again).astype(int).tolist() == [8, 14]


def test_libraries_make_no_arrays_where_they_have_none() -> None:
    with pytest.raises(SignatureError, match="on the host, not on 'cuda:0'"):
        reader(np.zeros(1)).empty(parse("float32[1]"), "cuda:0")
    with pytest.raises(SignatureError, match="torch has no dtype float4_e2m1fn"):
        reader(torch.zeros(1)).empty(parse("float4_e2m1fn[1]"), "cpu")


def test_the_host_has_no_current_stream_of_a_library() -> None:
    assert reader(np.zeros(1)).streams("cpu")() is None
    assert reader(torch.zeros(1)).streams("cpu")() is None


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn"])
def test_any_exporter_is_taken_in_and_only_read(dtype: str, old: bool) -> None:
    source = torch.arange(6).reshape(2, 3).to(getattr(torch, dtype))
    x = Exporter(source, old=old)
    a = reader(x)
    assert a.foreign
    taken = a.take(x)
    assert taken.address == source.data_ptr()
    assert taken.numpy().astype(int).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert not taken.numpy().flags.writeable
    assert not a.writable(x)
    assert a.spec(x) == TensorSpec(dtypes.get(dtype), (2, 3))
    assert type(a.empty(parse("float32[2]"), a.place(x), x)) is tensor.Tensor


def test_an_exporter_of_strides_and_of_an_unknown_device() -> None:
    x = Exporter(np.arange(12.0).reshape(3, 4).T[1:])
    assert reader(x).array(x).tolist() == np.arange(12.0).reshape(3, 4).T[1:].tolist()

    class Elsewhere(Exporter):
        def __dlpack_device__(self) -> tuple[int, int]:
            return 8, 0  # Metal

    y = Elsewhere(np.zeros(3))
    with pytest.raises(SignatureError, match="device type 8"):
        reader(y).spec(y)


def test_array_at_keeps_its_owner() -> None:
    owner = np.arange(6, dtype=np.uint16)
    array = array_at(address_of(owner), np.dtype(ml_dtypes.bfloat16), (2, 2), (3, 1), owner=owner, readonly=True)
    count = sys.getrefcount(owner)
    assert not array.flags.writeable
    assert array.view(np.uint16).tolist() == [[0, 1], [3, 4]]
    del array
    assert sys.getrefcount(owner) == count - 1


class FakeCupy:
    """As much of CuPy as its adapter touches, over host memory."""

    def __init__(self) -> None:
        fake = self

        class Pointer:
            def __init__(self, array: np.ndarray, offset: int = 0) -> None:
                self.array, self.ptr = array, address_of(array) + offset

            def __add__(self, offset: int) -> "Pointer":
                moved = Pointer(self.array)
                moved.ptr = self.ptr + offset
                return moved

        class ndarray:
            def __init__(self, shape: Any, dtype: Any, memptr: Any = None, strides: Any = None) -> None:
                self.shape, self.dtype = np.empty(shape, dtype).shape, np.dtype(dtype)
                self.data = Pointer(np.zeros(shape, dtype)) if memptr is None else memptr
                self.strides = np.empty(shape, dtype).strides if strides is None else strides
                self.device = types.SimpleNamespace(id=fake.device)

        ndarray.__module__ = "cupy"
        self.device = 1
        self.ndarray = ndarray
        self.empty = ndarray
        self.entered: list[int] = []
        stream = types.SimpleNamespace(ptr=77)
        runtime = types.SimpleNamespace(is_hip=False)
        self.cuda = types.SimpleNamespace(Device=self.enter, runtime=runtime, get_current_stream=lambda _: stream)

    def enter(self, index: int) -> Any:
        import contextlib

        self.entered.append(index)
        return contextlib.nullcontext()


def test_cupy_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", cupy)  # type: ignore[arg-type]
    x = cupy.ndarray((2, 3), np.float16)
    a = reader(x)
    assert (a.name, a.place(x), a.streams("cuda:1")()) == ("cupy", "cuda:1", 77)
    assert a.spec(x) == parse("float16[2, 3]")
    assert a.address(x) == x.data.ptr
    view = a.view(x, (3, 1), (1, 3), 3)
    assert (view.data.ptr, view.strides) == (x.data.ptr + 6, (2, 6))
    made = a.empty(parse("bfloat16[2, 3];strides=[1, 2]"), "cuda:2")
    assert (cupy.entered[-1], a.spec(made)) == (2, parse("bfloat16[2, 3];strides=[1, 2]"))
    with pytest.raises(SignatureError, match=r"x\.get\(\)"):
        a.array(x)
    with pytest.raises(SignatureError, match="not on 'cpu'"):
        a.empty(parse("float16[2]"), "cpu")
    narrow = cupy.ndarray((4,), ml_dtypes.int4)
    for refused in (lambda: a.spec(narrow), lambda: a.empty(parse("int4[4]"), "cuda:1")):
        with pytest.raises(SignatureError, match=r"int4.*nbx\.Tensor"):
            refused()


def test_a_torch_tensor_whose_storage_is_gone_is_refused() -> None:

    for dtype in (torch.float32, torch.bfloat16):
        x = torch.ones(1000, dtype=dtype)
        x.untyped_storage().resize_(0)
        with pytest.raises(SignatureError, match="has no memory"):
            reader(x).array(x)
