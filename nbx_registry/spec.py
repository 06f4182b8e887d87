"""Specs: what a tensor is, without the tensor. Shapes and strides count elements."""

from __future__ import annotations

import re
from math import prod

from nbx_registry import dtypes
from nbx_registry.dtypes import DType
from nbx_registry.errors import SignatureError, SpecError

MAX_RANK = 32
MAX_EXTENT = 2**62


class TensorSpec:
    """The description of a tensor: dtype, shape, strides, offset, alignment.

    Attributes
    ----------
    dtype : DType
    shape : tuple of int
    strides : tuple of int
        In elements; 0 on an expanded axis.
    offset : int
        Elements before the first one in its allocation.
    align : int
        Bytes that the first element's address is a multiple of; 16 where nobody says.
    weak : bool
        A Python scalar given where a tensor is expected: rank 0, and weak in promotion.
    """

    # Plain slots, filled when first asked for: functools.cached_property takes a lock each time on Python 3.11.
    __slots__ = ("_contiguous", "_hash", "_size", "align", "dtype", "offset", "shape", "strides", "weak")

    def __init__(
        self,
        dtype: DType,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None = None,
        offset: int = 0,
        align: int = 16,
        weak: bool = False,
    ) -> None:
        self.dtype = dtype
        self.shape = shape
        self.strides = contiguous_strides(shape) if strides is None else strides
        self.offset = offset
        self.align = align
        self.weak = weak
        self._size: int | None = None
        self._contiguous: bool | None = None
        self._hash: int | None = None

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Elements, counting an expanded axis in full."""
        if self._size is None:
            self._size = prod(self.shape)
        return self._size

    @property
    def contiguous(self) -> bool:
        """Row-major without gaps (axes of extent 1 may have any stride; an empty tensor is contiguous)."""
        if self._contiguous is None:
            self._contiguous = _is_contiguous(self.shape, self.strides)
        return self._contiguous

    @property
    def distinct(self) -> int:
        """Elements with an address of their own: a stride-0 axis counts once."""
        if self.size == 0:
            return 0
        return prod(n for n, s in zip(self.shape, self.strides, strict=True) if s != 0)

    @property
    def injective(self) -> bool:
        """Whether no two elements share an address, as far as sorted strides show: what is written must be."""
        reach = 0
        for stride, extent in sorted((abs(s), n) for n, s in zip(self.shape, self.strides, strict=True) if n > 1):
            if stride <= reach:
                return self.size == 0
            reach += (extent - 1) * stride
        return True

    @property
    def nbytes(self) -> int:
        """Bytes of all elements, as if contiguous."""
        return self.dtype.nbytes(self.size)

    @property
    def distinct_bytes(self) -> int:
        """Bytes of the elements with an address of their own."""
        return self.dtype.nbytes(self.distinct)

    @property
    def extent(self) -> int:
        """Elements from the first to one past the last that is reached (non-negative strides)."""
        if self.size == 0:
            return 0
        return 1 + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))

    def dense(self) -> TensorSpec:
        """Return the same dtype and shape, row-major, aligned, at offset 0."""
        return TensorSpec(self.dtype, self.shape)

    def aligned(self, align: int) -> TensorSpec:
        """Return the same tensor at an address that is a multiple of ``align`` bytes and, as far as known, no more."""
        if align == self.align or self.weak:
            return self
        return TensorSpec(self.dtype, self.shape, self.strides, self.offset, align)

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, TensorSpec)
            and self.dtype is other.dtype
            and self.shape == other.shape
            and self.strides == other.strides
            and self.offset == other.offset
            and self.align == other.align
            and self.weak == other.weak
        )

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((self.dtype.name, self.shape, self.strides))
        return self._hash

    def __str__(self) -> str:
        text = f"{self.dtype.name}[{', '.join(map(str, self.shape))}]"
        if not self.contiguous:
            text += f";strides={list(self.strides)}"
        if self.offset:
            text += f";offset={self.offset}"
        if self.align != 16:
            text += f";align={self.align}"
        return text

    def __repr__(self) -> str:
        return f"TensorSpec({str(self)!r}{', weak=True' if self.weak else ''})"


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    expected = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent == 0:
            return True
        if extent != 1:
            if stride != expected:
                return 0 in shape
            expected *= extent
    return True


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return row-major strides, in elements."""
    if not shape:
        return ()
    strides = [1]
    step = 1
    for extent in shape[:0:-1]:
        step *= extent or 1
        strides.append(step)
    strides.reverse()
    return tuple(strides)


def weak_spec(value: object) -> TensorSpec | None:
    """Return the spec of a Python scalar given as a tensor (weak in promotion); None for None."""
    if value is None:
        return None
    for kind, dtype in ((bool, "bool"), (int, "int64"), (float, "float64"), (complex, "complex64")):
        if isinstance(value, kind):
            return TensorSpec(dtypes.get(dtype), (), weak=True)
    raise SignatureError(f"{value!r} is no tensor, scalar or None")


# Compiled when the first string is read: registering reads none.
_SPEC = r"\s*([A-Za-z_]\w{0,63})\s*\[([0-9,\s]*)\]\s*((?:;[^;]*)*)\s*\Z"
_INTEGERS = r"\s*\[([-0-9,\s]*)\]\s*\Z"


def parse(text: str) -> TensorSpec:
    """Read a spec string, ``float16[2, 3]`` with optional ``;strides=[3, 1]``, ``;offset=0``, ``;align=16``.

    Raises `SpecError` naming what is wrong, `UnknownName` for a dtype outside the table.
    """
    if len(text) > 2000:
        raise SpecError(f"spec string of {len(text)} characters; at most 2000")
    match = re.match(_SPEC, text)
    if match is None:
        raise SpecError(f"{text!r} is no spec string; write one like 'float16[2, 3]' or 'float32[4, 4];strides=[1, 4]'")
    dtype = dtypes.get(match[1])
    shape = _integers(match[2], text)
    if len(shape) > MAX_RANK:
        raise SpecError(f"{text!r} has {len(shape)} axes; at most {MAX_RANK}")
    if prod(shape) > MAX_EXTENT:
        raise SpecError(f"{text!r} has more than 2**62 elements")
    strides: tuple[int, ...] | None = None
    numbers = {"offset": 0, "align": 16}
    seen: set[str] = set()
    for part in match[3].split(";")[1:]:
        name, equals, value = part.partition("=")
        name = name.strip()
        if name in seen:
            raise SpecError(f"{text!r} gives {name!r} twice")
        seen.add(name)
        if name == "strides" and equals:
            inner = re.match(_INTEGERS, value)
            if inner is None:
                raise SpecError(f"strides of {text!r} must be a list of integers, [s0, s1, ...]")
            strides = _integers(inner[1], text)
            if len(strides) != len(shape):
                raise SpecError(f"{text!r} has {len(shape)} axes but {len(strides)} strides")
        elif name in numbers and equals and re.fullmatch(r"\s*[0-9]{1,18}\s*", value):
            numbers[name] = int(value)
        else:
            raise SpecError(f"{part!r} in {text!r} is not understood; known: strides=[...], offset=N, align=N")
    align = numbers["align"]
    if align < 1 or align & (align - 1):
        raise SpecError(f"align={align} in {text!r} is not a power of two")
    return TensorSpec(dtype, shape, strides, numbers["offset"], align)


def _integers(text: str, whole: str) -> tuple[int, ...]:
    text = text.strip()
    if not text:
        return ()
    parts = [part.strip() for part in text.split(",")]
    if parts[-1] == "":
        parts.pop()
    if not all(re.fullmatch(r"-?[0-9]{1,19}", part) for part in parts):
        raise SpecError(f"{whole!r}: expected integers separated by commas, found {text!r}")
    values = tuple(int(part) for part in parts)
    if any(abs(value) > MAX_EXTENT for value in values):
        raise SpecError(f"{whole!r}: an extent or stride is beyond 2**62")
    return values
