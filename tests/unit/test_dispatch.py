"""Calls: what is computed, what is refused, what is remembered."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from making import add, host_kernel, made

import nbx_registry as nbx
from nbx_registry import dispatch


@pytest.fixture(scope="module")
def reg() -> nbx.Registry:
    return nbx.load(require="any")


def arrays(*shapes: tuple[int, ...], dtype: str = "float32") -> list[np.ndarray]:
    rng = np.random.default_rng(11)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def test_a_call_computes_and_writes_into_out(reg: nbx.Registry) -> None:
    a, b = arrays((63, 5), (5,))
    out = np.full((63, 5), np.nan, np.float32)
    assert reg.call("add", a, b, out=out) is out
    np.testing.assert_array_equal(out, a + b)
    np.testing.assert_array_equal(reg.call("add", a, b), out)


def test_the_result_comes_in_the_callers_library(reg: nbx.Registry) -> None:
    import torch

    a, b = map(torch.from_numpy, arrays((7, 5), (5,)))
    y = reg.call("add", a, b)
    assert isinstance(y, torch.Tensor)
    assert torch.equal(y, a + b)
    out = np.empty((7, 5), np.float32)
    assert reg.call("add", a, b, out=out) is out
    t = nbx.asarray(a.numpy(), dtype="bfloat16")
    assert isinstance(reg.call("multiply", t, t), nbx.Tensor)


def test_tensors_may_be_given_by_keyword(reg: nbx.Registry) -> None:
    x, w, b = arrays((3, 8), (8,), (8,))
    np.testing.assert_array_equal(
        reg.call("layer_norm", x, bias=b, weight=w, eps=1e-3), reg.call("layer_norm", x, w, b, eps=1e-3)
    )


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"esp": 1e-3}, "did you mean 'eps'"),
        ({"eps": "small"}, "eps"),
        ({"weight": [1.0] * 8}, "weight"),
        ({"out": np.empty((3, 7), np.float32)}, r"out= is float32\[3, 7\]"),
        ({"out": np.empty((3, 8), np.float64)}, r"out= is float64\[3, 8\]"),
        ({"out": np.broadcast_to(np.float32(1), (3, 8))}, "expanded"),
        ({"device": "cuda:0"}, "device='cuda:0'"),
    ],
)
def test_bad_arguments_are_named(reg: nbx.Registry, keywords: dict[str, Any], message: str) -> None:
    (x,) = arrays((3, 8))
    with pytest.raises(nbx.SignatureError, match=message):
        reg.call("layer_norm", x, **keywords)


def test_a_mismatch_names_both_tensors_and_values(reg: nbx.Registry) -> None:
    x, w = arrays((3, 8), (9,))
    with pytest.raises(nbx.SignatureError, match=r"(?s)(weight.*9.*x.*8|x.*8.*weight.*9)"):
        reg.call("layer_norm", x, w)


def test_an_unknown_op_names_the_nearest(reg: nbx.Registry) -> None:
    with pytest.raises(nbx.UnknownName, match="did you mean 'layer_norm'"):
        reg.call("layernorm", *arrays((3, 8)))


def test_equal_keys_of_other_types_are_told_apart(reg: nbx.Registry) -> None:
    (x,) = arrays((1, 4, 3, 5))
    reg.call("pixel_shuffle", x, r=2)
    for wrong in (2.0, True, "2"):
        with pytest.raises(nbx.SignatureError):
            reg.call("pixel_shuffle", x, r=wrong)


def test_a_readonly_out_is_refused_each_time(reg: nbx.Registry) -> None:
    a, b = arrays((4,), (4,))
    out = np.zeros(4, np.float32)
    reg.call("add", a, b, out=out)
    out.flags.writeable = False
    with pytest.raises(nbx.SignatureError, match="read-only"):
        reg.call("add", a, b, out=out)


def test_a_python_integer_outside_the_dtype_is_refused(reg: nbx.Registry) -> None:
    a = np.arange(3, dtype=np.int8)
    np.testing.assert_array_equal(reg.call("add", a, 100), a + np.int8(100))
    with pytest.raises(nbx.SignatureError, match=r"300.*int8"):
        reg.call("add", a, 300)


def test_overlap_is_refused_where_the_kernel_does_not_tolerate_it(reg: nbx.Registry) -> None:
    memory = np.arange(12, dtype=np.float32)
    strict = host_kernel("made/add/strict", add)
    same = host_kernel("made/add/same", add, overlap="same")
    mine = nbx.load(plugins=[made("made", strict, same)], require="any")
    with pytest.raises(nbx.Refused, match="shares memory with 'x1'") as caught:
        mine.call("add", memory[:8], memory[:8], out=memory[4:12], kernel="made/add/strict")
    assert caught.value.decision.candidate("made/add/strict").code == "OVERLAP"
    np.testing.assert_array_equal(memory, np.arange(12))
    with pytest.raises(nbx.Refused):
        mine.call("add", memory[:8], 1.0, out=memory[1:9], kernel="made/add/same")
    mine.call("add", memory[:8], 1.0, out=memory[:8], kernel="made/add/same")
    np.testing.assert_array_equal(memory[:8], np.arange(8) + 1)


def test_in_place_arguments_that_overlap_are_refused(reg: nbx.Registry) -> None:
    pool = np.zeros((4, 2, 8, 16), np.float32)
    slot = np.array([3, 9], np.int32)
    with pytest.raises(nbx.Refused, match="shares memory"):
        reg.call("paged_kv_append", pool[:2, :, 0], slot, pool)
    assert not pool.any()


def test_an_index_out_of_range_is_refused_with_the_index_and_the_limit(reg: nbx.Registry) -> None:
    (w,) = arrays((10, 4))
    for bad in (10, -1):
        with pytest.raises(nbx.SignatureError, match=rf"{bad}.*10"):
            reg.call("embedding", w, np.array([[1, bad]]))


def test_views_are_views_and_copies_copies(reg: nbx.Registry) -> None:
    (x,) = arrays((2, 3, 4))
    view = reg.call("permute_dims", x, axes=(2, 0, 1))
    assert np.shares_memory(view, x)
    np.testing.assert_array_equal(view, x.transpose(2, 0, 1))
    copy = reg.call("permute_dims", x, axes=(2, 0, 1), copy=True)
    assert not np.shares_memory(copy, x)
    with pytest.raises(nbx.SignatureError, match="copy=True"):
        reg.call("permute_dims", x, axes=(2, 0, 1), out=copy)


def test_bound_runs_again_on_new_contents(reg: nbx.Registry) -> None:
    a, b = arrays((5, 7), (7,))
    bound = reg.bind("add", a, b)
    first = bound()
    np.testing.assert_array_equal(first, a + b)
    a += 1
    assert bound() is first
    np.testing.assert_array_equal(first, a + b)


def test_rebind_takes_arrays_of_the_same_kind_only(reg: nbx.Registry) -> None:
    a, b = arrays((5, 7), (5, 7))
    bound = reg.bind("add", a, a)
    out = np.empty_like(a)
    bound.rebind(b, b, out=out)
    assert bound() is out
    np.testing.assert_array_equal(out, b + b)
    with pytest.raises(nbx.SignatureError, match="another kind"):
        bound.rebind(b[:3], b[:3], out=out[:3])


def test_calls_are_remembered_in_bounded_memory(reg: nbx.Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "CALL_LIMIT", 8)
    mine = nbx.load(require="any")
    for n in range(1, 40):
        mine.call("sqrt", np.ones(n, np.float32))
    assert len(mine.dispatcher("sqrt")._calls) == 8


def test_no_array_is_kept_alive_by_a_call(reg: nbx.Registry) -> None:
    x = np.ones(1000, np.float32)
    y = reg.call("sqrt", x)
    kept = [weakref.ref(x), weakref.ref(y)]
    del x, y
    gc.collect()
    assert [ref() for ref in kept] == [None, None]


def test_counters_lose_no_call_of_any_thread() -> None:
    mine = nbx.load(require="any")
    a = np.ones(3, np.float32)

    def work() -> None:
        for _ in range(500):
            mine.call("add", a, a)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (row,) = [row for row in mine.ran() if row.op == "add@1"]
    assert row.calls == 4000


def test_profile_tells_what_ran(reg: nbx.Registry) -> None:
    a, b = arrays((64, 64), (64, 64))
    with reg.profile() as profile:
        for _ in range(3):
            reg.call("matmul", a, b)
        reg.call("add", a, b)
    rows = {row.op: row for row in profile.rows}
    assert rows["matmul@1"].calls == 3
    assert rows["matmul@1"].seconds > 0
    assert rows["add@1"].kernel == "nbx-host/add/numpy"
    assert reg.observer is None


def test_ops_have_the_contracts_signature_and_docstring() -> None:
    import inspect

    assert str(inspect.signature(nbx.ops.pixel_shuffle)).startswith("(x, *, r, out=None")
    assert "shuffle" in nbx.ops.pixel_shuffle.__doc__.lower() or nbx.ops.pixel_shuffle.__doc__
    assert "pixel_shuffle" in dir(nbx.ops)
    with pytest.raises(AttributeError, match="did you mean 'pixel_shuffle'"):
        nbx.ops.pixel_shufle  # noqa: B018


def test_a_gradient_is_refused(reg: nbx.Registry) -> None:
    import torch

    with pytest.raises(nbx.SignatureError, match="detach"):
        reg.call("sqrt", torch.ones(3, requires_grad=True))


def test_zero_sized_tensors_pass(reg: nbx.Registry) -> None:
    assert reg.call("add", np.empty((0, 3), np.float32), np.empty(3, np.float32)).shape == (0, 3)
    assert reg.call("matmul", np.empty((2, 0), np.float32), np.empty((0, 3), np.float32)).tolist() == [[0] * 3] * 2


def test_an_output_whose_elements_share_memory_is_refused(reg: nbx.Registry) -> None:
    buffer = np.zeros(64, np.float32)
    shared = np.lib.stride_tricks.as_strided(buffer, (4, 4), (4, 4))
    with pytest.raises(nbx.SignatureError, match="share memory"):
        reg.call("add", np.ones((4, 4), np.float32), 1.0, out=shared)
    assert not buffer.any()
    columns = np.zeros((4, 8), np.float32)[:, ::2]
    assert reg.call("add", np.ones((4, 4), np.float32), 1.0, out=columns.T.T) is not None


def test_a_new_shape_of_a_known_op_takes_few_calls(reg: nbx.Registry) -> None:
    # Counted, not timed: every call inside is made again for each token of a sequence that grows.
    rows, weight = arrays((300, 64), (64,))
    prepare = reg.dispatcher("multiply").prepare
    for length in range(1, 5):
        prepare((rows[:length], weight), {})
    called: list[str] = []
    sys.setprofile(lambda frame, event, _: called.append(frame.f_code.co_qualname) if event == "call" else None)
    try:
        prepare((rows[:200], weight), {})
    finally:
        sys.setprofile(None)
    assert len(called) < 112, called


@pytest.mark.parametrize("first", ["aligned", "unaligned"])
def test_what_runs_depends_on_alignment_whichever_came_first(first: str) -> None:
    only = host_kernel("made/sqrt/unaligned", np.sqrt, when=("x.align < 16",))
    reg = nbx.load(plugins=[made("made", only)], block=["nbx-host/sqrt/numpy"], require="any")
    aligned = np.ones(64, np.float32)
    assert aligned.ctypes.data % 16 == 0
    for turn in (first, "aligned", "unaligned", "aligned"):
        if turn == "aligned":
            with pytest.raises(nbx.Refused, match="align < 16"):
                reg.call("sqrt", aligned[:63])
        else:
            assert reg.call("sqrt", aligned[1:]).tolist() == [1.0] * 63
            assert reg.bind("sqrt", aligned[1:])().tolist() == [1.0] * 63
    assert [row.kernel for row in reg.ran()] == ["made/sqrt/unaligned"]
