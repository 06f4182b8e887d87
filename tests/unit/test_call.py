"""How arrays become operands: lists, tensors left out, several outputs, memory written in place; host and addresses."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from making import add, host_kernel, made
from ops_made import made_ops

import nbx_registry as nbx
import nbx_simulated.plugin
from nbx_registry.kernel import Kernel
from nbx_registry.registry import set_default

Place = Callable[[Any], Any]


class Broken:
    """Offers DLPack and does not keep to it."""

    def __dlpack__(self, **_exchange: Any) -> Any:
        raise RuntimeError("broken")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


STRICT = Kernel(
    id="made/add/strict",
    op="add@1",
    backend="loopback",
    runtimes=("sim",),
    bind="nbx_simulated.kernels:bind",
    when=("x1.align >= 16", "x2.align >= 16"),
    preference=1,
    overlap="any",
)


@pytest.fixture(scope="module")
def reg() -> Iterator[nbx.Registry]:
    loopbacks = [nbx_simulated.plugin.loopback(f"made::{name}@1") for name in ("concat", "spread", "accumulate")]
    made = nbx.load(plugins=[nbx_simulated.plugin, made_ops(STRICT, *loopbacks)], require="any")
    before = set_default(made)
    yield made
    set_default(before)


@pytest.fixture(params=["cpu", "sim:0"])
def put(request: pytest.FixtureRequest, reg: nbx.Registry) -> Place:
    """Put an array where the test runs: as it is on the host, on the simulation as a tensor."""
    return (lambda x: x) if request.param == "cpu" else (lambda x: nbx.asarray(x, device=request.param))


def array(x: Any) -> np.ndarray:
    return x if isinstance(x, np.ndarray) else x.numpy()


def numbers(*shape: int, seed: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# Lists.


@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_list_of_arrays_is_one_argument(reg: nbx.Registry, put: Place, kind: type, count: int) -> None:
    xs = [numbers(n + 1, 3, seed=n) for n in range(count)]
    given = kind(map(put, xs))
    np.testing.assert_array_equal(array(reg.call("made::concat", given)), np.concatenate(xs))
    np.testing.assert_array_equal(array(reg.call("made::concat", xs=given, axis=0)), np.concatenate(xs))
    out = put(np.full((sum(map(len, xs)), 3), np.nan, np.float32))
    assert reg.call("made::concat", given, out=out) is out
    np.testing.assert_array_equal(array(out), np.concatenate(xs))


def test_lists_of_other_lengths_or_shapes_are_other_calls(reg: nbx.Registry) -> None:
    a, b = numbers(2, 3), numbers(4, 3)
    assert [len(reg.call("made::concat", xs)) for xs in ([a], [a, a], [a, b], [b, a, b], [a])] == [2, 4, 6, 10, 2]


def test_a_list_in_another_library_gives_its_result_there(reg: nbx.Registry) -> None:
    import torch

    xs = [torch.ones(2, 3), torch.zeros(1, 3)]
    assert torch.equal(reg.call("made::concat", xs), torch.cat(xs))


def test_a_bound_list_runs_again(reg: nbx.Registry, put: Place) -> None:
    bound = reg.bind("made::concat", [put(numbers(2, 3)), put(numbers(1, 3))])
    np.testing.assert_array_equal(array(bound()), np.concatenate([numbers(2, 3), numbers(1, 3)]))
    bound.rebind([put(numbers(2, 3, seed=8)), put(numbers(1, 3, seed=9))])
    np.testing.assert_array_equal(array(bound()), np.concatenate([numbers(2, 3, seed=8), numbers(1, 3, seed=9)]))


@pytest.mark.parametrize(
    ("xs", "message"),
    [
        ([], "at least one tensor"),
        (np.ones((2, 3), np.float32), "takes a list"),
        ([np.ones(3, np.float32), None], "takes a list"),
        ([np.ones(3, np.float32), 2.0], "only arrays are taken there"),
        ([np.ones(3, np.float32), np.ones(3)], r"xs\[1\] is float64, but xs\[0\] is float32"),
        ([[1.0, 2.0]], r"made::concat: xs\.0 is a list, and no array"),
    ],
)
def test_what_is_wrong_with_a_list_is_named(reg: nbx.Registry, xs: Any, message: str) -> None:
    with pytest.raises(nbx.SignatureError, match=message):
        reg.call("made::concat", xs)


def test_a_list_where_one_tensor_is_wanted_is_named(reg: nbx.Registry) -> None:
    with pytest.raises(nbx.SignatureError, match="sqrt: x is a list, and no array"):
        reg.call("sqrt", [np.ones(3, np.float32)])


def test_a_list_is_decided_and_priced_by_specs(reg: nbx.Registry) -> None:
    decision = reg.decide("made::concat", ["float32[2, 3]", np.ones((1, 3), np.float32)])
    assert decision.chosen == "made/concat/numpy"
    assert decision.request == "made::concat(xs: [float32[2, 3], float32[1, 3]])"
    assert [str(spec) for spec in reg.price("made::concat", ("float16[2, 3]", "float16[5, 3]")).outputs] == [
        "float16[7, 3]"
    ]


# Tensors left out, several outputs, in place.


@pytest.mark.parametrize("bounds", [(), ("low",), ("high",), ("low", "high")], ids="-".join)
def test_tensors_may_be_left_out_anywhere(reg: nbx.Registry, put: Place, bounds: tuple[str, ...]) -> None:
    x, bound = numbers(7, 5), {"low": np.full(5, -0.5, np.float32), "high": np.full(5, 0.5, np.float32)}
    given = {name: put(bound[name]) for name in bounds}
    expected = np.clip(x, -0.5 if "low" in bounds else None, 0.5 if "high" in bounds else None)
    least, most = reg.call("made::spread", put(x), given.get("low"), given.get("high"))
    np.testing.assert_array_equal(array(least), expected.min(1))
    np.testing.assert_array_equal(array(most), expected.max(1))
    for outputs in (reg.call("made::spread", put(x), **given), reg.bind("made::spread", x=put(x), **given)()):
        np.testing.assert_array_equal(array(outputs[1]), expected.max(1))


def test_several_outputs_are_given_as_a_tuple(reg: nbx.Registry, put: Place) -> None:
    x = numbers(7, 5)
    out = tuple(put(np.full(7, np.nan, np.float32)) for _ in range(2))
    results = reg.call("made::spread", put(x), out=out)
    assert all(a is b for a, b in zip(results, out, strict=True))
    np.testing.assert_array_equal(array(out[0]), x.min(1))
    np.testing.assert_array_equal(array(out[1]), x.max(1))


@pytest.mark.parametrize(
    ("op", "out", "message"),
    [
        ("made::spread", np.empty(7, np.float32), "has 2 outputs; out= gives 1"),
        ("made::spread", (np.empty(7, np.float32), None), "out= must be an array"),
        ("made::spread", (np.empty(7, np.float32), np.empty(6, np.float32)), r"output 'most' is float32\[7\]"),
        ("made::accumulate", (), "has no outputs"),
        ("softmax", (np.empty((7, 5), np.float32),), "the array itself"),
        ("softmax", [np.empty((7, 5), np.float32)], "out= is a list"),
    ],
)
def test_outputs_that_do_not_fit_are_named(reg: nbx.Registry, op: str, out: Any, message: str) -> None:
    with pytest.raises(nbx.SignatureError, match=message):
        reg.call(op, numbers(7, 5), out=out)


def test_a_list_of_outputs_is_no_tuple_however_often_a_tuple_was_given(reg: nbx.Registry) -> None:
    x = numbers(7, 5)
    outs = [np.empty(7, np.float32), np.empty(7, np.float32)]
    bound = reg.bind("made::spread", x, out=tuple(outs))
    for call in (reg.call, lambda _, *args, **kwargs: bound.rebind(*args, **kwargs)):
        reg.call("made::spread", x, out=tuple(outs))
        with pytest.raises(nbx.SignatureError, match="made::spread: out= is a list; give a tuple of 2 arrays"):
            call("made::spread", x, out=outs)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.ones(5)[::-1], "NumPy array of shape .* has a negative stride"),
        (np.ones(5, ">f4"), "byte-swapped"),
        (np.ma.array(np.ones(5)), "carries a mask"),
        (torch.ones(5, requires_grad=True), "requires grad"),
        (torch.ones(5, device="meta"), "is on meta"),
        (Broken(), "cannot be read through DLPack: RuntimeError: broken"),
    ],
)
def test_an_array_that_cannot_be_read_is_named_as_the_argument_it_is(reg: nbx.Registry, value: Any, words: str) -> None:
    good = np.ones(5)
    for _ in range(2):
        with pytest.raises(nbx.SignatureError, match=f"^add: x2: .*{words}"):
            reg.call("add", good, value, require="any")
        with pytest.raises(nbx.SignatureError, match=f"^concat: arrays.*{words}"):
            reg.call("concat", [good, value], require="any")
    if not isinstance(value, Broken):
        with pytest.raises(nbx.SignatureError, match=f"^add: out: .*{words}"):
            reg.call("add", good, good, out=value, require="any")


def test_what_rules_and_guards_refuse_names_the_op_and_the_way_out(reg: nbx.Registry) -> None:
    x, ints = numbers(3, 4), np.arange(3, dtype=np.int8)
    for op, args, kwargs, words in (
        ("add", (x, numbers(5)), {}, "add: x1 and x2 do not broadcast"),
        ("add", (ints, numbers(3)), {}, "add: x1 is int8 and x2 is float32: .*; convert one of them with astype"),
        ("softmax", (x,), {"axis": 2}, "softmax: axis=2 is out of range"),
        ("matmul", (x, x), {}, "matmul contracts the last axis"),
        ("exp", (ints,), {}, "exp: x is int8, but must be floating; convert it with astype"),
        ("add", (ints, 128), {}, "add: the Python integer 128 .* range of int8; .* convert the array with astype"),
        ("embedding", (x[:0], np.zeros(1, np.int64)), {}, "embedding: index holds 0, where V is 0: there is none"),
    ):
        with pytest.raises(nbx.SignatureError, match=f"^{words}"):
            reg.call(op, *args, require="any", **kwargs)


def test_two_outputs_never_share_memory(reg: nbx.Registry, put: Place) -> None:
    out = put(np.zeros(7, np.float32))
    with pytest.raises(nbx.Refused, match=r"'least'.*shares memory with 'most'"):
        reg.call("made::spread", put(numbers(7, 5)), out=(out, out))


def test_memory_is_written_in_place(reg: nbx.Registry, put: Place) -> None:
    total = put(np.ones(63, np.float64))
    assert reg.call("made::accumulate", put(numbers(63)), total) is None
    bound = reg.bind("made::accumulate", put(numbers(63)), total)
    bound()
    np.testing.assert_allclose(array(total), 1 + 2 * numbers(63).astype(np.float64))


def test_readonly_memory_is_never_written(reg: nbx.Registry) -> None:
    total = np.ones(9)
    reg.call("made::accumulate", numbers(9), total)
    before = total.copy()
    total.flags.writeable = False
    # Of the same kind as the call before: it must be looked at each time.
    for _ in range(2):
        with pytest.raises(nbx.SignatureError, match="total is written in place, but it is read-only"):
            reg.call("made::accumulate", numbers(9), total)
    np.testing.assert_array_equal(total, before)
    on_device = nbx.asarray(np.ones(9), device="sim:0")
    reg.call("made::accumulate", nbx.asarray(numbers(9), device="sim:0"), on_device)
    on_device.readonly = True
    with pytest.raises(nbx.SignatureError, match="read-only"):
        reg.call("made::accumulate", nbx.asarray(numbers(9), device="sim:0"), on_device)


@pytest.mark.parametrize("stride", [0, 8])
def test_a_tensor_whose_elements_share_memory_is_never_written(reg: nbx.Registry, stride: int) -> None:
    shared = np.lib.stride_tricks.as_strided(np.zeros(11), (9, 2), (8, stride))
    new, pool, table = np.zeros((1, 1, 2)), shared[:, None, None], np.zeros((1, 1), np.int32)
    with pytest.raises(nbx.SignatureError, match="k_pool is written in place, but its elements share memory"):
        reg.call("paged_kv_append_step", new, new, pool, np.zeros((9, 1, 1, 2)), table, table[0])
    with pytest.raises(nbx.SignatureError, match="elements of out= share memory"):
        reg.call("multiply", np.zeros((9, 2)), 2, out=shared)


def test_outputs_in_place_need_the_very_same_elements() -> None:
    # An empty tensor inside of what is written shares nothing with it.
    mine = nbx.load(plugins=[made("made", host_kernel("made/add/x", add))], require="any")
    memory = np.zeros((4, 3), np.float32)
    empty = memory[1:1]
    assert mine.call("add", empty, empty, out=np.zeros((0, 3), np.float32), kernel="made/add/x").shape == (0, 3)


# Scalars and addresses.


@pytest.mark.parametrize("scalar", [2, -3, 2.5, True])
def test_python_scalars_are_weak(reg: nbx.Registry, put: Place, scalar: float) -> None:
    if scalar is True:
        with pytest.raises(nbx.SignatureError, match="Python bool"):
            reg.call("multiply", put(numbers(7)), scalar)
        return
    for _ in range(2):
        result = array(reg.call("multiply", put(numbers(7)), scalar))
        np.testing.assert_array_equal(result, numbers(7) * np.float32(scalar))
        assert result.dtype == np.float32


def test_an_integer_outside_the_dtype_is_refused_on_a_device_too(reg: nbx.Registry, put: Place) -> None:
    x = np.arange(-3, 4, dtype=np.int8)
    np.testing.assert_array_equal(array(reg.call("add", put(x), 100)), x + np.int8(100))
    for bad in (128, -129):
        with pytest.raises(nbx.SignatureError, match=rf"{bad} is outside the range of int8"):
            reg.call("add", put(x), bad)


def test_a_scalar_first_takes_the_arrays_dtype(reg: nbx.Registry, put: Place) -> None:
    np.testing.assert_array_equal(array(reg.call("divide", 1, put(np.full(3, 4, np.float32)))), np.full(3, 0.25))


@pytest.mark.parametrize("offset", [1, 2, 3])
def test_unaligned_operands_are_decided_anew(reg: nbx.Registry, offset: int) -> None:
    whole, other = nbx.asarray(numbers(40), device="sim:0"), nbx.asarray(numbers(40, seed=6), device="sim:0")
    part = whole[offset : offset + 32]
    expected = numbers(40)[offset : offset + 32] + numbers(40, seed=6)[:32]
    for _ in range(2):
        np.testing.assert_array_equal(reg.call("add", part, other[:32]).numpy(), expected)
    bound = reg.bind("add", part, other[:32])
    assert bound.kernel == "nbx-simulated/add/loopback"
    np.testing.assert_array_equal(bound().numpy(), expected)
    assert reg.bind("add", whole[:32], other[:32]).kernel == "made/add/strict"
    # Who pins the kernel that needs alignment is told, with the clause and its value.
    with pytest.raises(nbx.Refused, match=r"x1\.align >= 16"):
        reg.call("add", part, other[:32], kernel="made/add/strict")


def test_calls_are_counted_for_the_kernel_that_ran(reg: nbx.Registry) -> None:
    def calls() -> dict[str, int]:
        return {row.kernel: row.calls for row in reg.ran() if row.op == "add@1"}

    x = nbx.asarray(numbers(20), device="sim:0")
    before = calls()
    for _ in range(3):
        reg.call("add", x[:16], x[:16])
    reg.call("add", x[1:17], x[:16])
    after = calls()
    assert after["made/add/strict"] - before.get("made/add/strict", 0) == 3
    assert after["nbx-simulated/add/loopback"] - before.get("nbx-simulated/add/loopback", 0) == 1


# Places and kinds.


def test_a_call_on_a_product_is_named(reg: nbx.Registry) -> None:
    with pytest.raises(nbx.SignatureError, match="the tensors are on cpu"):
        reg.call("sqrt", np.ones(3, np.float32), device="sim/loopback")


def test_a_handle_without_an_index_is_the_first_device(reg: nbx.Registry) -> None:
    x = nbx.asarray(numbers(7), device="sim:0")
    assert reg.call("sqrt", x, device="sim").device == "sim:0"
    with pytest.raises(nbx.SignatureError, match="device='sim:1', but the tensors are on sim:0"):
        reg.call("sqrt", x, device="sim:1")


def test_tensors_on_two_devices_are_named(reg: nbx.Registry) -> None:
    x, y = nbx.asarray(numbers(7), device="sim:0"), nbx.asarray(numbers(7), device="sim:1")
    with pytest.raises(nbx.SignatureError, match=r"x1 on sim:0, x2 on sim:1"):
        reg.call("add", x, y)
    with pytest.raises(nbx.SignatureError, match=r"out= is on sim:1"):
        reg.call("add", x, x, out=y)


def test_numpy_scalars_and_subclasses_become_plain_arrays() -> None:
    seen: list[type] = []

    def record(x1: Any, x2: Any, out: Any) -> None:
        seen.extend(map(type, (x1, x2, out)))
        add(x1, x2, out)

    class Mine(np.ndarray):
        pass

    mine = nbx.load(plugins=[made("made", host_kernel("made/add/x", record))], require="any")
    zero = np.array(2, np.float32)
    for x in (np.float32(2), zero.view(Mine), zero):
        assert mine.call("add", x, np.ones(3, np.float32), kernel="made/add/x").tolist() == [3, 3, 3]
    assert set(seen) == {np.ndarray}


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_what_a_kernel_raises_while_it_runs_is_its_fault(library: str) -> None:
    def broken(x1: Any, x2: Any, out: Any) -> None:
        raise IndexError("by design")

    mine = nbx.load(plugins=[made("made", host_kernel("made/add/x", broken, preference=9))], require="any")
    x = np.ones(3, np.float32)
    if library == "torch":
        import torch

        x = torch.from_numpy(x)
    with pytest.raises(nbx.PluginFault, match="made/add/x of made raised IndexError: by design"):
        mine.call("add", x, x, kernel="made/add/x")


@pytest.mark.parametrize("values", [(0.0, -0.0), (float("nan"), float("nan")), (1.0, 2.0)], ids=str)
def test_attributes_that_are_told_apart_only_by_bits_are(values: tuple[float, float]) -> None:
    def bind(context: Any) -> nbx.Launch:
        scale = context.signature.attributes["eps"]

        def run(x: Any, out: Any) -> None:
            out[...] = scale

        return nbx.Launch(function=run, args=("x", "out"))

    kernel = host_kernel("made/layer_norm/x", add, bind=bind)
    mine = nbx.load(plugins=[made("made", kernel)], require="any")
    x = np.ones((2, 3), np.float32)
    for value in values * 2:
        result = mine.call("layer_norm", x, eps=value, kernel=kernel.id)
        np.testing.assert_array_equal(np.signbit(result), np.signbit(np.float32(value)))
    assert len(mine.dispatcher("layer_norm")._calls) == len({str(v) for v in values})


def test_a_view_is_rebound_to_another_array(reg: nbx.Registry) -> None:
    x, y = numbers(2, 3), numbers(2, 3, seed=9)
    bound = reg.bind("permute_dims", x, axes=(1, 0))
    bound.rebind(y)
    assert np.shares_memory(bound(), y)


def test_rebind_keeps_to_the_device(reg: nbx.Registry) -> None:
    x = [nbx.asarray(numbers(5), device=f"sim:{n}") for n in (0, 1)]
    bound = reg.bind("sqrt", x[0])
    with pytest.raises(nbx.SignatureError, match="out= is on sim:0, the tensors on sim:1"):
        bound.rebind(x[1])
    with pytest.raises(nbx.SignatureError, match="bind anew"):
        bound.rebind(x[1], out=nbx.empty(5, device="sim:1"))
    assert bound().device == "sim:0"


def test_what_many_ask_for_at_once_is_bound_once() -> None:
    bound: list[str] = []

    def bind(context: Any) -> nbx.Launch:
        bound.append(threading.current_thread().name)
        time.sleep(0.02)
        return nbx.Launch(function=add, args=context.signature.names)

    kernel = host_kernel("made/add/slow", add, bind=bind, overlap="any")
    mine = nbx.load(plugins=[made("made", kernel)], require="any")
    start, results = threading.Barrier(64), []

    def work() -> None:
        start.wait(60)
        results.append(mine.call("add", numbers(7), numbers(7), kernel=kernel.id))

    threads = [threading.Thread(target=work) for _ in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(bound) == 1
    assert len(results) == 64
    (row,) = [row for row in mine.ran() if row.kernel == kernel.id]
    assert row.calls == 64


def test_a_binder_that_fails_is_asked_again_by_the_next() -> None:
    asked: list[int] = []

    def bind(context: Any) -> nbx.Launch:
        asked.append(1)
        raise nbx.OutOfMemory("by design", requested=1, live=0, pooled=0, free=0)

    kernel = host_kernel("made/add/full", add, bind=bind)
    mine = nbx.load(plugins=[made("made", kernel)], require="any")
    for _ in range(2):
        with pytest.raises(nbx.OutOfMemory):
            mine.call("add", numbers(7), numbers(7), kernel=kernel.id)
    assert len(asked) == 2


def test_a_complex_scalar_is_weak_too(reg: nbx.Registry, put: Place) -> None:
    z = (numbers(7) + 1j * numbers(7, seed=6)).astype(np.complex64)
    np.testing.assert_allclose(array(reg.call("multiply", put(z), 2j)), z * np.complex64(2j), rtol=1e-6)
    x = numbers(7)
    np.testing.assert_array_equal(array(reg.call("multiply", put(x), 2j)), x * np.complex64(2j), strict=True)
    with pytest.raises(nbx.SignatureError, match="x2 is a Python complex and x1 is float64: no complex dtype"):
        reg.call("multiply", put(x.astype(np.float64)), 2j)
    with pytest.raises(nbx.SignatureError, match="Python complex"):
        reg.call("multiply", put(np.arange(7)), 2j)


@pytest.mark.parametrize("padding", [2**40, 2**24])
def test_outputs_that_no_memory_holds_are_told_with_their_size(reg: nbx.Registry, padding: int) -> None:
    x, w = np.ones((1, 1, 1, 1), np.float32), np.ones((1, 1, 1, 1), np.float32)
    size = 4 * (2 * padding + 1) ** 2
    for call in (
        lambda: reg.call("depthwise_conv2d", x, w, padding=padding),
        lambda: reg.bind("depthwise_conv2d", x, w, padding=padding),
    ):
        with pytest.raises(nbx.OutOfMemory, match=f"cannot allocate {size} bytes on cpu") as caught:
            call()
        assert caught.value.requested == size
