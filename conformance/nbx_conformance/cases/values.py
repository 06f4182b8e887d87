"""Value strategies: the contents of a case's tensors, the same on every machine for the same seed.

Values avoid numbers at which errors cancel or hide (a tensor of ones, perfect squares) unless a case asks for them.
"""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, cast

import numpy as np

from nbx_registry import dtypes
from nbx_registry.dtypes import DType
from nbx_registry.errors import FileError, nearest
from nbx_registry.rounding import float_format
from nbx_registry.spec import TensorSpec

Array = np.ndarray[Any, np.dtype[Any]]
Strategy = str | dict[str, Any]
"""``normal``, or a name with parameters: ``{normal: {scale: 0.02}}``."""
Maker = Callable[..., Array]


def generator(seed: int, case: str, name: str, repetition: int) -> np.random.Generator:
    """Return the generator of one tensor of one case; ``repetition`` 1 gives the fresh inputs of a second run."""
    entropy = [seed, zlib.crc32(case.encode()), zlib.crc32(name.encode()), repetition]
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(entropy)))


def generate(spec: TensorSpec, strategy: Strategy, rng: np.random.Generator, repetition: int = 0) -> Array:
    """Return a dense array of the spec's shape and dtype; along an expanded (stride 0) axis all entries are equal.

    Raises `FileError` for an unknown strategy or parameter, or one the dtype cannot hold.
    """
    name, parameters = split(strategy)
    maker = STRATEGIES.get(name)
    if maker is None:
        raise FileError(f"unknown value strategy {name!r}{nearest(name, STRATEGIES)}; known: {', '.join(STRATEGIES)}")
    kept = tuple(1 if stride == 0 else extent for extent, stride in zip(spec.shape, spec.strides, strict=True))
    known = _parameters(maker)
    for parameter in parameters:
        if parameter == "want" or parameter not in known:
            raise FileError(f"value strategy {name!r} has no parameter {parameter!r}{nearest(parameter, known)}")
    missing = [p.name for p in known.values() if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if not set(missing) <= set(parameters):
        raise FileError(f"value strategy {name!r} needs {', '.join(missing)}")
    values = maker(Wanted(kept, spec.dtype, rng, repetition), **parameters)
    # Not ascontiguousarray, which gives a tensor without axes one.
    return np.array(np.broadcast_to(values, spec.shape), order="C")


UNSTRUCTURED: Final = frozenset(
    (
        *("normal", "large_mean", "uniform", "nonzero", "wide", "integers", "extremes", "bits", "ones", "constant"),
        *("special", "index"),
    )
)
"""Strategies whose values mean the same wherever they stand, so that a large tensor may repeat a block of them."""


def block(dtype: DType, strategy: Strategy, length: int, rng: np.random.Generator, repetition: int = 0) -> Array:
    """Return the block of values that a large tensor repeats.

    Raises `FileError` as `generate` does, and for a strategy whose values depend on where they stand.
    """
    name, parameters = split(strategy)
    if name in STRATEGIES and (name not in UNSTRUCTURED or "rows" in parameters):
        raise FileError(
            f"value strategy {strategy!r} depends on the shape; a large tensor takes {', '.join(sorted(UNSTRUCTURED))}"
        )
    return generate(TensorSpec(dtype, (length,)), strategy, rng, repetition)


@cache
def _parameters(maker: Maker) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(maker).parameters


def split(strategy: object) -> tuple[str, dict[str, Any]]:
    """Return a strategy's name and parameters. Raises `FileError` for anything else."""
    if isinstance(strategy, str):
        return strategy, {}
    if isinstance(strategy, dict) and len(cast("dict[str, Any]", strategy)) == 1:
        name, parameters = next(iter(cast("dict[str, Any]", strategy).items()))
        if isinstance(parameters, dict):
            return name, cast("dict[str, Any]", parameters)
    raise FileError(f"value strategy {strategy!r} must be a name, or {{name: {{parameter: value}}}}")


def scalar(value: float, repetition: int) -> float:
    """Return the Python scalar given for a parameter: another one the second time, so that a frozen one shows."""
    return value if repetition == 0 or isinstance(value, bool) else value + type(value)(repetition)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a maker makes: shape and dtype, from a generator, for the first or the second run."""

    shape: tuple[int, ...]
    dtype: DType
    rng: np.random.Generator
    repetition: int


# The keywords of a maker are its strategy's parameters.


def _normal(
    want: Wanted,
    *,
    mean: float = 0,
    scale: float = 1,
) -> Array:
    if want.dtype.kind == "bool":
        return want.rng.random(want.shape) < 0.5
    if want.dtype.integral:
        return _integers(want)
    if want.dtype.kind == "complex":
        real, imaginary = want.rng.standard_normal((2, *want.shape), np.float32)
        return _cast(mean + scale * (real + 1j * imaginary), want.dtype)
    return _cast(mean + scale * _drawn(want), want.dtype)


def _drawn(want: Wanted) -> Array:
    """Return normal values, with more digits than float32 has where float64 is wanted."""
    return want.rng.standard_normal(want.shape, np.float64 if want.dtype.name == "float64" else np.float32)


def _large_mean(want: Wanted, *, mean: float = 1000) -> Array:
    return _normal(want, mean=mean)


def _opposed(want: Wanted, *, mean: float = 1000) -> Array:
    """A large mean in the first half of each row, its negative in the second: partial sums dwarf the total."""
    values = _drawn(want)
    half = want.shape[-1] // 2
    values[..., :half] += mean
    values[..., half:] -= mean
    return _cast(values, want.dtype)


def _uniform(want: Wanted, *, low: float = 0, high: float = 1) -> Array:
    drawn = want.rng.random(want.shape, np.float64 if want.dtype.name == "float64" else np.float32)
    return _cast(low + (high - low) * drawn, want.dtype)


def _nonzero(want: Wanted) -> Array:
    """Normal, kept at least a quarter away from 0: divisors."""
    values = _drawn(want)
    return _cast(np.where(np.signbit(values), -0.25, 0.25) + values, want.dtype)


def _wide(
    want: Wanted,
    *,
    low: int = -12,
    high: int = 12,
    positive: bool = False,
) -> Array:
    """Magnitudes spread evenly over the binades from 2^low to 2^high."""
    values = np.exp2(low + (high - low) * want.rng.random(want.shape))
    if not positive:
        values *= np.where(want.rng.random(want.shape) < 0.5, -1.0, 1.0)
    return _cast(values, want.dtype)


def _integers(
    want: Wanted,
    *,
    low: int | None = None,
    high: int | None = None,
) -> Array:
    """Integers from ``low`` to ``high`` inclusive (-9 to 9, or 0 to 19 where unsigned)."""
    unsigned = want.dtype.kind in ("uint", "bool")
    first = (0 if unsigned else -9) if low is None else low
    last = (19 if unsigned else 9) if high is None else high
    return _cast(want.rng.integers(first, last, want.shape, np.int64, endpoint=True), want.dtype)


def _extremes(want: Wanted) -> Array:
    """The ends of an integer dtype's range, and what lies next to them and to 0."""
    if not want.dtype.integral:
        raise FileError(f"value strategy 'extremes' is for integers; {want.dtype} takes 'special'")
    info = np.iinfo(want.dtype.numpy)
    chosen = [info.min, info.min + 1, 0, 1, info.max - 1, info.max]
    return np.array(chosen, want.dtype.numpy)[want.rng.integers(0, len(chosen), want.shape)]


def _bits(want: Wanted) -> Array:
    """Any bit pattern, NaN payloads included: for exact copies."""
    if want.dtype.kind == "bool":
        return want.rng.random(want.shape) < 0.5
    count = int(np.prod(want.shape, dtype=np.int64)) * want.dtype.itemsize
    return np.frombuffer(want.rng.bytes(count), np.uint8).view(want.dtype.numpy).reshape(want.shape)


def _ones(want: Wanted) -> Array:
    return _constant(want, value=1)


def _constant(want: Wanted, *, value: float) -> Array:
    """One value everywhere; half as much again in the second run."""
    return np.full(want.shape, _cast(np.float64(value) * (1 + 0.5 * want.repetition), want.dtype))


def _special(
    want: Wanted,
    *,
    values: Sequence[str | float] | None = None,
    rate: float = 0.3,
    rows: Sequence[int] | None = None,
    every: int | None = None,
) -> Array:
    """Normal values with special ones among them.

    ``values`` names them (`SPECIALS`) or gives numbers; ``rate`` is their share; ``rows`` keeps them to those rows
    (the last axis is a row), one in each, cycling through ``values``, at a random column. ``every`` fills the tensor
    with them instead, each so many times in turn: 1 in one operand and their number in the other meet in all pairs.
    Complex numbers have them in either part.
    """
    if want.dtype.kind == "complex":
        halves = replace(want, dtype=dtypes.get(f"float{want.dtype.bits // 2}"))
        turns = (every, every and every + 1)
        parts = [_special(halves, values=values, rate=rate, rows=rows, every=turn) for turn in turns]
        return np.stack(parts, axis=-1).view(want.dtype.numpy)[..., 0]
    result = _normal(want)
    chosen = special_values(want.dtype, SPECIALS if values is None else values)
    flat = result.reshape(-1)
    if every is not None:
        flat[:] = chosen[(np.arange(flat.size) // every + want.repetition) % chosen.size]
    elif rows is None:
        positions = np.flatnonzero(want.rng.random(flat.size) < rate)
        # Each value occurs where there is room for it, however small the tensor.
        positions = positions if positions.size >= chosen.size else np.arange(min(flat.size, chosen.size))
        flat[positions] = chosen[np.arange(positions.size) % chosen.size]
    else:
        table = result.reshape(-1, want.shape[-1])
        for number, row in enumerate(rows):
            table[row, want.rng.integers(0, want.shape[-1])] = chosen[number % chosen.size]
    return result


SPECIALS: Final[tuple[str, ...]] = (
    "0", "-0", "inf", "-inf", "nan", "max", "-max", "tiny", "-tiny", "subnormal", "-subnormal", "1", "-1",
)  # fmt: skip


def special_values(dtype: DType, names: Sequence[str | float]) -> Array:
    """Return special values by name in a dtype, leaving out infinities where it has none.

    ``max`` is the largest finite value, ``tiny`` the smallest normal one, ``subnormal`` the smallest of all.
    """
    if not dtype.floating:
        raise FileError(f"value strategy 'special' is for floating dtypes; {dtype} takes 'extremes'")
    form = float_format(dtype)
    by_name = {
        "max": form.largest,
        "tiny": 2.0**form.least_exponent,
        "subnormal": 2.0 ** (form.least_exponent - form.mantissa),
    }
    found: list[float] = []
    for name in names:
        text = str(name)
        sign = -1.0 if text.startswith("-") else 1.0
        value = by_name.get(text.lstrip("-"))
        value = float(text) if value is None else sign * value
        if np.isinf(value) and not np.isinf(form.overflow):
            continue
        found.append(value)
    return _cast(np.array(found), dtype)


def _index(want: Wanted, *, below: int) -> Array:
    """Indices from 0 to ``below`` - 1, the first and the last among them."""
    result = want.rng.integers(0, below, want.shape, np.int64)
    flat = result.reshape(-1)
    if flat.size > 1:
        flat[0], flat[-1] = (below - 1, 0) if want.repetition else (0, below - 1)
    return _cast(result, want.dtype)


def _distinct(
    want: Wanted,
    *,
    below: int,
    negative: float = 0,
) -> Array:
    """Indices below ``below``, no two alike, the last one included; a ``negative`` share of them -1."""
    count = int(np.prod(want.shape, dtype=np.int64))
    if count > below:
        raise FileError(f"value strategy 'distinct' cannot take {count} different indices below {below}")
    result = want.rng.permutation(below - 1)[: max(count - 1, 0)]
    result = want.rng.permutation(np.append(result, below - 1)[:count])
    return _cast(np.where(want.rng.random(count) < negative, -1, result).reshape(want.shape), want.dtype)


def _listed(want: Wanted, *, values: Sequence[int]) -> Array:
    """These integers; in the second run in reverse."""
    count = int(np.prod(want.shape, dtype=np.int64))
    if count != len(values):
        raise FileError(f"value strategy 'listed' has {len(values)} values for {count} elements")
    return _cast(np.array(_in_turn(values, want.repetition), np.int64).reshape(want.shape), want.dtype)


def _in_turn(values: Sequence[int], repetition: int) -> list[int]:
    return list(values) if repetition % 2 == 0 else list(reversed(values))


def _pages(
    want: Wanted,
    *,
    below: int,
    lengths: Sequence[int],
    page_tokens: int,
    shared: int = 0,
    holes: Sequence[int] = (),
    ordered: bool = False,
) -> Array:
    """A block table: a row lists the pages of a sequence of so many tokens, and -1 past its end.

    Pages are below ``below``, in no order, no two alike but for the first ``shared`` of each row, which are those of
    the longest. ``lengths`` has one for each row; in the second run they are taken in reverse, as `listed` gives them.
    Of rows that have one, the entries ``holes`` are -1 too. ``ordered`` pages count from 0.
    """
    rows, width = want.shape
    counts = [min(-(-length // page_tokens), width) for length in _in_turn(lengths, want.repetition)]
    if len(counts) != rows:
        raise FileError(f"value strategy 'pages' has {len(counts)} lengths for {rows} rows")
    if sum(counts) > below:
        raise FileError(f"value strategy 'pages' cannot take {sum(counts)} different pages below {below}")
    table = np.full((rows, width), -1, np.int64)
    # The last page is among them, wherever there are any.
    chosen = want.rng.permutation(below - 1)[: max(sum(counts) - 1, 0)]
    chosen = want.rng.permutation(np.append(chosen, below - 1)[: sum(counts)])
    chosen = np.arange(len(chosen)) if ordered else chosen
    start = 0
    for row, count in enumerate(counts):
        table[row, :count] = chosen[start : start + count]
        start += count
    longest = int(np.argmax(counts))
    for row, count in enumerate(counts):
        table[row, : min(count, shared)] = table[longest, : min(count, shared)]
        table[row, [hole for hole in holes if hole < count]] = -1
    return _cast(table, want.dtype)


def _paged(want: Wanted, *, lengths: Sequence[int]) -> Array:
    """A pool of pages in the order that ``pages`` gives ordered: normal tokens, and NaN wherever no sequence looks."""
    pages, _, page_tokens, _ = want.shape
    kept = np.zeros(pages * page_tokens, bool)
    start = 0
    for length in _in_turn(lengths, want.repetition):
        kept[start : start + length] = True
        start += -(-length // page_tokens) * page_tokens
    return np.where(kept.reshape(pages, 1, page_tokens, 1), _normal(want), want.dtype.numpy.type(np.nan))


def _spectrum(want: Wanted, *, ends: float = float("nan")) -> Array:
    """Complex normal values whose first and last imaginary part of a row is ``ends``, which counts for nothing."""
    if want.dtype.kind != "complex":
        raise FileError(f"value strategy 'spectrum' is for complex dtypes, not {want.dtype}")
    values = _normal(want)
    parts = values.view(np.float32).reshape(*want.shape, 2)
    parts[..., [0, -1], 1] = ends
    return values


def _mask(
    want: Wanted,
    *,
    rate: float = 0.3,
    empty: Sequence[int] = (),
    leading: int = 0,
    hidden: float = float("-inf"),
) -> Array:
    """A mask that hides a share ``rate`` of each row, all of the rows ``empty``, and the ``leading`` columns.

    Boolean: true where kept. Floating: a normal bias where kept, ``hidden`` elsewhere. The last axis is a row; of a row
    that is not ``empty`` the last column is kept.
    """
    hides = want.rng.random(want.shape) < rate
    hides[..., :leading] = True
    hides[..., -1:] = False
    rows = hides.reshape(-1, want.shape[-1]) if want.shape else hides.reshape(1, 1)
    rows[list(empty)] = True
    if want.dtype.kind == "bool":
        return ~hides
    return _cast(np.where(hides, hidden, _drawn(want)), want.dtype)


def _triangular(
    want: Wanted,
    *,
    strict: bool = False,
    scale: float = 1,
    rest: float = float("nan"),
) -> Array:
    """Square matrices of which only the (strictly) lower triangle counts; the rest holds ``rest``."""
    values = scale * want.rng.standard_normal(want.shape, np.float32)
    counts = np.tri(want.shape[-2], want.shape[-1], -1 if strict else 0, dtype=bool)
    return _cast(np.where(counts, values, np.float32(rest)), want.dtype)


STRATEGIES: Final[Mapping[str, Maker]] = {
    "normal": _normal,
    "large_mean": _large_mean,
    "opposed": _opposed,
    "uniform": _uniform,
    "nonzero": _nonzero,
    "wide": _wide,
    "integers": _integers,
    "extremes": _extremes,
    "bits": _bits,
    "ones": _ones,
    "constant": _constant,
    "special": _special,
    "index": _index,
    "distinct": _distinct,
    "listed": _listed,
    "pages": _pages,
    "paged": _paged,
    "spectrum": _spectrum,
    "mask": _mask,
    "triangular": _triangular,
}


def _cast(values: Any, dtype: DType) -> Array:
    # Values beyond the dtype's range become infinite, as its rounding says; that is no accident here.
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(dtype.numpy)
