"""Shards: every trial in one of them, kernels of a case together, the same cut on every machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import nbx_registry as nbx
from nbx_conformance.cases import CaseTable
from nbx_conformance.runs import runner, shards
from nbx_conformance.runs.options import Options
from nbx_conformance.runs.session import Session
from nbx_registry.errors import NbxError


@pytest.fixture(scope="module")
def registry() -> nbx.Registry:
    return nbx.load()


@pytest.fixture(scope="module")
def cases(registry: nbx.Registry) -> CaseTable:
    return runner.case_table(registry)


@pytest.fixture
def session(registry: nbx.Registry, cases: CaseTable) -> Callable[..., Session]:
    def make(**options: Any) -> Session:
        made = Session(Options(device="cpu", **options), registry)
        made.cases = cases
        return made

    return make


@pytest.fixture
def ids(session: Callable[..., Session]) -> Callable[..., list[str]]:
    return lambda **options: [item.id for item in session(**options).items]


@pytest.mark.parametrize("of", [1, 3, 7])
def test_every_trial_is_in_one_shard(ids: Callable[..., list[str]], of: int) -> None:
    parts = [ids(shard=(part, of)) for part in range(1, of + 1)]
    assert sorted(trial for part in parts for trial in part) == sorted(ids())
    sizes = [len(part) for part in parts]
    assert max(sizes) < 1.2 * min(sizes)


def test_kernels_that_meet_one_case_are_in_one_shard(session: Callable[..., Session]) -> None:
    seen: dict[tuple[str, str], set[int]] = {}
    for part in (1, 2, 3):
        for item in session(ops=("add", "silu"), shard=(part, 3)).items:
            seen.setdefault((item.case.op, item.case.id), set()).add(part)
    assert all(len(parts) == 1 for parts in seen.values())


def test_what_else_is_tried_does_not_change_the_cut(ids: Callable[..., list[str]]) -> None:
    whole = ids(shard=(2, 3))
    assert ids(shard=(2, 3), ops=("softmax",)) == [trial for trial in whole if trial.startswith("softmax/")]


def test_an_op_with_few_cases_goes_to_different_shards(ids: Callable[..., list[str]]) -> None:
    found = {part for part in (1, 2, 3) if ids(shard=(part, 3), ops=("rfft_basis",))}
    assert found == {1, 2, 3}


@pytest.mark.parametrize("text", ["", "3", "0/3", "4/3", "1/0", "1/2/3", "-1/3", "1 /3", "1/99999", "a/b"])
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(NbxError, match="is no shard: write part/parts"):
        shards.parse(text)


def test_a_shard_is_read() -> None:
    assert shards.parse("2/3") == (2, 3)
