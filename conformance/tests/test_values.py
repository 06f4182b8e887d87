from __future__ import annotations

import numpy as np
import pytest

from nbx_conformance.cases import values
from nbx_registry import dtypes
from nbx_registry.errors import FileError
from nbx_registry.spec import TensorSpec, parse

NEEDED = {
    "index": {"below": 5},
    "distinct": {"below": 40},
    "constant": {"value": 3},
    "listed": {"values": list(range(35))},
    "pages": {"below": 40, "lengths": [0, 5, 17, 16, 112], "page_tokens": 16},
}
FLOATS = ["float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"]


def make(text: str, strategy: values.Strategy, repetition: int = 0, seed: int = 7) -> np.ndarray:
    return values.generate(parse(text), strategy, values.generator(seed, "case", "x", repetition), repetition)


@pytest.mark.parametrize("name", sorted(set(values.STRATEGIES) - {"extremes", "paged", "spectrum"}))
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_strategy_gives_the_shape_and_dtype_and_the_same_values_again(name: str, dtype: str) -> None:
    strategy = {name: NEEDED.get(name, {})}
    first = make(f"{dtype}[5, 7]", strategy)
    assert first.shape == (5, 7)
    assert first.dtype == dtypes.get(dtype).numpy
    assert first.tobytes() == make(f"{dtype}[5, 7]", strategy).tobytes()


def test_values_do_not_depend_on_the_machine_they_are_made_on() -> None:
    # Pinned: evidence of another machine is compared with what is made here.
    np.testing.assert_array_equal(make("int32[4]", {"integers": {"low": 0, "high": 1000}}), [203, 414, 704, 810])
    np.testing.assert_array_equal(
        make("float32[3]", "normal"),
        np.array([0.186533317, -0.725620806, 0.755218565], np.float32),
    )


def test_a_tensor_without_axes_has_none() -> None:
    assert make("float32[]", "normal").shape == ()


def test_the_second_run_has_other_values() -> None:
    assert (make("float32[63]", "normal") != make("float32[63]", "normal", 1)).all()
    assert values.scalar(2.5, 0) == 2.5
    assert values.scalar(2.5, 1) != 2.5


def test_an_expanded_axis_holds_one_value() -> None:
    spec = TensorSpec(dtypes.get("float32"), (4, 3), (0, 1))
    made = values.generate(spec, "normal", values.generator(7, "case", "x", 0))
    assert (made == made[0]).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_special_values_all_occur(dtype: str) -> None:
    made = make(f"{dtype}[7, 129]", "special").astype(np.float64)
    assert np.isnan(made).any()
    assert ((made == 0) & np.signbit(made)).any()
    assert np.isinf(made).any() == (dtype != "float8_e4m3fn")


def test_special_values_meet_in_all_pairs() -> None:
    pairs = [make("float32[3, 169]", {"special": {"every": every}}).view(np.uint32) for every in (1, 13)]
    assert len(set(zip(*(pair.reshape(-1).tolist() for pair in pairs), strict=True))) == 169


def test_special_values_keep_to_their_rows() -> None:
    made = make("float32[5, 63]", {"special": {"values": ["nan", "inf"], "rows": [1, 3]}})
    assert np.isnan(made[1]).sum() == 1
    assert np.isinf(made[3]).sum() == 1
    assert np.isfinite(made[[0, 2, 4]]).all()


def test_indices_reach_both_ends() -> None:
    made = make("int32[63]", {"index": {"below": 37}})
    assert (made.min(), made.max()) == (0, 36)


def test_distinct_indices_are_distinct_but_for_padding() -> None:
    made = make("int32[63]", {"distinct": {"below": 100, "negative": 0.3}})
    kept = made[made >= 0]
    assert len(set(kept.tolist())) == len(kept) < 63
    assert (made >= -1).all()


def test_listed_values_come_in_order_and_then_in_reverse() -> None:
    strategy: values.Strategy = {"listed": {"values": [0, 5, 17]}}
    assert make("int32[3]", strategy).tolist() == [0, 5, 17]
    assert make("int32[3]", strategy, 1).tolist() == [17, 5, 0]


@pytest.mark.parametrize("repetition", [0, 1])
def test_a_block_table_lists_different_pages_and_nothing_past_the_end(repetition: int) -> None:
    lengths = [0, 5, 17, 16, 112]
    made = make("int32[5, 7]", {"pages": {"below": 40, "lengths": lengths, "page_tokens": 16}}, repetition)
    counts = [0, 1, 2, 1, 7] if repetition == 0 else [7, 1, 2, 1, 0]
    assert [int((row >= 0).sum()) for row in made] == counts
    assert all((row[:count] >= 0).all() for row, count in zip(made, counts, strict=True))
    pages = made[made >= 0].tolist()
    assert len(set(pages)) == len(pages) == sum(counts)
    assert max(pages) == 39


def test_sequences_share_their_first_pages_and_tables_have_holes() -> None:
    strategy = {"pages": {"below": 40, "lengths": [40, 64, 16], "page_tokens": 16, "shared": 2, "holes": [0, 3]}}
    made = make("int32[3, 5]", strategy)
    assert (made[:, 0] == -1).all()
    assert made[0, 1] == made[1, 1] >= 0
    assert made[:, 2:].tolist() == [[made[0, 2], -1, -1], [made[1, 2], -1, -1], [-1, -1, -1]]
    assert made[0, 2] != made[1, 2]


@pytest.mark.parametrize("repetition", [0, 1])
def test_a_pool_holds_nothing_where_no_sequence_looks(repetition: int) -> None:
    lengths = [5, 0, 8]
    table = make(
        "int32[3, 2]", {"pages": {"below": 6, "lengths": lengths, "page_tokens": 4, "ordered": True}}, repetition
    )
    pool = make("float16[6, 2, 4, 3]", {"paged": {"lengths": lengths}}, repetition)
    assert pool.dtype == np.float16
    assert table.tolist() == [[0, 1], [-1, -1], [2, 3]]
    tokens = pool[[0, 1, 2, 3], 1, :, 2].reshape(2, 8)
    counts = np.isfinite(tokens).sum(-1).tolist()
    assert counts == ([5, 8] if repetition == 0 else [8, 5])
    assert np.isnan(pool[4:]).all()


def test_special_values_come_in_both_parts_of_complex_numbers() -> None:
    made = make("complex64[7, 129]", "special")
    for part in (made.real, made.imag):
        assert np.isnan(part).any()
        assert np.isinf(part).any()
    assert np.isfinite(made.real[np.isnan(made.imag)]).any()


def test_the_ends_of_a_spectrum_are_what_counts_for_nothing() -> None:
    made = make("complex64[3, 9]", "spectrum")
    assert np.isnan(made.imag[:, [0, 8]]).all()
    assert np.isfinite(made.real).all()
    assert np.isfinite(made.imag[:, 1:8]).all()


def test_a_mask_hides_whole_rows_and_leading_columns() -> None:
    made = make("bool[5, 63]", {"mask": {"empty": [2], "leading": 10}})
    assert not made[2].any()
    assert not made[:, :10].any()
    assert made[[0, 1, 3, 4], -1].all()


@pytest.mark.parametrize("name", sorted(values.UNSTRUCTURED - {"extremes"}))
def test_what_has_no_structure_fills_a_block_of_any_length(name: str) -> None:
    made = values.block(dtypes.get("float16"), {name: NEEDED.get(name, {})}, 1021, values.generator(7, "case", "x", 0))
    assert (made.shape, made.dtype) == ((1021,), np.dtype(np.float16))


@pytest.mark.parametrize("strategy", ["opposed", "mask", {"special": {"rows": [1]}}])
def test_what_depends_on_the_shape_fills_no_block(strategy: values.Strategy) -> None:
    with pytest.raises(FileError, match="depends on the shape"):
        values.block(dtypes.get("float16"), strategy, 1021, values.generator(7, "case", "x", 0))


@pytest.mark.parametrize(
    ("text", "strategy", "why"),
    [
        ("float32[3]", "norml", "did you mean 'normal'"),
        ("float32[3]", {"normal": {"sclae": 2}}, "did you mean 'scale'"),
        ("int32[3]", {"index": {}}, "needs below"),
        ("int32[9]", {"distinct": {"below": 5}}, "9 different indices below 5"),
        ("int32[9]", {"listed": {"values": [1, 2]}}, "2 values for 9 elements"),
        ("int32[2, 3]", {"pages": {"below": 9, "lengths": [1], "page_tokens": 4}}, "1 lengths for 2 rows"),
        ("int32[2, 3]", {"pages": {"below": 3, "lengths": [8, 8], "page_tokens": 4}}, "4 different pages below 3"),
        ("float32[3]", "spectrum", "for complex dtypes"),
        ("int32[3]", "special", "takes 'extremes'"),
        ("float32[3]", "extremes", "takes 'special'"),
        ("float32[3]", 7, "must be a name"),
    ],
)
def test_a_strategy_that_does_not_fit_is_refused_by_name(text: str, strategy: values.Strategy, why: str) -> None:
    with pytest.raises(FileError, match=why):
        make(text, strategy)
