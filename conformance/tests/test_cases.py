from __future__ import annotations

import re
from pathlib import Path

import pytest

import nbx_registry as nbx
from nbx_conformance.cases import FOLDER, CaseTable, load
from nbx_conformance.lint import lint
from nbx_conformance.runs import runner
from nbx_registry.errors import DuplicateError, FileError
from nbx_registry.op import op

HEAD = "op: add@1\nworkloads:\n"
WORKLOAD = """
  - name: some
    from: a test
    each: {F: [float32, float16], N: [1, 63], "a, b": [[2, 3], [5, 7]]}
    tensors: {x1: "{F}[{a}, {N}]", x2: 2.5}
    layouts: {x1: offset}
    values: {x1: {constant: {value: "{b}"}}}
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "add.yml"
    file.write_text(text, "utf-8")
    return file


def test_a_workload_is_a_template_over_its_lists(tmp_path: Path) -> None:
    cases = load(written(tmp_path, HEAD + WORKLOAD)).cases
    assert [case.id for case in cases][:3] == ["some-f32-N1-a2-b3", "some-f32-N1-a5-b7", "some-f32-N63-a2-b3"]
    assert len(cases) == 8
    last = cases[-1]
    assert str(last.tensors["x1"]) == "float16[5, 63];offset=3;align=2"
    assert last.tensors["x2"] == 2.5
    assert last.values["x1"] == {"constant": {"value": 7}}
    assert last.source == "a test"


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("name: some", "nmae: some", "did you mean 'name'"),
        ("from: a test", "from: a test\n    size: huge", "size 'huge' is none of smoke, full"),
        ("{F}[{a}, {N}]", "{F}[{a}, {M}]", r"\{M\} is not in each"),
        ("{F}[{a}, {N}]", "{F}[{a}, {N}", "is no spec string"),
        ("x1: offset", "x3: offset", "unknown key 'x3'"),
        ("x1: offset", "x1: offsets", "did you mean 'offset'"),
        ("[[2, 3], [5, 7]]", "[[2, 3], [5]]", "2 names, but an entry is"),
        ("[1, 63]", "[1, 1]", "occurs twice"),
        ("[1, 63]", "[]", "not empty"),
        ("name: some", "name: some one", "no readable id"),
        ("add@1", "add", "id with its version"),
        ("from: a test", "from: a test\n    grows: {x1: 1}", "'x1' is no tensor of integers"),
        ("from: a test", "from: a test\n    grows: {x9: 1}", "'x9' is no tensor of integers"),
        ("from: a test", "from: a test\n    grows: {x1: much}", "must be an integer"),
        ("from: a test", "from: a test\n    batch: {x1: first}", "must be an integer"),
        ("from: a test", "from: a test\n    says: [[2]]", "says must be a string or a list of strings, not"),
        ("from: a test", "from: a test\n    kinds: {bits: 1}", "kinds must be a string or a list of strings"),
    ],
)
def test_what_is_wrong_with_a_file_is_told_with_its_place(tmp_path: Path, old: str, new: str, why: str) -> None:
    file = written(tmp_path, (HEAD + WORKLOAD).replace(old, new))
    with pytest.raises(FileError, match=why) as raised:
        load(file)
    assert str(file) in str(raised.value)


def test_what_a_refusal_says_may_be_a_number_from_each(tmp_path: Path) -> None:
    text = (HEAD + WORKLOAD).replace("from: a test", 'from: a test\n    refuses: SHAPE\n    says: "{N}"')
    assert {case.says for case in load(written(tmp_path, text)).cases} == {("1",), ("63",)}


def test_too_many_cases_of_one_workload_are_a_mistake(tmp_path: Path) -> None:
    numbers = list(range(1, 600))
    file = written(tmp_path, (HEAD + WORKLOAD).replace("[1, 63]", str(numbers)))
    with pytest.raises(FileError, match="at most 500"):
        load(file)


def test_two_files_for_one_op_are_refused_naming_both(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.yml").write_text(HEAD + WORKLOAD, "utf-8")
    with pytest.raises(DuplicateError, match=r"b\.yml and .*a\.yml"):
        CaseTable([tmp_path])


def test_an_op_without_cases_is_an_error() -> None:
    with pytest.raises(FileError, match="op softmaxx@1 has no conformance cases; did you mean 'softmax@1'"):
        CaseTable([FOLDER]).of("softmaxx@1")


def test_every_installed_op_has_cases_and_all_of_them_fit_their_contracts() -> None:
    registry = nbx.load()
    assert lint(runner.case_table(registry), registry.ops.values()) == []


def test_smoke_is_part_of_full() -> None:
    table = CaseTable([FOLDER])
    for name in table.ops:
        smoke = {case.id for case in table.of(name, "smoke")}
        assert smoke < {case.id for case in table.of(name, "full")}


@op("lonely::twice@1(x: F[N], *, times: int = 2) -> F[N]")
def twice(x, *, times):
    """Multiply by a number."""
    return x * times


@pytest.mark.parametrize(
    ("workload", "why"),
    [
        ('{name: a, from: t, tensors: {x: "float32[63]"}}', "no case is to be refused"),
        ('{name: a, from: t, tensors: {x: "float32[63]"}}', "no case has a view for 'x'"),
        ('{name: a, from: t, tensors: {x: "float32[63]"}}', "takes x in .*float16, .* no case is computed in that"),
        ('{name: a, from: t, tensors: {x: "float32[63]"}}', "no case of the kind 'whole_blocks'"),
        ('{name: a, from: t, tensors: {x: "float32[63]"}}', "no case has a tensor without elements"),
        ('{name: a, from: t, tensors: {x: "float32[63]"}}', "no case gives the attribute 'times'"),
        ('{name: a, from: t, size: full, tensors: {x: "float32[63]"}}', "no smoke case is to be computed"),
        ('{name: a, from: t, tensors: {x: "float32[3, 63]"}}', "case a: does not fit the contract"),
        ('{name: a, from: t, tensors: {y: "float32[63]"}}', "has no tensor 'y'"),
        ('{name: a, from: t, refuses: DTYPE, tensors: {x: "float32[3, 63]"}}', "is refused as SHAPE"),
        ('{name: a, from: t, refuses: SHAPE, says: "17", tensors: {x: "float32[3, 63]"}}', "the refusal lacks '17'"),
        ('{name: a, from: t, refuses: SHAPE, tensors: {x: "float32[63]"}}', "but fits the contract"),
        ('{name: a, from: t, tensors: {x: "float32[3000000]"}}', "make it full"),
        ('{name: a, from: t, tensors: {x: "float32[63]"}, values: {x: {index: {}}}}', "values of 'x': .* needs below"),
    ],
)
def test_the_linter_finds(tmp_path: Path, workload: str, why: str) -> None:
    (tmp_path / "twice.yml").write_text(f"op: lonely::twice@1\nworkloads:\n  - {workload}\n", "utf-8")
    found = lint(CaseTable([tmp_path]), [twice])
    assert any(re.search(why, problem) for problem in found), found


def test_the_linter_tells_a_wrong_closed_form_once(tmp_path: Path) -> None:
    (tmp_path / "twice.yml").write_text(
        "op: lonely::twice@1\ncost: {flops: 3 * x.size, bytes_read: x.nbytes}\nworkloads:\n"
        '  - {name: a, from: t, each: {N: [7, 63, 127]}, tensors: {x: "float32[{N}]"}}\n',
        "utf-8",
    )
    told = [problem for problem in lint(CaseTable([tmp_path]), [twice]) if "flops is" in problem]
    assert len(told) == 1
    assert told[0].startswith("lonely::twice@1: case a-N7: flops is")
    assert told[0].endswith(", and in 2 more cases")


def test_the_linter_names_ops_without_cases_and_cases_without_ops(tmp_path: Path) -> None:
    (tmp_path / "add.yml").write_text(HEAD + WORKLOAD, "utf-8")
    found = lint(CaseTable([tmp_path]), [twice])
    assert "op lonely::twice@1 has no conformance cases" in found
    assert "cases for add@1, which nobody registers" in found
