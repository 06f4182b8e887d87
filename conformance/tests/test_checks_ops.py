"""Defects that real kernels had, op by op: a bound or a list of cases that let one pass would be too loose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from nbx_conformance.runs.runner import Record
from nbx_registry.hookspecs import hookimpl
from nbx_registry.kernel import Kernel
from nbx_registry.launch import BindContext, Launch
from nbx_registry.op import Signature
from nbx_registry.rounding import round_to_float

Array = np.ndarray
Wrong = Callable[..., Any]
"""Takes the signature and the inputs as arrays (None where left out); returns the outputs, unrounded."""


@dataclass
class Defect:
    """A plugin with one kernel for the host, right but for ``wrong``."""

    op: str
    wrong: Wrong
    NBX_HOOKS = 1
    name = "nbx-defect"

    @hookimpl
    def nbx_register_kernels(self) -> list[Kernel]:
        return [Kernel(id="nbx-defect/kernel", op=self.op, backend="numpy", runtimes=("host",), bind=self.bind)]

    def bind(self, context: BindContext) -> Launch:
        signature = context.signature
        present = [spec is not None for spec in signature.tensors]

        def run(*arrays: Array) -> None:
            given = iter(arrays)
            inputs = [next(given) if there else None for there in present]
            with np.errstate(all="ignore"):
                results = self.wrong(signature, *inputs)
                results = results if isinstance(results, tuple) else (results,)
                for result, out, spec in zip(results, given, signature.outputs, strict=True):
                    rounded = round_to_float(result, spec.dtype) if spec.dtype.floating else result
                    out[...] = np.asarray(rounded).astype(out.dtype)

        return Launch(function=run, args=tuple(name for name, _ in signature.slots()))


def right(signature: Signature, *arrays: Any, **attributes: Any) -> Any:
    """The op's oracle, with other attributes where given."""
    found = signature.op.run_oracle(signature, arrays, {**signature.attributes, **attributes})
    return found if len(found) > 1 else found[0]


def direct(signature: Signature, *arrays: Any, **attributes: Any) -> Any:
    """The oracle's function, also on tensors that the signature has not."""
    wide = (array if array is None or array.dtype.kind in "biu" else array.astype(np.float64) for array in arrays)
    return signature.op.oracle(*wide, **{**signature.attributes, **attributes})


def tf32(x: Array) -> Array:
    return (x.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def tf32_products(signature: Signature, *arrays: Any) -> Any:
    return right(signature, *(array if array is None else tf32(array) for array in arrays))


def half_accumulation(signature: Signature, x1: Array, x2: Array) -> Array:
    total = np.zeros(signature.outputs[0].shape, np.float16)
    for k in range(x1.shape[1]):
        total += np.outer(x1[:, k], x2[k]).astype(np.float16)
    return total.astype(np.float64)


def difference_of_squares(signature: Signature, x: Array, weight: Array, bias: Array) -> Array:
    x = x.astype(np.float32)
    mean = x.mean(-1, keepdims=True, dtype=np.float32)
    variance = (x * x).mean(-1, keepdims=True, dtype=np.float32) - mean * mean
    normal = (x - mean) / np.sqrt(np.maximum(variance, 0) + np.float32(1e-5))
    return (normal * weight.astype(np.float32) + bias.astype(np.float32)).astype(np.float64)


def no_maximum_taken_out(signature: Signature, x: Array) -> Array:
    powers = np.exp(x.astype(np.float32))
    return (powers / powers.sum(-1, keepdims=True)).astype(np.float64)


def padded_scale(signature: Signature, *arrays: Any) -> Any:
    width = arrays[0].shape[-1]
    return right(signature, *arrays, scale=float(1 << (width - 1).bit_length()) ** -0.5)


def aligned_top_left(signature: Signature, q: Array, k: Array, v: Array, mask: None) -> Any:
    hidden = np.tri(q.shape[2], k.shape[2], dtype=bool)
    return direct(signature, q, k, v, hidden, causal=False)


def first_key_head(signature: Signature, q: Array, k: Array, v: Array, *rest: Any) -> Any:
    return right(signature, q, np.repeat(k[:, :1], k.shape[1], 1), np.repeat(v[:, :1], v.shape[1], 1), *rest)


def masked_rows_as_nan(signature: Signature, q: Array, k: Array, v: Array, mask: Array) -> Any:
    found = right(signature, q, k, v, mask)
    found[:, :, ~(mask if mask.dtype == bool else mask > -np.inf).any(-1)] = np.nan
    return found


def average_of_hidden_keys(signature: Signature, q: Array, k: Array, v: Array, *rest: Any) -> Any:
    found = right(signature, q, k, v, *rest)
    found[(found == 0).all(-1)] = np.mean(v)
    return found


def last_key_left_out(signature: Signature, q: Array, k: Array, v: Array, *rest: Any) -> Any:
    return direct(signature, q, k[:, :, :-1], v[:, :, :-1], *rest)


def off_by_one_at_the_end(signature: Signature, w: Array, index: Array) -> Array:
    return w[np.minimum(index, w.shape[0] - 2)].astype(np.float64)


def first_axis_only(signature: Signature, x: Array) -> Any:
    return x.astype(np.float64).sum(signature.attributes["axis"][0])[..., 0]


def thirty_two_bits(signature: Signature, x: Array) -> Array:
    with np.errstate(over="ignore"):
        return x.sum(dtype=np.int32).astype(np.int64)


def half_partials(signature: Signature, x: Array) -> Array:
    total = np.zeros(x.shape[0], np.float16)
    for column in x.T:
        total += column
    return total.astype(np.float64)


def other_form(signature: Signature, x: Array) -> Any:
    return right(signature, x, approximate="tanh")


def always_saturates(signature: Signature, x: Array) -> Any:
    return right(signature, x, saturate=True)


def truncates(signature: Signature, x: Array) -> Array:
    return (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)


def rows_and_columns_swapped(signature: Signature, x: Array) -> Array:
    n, c, h, w = x.shape
    r = signature.attributes["r"]
    return x.reshape(n, c // r**2, r, r, h, w).transpose(0, 1, 4, 3, 5, 2).reshape(n, c // r**2, h * r, w * r)


def upper_triangle_read(signature: Signature, a: Array, beta: Array, qk: Array) -> Any:
    lower = beta[..., None] * np.tril(a.astype(np.float64), -1)
    x = np.linalg.inv(np.eye(a.shape[-1]) + lower)
    return x, qk.astype(np.float64) @ x


def empty_splits_counted(signature: Signature, o: Array, m: Array, l: Array) -> Array:  # noqa: E741
    m = np.where(np.isinf(m), 0, m.astype(np.float64))
    weight = np.exp(m - m.max(-1, keepdims=True))
    return (weight[..., None] * o).sum(1) / (weight * l).sum(1)[:, None]


def last_block_left_out(signature: Signature, x: Array) -> Array:
    axis = signature.attributes["axis"][0]
    kept = x.shape[axis] - x.shape[axis] // 1024
    found = np.take(x, range(kept), axis).sum(axis, dtype=np.float64)
    return found / x.shape[axis] if signature.op.name == "mean" else found


def divided_by_one_less(signature: Signature, x: Array) -> Any:
    return right(signature, x) * x.shape[-1] / (x.shape[-1] - 1)


def half_products(signature: Signature, x: Array) -> Array:
    total = np.ones(x.shape[0], np.float16)
    for column in x.T:
        total *= column
    return total.astype(np.float64)


def nothing_below_zero(signature: Signature, x: Array) -> Any:
    return np.maximum(right(signature, x), 0)


def nan_left_out(signature: Signature, x: Array) -> Any:
    return right(signature, np.where(np.isnan(x), -np.inf, x).astype(x.dtype))


def last_of_equals(signature: Signature, x: Array) -> Array:
    return x.shape[1] - 1 - np.argmax(x[:, ::-1], 1)


def highest_index_first(signature: Signature, x: Array) -> Any:
    values, indices = right(signature, x[:, ::-1])
    return values, x.shape[1] - 1 - indices


def nan_below_all(signature: Signature, x: Array) -> Any:
    _, indices = right(signature, np.where(np.isnan(x), -np.inf, x).astype(x.dtype))
    return np.take_along_axis(x, indices, -1).astype(np.float64), indices


def mean_taken_away(signature: Signature, x: Array, weight: Array) -> Any:
    return right(signature, (x - x.astype(np.float64).mean(-1, keepdims=True)).astype(x.dtype), weight)


def half_squares(signature: Signature, x: Array, weight: Array) -> Any:
    square = np.mean((x * x).astype(np.float64), -1, keepdims=True)
    return x / np.sqrt(square + 1e-6) * weight


def group_difference_of_squares(signature: Signature, x: Array, weight: Array, bias: Array) -> Array:
    groups = signature.attributes["groups"]
    rows = x.reshape(len(x), groups, -1)
    ones = np.ones(rows.shape[-1])
    normal = difference_of_squares(signature, rows, ones, 0 * ones).reshape(x.shape)
    return normal * weight.reshape(-1, 1, 1) + bias.reshape(-1, 1, 1)


def interleaved_groups(signature: Signature, x: Array, weight: Array, bias: Array) -> Array:
    groups, channels = signature.attributes["groups"], x.shape[1]
    order = np.arange(channels).reshape(-1, groups).T.ravel()
    found = right(signature, x[:, order], weight[order], bias[order])
    return found[:, np.argsort(order)]


def off_by_one_along_the_axis(signature: Signature, x: Array, indices: Array) -> Array:
    axis = signature.attributes["axis"]
    return np.take(x, np.minimum(indices, x.shape[axis] - 2), axis).astype(np.float64)


def blocks_transposed(signature: Signature, x: Array) -> Array:
    n, c, h, w = x.shape
    r = signature.attributes["r"]
    return x.reshape(n, c, h // r, r, w // r, r).transpose(0, 1, 5, 3, 2, 4).reshape(n, c * r * r, h // r, w // r)


def repeated_in_turn(signature: Signature, x: Array) -> Array:
    shape = signature.outputs[0].shape
    return np.resize(x, shape).astype(np.float64)


DEFECTS = [
    ("matmul@1", tf32_products, "awkward-f32-M63-K127-N129", "numbers"),
    ("matmul@1", half_accumulation, "accumulation-f16", "numbers"),
    ("linear@1", tf32_products, "minilm-K384-N384", "numbers"),
    ("layer_norm@1", difference_of_squares, "large_mean-f32-mean3000", "numbers"),
    ("softmax@1", no_maximum_taken_out, "equal_large-f32-value1000", "numbers"),
    ("scaled_dot_product_attention@1", padded_scale, "width-f32-D127", "numbers"),
    ("scaled_dot_product_attention@1", padded_scale, "width-f16-D129", "numbers"),
    ("scaled_dot_product_attention@1", aligned_top_left, "causal-f32-Tq17-Tk65", "numbers"),
    ("scaled_dot_product_attention@1", first_key_head, "grouped-f32-Hq6-Hkv2", "numbers"),
    ("scaled_dot_product_attention@1", masked_rows_as_nan, "masked_row-f32-b1", "numbers"),
    ("scaled_dot_product_attention@1", average_of_hidden_keys, "masked_row-f32-f32", "numbers"),
    ("decode_attention@1", last_key_left_out, "lengths-f32-T1000", "numbers"),
    ("decode_attention@1", padded_scale, "width-f16-D127", "numbers"),
    ("decode_attention@1", average_of_hidden_keys, "hidden_all", "numbers"),
    ("decode_attention_reduce@1", empty_splits_counted, "empty_splits", "numbers"),
    ("embedding@1", off_by_one_at_the_end, "minilm", "numbers"),
    ("sum@1", first_axis_only, "axes-axis0x2-no_keepdims", "numbers"),
    ("sum@1", thirty_two_bits, "integer_ends", "numbers"),
    ("sum@1", half_partials, "partials", "numbers"),
    ("sum@1", half_partials, "ones-f16", "numbers"),
    ("sum@1", last_block_left_out, "whole-shape3x65537-axis1", "numbers"),
    ("mean@1", last_block_left_out, "whole-shape3x65537-axis1", "numbers"),
    ("mean@1", last_block_left_out, "whole-shape4099x33-axis0", "numbers"),
    ("mean@1", divided_by_one_less, "large_mean-f32", "numbers"),
    ("prod@1", half_products, "partials", "numbers"),
    ("max@1", nothing_below_zero, "negative-f16", "numbers"),
    ("max@1", nan_left_out, "special-f32", "special"),
    ("argmax@1", last_of_equals, "ties-f32-axis1", "numbers"),
    ("argmax@1", nan_left_out, "special-f32-rate0.02", "numbers"),
    ("topk@1", highest_index_first, "ties-f32-largest", "numbers"),
    ("topk@1", nan_below_all, "special-f32-largest", "numbers"),
    ("rms_norm@1", mean_taken_away, "large_mean-f32", "numbers"),
    ("rms_norm@1", half_squares, "half_range-scale2000", "numbers"),
    ("group_norm@1", group_difference_of_squares, "large_mean-f32-mean3000", "numbers"),
    ("group_norm@1", interleaved_groups, "groups-groups2", "numbers"),
    ("take@1", off_by_one_along_the_axis, "heads", "numbers"),
    ("pixel_unshuffle@1", blocks_transposed, "dtypes-i32", "numbers"),
    ("broadcast_to@1", repeated_in_turn, "dtypes-f64-copy", "numbers"),
    ("gelu@1", other_form, "awkward-f32-N1000-none", "numbers"),
    ("astype@1", always_saturates, "overflow-f32-no_saturate", "special"),
    ("astype@1", truncates, "floats-f32-bf16", "numbers"),
    ("pixel_shuffle@1", rows_and_columns_swapped, "dtypes-i32", "numbers"),
    ("sdm::wy_solve@1", upper_triangle_read, "sizes-C17-N3", "numbers"),
]


@pytest.mark.parametrize(
    ("op", "wrong", "case", "check"), DEFECTS, ids=[f"{op}-{wrong.__name__}-{case}" for op, wrong, case, _ in DEFECTS]
)
def test_a_defect_is_caught_and_its_absence_is_not(
    try_kernel: Callable[..., list[Record]], op: str, wrong: Wrong, case: str, check: str
) -> None:
    if op.startswith("sdm::"):
        pytest.importorskip("nbx_sdm")
    (record,) = try_kernel("nbx-defect/kernel", Defect(op, wrong), cases=(case,))
    assert check in record.checks.get("fail", ()), record
    (record,) = try_kernel("nbx-defect/kernel", Defect(op, right), cases=(case,))
    assert record.verdict == "pass", record
