"""Docs: each op says what it takes and gives, in shapes and dtypes; each kernel has its line."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

from nbx_conformance.plugin_checks.subject import Subject, told
from nbx_conformance.trials.trial import Outcome
from nbx_registry.op import Op

NAME = "docs"

_SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.MULTILINE)
_HEAD = re.compile(r"^(\w+(?:, \w+)*)(?: : (.+))?$", re.MULTILINE)


def check(subject: Subject) -> Outcome:
    """Read the docstrings of its ops, which follow NumPy's form, and the line of each kernel."""
    wrong = [problem for op in subject.plugin.ops for problem in _of_op(op)]
    wrong += (f"kernel {kernel.id} has no doc" for kernel in subject.plugin.kernels if not kernel.doc.strip())
    return Outcome(NAME, "fail" if wrong else "pass", told(wrong))


def _of_op(op: Op) -> Iterator[str]:
    text = inspect.cleandoc(op.doc)
    if not text or _SECTION.match(text):
        yield f"op {op.id} has no docstring that begins with what it computes"
        return
    parts = _SECTION.split(text)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    said = {
        name: described
        for names, described in _HEAD.findall(sections.get("Parameters", ""))
        for name in names.split(", ")
    }
    for param in op.tensors:
        if not said.get(param.name):
            yield f"op {op.id} does not say of which dtype and shape {param.name} is, under Parameters"
    for attribute in op.attributes:
        if attribute.name not in said:
            yield f"op {op.id} does not say what {attribute.name} is, under Parameters"
    if not sections.get("Returns", "").strip():
        yield f"op {op.id} does not say of which dtype and shape the result is, under Returns"
