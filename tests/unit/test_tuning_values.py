"""Values that is tuned on, and what of the oracle is asked where it would take long."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from running import OPS, sign

from nbx_registry.tuning import problem
from nbx_registry.tuning.problem import Problem
from nbx_registry.tuning.values import NUMBER, draw

REQUESTS: dict[str, Any] = {
    "add-f16": sign("add", "float16[63, 127]", "float16[127]"),
    "add-i8": sign("add", "int8[1000]", "int8[1000]"),
    "embedding": sign("embedding", "float32[300, 7]", "int32[129]"),
    "expanded": sign("add", "float32[63, 127];strides=[0, 1]", "float32[63, 127]"),
    "concat": sign("concat", ["float32[3, 5]", "float32[4, 5]"], axis=0),
    "paged": sign(
        "paged_decode_attention",
        "float32[3, 4, 32]",
        "float32[40, 2, 16, 32]",
        "float32[40, 2, 16, 32]",
        "int32[3, 9]",
        "int32[3]",
        longest=130,
    ),
    "append": sign("paged_kv_append", "float32[63, 2, 8]", "int32[63]", "float32[5, 2, 16, 8]"),
    "append_step": sign(
        "paged_kv_append_step",
        "float32[7, 2, 8]",
        "float32[7, 2, 8]",
        "float32[5, 2, 16, 8]",
        "float32[5, 2, 16, 8]",
        "int32[7, 4]",
        "int32[7]",
    ),
    "gemv": sign("dequant_gemv_int4", "float16[256]", "int32[32, 63]", "float16[2, 63]", "float16[2, 63]"),
}


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_values_fit_the_contract_and_the_oracle_takes_them(request_: Any) -> None:
    for number in range(NUMBER):
        values = draw(request_, {}, number)
        request_.op.run_oracle(request_, values)
        for param, spec, value in zip(request_.op.tensors, request_.tensors, values, strict=True):
            for item, one in zip(spec, value, strict=True) if isinstance(spec, tuple) else [(spec, value)]:
                assert (one.shape, one.dtype) == (item.shape, item.dtype.numpy)
                limits = request_.index_limits().get(param.name)
                if limits is not None:
                    assert (one >= limits[0]).all()
                    assert (one < limits[1]).all()
                elif item.dtype.floating or param.letter is not None:
                    assert (one != 0).all()


def test_inputs_differ_and_are_the_same_again() -> None:
    request_ = REQUESTS["add-f16"]
    first, second = (draw(request_, {}, number)[0] for number in (0, 1))
    assert (first != second).any()
    np.testing.assert_array_equal(first, draw(request_, {}, 0)[0])


def test_no_two_writes_go_to_one_place() -> None:
    slots = draw(REQUESTS["append"], {}, 0)[1]
    assert len(set(slots.tolist())) == 63
    crowded = sign("paged_kv_append", "float32[100, 2, 8]", "int32[100]", "float32[5, 2, 16, 8]")
    slots = draw(crowded, {}, 0)[1]
    assert sorted(slots[slots >= 0].tolist()) == list(range(80))
    assert (slots < 0).sum() == 20


def test_lengths_are_as_long_as_the_request_says() -> None:
    lengths = draw(REQUESTS["paged"], {}, 0)[4]
    assert (lengths == 130).all()
    assert (draw(REQUESTS["append_step"], {}, 0)[5] == 63).all()


def test_words_have_any_bits() -> None:
    words = draw(REQUESTS["gemv"], {}, 0)[1]
    assert (np.bincount((words.view(np.uint32) >> 28).ravel(), minlength=16) > 0).all()


def test_large_tensors_repeat_a_block() -> None:
    (x,) = draw(sign("sqrt", "float16[3, 700000]"), {}, 1)
    assert (x[0] != x[1]).any()


def test_limits_that_nobody_gave_have_something_between_them() -> None:
    request_ = sign("clip", "float32[1000]", 0.5, 0.5)
    x, low, high = draw(request_, {}, 0)
    assert ((x > low) & (x < high)).any()
    assert draw(sign("clip", "uint8[9]", 1, 1), {}, 0)[1:] == [1, 3]


# Parts ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask the oracle for parts of what is tiny."""
    monkeypatch.setattr(problem, "MOST_ELEMENTS", 100)
    monkeypatch.setattr(problem, "MOST_FLOPS", {"matrix": 100, "vector": 100})


CUT: dict[str, tuple[Any, bool]] = {
    "rows": (sign("softmax", "float32[63, 127]", axis=-1), True),
    "columns": (sign("softmax", "float32[63, 127]", axis=0), False),
    "matmul": (sign("matmul", "float32[63, 9]", "float32[9, 63]"), True),
    "square": (sign("matmul", "float32[63, 63]", "float32[63, 63]"), True),
    "batched": (sign("matmul", "float32[9, 5, 7]", "float32[9, 7, 3]"), True),
    "norm": (sign("layer_norm", "float32[63, 127]", "float32[127]", "float32[127]"), True),
    "sum": (sign("sum", "float32[63, 63]", axis=0), False),
    "rows_sum": (sign("sum", "float32[63, 9]", axis=1), True),
    "flat": (sign("add", "float32[1000]", "float32[1000]"), True),
    "broadcast": (sign("add", "float32[63, 9]", "float32[9]"), True),
    "conv": (sign("conv2d", "float32[5, 3, 9, 9]", "float32[5, 3, 3, 3]"), True),
    "attention": (
        sign(
            "scaled_dot_product_attention",
            "float32[5, 2, 9, 8]",
            "float32[5, 2, 9, 8]",
            "float32[5, 2, 9, 8]",
            causal=True,
        ),
        True,
    ),
    "linear": (sign("linear", "float32[5, 9, 8]", "float32[7, 8]", "float32[7]"), True),
    # What the output's axis is called is the second of the weight.
    "weight": (sign("dequant_gemv_int4", "float16[256]", "int32[32, 63]", "float16[2, 63]", "float16[2, 63]"), True),
    "embedding": (REQUESTS["embedding"], True),
    "append": (REQUESTS["append"], False),
    "concat": (REQUESTS["concat"], False),
}


@pytest.mark.parametrize(("request_", "cut"), CUT.values(), ids=CUT)
def test_parts_of_the_oracle_are_those_of_the_whole(small: None, request_: Any, cut: bool) -> None:
    found = Problem(request_, {})
    assert (found._parts != [(None, 0)]) is cut
    whole = request_.op.run_oracle(request_, found.inputs(1))
    for truth in found._truth(1):
        for part, all_ in zip(truth.reference, whole, strict=True):
            expected = all_ if truth.first is None else all_[truth.first : truth.stop]
            np.testing.assert_allclose(part, expected, rtol=1e-9, atol=1e-12)


def test_what_is_wrong_at_the_ends_is_seen_in_parts(small: None) -> None:
    request_ = CUT["rows"][0]
    found = Problem(request_, {})
    (whole,) = request_.op.run_oracle(request_, found.inputs(0))
    right = whole.astype(np.float32)
    assert found.judge(0, {"out": right}).wrong == ""
    for row in (0, -1):
        wrong = right.copy()
        wrong[row, 3] *= 1.01
        assert "elements wrong" in found.judge(0, {"out": wrong}).wrong


# Judgement ------------------------------------------------------------------------------------------------------------


def test_what_is_nearest_to_its_bound_is_told() -> None:
    request_ = sign("add", "float16[63]", "float16[63]")
    found = Problem(request_, {})
    x1, x2 = found.inputs(0)
    judged = found.judge(0, {"out": x1 + x2})
    assert judged.wrong == ""
    assert 0 < judged.deviation <= judged.bound
    assert judged.share == judged.deviation / judged.bound


def test_a_device_file_tightens_a_bound_never_below_what_rounding_takes() -> None:
    request_ = sign("matmul", "float32[9, 300]", "float32[300, 7]")
    device: Any = SimpleNamespace(facts={"tolerance.matmul": None}, fact=lambda name: 1e-9)
    found, untouched = Problem(request_, {}, device), Problem(request_, {})
    x1, x2 = (values.astype(np.float64) for values in found.inputs(0))
    rounded = (x1 @ x2).astype(np.float32)
    assert found.judge(0, {"out": rounded}).wrong == ""
    beside = np.nextafter(rounded, np.float32(np.inf))
    assert "elements wrong" in found.judge(0, {"out": beside}).wrong
    assert untouched.judge(0, {"out": beside}).wrong == ""


def test_a_kernel_of_every_op_is_judged_by_its_own_bound() -> None:
    assert OPS["matmul"].accumulation != "1"
    request_ = CUT["matmul"][0]
    found = Problem(request_, {})
    x1, x2 = found.inputs(0)
    assert found.judge(0, {"out": x1 @ x2}).wrong == ""
    assert "allowed +-" in found.judge(0, {"out": x1 @ x2 + np.float32(1e-3)}).wrong
