"""The check `cost`: what an op declares equals the closed forms of its cases, to the last byte."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nbx_conformance.runs.runner import Record
from nbx_registry.cost import default_cost
from nbx_registry.hookspecs import hookimpl
from nbx_registry.kernel import Kernel
from nbx_registry.launch import BindContext, Launch
from nbx_registry.op import Op, Signature, op

FORMS = '{flops: "2 * x.size", bytes_read: "x.nbytes", bytes_written: "N * M * 4", least_bytes: "2 * x.nbytes"}'


def sound(signature: Signature) -> Any:
    return default_cost(signature, flops=2 * signature.tensors[0].size)


def generous(signature: Signature) -> Any:
    return default_cost(signature, flops=2 * signature.tensors[0].size + 1)


def forgetful(signature: Signature) -> Any:
    return default_cost(signature, flops=2 * signature.tensors[0].size, bytes_written=0, least_bytes=4 * 63)


def made(rule: Callable[[Signature], Any]) -> Op:
    @op("made::twice@1(x: F[N, M]) -> F[N, M]", cost=rule)
    def twice(x: Any) -> Any:
        """Twice x."""
        return 2 * x

    return twice


def plugin(contract: Op, folder: Path, forms: str) -> SimpleNamespace:
    def bind(context: BindContext) -> Launch:
        return Launch(function=lambda x, out: np.multiply(x, 2, out=out), args=("x", "out"))

    (folder / "twice.yml").write_text(
        f"op: made::twice@1\ncost: {forms}\nworkloads:\n"
        '  - {name: awkward, from: "no block", tensors: {x: "float32[7, 9]"}}\n'
        '  - {name: silent, from: "no forms", cost: null, tensors: {x: "float32[7, 9]"}}\n',
        "utf-8",
    )
    kernel = Kernel(
        id="made/twice/x", op="made::twice@1", backend="numpy", runtimes=("host",), bind=bind, deterministic=True
    )
    return SimpleNamespace(
        name="made",
        NBX_HOOKS=1,
        nbx_register_ops=hookimpl(lambda: [contract], specname="nbx_register_ops"),
        nbx_register_kernels=hookimpl(lambda: [kernel], specname="nbx_register_kernels"),
        nbx_register_cases=hookimpl(lambda: [folder], specname="nbx_register_cases"),
    )


def tried(run: Callable[..., list[Record]], contract: Op, folder: Path, forms: str = FORMS) -> tuple[Record, Record]:
    first, second = run("made/twice/x", plugin(contract, folder, forms), cases=("awkward", "silent"))
    return first, second


def test_a_cost_that_equals_its_closed_forms_passes_and_without_forms_nothing_is_said(
    try_kernel: Callable[..., list[Record]], tmp_path: Path
) -> None:
    first, second = tried(try_kernel, made(sound), tmp_path)
    assert first.verdict == "pass"
    assert "cost" in first.checks["pass"]
    assert "cost" not in second.checks["pass"]


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (generous, "flops is 127 by the contract, 126 by 2 * x.size (x.size = 63)"),
        (forgetful, "bytes_written is 0 by the contract, 252 by N * M * 4 (N = 7, M = 9)"),
    ],
    ids=["one_operation_more", "nothing_written"],
)
def test_a_cost_of_a_plugins_op_that_is_off_fails_by_name(
    try_kernel: Callable[..., list[Record]], tmp_path: Path, rule: Any, said: str
) -> None:
    first, _ = tried(try_kernel, made(rule), tmp_path)
    assert first.checks["fail"] == ["cost"]
    assert said in first.details["cost"]


@pytest.mark.parametrize(
    ("forms", "said"),
    [
        ('{flops: "4 * x.size / 2"}', "126 by the contract, 126.0 by"),
        ('{flops: "2 * x.sise"}', "did you mean 'x.size'?"),
    ],
    ids=["a_float", "an_unknown_name"],
)
def test_a_closed_form_that_is_no_exact_count_fails(
    try_kernel: Callable[..., list[Record]], tmp_path: Path, forms: str, said: str
) -> None:
    first, _ = tried(try_kernel, made(sound), tmp_path, forms)
    assert first.checks["fail"] == ["cost"]
    assert said in first.details["cost"]
