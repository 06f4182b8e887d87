"""Kinds of cases: the vocabulary, what a case shows by itself, and what the linter says of a kind that is missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import nbx_registry as nbx
from nbx_conformance.cases import FOLDER, CaseTable, kinds, load
from nbx_conformance.lint import lint
from nbx_conformance.problems.problem import Problem
from nbx_registry import yamlfile
from nbx_registry.op import op

OPS = {contract.name: contract for contract in nbx.load().ops.values()}


@op("lonely::rise@1(x: F[*X], *, axis: int? = None) -> F[*X]", flops="x.size")
def rise(x, *, axis):
    """Add 1, whatever the axis."""
    return x + 1


def written(folder: Path, workloads: str, head: str = "") -> CaseTable:
    (folder / "rise.yml").write_text(f"op: lonely::rise@1\n{head}workloads:\n{workloads}", "utf-8")
    return CaseTable([folder])


def found(folder: Path, workloads: str, head: str = "") -> list[str]:
    return lint(written(folder, workloads, head), [rise])


ONE = '  - {name: a, from: t, tensors: {x: "float32[3, 63]"}%s}\n'


def only(folder: Path, workload: str) -> frozenset[str]:
    (case,) = written(folder, f"  - {workload}\n").of("lonely::rise@1", "large")
    signature = None if case.refuses else Problem(rise, case).signature
    return kinds.of_case(rise, case, signature)


def test_every_number_of_the_list_of_what_went_wrong_is_a_kind_or_found_otherwise() -> None:
    content = yamlfile.load(kinds.FILE)
    assert isinstance(content, dict)
    named = {
        int(number)
        for kind in kinds.vocabulary().values()
        for listed in re.findall(r"cases\.md ([0-9, ]+)", kind.source)
        for number in listed.replace(",", " ").split()
    }
    assert named | set(map(int, content["otherwise"])) == set(range(1, 31))


def test_lists_of_ops_name_ops_of_the_core() -> None:
    known = {contract.name for contract in OPS.values()}
    for kind in kinds.vocabulary().values():
        assert isinstance(kind.applies, str) or set(kind.applies) <= known, kind.name
        assert any(kind.applies_to(contract) for contract in OPS.values()), kind.name


@pytest.mark.parametrize(
    ("layout", "kind"),
    [
        ("transposed", "transposed"),
        ("offset", "offset"),
        ("expanded", "expanded"),
        ("strided", "strided"),
        ("pitched", "pitched"),
        ("reversed", "reversed"),
    ],
)
def test_a_layout_shows_its_own_kind_and_no_other(tmp_path: Path, layout: str, kind: str) -> None:
    shown = only(tmp_path, f'{{name: a, from: t, tensors: {{x: "float32[3, 63]"}}, layouts: {{x: {layout}}}}}')
    views = {"transposed", "offset", "expanded", "strided", "pitched", "reversed"}
    assert shown & views == {kind}


def test_a_prefix_is_told_from_rows_that_begin_later(tmp_path: Path) -> None:
    attention = OPS["decode_attention"]
    for layout, prefix in (("prefix", True), ("pitched", False)):
        (tmp_path / "a.yml").write_text(
            "op: decode_attention@1\nworkloads:\n"
            f"  - {{name: a, from: t, layouts: {{k: {layout}}},"
            ' tensors: {q: "float32[2, 4, 65]", k: "float32[2, 2, 5, 65]", v: "float32[2, 2, 5, 33]"}}\n',
            "utf-8",
        )
        (case,) = load(tmp_path / "a.yml").cases
        assert ("prefix" in kinds.of_case(attention, case, Problem(attention, case).signature)) is prefix


@pytest.mark.parametrize(
    ("workload", "kind", "shown"),
    [
        ('tensors: {x: "float32[3, 63]"}', "awkward", True),
        ('tensors: {x: "float32[31, 64]"}', "awkward", False),
        ('tensors: {x: "float32[3, 0]"}', "empty", True),
        ('tensors: {x: "float32[]"}', "scalar", True),
        ('tensors: {x: "float32[63]"}, values: {x: special}', "special", True),
        ('tensors: {x: "float32[63]"}, values: {x: bits}', "special", True),
        ('tensors: {x: "float32[63]"}, values: {x: wide}', "special", False),
        ('tensors: {x: "float32[63]"}, attributes: {axis: -1}', "negative_axis", True),
        ('tensors: {x: "float32[63]"}, attributes: {axis: 0}', "negative_axis", False),
        ('tensors: {x: "float32[63]"}', "negative_axis", False),
        ('size: large, tensors: {x: "float16[32769, 65537]"}', "beyond_2_31", True),
        ('size: large, tensors: {x: "float16[32768, 65536]"}', "beyond_2_31", False),
        ('size: large, tensors: {x: "float16[32769, 65537]"}, layouts: {x: {expanded: 0}}', "beyond_2_31", True),
        ('tensors: {x: "float16[63]"}, refuses: AXIS, attributes: {axis: 4}', "axis_out_of_range", True),
        ('tensors: {x: "float16[3, 63]"}, refuses: SHAPE', "awkward", False),
    ],
)
def test_what_a_case_shows(tmp_path: Path, workload: str, kind: str, shown: bool) -> None:
    assert (kind in only(tmp_path, f"{{name: a, from: t, {workload}}}")) is shown


def test_a_kind_that_no_case_has_is_named(tmp_path: Path) -> None:
    problems = found(tmp_path, ONE % "")
    assert any(re.search(r"no case of the kind 'empty' \(a tensor without elements\)", p) for p in problems)
    assert not any("'awkward'" in problem for problem in problems)


def test_a_kind_without_meaning_needs_a_reason(tmp_path: Path) -> None:
    told = found(tmp_path, ONE % "", "without: {empty: this op always has elements}\n")
    assert not any("'empty'" in problem for problem in told)
    for head, why in (
        ("without: {empty: ''}\n", "without 'empty', and no reason"),
        ("without: {emtpy: none}\n", "no kind; did you mean 'empty'"),
        ("without: {awkward: none}\n", "without 'awkward', but cases have it"),
        ("without: {broadcast: one operand}\n", "does not apply to it in the first place"),
    ):
        assert any(why in problem for problem in found(tmp_path, ONE % "", head)), why


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("awkward", "is not written: a case shows it by itself"),
        ("model_brt", "is no kind; did you mean 'model_bert'"),
        ("ties", "does not apply to this op"),
    ],
)
def test_kinds_that_must_not_be_written_are_refused(tmp_path: Path, kind: str, why: str) -> None:
    assert any(f"{kind!r} {why}" in problem for problem in found(tmp_path, ONE % f", kinds: [{kind}]"))


def test_a_kind_of_refusals_takes_cases_that_are_refused(tmp_path: Path) -> None:
    text = (
        (FOLDER / "pixel_shuffle.yml").read_text("utf-8").replace("tensors:", "kinds: [indivisible]\n    tensors:", 1)
    )
    (tmp_path / "pixel_shuffle.yml").write_text(text, "utf-8")
    problems = lint(CaseTable([tmp_path]), [OPS["pixel_shuffle"]])
    assert any("the kind 'indivisible' takes cases that are refused" in problem for problem in problems)


def test_an_op_says_along_which_axis_it_may_be_cut_or_why_not(tmp_path: Path) -> None:
    assert any("no case gives 'batch'" in problem for problem in found(tmp_path, ONE % ""))
    assert not any("batch" in p for p in found(tmp_path, ONE % "", "without: {batch: everything depends on all}\n"))
    assert not any("batch" in p for p in found(tmp_path, ONE % "", "batch: {x: 0, out: 0}\n"))
    assert any("it has no axis 2" in p for p in found(tmp_path, ONE % "", "batch: {x: 2, out: 0}\n"))


COST = (
    "cost: {flops: %s, bytes_read: x.nbytes, bytes_written: x.nbytes, least_flops: x.size, least_bytes: 2 * x.nbytes}\n"
)


def test_every_field_of_a_cost_has_a_closed_form_that_agrees(tmp_path: Path) -> None:
    assert any("no closed form of flops in 1 cases, a first" in problem for problem in found(tmp_path, ONE % ""))
    assert not any("flops" in problem for problem in found(tmp_path, ONE % "", COST % "x.size"))
    assert any("flops is 189 by the contract, 378 by" in p for p in found(tmp_path, ONE % "", COST % "2 * x.size"))
    assert any("flops cannot be computed" in p for p in found(tmp_path, ONE % "", COST % "y.size"))


def test_a_large_case_has_more_than_2_31_elements(tmp_path: Path) -> None:
    assert any("whose largest tensor has 189 elements" in p for p in found(tmp_path, ONE % ", size: large"))


def test_a_case_covers_only_kinds_that_apply_to_its_op(tmp_path: Path) -> None:
    (case,) = written(tmp_path, ONE % ", values: {x: ones}").of("lonely::rise@1")
    assert not kinds.of_case(rise, case, Problem(rise, case).signature) & {"constant_group", "all_axes", "broadcast"}
