"""nbx.Tensor: memory of any runtime under a spec. For devices without an array library, and for dtypes others lack."""

from __future__ import annotations

import importlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

from nbx_registry import dtypes, views
from nbx_registry.dtypes import DType
from nbx_registry.errors import SignatureError
from nbx_registry.interop import adapter, capsule
from nbx_registry.interop.memory import array_at
from nbx_registry.interop.numpy_arrays import table_dtype
from nbx_registry.rounding import integer_range, round_to_float
from nbx_registry.runtime import Buffer, Runtime, Stream
from nbx_registry.spec import MAX_RANK, TensorSpec


def _runtime(name: str) -> Runtime:
    if name == "host":
        # By reference, as any runtime is found: the core does not depend on its built-in plugin. Host memory is
        # there whatever a registry was told to block.
        return importlib.import_module("nbx_registry.host.runtime").host_runtime()
    # The process's registry, by reference too: it stands above tensors.
    return importlib.import_module("nbx_registry.registry").default().runtime(name)


def split_place(place: str) -> tuple[str, int]:
    """Turn a live handle into runtime and index: ``cpu`` into host and 0, ``cuda:1`` (or ``cuda``) into cuda and 1."""
    kind, colon, index = place.partition(":")
    if kind == "cpu" and not colon:
        return "host", 0
    if not kind.isidentifier() or kind in ("cpu", "host") or (colon and not index.isdecimal()):
        raise SignatureError(f"{place!r} is no live device; write 'cpu', 'cuda:0', 'wgpu:0'")
    return kind, int(index or 0)


_streams: ContextVar[Mapping[str, Stream]] = ContextVar("nbx_streams", default={})  # noqa: B039 (never changed in place)


def current_stream(place: str) -> Stream | None:
    """Return the stream chosen for ``place`` by `stream` in this thread or task; None for the runtime's default."""
    return _streams.get().get(place)


@contextmanager
def stream(chosen: Stream, device: str | None = None) -> Generator[Stream, None, None]:
    """Enqueue what is called inside the block on ``chosen``, a stream of its device's runtime.

    Blocks nest, and each thread or asyncio task has its own choice. ``device`` is the live handle (``cuda:0``); it
    can be left out for streams that carry it as ``place``. Raises `SignatureError` where neither says.
    """
    place = device if device is not None else getattr(chosen, "place", None)
    if place is None:
        raise SignatureError(f"which device {chosen!r} belongs to is not known; give stream(s, device='cuda:0')")
    name, index = split_place(place)
    if index != chosen.device:
        raise SignatureError(f"{chosen!r} is a stream of device {chosen.device}, not of {place!r}")
    place = "cpu" if name == "host" else f"{name}:{index}"
    token = _streams.set({**_streams.get(), place: chosen})
    try:
        yield chosen
    finally:
        _streams.reset(token)


@dataclass(slots=True)
class Borrowed:
    """A `Buffer` over memory that belongs to ``owner``."""

    address: int
    nbytes: int
    device: int
    owner: object


class Tensor:
    """A strided tensor on a device.

    Slicing, `permute`, `expand` and `reshape` are views. What is computed with it is enqueued by ops; the tensor's
    own methods that bring data to the host wait for it.

    Attributes
    ----------
    buffer : Buffer
        The memory, which lives as long as any tensor over it.
    spec : TensorSpec
        ``offset`` counts from the start of the buffer.
    dtype, shape, strides
        The spec's.
    device : str
        Live handle: ``cpu``, ``cuda:0``.
    runtime : Runtime
        The device's runtime.
    address : int
        Of the first element.
    readonly : bool
        Taken in from another library that did not say it may be written: no ``out=``.
    """

    __slots__ = (
        "__weakref__",
        "_host",
        "address",
        "buffer",
        "device",
        "dtype",
        "readonly",
        "runtime",
        "shape",
        "spec",
        "strides",
    )

    def __init__(
        self, buffer: Buffer, spec: TensorSpec, place: str, runtime: Runtime, *, readonly: bool = False
    ) -> None:
        self.buffer = buffer
        self.spec = spec
        self.dtype = spec.dtype
        self.shape = spec.shape
        self.strides = spec.strides
        self.device = place
        self.runtime = runtime
        self.address = buffer.address + spec.offset * spec.dtype.itemsize
        self.readonly = readonly
        self._host: np.ndarray | None = None

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def ndim(self) -> int:
        """Number of axes, under NumPy's name."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Elements."""
        return self.spec.size

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, as if contiguous."""
        return self.spec.size * self.dtype.itemsize

    def host_array(self) -> np.ndarray:
        """Return a NumPy array over the same memory. Raises `SignatureError` for a tensor that is not on the host."""
        if self._host is None:
            if self.device != "cpu":
                raise SignatureError(f"{self} is not on the host; copy it there: .numpy() or .to('cpu')")
            self._host = array_at(
                self.address, self.dtype.numpy, self.shape, self.strides, owner=self.buffer, readonly=self.readonly
            )
        return self._host

    def numpy(self) -> np.ndarray:
        """Return the elements on the host: the same memory if they are there, else a copy, complete on return."""
        if self.device == "cpu":
            return self.host_array()
        _, index = split_place(self.device)
        itemsize = self.dtype.numpy.itemsize
        # What lies between strided elements comes along: one copy, and no kernel to gather.
        span = np.empty(self.spec.extent, self.dtype.numpy)
        if span.size:
            self.runtime.copy_out(index, span.view(np.uint8), self.address, current_stream(self.device))
        if self.spec.contiguous:
            return span.reshape(self.shape)
        strides = tuple(step * itemsize for step in self.strides)
        return np.lib.stride_tricks.as_strided(span, self.shape, strides).copy()

    def to(self, device: str) -> Tensor:
        """Return the elements on ``device``: this tensor if it is there, else a contiguous copy."""
        place = _normalise(device)
        if place == self.device:
            return self
        return asarray(self, device=place)

    def __getitem__(self, item: Any) -> Tensor:
        return self.restrided(*views.index(self.shape, self.strides, item))

    def permute(self, axes: Sequence[int]) -> Tensor:
        """Return a view with the axes in another order."""
        return self.restrided(*views.permute(self.shape, self.strides, axes))

    def expand(self, shape: Sequence[int]) -> Tensor:
        """Return a view with axes of extent 1 repeated, and leading axes added, at stride 0."""
        return self.restrided(*views.expand(self.shape, self.strides, shape))

    def reshape(self, shape: Sequence[int]) -> Tensor:
        """Return a view of another shape (one extent may be -1). Raises `SignatureError` where only a copy has it."""
        target = views.resolve(shape, self.size)
        strides = views.reshape(self.shape, self.strides, target)
        if strides is None:
            raise SignatureError(
                f"{self.spec} has no view of shape {target}; copy it first: permute_dims(x, axes=..., copy=True)"
            )
        return self.restrided(target, strides, 0)

    def restrided(self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Tensor:
        """Return the same memory under another shape and strides, ``offset`` elements on. Not checked."""
        spec = TensorSpec(self.dtype, shape, strides, self.spec.offset + offset)
        return Tensor(self.buffer, spec, self.device, self.runtime, readonly=self.readonly)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Export through DLPack, any dtype of at least a byte. Work enqueued on the tensor's stream is waited for.

        A tensor that is only read goes out through DLPack 1.0 (``max_version``), which can say so, or as a copy.
        """
        device = self.__dlpack_device__()
        if dl_device is not None and tuple(dl_device) != device:
            raise BufferError(f"{self} is not on DLPack device {tuple(dl_device)}; copy it with .to() first")
        if copy:
            return _copy(self).__dlpack__(stream=stream, max_version=max_version)
        if stream != -1 and self.device != "cpu":
            _, index = split_place(self.device)
            (current_stream(self.device) or self.runtime.default_stream(index)).synchronize()
        words = array_at(
            self.address,
            capsule.words_of(self.dtype),
            self.shape,
            self.strides,
            owner=self.buffer,
            readonly=self.readonly,
        )
        return capsule.export(words, self.dtype, self.device, max_version=max_version)

    def __dlpack_device__(self) -> tuple[int, int]:
        return capsule.device_of(self.device)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        # Without this NumPy would wrap the tensor as an object. host_array refuses what is on a device.
        array = self.host_array()
        return np.array(array, dtype=dtype, copy=copy) if dtype is not None or copy else array

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor of rank 0 has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        head = f"Tensor({self.spec}, device={self.device!r}"
        if self.device != "cpu" or self.size > 1000:
            return head + ")"
        return f"{head},\n{np.array2string(self.host_array(), separator=', ')})"

    def __str__(self) -> str:
        return f"Tensor({self.spec}, device={self.device!r})"


def empty(shape: Sequence[int] | int, dtype: str | DType = "float32", *, device: str = "cpu") -> Tensor:
    """Return an uninitialised contiguous tensor.

    Raises
    ------
    UnknownName
        For a dtype outside the table.
    SignatureError
        For an impossible shape, or a ``device`` that is no live handle.
    OutOfMemory
        Where it does not fit.
    """
    extents = (shape,) if isinstance(shape, int) else tuple(shape)
    for extent in extents:
        if isinstance(extent, bool) or not hasattr(extent, "__index__") or extent < 0:
            raise SignatureError(f"shape {extents!r}: an extent is an integer of at least 0, not {extent!r}")
    if len(extents) > MAX_RANK:
        raise SignatureError(f"shape {extents!r} has {len(extents)} axes; at most {MAX_RANK}")
    return empty_of(TensorSpec(dtypes.get(dtype), tuple(int(extent) for extent in extents)), device)


def empty_of(spec: TensorSpec, device: str) -> Tensor:
    """Return an uninitialised tensor with the spec's dtype, shape and strides, in memory of its own."""
    name, index = split_place(device)
    place = "cpu" if name == "host" else f"{name}:{index}"
    runtime = _runtime(name)
    buffer = runtime.allocate(index, spec.extent * spec.dtype.itemsize, current_stream(place))
    if spec.offset:
        spec = TensorSpec(spec.dtype, spec.shape, spec.strides)
    return Tensor(buffer, spec, place, runtime)


def asarray(x: Any, dtype: str | DType | None = None, *, device: str | None = None) -> Tensor:
    """Return ``x`` as a Tensor: over the same memory where dtype and device are already right, else a copy.

    Parameters
    ----------
    x
        An array of any library that is read here, or Python numbers in lists (float64 and int64 unless ``dtype``
        says otherwise).
    dtype
        Converted on the host; an array on a device is converted by the op ``astype``.
    device
        Left out, the array stays where it is.

    Raises
    ------
    SignatureError
        For what is no array, and for a conversion of an array on a device.
    UnknownName
        For a dtype outside the table.
    """
    wanted = None if dtype is None else dtypes.get(dtype)
    place = None if device is None else _normalise(device)
    reader = adapter(x)
    if reader is None:
        return _from_host(_of_numbers(x, wanted), wanted, place or "cpu")
    x = reader.take(x)
    if reader.foreign:
        reader = adapter(x)
        assert reader is not None
    spec, here = reader.spec(x), reader.place(x)
    if wanted is not None and wanted is not spec.dtype and here != "cpu":
        raise SignatureError(
            f"asarray converts on the host only, and {spec} is on {here}; call the op: astype(x, dtype={wanted.name!r})"
        )
    if here == "cpu":
        if isinstance(x, Tensor) and place in (None, "cpu") and wanted in (None, spec.dtype):
            return x
        return _from_host(reader.array(x), wanted, place or "cpu")
    name, index = split_place(here)
    if isinstance(x, Tensor):
        tensor = x
    else:
        nbytes = spec.extent * spec.dtype.itemsize
        tensor = Tensor(Borrowed(reader.address(x), nbytes, index, x), spec, here, _runtime(name))
    if place in (None, here):
        return tensor
    return _from_host(tensor.numpy(), None, place)


def from_dlpack(x: Any) -> Tensor:
    """Take in an object with ``__dlpack__``: the same memory, only read.

    Raises `SignatureError` for a device or dtype outside the tables.
    """
    place = capsule.place_of(x.__dlpack_device__())
    name, index = split_place(place)
    runtime = _runtime(name)
    exchange: dict[str, Any] = {}
    if name != "host":
        chosen = current_stream(place) or runtime.default_stream(index)
        # 1 is DLPack's word for the legacy default stream, whose own handle is 0.
        exchange["stream"] = chosen.handle or 1
    try:
        exported = x.__dlpack__(max_version=(1, 0), **exchange)
    except TypeError:
        # Exporters from before DLPack 1.0 know no max_version.
        exported = x.__dlpack__(**exchange)
    words, dtype, place = capsule.read(exported)
    reader = adapter(words)
    assert reader is not None
    seen = reader.spec(words)
    spec = TensorSpec(dtype, seen.shape, seen.strides)
    buffer = Borrowed(reader.address(words), spec.extent * dtype.itemsize, index, words)
    return Tensor(buffer, spec, place, runtime, readonly=True)


def _normalise(device: str) -> str:
    name, index = split_place(device)
    return "cpu" if name == "host" else f"{name}:{index}"


def _of_numbers(x: Any, wanted: DType | None) -> np.ndarray:
    try:
        array = np.asarray(x)
    except ValueError as error:
        raise SignatureError(f"cannot make an array of {type(x).__name__}: {error}") from error
    if array.dtype.kind not in "biufc":
        raise SignatureError(f"a {type(x).__qualname__} is no array and no nested list of numbers")
    if wanted is not None and wanted.integral and array.dtype.kind in "iub" and array.size:
        least, most = integer_range(wanted)
        if int(array.min()) < least or int(array.max()) > most:
            raise SignatureError(f"numbers from {array.min()} to {array.max()} do not all fit {wanted.name}")
    return array


def _from_host(array: np.ndarray, wanted: DType | None, place: str) -> Tensor:
    if wanted is not None and array.dtype != wanted.numpy:
        if wanted.floating and wanted.bits < 32 and array.dtype == np.float64:
            # A cast alone would round twice, through float32.
            array = round_to_float(array, wanted)
        with np.errstate(all="ignore"):
            array = array.astype(wanted.numpy)
    name, index = split_place(place)
    runtime = _runtime(name)
    if name == "host":
        reader = adapter(array)
        assert reader is not None
        spec = reader.spec(array)
        owner = Borrowed(reader.address(array), spec.extent * spec.dtype.itemsize, 0, array)
        return Tensor(owner, spec, "cpu", runtime, readonly=not array.flags.writeable)
    spec = TensorSpec(table_dtype(array.dtype, "array"), array.shape)
    tensor = empty_of(spec, place)
    if array.size:
        source = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        runtime.copy_in(index, tensor.address, source, current_stream(place))
    return tensor


def _copy(tensor: Tensor) -> Tensor:
    if tensor.device == "cpu":
        return _from_host(tensor.host_array().copy(), None, "cpu")
    return _from_host(tensor.numpy(), None, tensor.device)
