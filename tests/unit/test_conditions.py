"""Conditions: which clause fails with which code and words, what is static, the key, and what is a plugin's fault."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from nbx_registry import conditions as condition_module
from nbx_registry import dtypes
from nbx_registry.conditions import Conditions, compile_conditions
from nbx_registry.decision import CODES
from nbx_registry.errors import MissingFact, PluginFault
from nbx_registry.kernel import Kernel
from nbx_registry.op import op
from nbx_registry.spec import TensorSpec, parse


@op(
    "mix@1(x: F[*B, D], w: F[D, K], bias: F[K]? = None, xs: list[I[M]]? = None, *, r: int = 3, pads: int[2] = 0,"
    " mode: str = 'a', to: dtype = 'int8', eps: float = 0.5) -> F[*B, O]",
    where={"O": "K * r"},
)
def mix(**_: Any) -> Any:
    """Take a bit of everything."""


class _Facts(dict[str, Any]):
    def __missing__(self, key: str) -> Any:
        raise MissingFact(f"acme/one states no {key!r}; one.yml could")


DEVICE: Any = SimpleNamespace(
    id="acme/one",
    values=_Facts(
        {
            "id": "acme/one",
            "vendor": "acme",
            "arch": "a1",
            "runtime": "acme",
            "target.a1": True,
            "memory.bytes": 1000,
            "matrix_unit.m8n8k4": (),
            "matrix_unit.m16n8k16": (dtypes.get("float16"),),
            "async_copy.tma": True,
        }
    ),
)
SIGNATURE = mix.signature([parse("float16[2, 7, 320]"), parse("float16[320, 5]")], {})
WITH_BIAS = mix.signature(
    [parse("float16[320]"), parse("float16[320, 5];strides=[1, 320]"), parse("float16[5]"), (parse("int8[4]"),)], {}
)


def conditions(*when: str, key: tuple[str, ...] = ()) -> Conditions:
    kernel = Kernel(id="nbx-made/mix/k", op="mix@1", backend="b", runtimes=(), bind="m:f", when=when, key=key)
    return compile_conditions(kernel, mix, "nbx-made")


@pytest.mark.parametrize(
    "text",
    [
        "x.dtype in (float16, bfloat16)",
        "F == float16",
        "D <= 320",
        "len(B) == 2 and prod(B) == 14",
        "O == 15 and out.shape[2] == O",
        "x.rank == 3",
        "x.contiguous and w.contiguous and x.strides[2] == 1",
        "x.align >= 16 and x.offset == 0 and x.nbytes == 2 * x.size",
        "x.extent < 2**31 and x.distinct == x.size",
        "not bias.given and not xs.given",
        "r == 3 and pads[1] == 0 and mode == 'a' and to == int8 and eps < 1",
        "device.memory.bytes >= 1000",
        "device.arch == 'a1' and device.id == 'acme/one' and device.vendor == 'acme' and device.runtime == 'acme'",
        "device.target.a1 and device.async_copy.tma and device.matrix_unit.m16n8k16",
        "x.dtype in device.matrix_unit.m16n8k16",
        "not x.weak",
    ],
)
def test_condition_that_holds(text: str) -> None:
    found = conditions(text)
    assert found.failed(SIGNATURE, DEVICE) is None
    assert found.static_failed(SIGNATURE, DEVICE) is None
    assert found.dynamic_ok(SIGNATURE, DEVICE)


@pytest.mark.parametrize(
    ("text", "code", "static", "reason"),
    [
        ("x.dtype in (float32, bfloat16)", "DTYPE", True, "x.dtype in (float32, bfloat16) (x.dtype = float16)"),
        ("F != float16", "DTYPE", True, "F != float16 (F = float16)"),
        ("to == int4", "DTYPE", True, "to == int4 (to = int8)"),
        ("out.dtype == float32", "DTYPE", True, "out.dtype == float32 (out.dtype = float16)"),
        ("D <= 256", "SHAPE", False, "D <= 256 (D = 320)"),
        ("len(B) == 1", "SHAPE", False, "len(B) == 1 (B = (2, 7))"),
        ("O * D < 100", "SHAPE", False, "O * D < 100 (O = 15, D = 320)"),
        ("x.rank == 2", "SHAPE", True, "x.rank == 2 (x.rank = 3)"),
        ("out.rank == 2", "SHAPE", False, "out.rank == 2 (out.rank = 3)"),
        ("bits(x.dtype) * D <= 64", "SHAPE", False, "bits(x.dtype) * D <= 64 (x.dtype = float16, D = 320)"),
        ("x.strides[2] == D", "LAYOUT", False, "x.strides[2] == D (x.strides = (2240, 320, 1), D = 320)"),
        ("not x.contiguous", "LAYOUT", False, "not x.contiguous (x.contiguous = True)"),
        ("x.align >= 128", "LAYOUT", False, "x.align >= 128 (x.align = 16)"),
        ("r < 2", "ATTRIBUTE", False, "r < 2 (r = 3)"),
        ("pads[0] != 0", "ATTRIBUTE", False, "pads[0] != 0 (pads = (0, 0))"),
        ("mode == 'b'", "ATTRIBUTE", True, "mode == 'b' (mode = 'a')"),
        ("eps > 1", "ATTRIBUTE", True, "eps > 1 (eps = 0.5)"),
        ("bias.given", "ATTRIBUTE", True, "bias.given (bias.given = False)"),
        ("device.memory.bytes > 5000", "DEVICE", True, "device.memory.bytes > 5000 (device.memory.bytes = 1000)"),
        (
            "D * 4 <= device.memory.bytes",
            "DEVICE",
            False,
            "D * 4 <= device.memory.bytes (D = 320, device.memory.bytes = 1000)",
        ),
        ("device.matrix_unit.m8n8k4", "CAPABILITY", True, "device acme/one has no matrix_unit.m8n8k4"),
        (
            "float16 in device.matrix_unit.m8n8k4",
            "CAPABILITY",
            True,
            "float16 in device.matrix_unit.m8n8k4 (device.matrix_unit.m8n8k4 = ())",
        ),
        ("not device.async_copy.tma", "CAPABILITY", True, "not device.async_copy.tma (device.async_copy.tma = True)"),
        ("device.arch in ('a2', 'a3')", "ARCH", True, "device.arch in ('a2', 'a3') (device.arch = 'a1')"),
        ("not device.target.a1", "ARCH", True, "not device.target.a1 (device.target.a1 = True)"),
        (
            "device.l2.bytes > 5",
            "FACT_MISSING",
            True,
            "device.l2.bytes > 5: acme/one states no 'l2.bytes'; one.yml could",
        ),
        (
            "device.tensor_memory",
            "FACT_MISSING",
            True,
            "device.tensor_memory: acme/one states no 'tensor_memory'; one.yml could",
        ),
    ],
)
def test_failed_clause_has_code_values_and_the_way_out(text: str, code: str, static: bool, reason: str) -> None:
    found = conditions("x.dtype == float16 and D == 320", text)
    refusal = found.failed(SIGNATURE, DEVICE)
    assert refusal is not None
    assert (refusal.code, refusal.reason) == (code, reason)
    assert refusal.code in CODES
    assert refusal.would_run_if
    assert found.clauses[-1].static is static
    assert found.static_failed(SIGNATURE, DEVICE) == (refusal if static else None)
    assert found.dynamic_ok(SIGNATURE, DEVICE) is static


@pytest.mark.parametrize(
    ("text", "way"),
    [
        ("D <= 256", "D <= 256"),
        ("device.matrix_unit.m8n8k4", "the device had matrix_unit.m8n8k4"),
        ("device.l2.bytes > 5", "the fact were stated, and device.l2.bytes > 5"),
    ],
)
def test_counterfactual(text: str, way: str) -> None:
    refusal = conditions(text).failed(SIGNATURE, DEVICE)
    assert refusal is not None
    assert refusal.would_run_if == way


def test_first_failed_clause_in_the_kernels_order_is_told() -> None:
    for when, clause in (
        (("D <= 256", "x.dtype == float32"), "D <= 256"),
        (("x.dtype == float32", "D <= 256"), "x.dtype == float32"),
        (("D == 320", "r == 3 and O == 1 and x.rank == 1"), "O == 1"),
    ):
        refusal = conditions(*when).failed(SIGNATURE, DEVICE)
        assert refusal is not None
        assert refusal.would_run_if == clause


def test_earlier_failure_hides_a_later_fault_or_missing_fact() -> None:
    for later in ("1 // (r - 3) == 1", "device.l2.bytes > 3", "x.dtype < 3"):
        refusal = conditions("D <= 256", later).failed(SIGNATURE, DEVICE)
        assert refusal is not None
        assert refusal.code == "SHAPE"


def test_clause_on_an_absent_tensor_is_passed_over_unless_it_asks() -> None:
    for text in ("bias.dtype == float32", "bias.strides[0] == 7", "xs.given or M > 9", "M > 9"):
        assert conditions(text).dynamic_ok(SIGNATURE, DEVICE) or text.startswith("xs")
    assert conditions("bias.dtype == float32").failed(SIGNATURE, DEVICE) is None
    assert conditions("bias.dtype == float32").failed(WITH_BIAS, DEVICE) is not None
    assert conditions("not bias.given or bias.dtype == float32").failed(SIGNATURE, DEVICE) is None
    assert conditions("bias.given and bias.dtype == float16").failed(WITH_BIAS, DEVICE) is None
    assert conditions("bias.given or bias.dtype == float16").failed(SIGNATURE, DEVICE) is not None
    assert conditions("M > 9").failed(WITH_BIAS, DEVICE) is not None
    assert conditions("len(xs) == 1 and I == int8").failed(WITH_BIAS, DEVICE) is None
    assert conditions("len(xs) == 2").failed(SIGNATURE, DEVICE) is None


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("1 // (r - 3) == 1", "ZeroDivisionError"),
        ("x.dtype < 3", "TypeError"),
        ("x.strides[7] == 1", "IndexError"),
        ("D ** 100 > 1", "OverflowError"),
    ],
)
def test_clause_that_raises_is_the_plugins_fault(text: str, error: str) -> None:
    found = conditions("D == 320", "r == 3 and F == float16", text)
    with pytest.raises(PluginFault) as caught:
        found.failed(SIGNATURE, DEVICE)
    assert f"condition {text!r} of kernel 'nbx-made/mix/k' raised {error}" in str(caught.value)
    assert type(caught.value.__cause__).__name__ == error
    assert (caught.value.plugin, caught.value.where) == ("nbx-made", f"condition {text!r} of nbx-made/mix/k")
    run = found.static_failed if found.clauses[-1].static else found.dynamic_ok
    with pytest.raises(PluginFault):
        run(SIGNATURE, DEVICE)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("DD <= 3", "condition 'DD <= 3' of kernel 'nbx-made/mix/k': mix@1 has no 'DD'"),
        ("x.dtyp == float16", "did you mean 'x.dtype'"),
        ("out.given", "mix@1 has no 'out.given'"),
        ("xs.dtype == int8", "mix@1 has no 'xs.dtype'"),
        ("mod == 'a'", "did you mean 'mode'"),
        ("x == 3", "mix@1 has no 'x'"),
        ("D <", "expected a value, not the end"),
        ("exec('1')", "unknown function 'exec'"),
    ],
)
def test_unknown_name_is_found_without_a_call(text: str, why: str) -> None:
    with pytest.raises(PluginFault) as caught:
        conditions(text)
    assert why in str(caught.value)
    assert caught.value.plugin == "nbx-made"
    with pytest.raises(PluginFault, match="key"):
        conditions(key=(text,))


@pytest.mark.parametrize(
    ("when", "specificity"),
    [
        ((), "nothing"),
        (("D < 3", "device.runtime == 'cuda'"), "nothing"),
        (("device.memory.bytes > 3",), "fact"),
        (("device.memory.bytes > 3", "device.async_copy.tma"), "arch"),
        (("float16 in device.matrix_unit.m8n8k4",), "arch"),
        (("device.arch == 'a1'",), "arch"),
        (("device.target.a1",), "arch"),
    ],
)
def test_specificity(when: tuple[str, ...], specificity: str) -> None:
    assert conditions(*when).specificity == specificity


@pytest.mark.parametrize(
    ("when", "why"),
    [
        (("False",), "'False' never holds"),
        (("D > 1 and 1 > 2",), "'1 > 2' never holds"),
        (("x.dtype in ()",), "'x.dtype in ()' never holds"),
        (("x.dtype == int8",), "no dtype meets 'x.dtype == int8'"),
        (("x.dtype == float16", "w.dtype == float32"), "no dtype meets 'x.dtype == float16' and 'w.dtype == float32'"),
        (("F == float16 and bits(w.dtype) == 32",), "no dtype meets"),
        (("D > 5", "3 > D"), "no D meets 'D > 5' and '3 > D'"),
        (("O < 0",), "no O meets 'O < 0'"),
        (("w.rank == 3",), "no w.rank meets 'w.rank == 3'"),
        (("x.rank < 1",), "no x.rank meets 'x.rank < 1'"),
        (("r == 3", "r > 3"), "no r meets 'r == 3' and 'r > 3'"),
        (("0 < D < 1",), "no D meets '0 < D < 1'"),
        (("D in (63, 127)", "D == 64"), "no D meets 'D in (63, 127)' and 'D == 64'"),
        (("D < 3 or D > 5", "D == 4"), "no D meets 'D < 3 or D > 5' and 'D == 4'"),
        (("not D >= 0",), "no D meets 'not D >= 0'"),
        (("eps > 1", "eps < 0.5"), "no eps meets 'eps > 1' and 'eps < 0.5'"),
        (("mode == 'a'", "mode == 'b'"), "no mode meets"),
        (("mode == 'a'", "mode != 'a'"), "no mode meets"),
        (("x.contiguous and not x.contiguous",), "no x.contiguous meets"),
        (("device.memory.bytes > 5", "device.memory.bytes < 3"), "no device.memory.bytes meets"),
        (("device.vendor == 'a'", "device.vendor == 'b'"), "no device.vendor meets"),
        (("device.matrix_unit.m8n8k4", "not device.matrix_unit.m8n8k4"), "no device.matrix_unit.m8n8k4 meets"),
    ],
)
def test_conditions_that_always_refuse_are_found_without_a_call(when: tuple[str, ...], why: str) -> None:
    found = conditions(*when).always_refuses
    assert found is not None
    assert why in found


@pytest.mark.parametrize(
    "when",
    [
        ("D > 5", "D < 7", "x.rank >= 1", "w.rank == 2"),
        ("x.dtype == float16", "w.dtype in (float16, float32)"),
        ("bias.rank == 3",),
        ("M > 5", "M < 3"),
        ("device.memory.bytes > 5", "device.memory.bytes < 7"),
        ("device.memory.bytes > 5", "device.memory.bytes < 5.5"),
        ("device.vendor != 'a'", "device.vendor != 'b'"),
        ("device.vendor in ('a', 'b')", "device.vendor not in ('a', 'c')"),
        ("eps > 0", "eps < 1"),
        ("eps > 0.25", "eps < 0.3"),
        ("mode != 'a'", "mode != 'b'"),
        ("D > 5", "D < 7", "D != 5"),
        ("D % 8 == 0", "D > 0"),
        ("D == r", "D > 5"),
        ("float16 in device.matrix_unit.m8n8k4",),
        ("device.memory.kinds == ('hbm', 'lpddr')",),
        ("device.memory.bytes != 5", "device.memory.bytes >= 5"),
        ("r < 0",),
        ("D < 3 or D > 5",),
        ("x.dtype + 1 == 2",),
    ],
)
def test_conditions_that_may_hold_are_left_alone(when: tuple[str, ...]) -> None:
    assert conditions(*when).always_refuses is None


def test_key_is_plain_data() -> None:
    found = conditions(
        key=("D", "pads", "x.dtype", "bias.dtype", "cdiv(D, 128)", "mode", "device.arch", "x.contiguous")
    )
    assert found.key(SIGNATURE, DEVICE) == (320, (0, 0), "f16", None, 3, "a", "a1", True)
    assert found.key(WITH_BIAS, DEVICE) == (320, (0, 0), "f16", "f16", 3, "a", "a1", True)
    with pytest.raises(PluginFault, match=r"key .* of kernel 'nbx-made/mix/k' raised MissingFact"):
        conditions(key=("device.l2.bytes",)).key(SIGNATURE, DEVICE)


def test_python_scalar_can_be_told() -> None:
    @op("both@1(x: N1[*A], y: N2[*B]) -> N1[*A]")
    def both(**_: Any) -> Any:
        """Take two."""

    kernel = Kernel(id="p/both/k", op="both@1", backend="b", runtimes=(), bind="m:f", when=("not y.weak",))
    weak = TensorSpec(dtypes.get("int64"), (), weak=True)
    found = compile_conditions(kernel, both)
    assert found.failed(both.signature([parse("int8[3]"), weak], {}), DEVICE) is not None
    assert found.failed(both.signature([parse("int8[3]"), parse("int8[]")], {}), DEVICE) is None
    assert found.static


def test_many_clauses_are_quick() -> None:
    many = [conditions("F == float16", "x.contiguous", f"D * K <= {5000 + i}", "D % 4 == 0") for i in range(50)]

    def run() -> float:
        began = time.perf_counter()
        for found in many:
            assert found.dynamic_ok(SIGNATURE, DEVICE)
            assert found.static_failed(SIGNATURE, DEVICE) is None
        return time.perf_counter() - began

    assert min(run() for _ in range(30)) < 300e-6


def test_kernels_that_differ_in_numbers_alone_are_compiled_once() -> None:
    compiled = condition_module._function.cache_info().misses
    for least in range(1000, 1050):
        found = conditions(f"D > {least} - 700 and 2 * D < {least}")
        assert (found.failed(SIGNATURE, DEVICE) is None) == (least - 700 < 320 and least > 640)
    assert condition_module._function.cache_info().misses - compiled <= 2


def test_numbers_in_lists_and_powers_are_what_they_say() -> None:
    assert conditions("D in (5, 320, 7)").failed(SIGNATURE, DEVICE) is None
    assert conditions("D in (5, 321, 7)").failed(SIGNATURE, DEVICE) is not None
    assert conditions("D == 2 ** 8 + 64").failed(SIGNATURE, DEVICE) is None
    assert conditions("-D == -320").failed(SIGNATURE, DEVICE) is None
    assert conditions("D / 2 == 160.0").failed(SIGNATURE, DEVICE) is None
