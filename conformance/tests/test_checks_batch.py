"""Batch invariance: parts of a batch, each bound by itself, have the bits that they have in the whole."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from test_checks_host import flagged, tried

from nbx_conformance.checks.batch import _runs
from nbx_conformance.runs.runner import Record

Array = np.ndarray
Run = Callable[..., list[Record]]

CASE = ("last-f32-N63",)


def in_blocks(x: Array, out: Array, block: int) -> None:
    """Add up blocks by themselves, in float32."""
    starts = range(0, x.shape[1], block)
    out[...] = sum((x[:, start : start + block].sum(axis=1, dtype=np.float32) for start in starts), np.float32(0))


def honest(x: Array, out: Array) -> None:
    in_blocks(x, out, 16)


def block_by_batch(x: Array, out: Array) -> None:
    in_blocks(x, out, 4 * len(x))


def test_parts_are_one_place_the_first_few_and_an_odd_number_in_the_middle() -> None:
    assert list(_runs(1)) == []
    assert list(_runs(2)) == [(0, 1), (1, 1)]
    assert list(_runs(3)) == [(0, 2), (1, 1), (2, 1)]
    assert list(_runs(64)) == [(0, 32), (21, 21), (63, 1)]
    assert list(_runs(1000)) == [(0, 512), (333, 333), (999, 1)]


def test_batch_catches_a_block_that_depends_on_how_many_rows_there_are(try_kernel: Run) -> None:
    (record,) = tried(try_kernel, "sum@1", block_by_batch, CASE, batch_invariant=True)
    assert flagged([record]) == {"batch"}
    assert "alone" in record.details["batch"]


def test_batch_is_passed_by_fixed_blocks_and_asked_only_where_it_is_claimed(try_kernel: Run) -> None:
    (record,) = tried(try_kernel, "sum@1", honest, CASE, batch_invariant=True)
    assert record.verdict == "pass"
    assert "batch" in record.checks["pass"]
    (claims_nothing,) = tried(try_kernel, "sum@1", block_by_batch, CASE)
    assert claims_nothing.verdict == "pass"
    assert "batch" not in claims_nothing.checks["pass"]


def test_a_part_that_a_kernel_does_not_take_is_no_fault_and_recorded(try_kernel: Run) -> None:
    rows = {"batch_invariant": True, "when": ("x.shape[0] != 1",)}
    (record,) = tried(try_kernel, "sum@1", honest, CASE, **rows)
    assert "batch" in record.checks["pass"]
    assert record.details["batch"].startswith("refused: 1 of ")
    (none_taken,) = tried(try_kernel, "sum@1", block_by_batch, CASE, batch_invariant=True, when=("x.shape[0] >= 5",))
    assert none_taken.verdict == "pass"
    assert "batch" not in none_taken.checks["pass"]
