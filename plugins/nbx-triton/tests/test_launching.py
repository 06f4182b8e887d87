"""What a launch is made of: types, constants, alignment, and refusals by name."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import triton
import triton.language as tl

from nbx_registry import contracts, spec
from nbx_registry.errors import NbxError
from nbx_registry.launch import NULL, BindContext, Scalar, ScalarOf
from nbx_triton.compiler import Options
from nbx_triton.kernels import walk
from nbx_triton.kernels.strided import locate, program
from nbx_triton.launching import MAX_PROGRAMS, launch
from nbx_triton.specs import KERNELS

OPTIONS = Options(num_warps=4, num_stages=1, enable_fp_fusion=False)


@triton.jit
def unary(
    x,
    out,
    count,
    shape,
    x_strides,
    out_strides,
    OP: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    tl.static_assert(OP == "sqrt")
    index = program(WIDE) * BLOCK + tl.arange(0, BLOCK)
    inside = index < count
    y = tl.sqrt(tl.load(x + locate(index, shape, x_strides), mask=inside, other=1))
    tl.store(out + locate(index, shape, out_strides), y, mask=inside)


def context(text: str) -> BindContext:
    (op,) = (op for op in contracts.ALL if op.name == "sqrt")
    kernel = next(kernel for kernel in KERNELS if kernel.op == "sqrt@1")
    signature = op.signature([spec.parse(text)], {})
    return BindContext(kernel=kernel, signature=signature, device=SimpleNamespace(arch="sm_90"), settings={})


def arguments(**changes: Any) -> dict[str, Any]:
    plain = {"x": "x", "out": "out", "count": 48, "shape": (48,), "x_strides": (1,), "out_strides": (1,)}
    return plain | changes


CONSTANTS = {"OP": "sqrt", "WIDE": False, "BLOCK": 64}


def run(text: str = "float32[48]", programs: int = 1, constants: dict[str, Any] = CONSTANTS, **changes: Any) -> Any:
    return launch(
        context(text),
        unary,
        programs=programs,
        arguments=arguments(**changes),
        constants=constants,
        options=OPTIONS,
    )


def test_arguments_stand_in_the_functions_order_and_hidden_ones_are_null() -> None:
    made = run()
    assert made.args == ("x", "out", Scalar(48, "int32"), Scalar(48, "int32"), NULL, NULL)
    assert made.grid == (1, 1, 1)
    assert made.block == (128, 1, 1)


def test_an_integer_beyond_31_bits_is_passed_in_64() -> None:
    assert run(count=2**31).args[2] == Scalar(2**31, "int64")
    assert run(count=2**31 - 1).args[2] == Scalar(2**31 - 1, "int32")


def test_alignment_is_part_of_what_is_compiled() -> None:
    wide = CONSTANTS | {"BLOCK": 1024}
    aligned, loose = run("float32[48]", constants=wide), run("float32[48];align=4", constants=wide)
    assert aligned.function.image != loose.function.image


def test_an_unknown_parameter_is_named() -> None:
    with pytest.raises(NbxError, match="'unary' has no parameter 'BLOCKS'"):
        run(constants=CONSTANTS | {"BLOCKS": 3})


def test_a_missing_parameter_is_named() -> None:
    with pytest.raises(NbxError, match="no value for its parameter 'BLOCK'"):
        run(constants={"OP": "sqrt", "WIDE": False})


@pytest.mark.parametrize("programs", [0, MAX_PROGRAMS + 1])
def test_an_impossible_grid_is_refused(programs: int) -> None:
    with pytest.raises(NbxError, match=f"grid of {programs} programs"):
        run(programs=programs)


def test_a_dtype_that_triton_lacks_is_named() -> None:
    with pytest.raises(NbxError, match="float4_e2m1fn, which Triton lacks"):
        run("float4_e2m1fn[48]")


def test_a_weak_operand_is_read_at_the_call(bind: Callable[..., Any]) -> None:
    (made,) = bind("nbx-triton/add/strided", ["bfloat16[63]", 2.5], "nvidia/h200-sxm").launches
    assert made.args[:3] == ("x1", ScalarOf("x2", "float64"), "out")


@pytest.mark.parametrize(
    ("kernel", "tensors", "attributes"),
    [
        ("add/strided", ["float32[0, 3]", "float32[3]"], {}),
        ("sum/rows", ["float32[3, 0, 2]"], {"axis": 2}),
        ("matmul/tiles", ["float32[0, 3]", "float32[3, 5]"], {}),
        ("softmax/rows", ["float32[3, 0]"], {}),
        ("paged_kv_append/rows", ["float16[0, 2, 8]", "int32[0]", "float16[3, 2, 4, 8]"], {}),
    ],
    ids=str,
)
def test_nothing_is_launched_for_nothing(
    bind: Callable[..., Any], kernel: str, tensors: list[str], attributes: dict[str, Any]
) -> None:
    assert bind(f"nbx-triton/{kernel}", tensors, "nvidia/h200-sxm", **attributes).launches == ()


@pytest.mark.parametrize(
    ("tensors", "wide"),
    [
        (["int8[2147481000]"], False),
        (["int8[2147483648]"], True),
        (["int8[2, 2, 65];strides=[2147483648, 65, 1]"], True),
        (["int8[65, 65];strides=[1, 33554432]"], True),
    ],
    ids=str,
)
def test_offsets_are_64_bit_where_an_operand_reaches_that_far(
    bind: Callable[..., Any], tensors: list[str], wide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    plain = walk.launch

    def record(*args: Any, **named: Any) -> Any:
        seen.append(named["constants"]["WIDE"])
        return plain(*args, **named)

    monkeypatch.setattr(walk, "launch", record)
    bind("nbx-triton/add/strided", tensors * 2, "nvidia/h200-sxm")
    assert seen == [wide]


@triton.jit
def described(x, out, columns):
    whole = tl.make_tensor_descriptor(x, [16, columns], [columns, 1], [16, 16])
    place = tl.arange(0, 16)
    tl.store(out + place[:, None] * 16 + place[None, :], whole.load([0, 0]))


@pytest.mark.parametrize("scratch", ["out", None])
def test_memory_that_code_needs_for_itself_is_passed_or_refused_by_name(scratch: str | None) -> None:
    given: dict[str, Any] = {"arguments": {"x": "x", "out": "out", "columns": 32}, "constants": {}, "options": OPTIONS}
    if scratch is None:
        with pytest.raises(NbxError, match="'described' wants 128 bytes of scratch memory for each program"):
            launch(context("float32[48]"), described, programs=1, **given)
    else:
        found = launch(context("float32[48]"), described, programs=1, scratch=scratch, **given)
        assert found.function.scratch_bytes == 128
        assert found.args[-2:] == (scratch, NULL)
