"""nbx.Tensor: memory of any runtime under a spec. For devices without an array library, and for dtypes others lack."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nbx_registry import dtypes, views
from nbx_registry.dtypes import DType
from nbx_registry.errors import NbxError, SignatureError
from nbx_registry.interop import Adapter, adapter, capsule
from nbx_registry.interop.memory import array_at
from nbx_registry.interop.numbers import converted, of_numbers
from nbx_registry.interop.numpy_arrays import table_dtype
from nbx_registry.interop.packed import elements_per_byte, pack, unpack
from nbx_registry.memory.allocation import allocate
from nbx_registry.runtime import Buffer, Runtime
from nbx_registry.spec import MAX_RANK, TensorSpec
from nbx_registry.streams import current_stream, refuse_recorded, split_place, whole_place


def _runtime(name: str) -> Runtime:
    if name == "host":
        # By reference, as any runtime is found: the core does not depend on its built-in plugin. Host memory is
        # there whatever a registry was told to block.
        return importlib.import_module("nbx_registry.host.runtime").host_runtime()
    # The process's registry, by reference too: it stands above tensors.
    return importlib.import_module("nbx_registry.registry").default().runtime(name)


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

    Elements of less than a byte (int4, uint4, float4_e2m1fn) are packed, the first one in the lowest bits. NumPy holds
    one a byte, so that `numpy` gives a copy of such a tensor; a slice that would split a byte is refused.

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
        self.address = buffer.address + spec.dtype.nbytes(spec.offset)
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
        """Bytes of the elements, as if contiguous; of packed ones, those that they begin."""
        return self.spec.nbytes

    def host_array(self) -> np.ndarray:
        """Return a NumPy array over the same memory.

        Raises `SignatureError` for a tensor that is not on the host, and for packed elements, of which NumPy has none.
        """
        if self._host is None:
            if self.device != "cpu":
                raise SignatureError(f"{self} is not on the host; copy it there: .numpy() or .to('cpu')")
            if self.dtype.packed:
                raise SignatureError(
                    f"{self} is packed, and no NumPy array is; copy it to one element a byte: .numpy()"
                )
            self._host = array_at(
                self.address, self.dtype.numpy, self.shape, self.strides, owner=self.buffer, readonly=self.readonly
            )
        return self._host

    def numpy(self) -> np.ndarray:
        """Return the elements on the host: the same memory if they are there, else a copy, complete on return.

        Of packed elements it is always a copy, one element a byte.
        """
        if self.device == "cpu" and not self.dtype.packed:
            return self.host_array()
        # What lies between strided elements comes along: one copy, and no kernel to gather.
        array = self.unpacked() if self.dtype.packed else _restrided(self.span().view(self.dtype.numpy), self.spec)
        return array if self.spec.contiguous else array.copy()

    def unpacked(self) -> np.ndarray:
        """Return a copy of packed elements on the host, one a byte, with the tensor's own strides."""
        return _restrided(unpack(self.span(), self.dtype, self.spec.extent), self.spec)

    def assign(self, elements: np.ndarray) -> None:
        """Set the elements of a tensor on the host from an array of its shape and NumPy dtype.

        Raises `SignatureError` for another shape or dtype, and for a tensor that is only read.
        """
        if elements.shape != self.shape or elements.dtype != self.dtype.numpy:
            raise SignatureError(
                f"{self} cannot be set from {elements.dtype}{list(elements.shape)};"
                " give an array of its shape and dtype"
            )
        if self.readonly:
            raise SignatureError(f"{self} is only read; set a copy: nbx.asarray(x, copy=True)")
        if not self.dtype.packed:
            self.host_array()[...] = elements
        elif self.size:
            span = self.span()
            unpacked = unpack(span, self.dtype, span.size * elements_per_byte(self.dtype))
            _restrided(unpacked, self.spec)[...] = elements
            span[...] = pack(unpacked, self.dtype)

    def span(self) -> np.ndarray:
        """Return the bytes from the first element to the last: themselves on the host, a copy of a device's."""
        nbytes = self.dtype.nbytes(self.spec.extent)
        if self.device == "cpu":
            return array_at(self.address, np.dtype(np.uint8), (nbytes,), owner=self.buffer, readonly=self.readonly)
        refuse_recorded(f"{self} is read on the host", "read it when the graph is made, after a replay", "HOST_READ")
        span = np.empty(nbytes, np.uint8)
        if nbytes:
            _, index = split_place(self.device)
            self.runtime.copy_out(index, span, self.address, current_stream(self.device))
        return span

    def to(self, device: str) -> Tensor:
        """Return the elements on ``device``: this tensor if it is there, else a contiguous copy."""
        place = whole_place(device)
        if place == self.device:
            return self
        return asarray(self, device=place)

    def __getitem__(self, item: Any) -> Tensor:
        part = views.index(self.shape, self.strides, item)
        per = elements_per_byte(self.dtype)
        if per > 1 and not views.whole_bytes(self.shape, self.strides, part, per):
            raise SignatureError(
                f"{self}[{item!r}] would split a byte, which holds {per} elements of {self.dtype.name};"
                " convert first: astype(x, dtype='int8')"
            )
        return self.restrided(*part)

    def permute(self, axes: Sequence[int]) -> Tensor:
        """Return a view with the axes in another order."""
        return self.restrided(*views.permute(self.shape, self.strides, axes))

    def expand(self, shape: Sequence[int]) -> Tensor:
        """Return a view with axes of extent 1 repeated, and leading axes added, at stride 0; -1 keeps an axis."""
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
        """Return the same memory under another shape and strides, ``offset`` elements on. Not checked.

        A packed tensor begins with a byte: ``offset`` is a multiple of the elements in one.
        """
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
        """Export through DLPack, any dtype of the table. Work enqueued on the tensor's stream is waited for.

        Packed elements travel packed, as DLPack has them. A tensor that is only read goes out through DLPack 1.0
        (``max_version``), which can say so, or as a copy. On another device (``dl_device``) than the tensor's only
        the host can be asked for, by a copy.

        Raises
        ------
        BufferError
            For what cannot be exported so, a copy that ``copy=False`` forbids included.
        """
        device = self.__dlpack_device__()
        if dl_device is not None and tuple(dl_device) != device:
            if tuple(dl_device) != (capsule.CPU, 0) or copy is False:
                raise BufferError(f"{self} is not on DLPack device {tuple(dl_device)}; copy it with .to() first")
            return self.to("cpu")._exported(max_version, copied=True)
        if copy:
            return _copy(self)._exported(max_version, copied=True)
        if stream != -1 and self.device != "cpu":
            refuse_recorded(f"{self} is waited for", "export it before, or after a replay", "HOST_READ")
            _, index = split_place(self.device)
            (current_stream(self.device) or self.runtime.default_stream(index)).synchronize()
        return self._exported(max_version)

    def _exported(self, max_version: tuple[int, int] | None, *, copied: bool = False) -> Any:
        words = capsule.words_of(self.dtype)
        array = array_at(self.address, words, self.shape, self.strides, owner=self.buffer, readonly=self.readonly)
        return capsule.export(array, self.dtype, self.device, copied=copied, max_version=max_version)

    def __dlpack_device__(self) -> tuple[int, int]:
        return capsule.device_of(self.device)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        # Without this NumPy would wrap the tensor as an object. host_array refuses what is on a device.
        if self.device == "cpu" and self.dtype.packed:
            if copy is False:
                raise ValueError(f"{self} is packed: NumPy's one element a byte needs a copy")
            array, copy = self.numpy(), None
        else:
            array = self.host_array()
        return np.array(array, dtype=dtype, copy=copy) if dtype is not None or copy else array

    def __bool__(self) -> bool:
        # Without this it would be that of `__len__`.
        raise TypeError(f"{self} is neither true nor false; ask its elements: bool(x.numpy().all())")

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor of rank 0 has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        head = f"Tensor({self.spec}, device={self.device!r}"
        if self.device != "cpu" or self.size > 1000:
            return head + ")"
        return f"{head},\n{np.array2string(self.numpy(), separator=', ')})"

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
    if hasattr(shape, "__index__"):
        extents: tuple[Any, ...] = (shape,)
    elif isinstance(shape, Sequence) and not isinstance(shape, str):
        extents = tuple(shape)
    else:
        raise SignatureError(f"shape {shape!r} is no shape: give extents, like (2, 3), or one integer")
    for extent in extents:
        if isinstance(extent, bool) or not hasattr(extent, "__index__") or extent < 0:
            raise SignatureError(f"shape {extents!r}: an extent is an integer of at least 0, not {extent!r}")
    if len(extents) > MAX_RANK:
        raise SignatureError(f"shape {extents!r} has {len(extents)} axes; at most {MAX_RANK}")
    return empty_of(TensorSpec(dtypes.get(dtype), tuple(int(extent) for extent in extents)), device)


def empty_of(spec: TensorSpec, device: str) -> Tensor:
    """Return an uninitialised tensor with the spec's dtype, shape and strides, in memory of its own."""
    name, index = split_place(device)
    place = whole_place(device)
    runtime = _runtime(name)
    elements_per_byte(spec.dtype)
    buffer = allocate(runtime, index, spec.dtype.nbytes(spec.extent), current_stream(place))
    if spec.offset:
        spec = TensorSpec(spec.dtype, spec.shape, spec.strides)
    return Tensor(buffer, spec, place, runtime)


def asarray(x: Any, dtype: str | DType | None = None, *, device: str | None = None, copy: bool | None = None) -> Tensor:
    """Return ``x`` as a Tensor.

    Parameters
    ----------
    x
        An array of any library that is read here, or Python numbers in lists (float64 and int64 unless ``dtype``
        says otherwise).
    dtype
        Converted on the host, as the op ``astype`` converts; an array on a device is converted by the op.
    device
        Left out, the array stays where it is.
    copy
        None: over the same memory where dtype and device are already right, else a copy. True: always a copy. False:
        never one.

    Raises
    ------
    SignatureError
        For what is no array, for a conversion of an array on a device, and for a copy that ``copy=False`` forbids:
        another dtype or device, numbers in lists, and packed dtypes from NumPy, which holds one such element a byte.
    UnknownName
        For a dtype outside the table.
    """
    wanted = None if dtype is None else dtypes.get(dtype)
    place = None if device is None else whole_place(device)
    reader = adapter(x)
    if reader is None:
        if copy is False:
            raise SignatureError(f"copy=False, but a {type(x).__qualname__} of numbers becomes a tensor by a copy")
        return _from_host(of_numbers(x, wanted), place or "cpu", wanted)
    x = reader.take(x)
    if reader.foreign:
        reader = adapter(x)
        assert reader is not None
    spec, here = reader.spec(x), reader.place(x)
    converts, moves = wanted not in (None, spec.dtype), place not in (None, here)
    packs = spec.dtype.packed and not isinstance(x, Tensor)
    if converts and here != "cpu":
        raise SignatureError(
            f"asarray converts on the host only, and {spec} is on {here}; call the op: astype(x, dtype={str(wanted)!r})"
        )
    if not (converts or moves or packs or copy):
        return x if isinstance(x, Tensor) else _over(x, reader, spec, here)
    if copy is False:
        what = f"dtype={wanted}" if converts else f"device={place!r}" if moves else "packing its elements"
        raise SignatureError(f"copy=False, but {spec} on {here} needs a copy for {what}")
    if isinstance(x, Tensor):
        array = x.numpy()
    else:
        array = reader.array(x) if here == "cpu" else _over(x, reader, spec, here).numpy()
    if not converts and here == "cpu" and not spec.dtype.packed:
        # Else it is a fresh one already, or becomes one.
        array = array.copy(order="C")
    return _from_host(array, place or here, wanted)


def from_dlpack(x: Any) -> Tensor:
    """Take in an object with ``__dlpack__``: the same memory, only read.

    Raises `SignatureError` for a device or dtype outside the tables, and for an object whose ``__dlpack__`` does not
    keep to the protocol.
    """
    what = f"{type(x).__module__}.{type(x).__qualname__}"
    try:
        place = capsule.place_of(x.__dlpack_device__())
        name, index = split_place(place)
        runtime = _runtime(name)
        exchange: dict[str, Any] = {}
        if name != "host":
            chosen = current_stream(place) or runtime.default_stream(index)
            # 1 is DLPack's word for the legacy default stream, whose own handle is 0.
            exchange["stream"] = chosen.handle or 1
        try:
            exported = x.__dlpack__(max_version=capsule.VERSION, **exchange)
        except TypeError:
            # Exporters from before DLPack 1.0 know no max_version.
            exported = x.__dlpack__(**exchange)
        words, dtype, place = capsule.read(exported)
        reader = adapter(words)
        assert reader is not None
        seen = reader.spec(words)
    except SignatureError as error:
        raise SignatureError(f"{what}: {error}") from error
    except NbxError:
        raise
    except Exception as error:
        deleted = getattr(x, "is_deleted", None)
        reason = f"{type(error).__name__}: {error}; give numpy.asarray(x)"
        if callable(deleted) and deleted():
            reason = "it has been deleted"
        raise SignatureError(f"{what} cannot be read through DLPack: {reason}") from error
    spec = TensorSpec(dtype, seen.shape, seen.strides)
    buffer = Borrowed(reader.address(words), dtype.nbytes(spec.extent), index, words)
    return Tensor(buffer, spec, place, runtime, readonly=True)


def _over(x: Any, reader: Adapter, spec: TensorSpec, place: str) -> Tensor:
    """Return the tensor over the memory of an array."""
    name, index = split_place(place)
    owner = Borrowed(reader.address(x), spec.dtype.nbytes(spec.extent), index, x)
    return Tensor(owner, spec, place, _runtime(name), readonly=not reader.writable(x))


def _from_host(array: np.ndarray, place: str, wanted: DType | None = None) -> Tensor:
    """Return an array as a tensor at ``place``: over the array's memory if that is the host, unless it is packed."""
    if wanted is not None and array.dtype != wanted.numpy:
        array = converted(array, wanted)
    dtype = table_dtype(array.dtype, "array")
    if place == "cpu" and not dtype.packed:
        reader = adapter(array)
        assert reader is not None
        return _over(array, reader, reader.spec(array), place)
    tensor = empty_of(TensorSpec(dtype, array.shape), place)
    source = pack(array, dtype) if dtype.packed else np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    if place == "cpu":
        tensor.span()[...] = source
    elif array.size:
        _, index = split_place(place)
        tensor.runtime.copy_in(index, tensor.address, source, current_stream(place))
    return tensor


def _restrided(span: np.ndarray, spec: TensorSpec) -> np.ndarray:
    strides = tuple(step * span.itemsize for step in spec.strides)
    return np.lib.stride_tricks.as_strided(span, spec.shape, strides)


def _copy(tensor: Tensor) -> Tensor:
    if tensor.device == "cpu" and not tensor.dtype.packed:
        return _from_host(tensor.host_array().copy(), "cpu")
    return _from_host(tensor.numpy(), tensor.device)
