"""Large problems, at a lowered limit: what they hold, where they are looked at, and that hostile kernels are caught."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import nbx_registry as nbx
from nbx_conformance.cases import Case, CaseTable, layouts
from nbx_conformance.problems.sample import LargeProblem, problem_of
from nbx_conformance.problems.tiled import Tiled, prime_below
from nbx_conformance.runs.runner import Item, Record, execute
from nbx_conformance.trials.buffers import HostMemory, elements_of
from nbx_conformance.trials.tiled_buffers import Scan, TiledBuffer
from nbx_conformance.trials.trial import Site
from nbx_registry.errors import FileError
from nbx_registry.hookspecs import hookimpl
from nbx_registry.host.runtime import host_runtime
from nbx_registry.kernel import Kernel
from nbx_registry.launch import BindContext, Launch
from nbx_registry.spec import TensorSpec, parse

Array = np.ndarray
LIMIT = 2**14
ELEMENTS = 2 * LIMIT + 321


def case(op: str, batch: dict[str, int], values: dict[str, Any] | None = None, **given: Any) -> Case:
    known = {param.name for param in nbx.load().catalog.op(op).tensors}
    return Case(
        op=op,
        id="large",
        size="smoke",
        tensors={
            name: parse(value) if isinstance(value, str) else value for name, value in given.items() if name in known
        },
        attributes={name: value for name, value in given.items() if name not in known},
        values=values or {},
        seed=3,
        source="",
        batch=batch,
    )


LINE = case("add@1", {"x1": 0, "x2": 0, "out": 0}, x1=f"float32[{ELEMENTS}]", x2=f"float32[{ELEMENTS}]")
ROWS = case("add@1", {"x1": 0, "out": 0}, x1="float16[513, 65]", x2="float16[65]")
COLUMNS = case("sum@1", {"x": 1, "out": 0}, x="float32[63, 521]", axis=0)
TURNED = replace(
    case("permute_dims@1", {"x": 0, "out": 1}, {"x": "bits"}, axes=[1, 0], copy=True),
    tensors={"x": layouts.apply(parse("float32[2049, 17]"), "transposed")},
)
POOL = case(
    "paged_kv_append@1",
    {"new": 1, "pool": 1},
    {"slot": {"distinct": {"below": 2 * 67, "negative": 0.2}}},
    new="float16[9, 509, 2]",
    slot="int32[9]",
    pool="float16[67, 509, 2, 2]",
)


class Plugin:
    """One kernel for the host."""

    NBX_HOOKS = 1
    name = "nbx-large"

    def __init__(self, op: str, function: Callable[..., Any], **stated: Any) -> None:
        def bind(context: BindContext) -> Launch:
            return Launch(function=function, args=tuple(name for name, _ in context.signature.slots()))

        whole = {"id": "nbx-large/kernel", "op": op, "backend": "numpy", "runtimes": ("host",), "bind": bind}
        self.kernel = Kernel(**{**whole, "deterministic": True, **stated})

    @hookimpl
    def nbx_register_kernels(self) -> Iterable[Kernel]:
        return [self.kernel]


def tried(wanted: Case, function: Callable[..., Any], **stated: Any) -> Record:
    registry = nbx.load(plugins=(Plugin(wanted.op, function, **stated),))
    site = Site(registry, CaseTable(()), registry.target("cpu"), "here", "device", large=LIMIT)
    return execute(site, Item(registry.catalog.kernel("nbx-large/kernel"), wanted))


def honest_add(x1: Array, x2: Array, out: Array) -> None:
    np.add(x1, x2, out=out)


def honest_sum(x: Array, out: Array) -> None:
    out[...] = x.sum(0, dtype=np.float64)


def honest_turn(x: Array, out: Array) -> None:
    out[...] = x.T


def honest_append(new: Array, slot: Array, pool: Array) -> None:
    for row, at in enumerate(slot):
        if at >= 0:
            pool[at // pool.shape[2], :, at % pool.shape[2]] = new[row]


@pytest.mark.parametrize(
    ("wanted", "function"),
    [(LINE, honest_add), (ROWS, honest_add), (COLUMNS, honest_sum), (TURNED, honest_turn), (POOL, honest_append)],
    ids=["line", "rows", "columns", "turned", "pool"],
)
def test_an_honest_kernel_passes_what_is_asked_of_large_cases(wanted: Case, function: Callable[..., Any]) -> None:
    record = tried(wanted, function)
    assert record.checks.keys() == {"pass"}, record.details
    asked = {"numbers", "guards", "inputs", "fresh", "determinism", "allocation"}
    assert asked <= set(record.checks["pass"])
    assert ("in_place" in record.checks["pass"]) == (wanted is POOL)
    assert not {"aliasing", "stream", "settings"} & set(record.checks["pass"])


@pytest.mark.parametrize("wanted", [LINE, ROWS], ids=["line", "rows"])
def test_large_cases_are_tried_in_the_memory_of_a_device(wanted: Case) -> None:
    simulation = pytest.importorskip("nbx_simulated.plugin", reason="the simulation lives beside the core's tests")
    registry = nbx.load(plugins=(simulation,))
    site = Site(registry, CaseTable(()), registry.target("sim:0"), "here", "device", large=LIMIT)
    record = execute(site, Item(registry.catalog.kernel("nbx-simulated/add/loopback"), wanted))
    assert record.checks.keys() == {"pass"}, record.details
    assert {"numbers", "poison", "guards", "inputs", "fresh", "allocation"} <= set(record.checks["pass"])


def test_numbers_catches_offsets_that_are_cut_off() -> None:
    def truncates(x1: Array, x2: Array, out: Array) -> None:
        wrapped = np.arange(out.size) % LIMIT
        out[...] = x1[wrapped] + x2[wrapped]

    record = tried(LINE, truncates)
    assert record.checks["fail"] == ["numbers", "fresh"]
    assert record.output is not None


@pytest.mark.parametrize("beyond", [LIMIT - 1, LIMIT, LIMIT + 1, 2 * LIMIT, ELEMENTS - 1])
def test_numbers_catches_a_single_element_at_a_place_where_an_index_ends(beyond: int) -> None:
    def misses(x1: Array, x2: Array, out: Array) -> None:
        np.add(x1, x2, out=out)
        out[beyond] = 0

    assert "numbers" in tried(LINE, misses).checks["fail"]


def test_numbers_catches_rows_that_are_read_from_elsewhere() -> None:
    def wraps(x1: Array, x2: Array, out: Array) -> None:
        rows = (np.arange(513) * 65 % LIMIT) // 65
        np.add(x1[rows], x2, out=out)

    assert "numbers" in tried(ROWS, wraps).checks["fail"]


def test_numbers_catches_offsets_that_are_cut_off_in_a_transposed_view() -> None:
    def wraps(x: Array, out: Array) -> None:
        memory = x.T.reshape(-1)
        out[...] = memory[np.arange(memory.size) % LIMIT].reshape(out.shape)

    assert "numbers" in tried(TURNED, wraps).checks["fail"]


@pytest.mark.parametrize("tail", [7, 300])
def test_poison_catches_a_tail_left_unwritten(tail: int) -> None:
    def short(x1: Array, x2: Array, out: Array) -> None:
        out[:-tail] = (x1 + x2)[:-tail]

    record = tried(LINE, short)
    assert "poison" in record.checks["fail"]


def test_poison_catches_a_block_left_unwritten_where_no_sample_is_taken() -> None:
    looked: set[int] = {
        i for part in problem_of_line().sample.parts for i in range(part.first, part.first + part.count)
    }
    at = next(i for i in range(0, ELEMENTS, 2) if not looked & set(range(i - 2, i + 6)))

    def hole(x1: Array, x2: Array, out: Array) -> None:
        kept = out[at : at + 4].copy()
        np.add(x1, x2, out=out)
        out[at : at + 4] = kept

    record = tried(LINE, hole)
    assert record.checks["fail"] == ["poison"]
    assert record.details["poison"] == f"2 of 16545 words of 8 bytes of out were never written, first [{at}]"


def test_poison_catches_a_result_that_depends_on_what_the_output_held() -> None:
    def accumulates(x1: Array, x2: Array, out: Array) -> None:
        with np.errstate(all="ignore"):
            out[...] = np.where(out == out, x1 + x2 + out * 0, x1 + x2) + np.where(np.isnan(out), 0, 1e-3)

    assert "poison" in tried(LINE, accumulates).checks["fail"]


def test_guards_catches_a_write_past_the_end() -> None:
    def spills(x1: Array, x2: Array, out: Array) -> None:
        np.add(x1, x2, out=out)
        np.lib.stride_tricks.as_strided(out, (out.size + 1,))[-1] = 7

    record = tried(LINE, spills)
    assert record.checks["fail"] == ["guards"]
    assert f"4 bytes of out changed, the first {4 * ELEMENTS} bytes from" in record.details["guards"]


def test_guards_catches_a_read_past_the_end() -> None:
    def peeks(x1: Array, x2: Array, out: Array) -> None:
        with np.errstate(all="ignore"):
            np.add(x1, x2, out=out)
            out[-1] += np.lib.stride_tricks.as_strided(x1, (out.size + 1,))[-1]

    assert "guards" in tried(LINE, peeks).checks["fail"]


def test_inputs_catches_one_that_is_written_anywhere() -> None:
    def writes(x1: Array, x2: Array, out: Array) -> None:
        np.add(x1, x2, out=out)
        x2.view(np.uint8)[49381] ^= 1

    record = tried(LINE, writes)
    assert record.checks["fail"] == ["inputs"]
    assert "1 byte of x2 changed, the first 49381 bytes from" in record.details["inputs"]


def test_in_place_catches_a_slot_that_was_not_named() -> None:
    def also_another(new: Array, slot: Array, pool: Array) -> None:
        honest_append(new, slot, pool)
        free = next(i for i in range(pool.shape[0] * 2) if i not in slot)
        pool[free // 2, :, free % 2, 0] = 1

    assert "in_place" in tried(POOL, also_another).checks["fail"]


def test_allocation_catches_memory_that_was_not_declared() -> None:
    def hoards(x1: Array, x2: Array, out: Array) -> None:
        scratch = host_runtime().allocate(0, 4096)
        np.add(x1, x2, out=out)
        del scratch

    assert tried(LINE, hoards).checks["fail"] == ["allocation"]


def test_a_large_case_that_cannot_be_cut_is_an_error_that_says_so() -> None:
    record = tried(replace(LINE, batch={}), honest_add)
    assert record.verdict == "error"
    assert "has no batch" in str(record.details)


def problem_of_line() -> LargeProblem:
    found = problem_of(nbx.load().catalog.op("add@1"), LINE, LIMIT)
    assert isinstance(found, LargeProblem)
    return found


def test_samples_hold_the_ends_and_the_places_where_an_index_ends() -> None:
    parts = problem_of_line().sample.parts
    looked = {i for part in parts for i in range(part.first, part.first + part.count)}
    assert {0, LIMIT - 1, LIMIT, LIMIT + 1, 2 * LIMIT - 1, 2 * LIMIT, 2 * LIMIT + 1, ELEMENTS - 1} <= looked
    assert all(a.first + a.count < b.first for a, b in pairwise(parts))


def test_a_sample_that_an_oracle_could_not_take_is_refused_by_name() -> None:
    halves = case("add@1", {"x1": 0, "x2": 0, "out": 0}, x1="float32[2, 16001]", x2="float32[2, 16001]")
    with pytest.raises(FileError, match="cut along a longer axis"):
        _ = problem_of(nbx.load().catalog.op("add@1"), halves, LIMIT).sample.parts  # type: ignore[union-attr]


def test_values_that_depend_on_where_they_stand_fill_no_large_tensor() -> None:
    problem = problem_of(nbx.load().catalog.op("add@1"), replace(LINE, values={"x1": "opposed"}), LIMIT)
    with pytest.raises(FileError, match=r"opposed.*depends on the shape"):
        problem.given(0)


def test_smaller_cases_are_looked_at_everywhere() -> None:
    add = nbx.load().catalog.op("add@1")
    assert problem_of(add, LINE, ELEMENTS).sample is None
    assert problem_of(add, LINE, ELEMENTS - 1).sample is not None
    gap = replace(LINE, tensors={name: parse(f"float32[3];strides=[{LIMIT}]") for name in ("x1", "x2")})
    assert problem_of(add, gap, LIMIT).sample is not None


@pytest.mark.parametrize(("limit", "prime"), [(4, 3), (8, 7), (32, 31), (2**20, 1048573)])
def test_blocks_have_prime_lengths(limit: int, prime: int) -> None:
    assert prime_below(limit) == prime


SPECS = {
    "dense": parse("int16[257, 129]"),
    "transposed": layouts.apply(parse("int16[257, 129]"), "transposed"),
    "offset": layouts.apply(parse("int16[257, 129]"), "offset"),
    "strided": layouts.apply(parse("int16[257, 129]"), "strided"),
    "reversed": layouts.apply(parse("int16[257, 129]"), "reversed"),
    "expanded": layouts.apply(parse("int16[257, 129]"), "expanded"),
}


def tiled(spec: TensorSpec) -> tuple[TiledBuffer, Tiled, Array]:
    values = Tiled(spec, np.arange(1, 32, dtype=spec.dtype.numpy))
    buffer = TiledBuffer("x", spec, HostMemory, 31)
    buffer.prepare(values, guard=0xFF, poison=0)
    buffer.upload()
    assert isinstance(buffer.memory, HostMemory)
    return buffer, values, buffer.memory.array


@pytest.mark.parametrize("layout", sorted(SPECS))
def test_memory_repeats_the_block_whatever_the_layout(layout: str) -> None:
    spec = SPECS[layout]
    buffer, values, memory = tiled(spec)
    expected = elements_of(memory, buffer.start, spec)
    assert (np.diff(np.unique(expected)) > 0).all()
    np.testing.assert_array_equal(values[()], expected)
    np.testing.assert_array_equal(values[3:9, 5:6], expected[3:9, 5:6])
    np.testing.assert_array_equal(buffer.read(spec, None), expected)
    assert buffer.download().damage(elements=True) is None


@pytest.mark.parametrize("at", [-1, 0, 5000, 2 * 257 * 129], ids=["before", "first", "inside", "behind"])
def test_a_byte_changed_anywhere_is_found_where_it_is(at: int) -> None:
    buffer, _, memory = tiled(SPECS["dense"])
    memory[buffer.start + at] ^= 1
    scan = buffer.download()
    damage = scan.damage(elements=True)
    assert damage is not None
    assert (damage.count, damage.offset, damage.extent) == (1, at, 2 * 257 * 129)
    assert (scan.damage(elements=False) is not None) == (at in (-1, 2 * 257 * 129))


@pytest.mark.parametrize("text", ["int8[33153]", "complex64[5003]", "float32[33153]"])
def test_what_is_left_of_the_poison_is_counted_in_words(text: str) -> None:
    spec = parse(text)
    buffer = TiledBuffer("out", spec, HostMemory, 31)
    buffer.prepare(None, guard=0xFF, poison=0x6D)
    buffer.upload()
    assert isinstance(buffer.memory, HostMemory)
    body = buffer.memory.array[buffer.start : buffer.end]
    for written in words(body):
        written[:1] = 0
    body[16000:16016] = 0x6D
    scan = buffer.download()
    assert isinstance(scan, Scan)
    kept = scan.poisoned()
    total = -(-spec.nbytes // 8)
    first = 16000 // spec.dtype.itemsize
    assert scan.unwritten(kept) == f"2 of {total} words of 8 bytes of out were never written, first [{first}]"


def words(body: Array) -> Iterator[Array]:
    yield from (body[start : start + 8] for start in range(0, body.size, 8))
