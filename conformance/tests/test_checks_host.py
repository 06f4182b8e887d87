"""Each check catches the kernel that is hostile in its way, and the honest twin passes: on the host, in process."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from hostile import behind

from nbx_conformance.runs.runner import Record, verdict_of
from nbx_registry.hookspecs import hookimpl
from nbx_registry.host.runtime import host_runtime
from nbx_registry.kernel import Kernel, Workspace
from nbx_registry.launch import BindContext, Launch

Array = np.ndarray
Run = Callable[..., list[Record]]


class Hostile:
    """A plugin with one kernel for the host. ``function`` takes the arrays in slot order."""

    NBX_HOOKS = 1
    name = "nbx-hostile"

    def __init__(self, op: str, function: Callable[..., Any] | None = None, **kernel: Any) -> None:
        def bind(context: BindContext) -> Launch:
            return Launch(function=function, args=tuple(name for name, _ in context.signature.slots()))

        stated = {
            "id": "nbx-hostile/kernel",
            "op": op,
            "backend": "numpy",
            "runtimes": ("host",),
            "bind": bind,
            "deterministic": True,
        }
        self.kernel = Kernel(**{**stated, **kernel})

    @hookimpl
    def nbx_register_kernels(self) -> Iterable[Kernel]:
        return [self.kernel]


def tried(run: Run, op: str, function: Callable[..., Any] | None, cases: Sequence[str], **kernel: Any) -> list[Record]:
    return run("nbx-hostile/kernel", Hostile(op, function, **kernel), cases=cases)


def flagged(records: Iterable[Record]) -> set[str]:
    """Names of the checks that found something wrong."""
    return {name for record in records for v in ("fail", "error") for name in record.checks.get(v, ())}


def honest_add(x1: Array, x2: Array, out: Array) -> None:
    np.add(x1, x2, out=out, casting="unsafe")


def honest_append(new: Array, slot: Array, pool: Array) -> None:
    for row, at in enumerate(slot):
        if at >= 0:
            pool[at // pool.shape[2], :, at % pool.shape[2]] = new[row]


ADD = ("awkward-f32-N63", "awkward-f16-N129", "special-f32")
APPEND = ("awkward-f32-N17-D64", "layout_pool-permuted0x2x1x3")


def test_an_honest_kernel_passes_every_check(try_kernel: Run) -> None:
    claims = {"batch_invariant": True, "replayable": True}
    records = tried(try_kernel, "add@1", honest_add, (*ADD, "layout-f32-strided", "empty-shape0", "minilm"), **claims)
    assert verdict_of(records) == "pass"
    passed = {name for record in records for name in record.checks["pass"]}
    expected = {"numbers", "special", "poison", "guards", "inputs", "fresh", "determinism", "allocation", "aliasing"}
    assert passed == {*expected, "process", "outputs", "cost", "batch", "replay", "stream"}
    assert verdict_of(tried(try_kernel, "paged_kv_append@1", honest_append, APPEND)) == "pass"


def test_numbers_catches_accumulation_in_float16(try_kernel: Run) -> None:
    def half(x: Array, out: Array) -> None:
        total = np.zeros(out.shape, np.float16)
        for column in x.T:
            total += column
        out[...] = total

    records = tried(try_kernel, "sum@1", half, ("ones-f16", "last-f16-N1000"))
    assert all("numbers" in record.checks["fail"] for record in records)


def test_numbers_catches_an_error_of_a_few_units_in_the_last_place(try_kernel: Run) -> None:
    def sloppy(x1: Array, x2: Array, out: Array) -> None:
        out[...] = (x1 + x2) * np.float32(1 + 2**-22)

    assert "numbers" in flagged(tried(try_kernel, "add@1", sloppy, ("awkward-f32-N63",)))


def test_numbers_catches_a_copy_that_changes_bits(try_kernel: Run) -> None:
    def quiet(x: Array, out: Array) -> None:
        # A NaN's payload is lost; as numbers the values are equal.
        out[...] = np.where(np.isnan(x), np.float32("nan"), x).transpose(1, 2, 0)

    records = tried(try_kernel, "permute_dims@1", quiet, ("orders-axes1x2x0-copy",), when=("copy",))
    assert flagged(records) == {"numbers"}
    assert "no copy" in records[0].details["numbers"]


@pytest.mark.parametrize("flaw", ["nan", "zero"])
def test_special_catches_values_that_get_lost(try_kernel: Run, flaw: str) -> None:
    def loses(x1: Array, x2: Array, out: Array) -> None:
        with np.errstate(all="ignore"):
            total = x1 + x2
        out[...] = np.where(np.isnan(total), 0, total) if flaw == "nan" else total + np.float32(0)

    records = tried(try_kernel, "add@1", loses, ("special_pairs-f32", "awkward-f32-N63"))
    assert "special" in records[0].checks["fail"]
    assert "numbers" not in flagged(records)
    assert records[1].verdict == "pass"


@pytest.mark.parametrize("case", ["awkward-f32-N63", "integers-i32"])
def test_poison_catches_a_tail_left_unwritten(try_kernel: Run, case: str) -> None:
    def short(x1: Array, x2: Array, out: Array) -> None:
        np.add(x1, x2, out=out.copy())
        out[:, :-7] = (x1 + x2)[:, :-7]

    records = tried(try_kernel, "add@1", short, (case,))
    assert "poison" in flagged(records)
    assert "21 of " in records[0].details["poison"]


def test_poison_catches_a_result_that_depends_on_what_the_output_held(try_kernel: Run) -> None:
    def accumulates(x1: Array, x2: Array, out: Array) -> None:
        with np.errstate(all="ignore"):
            out[...] = np.where(np.isfinite(out), x1 + x2 + out * np.float32(1e-30), x1 + x2)

    records = tried(try_kernel, "add@1", accumulates, ("awkward-f32-N63",))
    assert flagged(records) == {"poison"}


@pytest.mark.parametrize("element", [-1, 189], ids=["before", "behind"])
def test_guards_catches_a_write_outside_the_output(try_kernel: Run, element: int) -> None:
    def writes(x1: Array, x2: Array, out: Array) -> None:
        np.add(x1, x2, out=out)
        behind(out, element)[...] = 0

    records = tried(try_kernel, "add@1", writes, ("awkward-f32-N63",))
    assert "guards" in flagged(records)
    assert f"{element * 4} bytes from the first element" in records[0].details["guards"]


def test_guards_catches_a_read_past_the_input(try_kernel: Run) -> None:
    def reads(x1: Array, x2: Array, out: Array) -> None:
        np.add(x1, x2, out=out)
        with np.errstate(all="ignore"):
            out[-1, -1] += behind(x1, x1.size)[0] * 0

    records = tried(try_kernel, "add@1", reads, ("awkward-f32-N63",))
    assert "guards" in flagged(records)
    assert "depends on bytes outside" in records[0].details["guards"]


def test_guards_catches_a_read_in_the_gaps_of_a_view(try_kernel: Run) -> None:
    def ignores_strides(x1: Array, x2: Array, out: Array) -> None:
        dense = np.lib.stride_tricks.as_strided(x1, x1.shape, (x1.shape[1] * 4, 4))
        np.add(dense, x2, out=out)

    records = tried(try_kernel, "add@1", ignores_strides, ("layout-f32-strided", "layout-f32-offset"))
    assert {"guards", "numbers"} <= flagged(records[:1])
    assert records[1].verdict == "pass"


@pytest.mark.parametrize("element", [0, 189], ids=["element", "behind"])
def test_inputs_catches_a_written_input(try_kernel: Run, element: int) -> None:
    def writes(x1: Array, x2: Array, out: Array) -> None:
        np.add(x1, x2, out=out)
        behind(x2, element)[...] = 7

    assert flagged(tried(try_kernel, "add@1", writes, ("awkward-f32-N63",))) == {"inputs"}


def test_in_place_catches_a_slot_that_was_not_named(try_kernel: Run) -> None:
    def also_another(new: Array, slot: Array, pool: Array) -> None:
        honest_append(new, slot, pool)
        free = next(i for i in range(pool.shape[0] * pool.shape[2]) if i not in slot)
        pool[free // pool.shape[2], 0, free % pool.shape[2], 0] = 1

    records = tried(try_kernel, "paged_kv_append@1", also_another, APPEND)
    assert all("in_place" in record.checks["fail"] for record in records)


def test_in_place_and_numbers_catch_padding_that_is_written(try_kernel: Run) -> None:
    def takes_padding(new: Array, slot: Array, pool: Array) -> None:
        honest_append(new, np.where(slot < 0, pool.shape[0] * pool.shape[2] + slot, slot), pool)

    assert {"in_place", "numbers"} <= flagged(tried(try_kernel, "paged_kv_append@1", takes_padding, ("all_padding",)))


def test_fresh_catches_the_first_output_returned_again(try_kernel: Run) -> None:
    kept: dict[tuple[int, ...], Array] = {}

    def stale(x1: Array, x2: Array, out: Array) -> None:
        out[...] = kept.setdefault(out.shape, np.add(x1, x2))

    records = tried(try_kernel, "add@1", stale, ("awkward-f32-N63",))
    assert flagged(records) == {"fresh"}
    assert "returned the first one's outputs" in records[0].details["fresh"]


def test_fresh_catches_a_scalar_frozen_when_it_was_bound(try_kernel: Run) -> None:
    def frozen(x1: Array, x2: float, out: Array) -> None:
        np.add(x1, np.float32(-0.75), out=out)

    assert flagged(tried(try_kernel, "add@1", frozen, ("scalar-f32-s-0.75",))) == {"fresh"}


def test_determinism_catches_bits_that_change(try_kernel: Run) -> None:
    turns = itertools.count()

    def sums(x: Array, out: Array) -> None:
        total = x.astype(np.float64).sum(axis=1)
        out[...] = total * (1 + 2**-23 * (next(turns) % 2))

    assert flagged(tried(try_kernel, "sum@1", sums, ("last-f32-N1000",))) == {"determinism"}
    claims_nothing = tried(try_kernel, "sum@1", sums, ("last-f32-N1000",), deterministic=False)
    assert verdict_of(claims_nothing) == "pass"


def test_allocation_catches_memory_that_was_not_declared(try_kernel: Run) -> None:
    def hoards(x1: Array, x2: Array, out: Array) -> None:
        scratch = host_runtime().allocate(0, 4096)
        np.add(x1, x2, out=out)
        del scratch

    records = tried(try_kernel, "add@1", hoards, ("awkward-f32-N63",))
    assert flagged(records) == {"allocation"}
    assert "4096 bytes" in records[0].details["allocation"]


def test_allocation_asks_for_no_workspace_where_nothing_is_launched(try_kernel: Run) -> None:
    def bind(context: BindContext) -> Sequence[Launch]:
        def function(x1: Array, x2: Array, out: Array, scratch: Array) -> None:
            np.add(x1, x2, out=out)

        return (
            [Launch(function=function, args=("x1", "x2", "out", "scratch"))]
            if context.signature.outputs[0].size
            else ()
        )

    scratch = Workspace(name="scratch", dtype="float32", shape=("16",))
    records = tried(try_kernel, "add@1", None, ("empty-shape0", "awkward-f32-N63"), bind=bind, workspace=(scratch,))
    assert verdict_of(records) == "pass"


def test_aliasing_catches_a_claim_that_does_not_hold(try_kernel: Run) -> None:
    def in_two_passes(x1: Array, x2: Array, out: Array) -> None:
        out[...] = x1
        out += x2

    right = tried(try_kernel, "add@1", in_two_passes, ("awkward-f32-N63",), overlap="refuse")
    assert verdict_of(right) == "pass"

    def row_by_row(x: Array, out: Array) -> None:
        largest = x.max(axis=-1, keepdims=True)
        np.exp(x - largest, out=out)
        out /= np.exp(x - largest).sum(axis=-1, keepdims=True)

    assert flagged(tried(try_kernel, "softmax@1", row_by_row, ("awkward-f32-N63",), overlap="any")) == {"aliasing"}
    assert verdict_of(tried(try_kernel, "softmax@1", row_by_row, ("awkward-f32-N63",))) == "pass"


def test_refusals_catches_a_binder_that_raises_instead_of_a_condition(try_kernel: Run) -> None:
    def bind(context: BindContext) -> Launch:
        raise ValueError("only even sizes")

    records = tried(try_kernel, "add@1", None, ("awkward-f32-N63",), bind=bind)
    assert flagged(records) == {"refusals"}
    assert records[0].verdict == "error"
    assert "only even sizes" in records[0].details["refusals"]


def test_a_kernel_that_raises_while_it_runs_is_an_error(try_kernel: Run) -> None:
    def raises(x1: Array, x2: Array, out: Array) -> None:
        raise RuntimeError("out of luck")

    records = tried(try_kernel, "add@1", raises, ("awkward-f32-N63",))
    assert records[0].verdict == "error"
    assert "out of luck" in records[0].details["numbers"]


def test_refusals_catches_a_code_that_the_case_gives_no_reason_for(try_kernel: Run) -> None:
    records = tried(
        try_kernel, "add@1", honest_add, ("awkward-f32-N63", "layout-f32-strided"), when=("not x1.contiguous",)
    )
    assert records[0].checks == {"fail": ["refusals"]}
    assert "every tensor is contiguous" in records[0].details["refusals"]
    assert records[1].verdict == "pass"


def test_what_a_kernel_declares_not_to_take_is_refused_and_that_is_right(try_kernel: Run) -> None:
    records = tried(try_kernel, "add@1", honest_add, ADD, when=("x1.dtype in (float16,)",))
    assert [record.verdict for record in records].count("refused") == 2
    assert verdict_of(records) == "pass"


def test_refusing_everything_is_no_pass(try_kernel: Run) -> None:
    records = tried(try_kernel, "add@1", honest_add, ADD, when=("x1.dtype in (int8,)",))
    assert {record.verdict for record in records} == {"refused"}
    assert verdict_of(records) == "unmeasured"


def test_a_kernel_for_other_devices_is_told_from_one_that_refuses_everything(try_kernel: Run) -> None:
    records = tried(try_kernel, "add@1", honest_add, ADD, when=("device.arch == 'sm_70'",))
    assert verdict_of(records) == "elsewhere"


@pytest.mark.parametrize("byte", [0xFF, 0x7B], ids=["first", "second"])
def test_guards_and_inputs_catch_a_write_of_the_very_byte_that_a_band_holds(try_kernel: Run, byte: int) -> None:
    def writes(x1: Array, x2: Array, out: Array) -> None:
        np.add(x1, x2, out=out)
        behind(out, out.size).view(np.uint8)[...] = byte
        behind(x2, x2.size).view(np.uint8)[...] = byte

    assert flagged(tried(try_kernel, "add@1", writes, ("awkward-f32-N63",))) == {"guards", "inputs", "outputs"}


def test_determinism_catches_bits_that_differ_once_and_never_again(try_kernel: Run) -> None:
    turns = itertools.count(1)

    def once(x: Array, out: Array) -> None:
        out[...] = np.sqrt(x) * np.float32(1 + 2**-23 * (next(turns) == 2))

    # Numbers are looked at first, so the second run is the one among other bands and poison.
    (record,) = tried(try_kernel, "sqrt@1", once, ("awkward-f32-N1000",))
    assert flagged([record]) == {"determinism"}
    assert "differed in one run" in record.details["determinism"]


def test_numbers_catches_a_boolean_that_is_another_byte_than_1(try_kernel: Run) -> None:
    def twos(condition: Array, x1: Array, x2: Array, out: Array) -> None:
        out.view(np.uint8)[...] = 2 * np.where(condition, x1, x2)

    records = tried(try_kernel, "where@1", twos, ("dtypes-b1",))
    assert "numbers" in flagged(records)
    assert "is 2, must be 1" in records[0].details["numbers"]


def test_a_kernel_that_takes_nothing_but_what_has_no_elements_has_proven_nothing(try_kernel: Run) -> None:
    cases = ("empty-shape0", "awkward-f32-N63")
    records = tried(try_kernel, "add@1", honest_add, cases, when=("x1.size == 0",))
    assert [record.verdict for record in records] == ["pass", "refused"]
    assert "numbers" not in records[0].checks["pass"]
    assert verdict_of(records) == "unmeasured"
