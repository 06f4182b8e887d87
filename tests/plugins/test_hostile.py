"""Every hostile kernel is wrong in the way it says, and right in every other: shown here without any suite."""

from __future__ import annotations

import numpy as np
import pytest

from nbx_registry.contracts.elementwise import add
from nbx_registry.spec import parse
from nbx_simulated.hostile import hostile_kernels
from nbx_simulated.plugin import loopback

KERNELS = {hostile.name: hostile for hostile in hostile_kernels()}
SPEC = parse("float32[3, 63]")
ROOM = 512


def numbers(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((3, 63)).astype(np.float32)


@pytest.fixture
def hostile(run_kernel):
    def bind(name: str, specs=(SPEC, SPEC)):
        kernel = KERNELS[name].kernel if name in KERNELS else loopback("add@1")
        run_kernel.bind(kernel, add, list(specs))
        return run_kernel

    return bind


def test_each_names_its_flaw_and_comes_as_a_plugin_of_its_own():
    assert len(KERNELS) == 13
    for name, one in KERNELS.items():
        assert one.kernel.id == f"nbx-hostile/add/{name}"
        assert one.doc.endswith(".")
        assert one.plugin.nbx_register_kernels() == (one.kernel,)


def test_the_honest_kernel_has_none_of_it(hostile):
    runner = hostile("honest")
    a, b = numbers(0), numbers(1)
    values, first, out = runner.run([a, b])
    assert np.array_equal(values, a + b)
    assert np.array_equal(first[ROOM:-ROOM].view(np.float32).reshape(a.shape), a)
    assert set(out[:ROOM]) | set(out[-ROOM:]) == {0xFF}
    again, _, _ = runner.run([b, b])
    assert np.array_equal(again, b + b)
    aliased, _, _ = runner.run([a, b], aliased=True)
    assert np.array_equal(aliased, a + b)


def test_unwritten_leaves_the_last_block(hostile):
    a, b = numbers(0), numbers(1)
    values, _, _ = hostile("unwritten").run([a, b])
    flat = values.reshape(-1)
    assert np.array_equal(flat[:-5], (a + b).reshape(-1)[:-5])
    assert np.all(np.isnan(flat[-5:]))


@pytest.mark.parametrize(("guard", "right"), [(0xFF, False), (0x00, True)], ids=["nan-behind", "zero-behind"])
def test_reads_past_input_shows_only_in_what_lies_behind(hostile, guard, right):
    a, b = numbers(0), numbers(1)
    values, _, _ = hostile("reads_past_input").run([a, b], guard=guard)
    assert np.array_equal(values, a + b) == right


def test_writes_past_output_shows_only_behind_it(hostile):
    a, b = numbers(0), numbers(1)
    values, _, out = hostile("writes_past_output").run([a, b])
    assert np.array_equal(values, a + b)
    assert out[-ROOM:].tolist() == [0] * 4 + [0xFF] * (ROOM - 4)


def test_stale_is_right_once(hostile):
    runner = hostile("stale")
    a, b = numbers(0), numbers(1)
    assert np.array_equal(runner.run([a, b])[0], a + b)
    assert np.array_equal(runner.run([b, b])[0], a + b)


def test_wrong_stream_does_not_wait(hostile):
    runner = hostile("wrong_stream")
    sim = runner.sim
    x, y, z = (sim.allocate(0, 756) for _ in range(3))
    stream = sim.stream(0)
    sim.fill(0, x.address, 0, 756)
    sim.fill(0, y.address, 0, 756)
    sim.synchronize(0)
    sim.delay(0, stream, 0.05)
    sim.copy_in(0, x.address, numbers(0), stream)
    runner.program.run([x.address, y.address, z.address], stream.handle)
    result = np.empty((3, 63), np.float32)
    sim.copy_out(0, result, z.address, stream)
    assert np.all(result == 0), "it saw what was there before the copy"


def test_undeclared_memory_shows_in_the_account(hostile):
    for name, expected in (("honest", 0), ("undeclared_memory", 1)):
        runner = hostile(name)
        a, b = numbers(0), numbers(1)
        runner.run([a, b])
        buffers = 3
        before = runner.sim.memory(0).allocations
        assert np.array_equal(runner.run([a, b])[0], a + b)
        assert runner.sim.memory(0).allocations - before == buffers + expected


def test_writes_input_zeroes_its_first_element(hostile):
    a, b = numbers(0), numbers(1)
    values, first, _ = hostile("writes_input").run([a, b])
    assert np.array_equal(values, a + b)
    assert first[ROOM : ROOM + 4].tolist() == [0] * 4
    assert np.array_equal(first[ROOM + 4 : -ROOM], a.reshape(-1)[1:].view(np.uint8))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_one_percent_is_wrong_everywhere_a_little(hostile, dtype):
    spec = parse(f"{dtype}[3, 63]")
    a = (numbers(0) * 500).astype(spec.dtype.numpy)
    values, _, _ = hostile("one_percent", (spec, spec)).run([a, a])
    expected = (a + a).astype(np.float64)
    error = np.abs(values - expected)[expected != 0] / np.abs(expected[expected != 0])
    assert error.min() > 0
    assert np.median(error) < 0.02


def test_special_values_is_right_on_ordinary_ones(hostile):
    runner = hostile("special_values")
    a, b = numbers(0), numbers(1)
    assert np.array_equal(runner.run([a, b])[0], a + b)
    a[1, 5], a[2, 7] = np.nan, np.inf
    values, _, _ = runner.run([a, b])
    assert np.isfinite(values).all()


def test_ignores_strides_is_right_on_contiguous_ones(hostile):
    a, b = numbers(0), numbers(1)
    assert np.array_equal(hostile("ignores_strides").run([a, b])[0], a + b)
    transposed = parse("float32[3, 63];strides=[1, 3]")
    values, _, _ = hostile("ignores_strides", (transposed, SPEC)).run([a, b])
    assert np.array_equal(values, a + b), "it read the transposed input as if it were not"


def test_ignores_overlap_is_right_on_memory_of_its_own(hostile):
    runner = hostile("ignores_overlap")
    assert KERNELS["ignores_overlap"].kernel.overlap == "any"
    a, b = numbers(0), numbers(1)
    assert np.array_equal(runner.run([a, b])[0], a + b)
    assert np.array_equal(runner.run([a, b], aliased=True)[0], a + b), "element by element nothing is read twice"
    # The output one row further on: the second half reads what the first half wrote.
    sim = runner.sim
    x, y = runner.buffer(a, 0), runner.buffer(b, 0)
    sim.synchronize(0)
    start = x.address + ROOM
    runner.program.run([start, y.address + ROOM, start + 63 * 4])
    sim.synchronize(0)
    image = runner.contents(x)[ROOM + 63 * 4 : ROOM + 4 * 63 * 4].view(np.float32).reshape(3, 63)
    assert not np.array_equal(image, a + b)


def test_unrepeatable_differs_in_one_bit_at_every_other_run(hostile):
    runner = hostile("unrepeatable")
    a, b = numbers(0), numbers(1)
    first, second, third = (runner.run([a, b])[0].view(np.uint32) for _ in range(3))
    assert np.array_equal(first, third)
    assert np.flatnonzero(first != second).tolist() == [0]
    assert first[0, 0] ^ second[0, 0] == 1
