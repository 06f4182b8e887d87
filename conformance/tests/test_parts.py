"""Parts of problems: inputs, outputs and attributes of a cut, and cases that name no axis to cut along."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nbx_registry as nbx
from nbx_conformance.cases import Case
from nbx_conformance.problems.parts import Part, batch_of
from nbx_conformance.problems.problem import Problem
from nbx_registry.errors import FileError
from nbx_registry.spec import parse


def problem(op: str, batch: dict[str, int], part: dict[str, Any] | None = None, **given: Any) -> Problem:
    found = nbx.load().catalog.op(op)
    known = {param.name for param in found.tensors}
    tensors = {
        name: tuple(map(parse, value)) if isinstance(value, list) else parse(value) if isinstance(value, str) else value
        for name, value in given.items()
        if name in known
    }
    case = Case(
        op=found.id,
        id="whole",
        size="smoke",
        tensors=tensors,
        attributes={name: value for name, value in given.items() if name not in known},
        values={},
        seed=0,
        source="",
        batch=batch,
        part=part or {},
    )
    return Problem(found, case)


WHOLES: dict[str, tuple[str, dict[str, int], dict[str, Any], dict[str, Any]]] = {
    "rows": ("add", {"x1": 0, "x2": 0, "out": 0}, {"x1": "float32[7, 3]", "x2": "float32[7, 3]"}, {}),
    "broadcast": ("add", {"x1": 0, "x2": 0, "out": 0}, {"x1": "float32[7, 3]", "x2": "float32[1, 3]"}, {}),
    "fewer axes": ("add", {"x1": -2, "x2": -2, "out": -2}, {"x1": "float32[9, 3]", "x2": "float32[3]"}, {}),
    "scalar": ("add", {"x1": -1, "x2": -1, "out": -1}, {"x1": "float32[7, 9]", "x2": 2.5}, {}),
    "shared": ("matmul", {"x1": -2, "out": -2}, {"x1": "float32[9, 5]", "x2": "float32[5, 3]"}, {}),
    "reduced": ("sum", {"x": 1, "out": 0}, {"x": "float32[5, 9, 3]", "axis": [0, 2]}, {}),
    "list": ("concat", {"arrays": 0, "out": 0}, {"arrays": ["float32[9, 2]", "float32[9, 3]"], "axis": 1}, {}),
    "attribute": ("broadcast_to", {"out": 0}, {"x": "float32[1, 3]", "shape": [9, 3]}, {"shape": ["count", 3]}),
    "stream": (
        "random_bits",
        {"out": 0},
        {"shape": [9, 3], "seed": 7, "offset": 5},
        {"shape": ["count", 3], "offset": "offset + 3 * first"},
    ),
}


@pytest.mark.parametrize("name", sorted(WHOLES))
def test_the_reference_of_a_part_is_that_part_of_the_reference(name: str) -> None:
    op, batch, given, attributes = WHOLES[name]
    whole = problem(op, batch, attributes, **given)
    cut = batch_of(whole)
    part = Part(whole, cut, 3, 2)
    for found, of in ((part.reference(0), whole.reference(0)), (part.bounds(0), whole.bounds(0))):
        np.testing.assert_array_equal(found["out"], of["out"].take([3, 4], cut.axes["out"]))
    assert part.signature.outputs[0].shape == part.reference(0)["out"].shape


@pytest.mark.parametrize(
    ("op", "batch", "given", "why"),
    [
        ("add", {}, {"x1": "float32[7]", "x2": "float32[7]"}, "has no batch"),
        ("add", {"x1": 0, "out": 0, "x3": 0}, {"x1": "float32[7]", "x2": "float32[7]"}, "no 'x3'"),
        ("add", {"x1": 1, "out": 0}, {"x1": "float32[7]", "x2": "float32[7]"}, r"float32\[7\]; it has no axis 1"),
        ("add", {"x1": 0, "x2": 0}, {"x1": "float32[7]", "x2": "float32[7]"}, "lacks an axis of out"),
        ("sum", {"x": 1, "out": 0}, {"x": "float32[7, 9]", "axis": 1}, "extents differ: x 9, out 7"),
    ],
    ids=["none", "unknown", "rank", "result", "extents"],
)
def test_what_cannot_be_cut_is_refused_by_name(op: str, batch: dict[str, int], given: dict[str, Any], why: str) -> None:
    with pytest.raises(FileError, match=why):
        batch_of(problem(op, batch, **given))
