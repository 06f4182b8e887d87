"""What a plan holds of a run: values told apart by memory, lives, and the same from code."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from making import made
from ops_made import made_ops

import nbx_registry as nbx
import nbx_simulated.plugin
from nbx_registry.kernel import Kernel, Workspace
from nbx_registry.memory.slab import first_fit_extent, live_peak
from nbx_registry.plan import Life
from nbx_registry.regions import Regions
from nbx_registry.registry import set_default

X = np.arange(1, 1 + 64 * 63, dtype=np.float32).reshape(64, 63)
BYTES = X.nbytes


@pytest.fixture(scope="module")
def reg() -> Iterator[nbx.Registry]:
    loopbacks = [nbx_simulated.plugin.loopback(f"made::{name}@1") for name in ("concat", "spread", "accumulate")]
    registry = nbx.load(plugins=[nbx_simulated.plugin, made_ops(*loopbacks)], require="any")
    before = set_default(registry)
    yield registry
    set_default(before)


@pytest.fixture(params=["numpy", "nbx", "torch", "sim:0"])
def put(request: pytest.FixtureRequest, reg: nbx.Registry) -> Callable[[np.ndarray], Any]:
    if request.param == "torch":
        import torch

        return torch.from_numpy
    if request.param == "numpy":
        return lambda x: x
    return lambda x: nbx.asarray(x, device="cpu" if request.param == "nbx" else request.param)


def record(reg: nbx.Registry, run: Callable[[], object]) -> nbx.Plan:
    with reg.record() as plan:
        run()
    return plan


def steps(plan: nbx.Plan) -> list[tuple[tuple[int | None, ...], tuple[int, ...]]]:
    return [(step.inputs, step.outputs) for step in plan.steps]


def test_a_chain_lives_from_call_to_last_use(reg: nbx.Registry, put: Any) -> None:
    x = put(X.copy())

    def run() -> Any:
        a = reg.call("sqrt", x)
        b = reg.call("add", a, 1.0)
        c = reg.call("multiply", a, b)
        return reg.call("add", c, x)

    plan = record(reg, run)
    assert len(plan) == 4
    assert steps(plan) == [((0,), (1,)), ((1, None), (2,)), ((1, 2), (3,)), ((3, 0), (4,))]
    assert [(value.nbytes, value.given) for value in plan.values] == [(BYTES, n == 0) for n in range(5)]
    assert plan.lives() == [Life(1, 0, 2), Life(2, 1, 2), Life(3, 2, 3), Life(4, 3, None)]
    assert plan.trace() == [
        ("alloc", 1, BYTES),
        ("alloc", 2, BYTES),
        ("alloc", 3, BYTES),
        ("free", 1),
        ("free", 2),
        ("alloc", 4, BYTES),
        ("free", 3),
    ]


def test_a_repeated_call_is_one_entry_and_many_steps(reg: nbx.Registry, put: Any) -> None:
    def run() -> None:
        y = put(X.copy())
        for _ in range(5):
            y = reg.call("sqrt", y)

    plan = record(reg, run)
    assert len(plan) == 1
    assert [step.entry for step in plan.steps] == [0] * 5
    assert len(plan.values) == 6
    assert live_peak(plan.trace()) == 2 * -(-BYTES // 512) * 512


def test_views_are_the_value_they_look_at(reg: nbx.Registry, put: Any) -> None:
    def run() -> None:
        a = reg.call("sqrt", put(X.copy()))
        b = reg.call("permute_dims", a, axes=(1, 0))
        reg.call("add", b, b)
        reg.call("add", a[3:7], a[10:14])
        reg.call("add", b, 1.0)

    plan = record(reg, run)
    assert steps(plan)[1:] == [((1,), (1,)), ((1, 1), (2,)), ((1, 1), (3,)), ((1, None), (4,))]
    assert plan.lives()[0] == Life(1, 0, 4)


def test_a_buffer_filled_in_slices_is_one_value(reg: nbx.Registry, put: Any) -> None:
    def run() -> None:
        whole = put(np.empty((64, 63), np.float32))
        x = put(X[:32].copy())
        reg.call("sqrt", x, out=whole[:32])
        reg.call("add", x, 1.0, out=whole[32:])
        reg.call("add", whole, 2.0)

    plan = record(reg, run)
    assert steps(plan) == [((0,), (1,)), ((0, None), (1,)), ((1, None), (2,))]
    assert [value.nbytes for value in plan.values] == [BYTES // 2, BYTES, BYTES]
    assert plan.lives() == [Life(1, 0, 2), Life(2, 2, None)]


def test_a_buffer_used_again_holds_a_new_value_and_in_place_is_the_same(reg: nbx.Registry, put: Any) -> None:
    def run() -> None:
        x, buffer = put(X.copy()), put(np.empty_like(X))
        reg.call("sqrt", x, out=buffer)
        reg.call("add", buffer, 1.0, out=buffer)
        reg.call("add", buffer, 2.0)
        reg.call("sqrt", x, out=buffer)
        reg.call("add", buffer, buffer, out=x)

    plan = record(reg, run)
    assert [outputs for _, outputs in steps(plan)] == [(1,), (1,), (2,), (3,), (0,)]
    assert plan.lives() == [Life(1, 0, 2), Life(2, 2, None), Life(3, 3, 4)]


def test_what_is_written_in_place_and_lists_are_followed(reg: nbx.Registry, put: Any) -> None:
    def run() -> None:
        x, total = put(X[0].copy()), put(np.zeros(63, np.float32))
        reg.call("made::accumulate", x, total)
        a = reg.call("sqrt", put(X.copy()))
        joined = reg.call("made::concat", [a, a[:5], a])
        least, _ = reg.call("made::spread", joined, None)
        reg.call("made::accumulate", least, reg.call("add", least, 1.0))

    plan = record(reg, run)
    assert steps(plan) == [
        ((0, 1), ()),
        ((2,), (3,)),
        ((3, 3, 3, None), (4,)),
        ((4, None, None), (5, 6)),
        ((5, None), (7,)),
        ((5, 7), ()),
    ]
    assert [v for v, value in enumerate(plan.values) if value.given] == [0, 1, 2]
    # The second output of spread is read by nobody: it is a result.
    # What was written in place last is one, too.
    assert {v: end for v, _, end in plan.lives()} == {3: 2, 4: 3, 5: 5, 6: None, 7: None}
    assert [entry.written for entry in plan if entry.op.endswith("accumulate@1")] == [[1], [1]]


def test_results_written_in_place_and_seen_as_views_live_to_the_end(reg: nbx.Registry) -> None:
    def run() -> list[Any]:
        x = nbx.asarray(X)
        y = reg.call("sqrt", x)
        reg.call("add", y, 1.0, out=y)
        z = reg.call("permute_dims", reg.call("sqrt", x), axes=(1, 0))
        for _ in range(3):
            x = reg.call("add", x, 1.0)
        return [y, z, x]

    plan = record(reg, run)
    assert {v: end for v, _, end in plan.lives()} == {1: None, 2: None, 3: 5, 4: 6, 5: None}
    slab = nbx.SlabAllocator(reg.runtime("host").allocate(0, first_fit_extent(plan.trace())), "cpu")
    with nbx.allocating(slab):
        results = run()
    np.testing.assert_array_equal(results[0].numpy(), np.sqrt(X) + 1)


def test_between_the_elements_of_an_output_with_gaps_the_value_before_lives_on(reg: nbx.Registry, put: Any) -> None:
    def run() -> None:
        buffer, x = put(np.empty(63, np.float32)), put(X[0].copy())
        reg.call("sqrt", x, out=buffer)
        reg.call("add", buffer, 1.0)
        reg.call("sqrt", put(X[0, :32].copy()), out=buffer[::2])
        reg.call("add", buffer, 1.0)

    assert record(reg, run).lives()[0] == Life(1, 0, 3)


def test_a_value_in_what_is_left_of_freed_memory_is_not_lost(reg: nbx.Registry) -> None:
    slab = nbx.SlabAllocator(reg.runtime("host").allocate(0, 1 << 16), "cpu")

    def run() -> None:
        small, large = nbx.asarray(np.ones(128, np.float32)), nbx.asarray(np.ones(256, np.float32))
        with nbx.allocating(slab):
            reg.call("sqrt", large)
            hole, target = nbx.empty(128), nbx.empty(128)
            reg.call("sqrt", small, out=target)
            del hole
            reg.call("add", target, reg.call("add", small, 1.0))

    plan = record(reg, run)
    assert slab.extent == 3 * 512
    written = plan.steps[1].outputs[0]
    assert plan.steps[3].inputs == (written, plan.steps[2].outputs[0])
    assert not plan.values[written].given


def test_tensors_without_elements_take_nothing(reg: nbx.Registry, put: Any) -> None:
    empty = put(np.empty((0, 63), np.float32))
    plan = record(reg, lambda: reg.call("add", reg.call("sqrt", empty), 1.0))
    assert {value.nbytes for value in plan.values} == {0}
    assert first_fit_extent(plan.trace()) == 0


def test_the_same_plan_comes_from_code(reg: nbx.Registry, put: Any) -> None:
    w, b = put(X.copy()), put(X[0, :].copy())

    def run() -> None:
        x = put(X.copy())
        y = reg.call("linear", x, w)
        z = reg.call("permute_dims", reg.call("softmax", y, axis=1), axes=(1, 0))
        joined = reg.call("made::concat", [z, z[1:]], axis=0)
        reg.call("layer_norm", reg.call("astype", joined[:, 1:], dtype="float16"), None, None)
        reg.call("add", x, b)

    recorded = record(reg, run)
    device = recorded.devices[0]
    draft = reg.draft("sim:0" if device.startswith("sim") else "cpu")
    x, w_ = draft.given("float32[64, 63]"), draft.given("float32[64, 63]")
    y = draft.call("linear", x, w_)
    z = draft.call("permute_dims", draft.call("softmax", y, axis=1), axes=(1, 0))
    joined = draft.call("made::concat", [z, draft.index(z, slice(1, None))], axis=0)
    half = draft.call("astype", draft.index(joined, (slice(None), slice(1, None))), dtype="float16")
    draft.call("layer_norm", half, None, None)
    draft.call("add", x, "float32[63]")
    # Ahead of a call on unaligned operands the aligned one is bound; code knows what it asks for.
    assert all(entry in recorded.entries for entry in draft.plan)
    assert steps(draft.plan) == steps(recorded)
    assert draft.plan.values == recorded.values
    assert (half.shape, half.dtype.name) == ((127, 63), "float16")


def test_a_draft_needs_no_device_and_tells_what_is_wrong(reg: nbx.Registry) -> None:
    draft = reg.draft("nvidia/h200-sxm")
    y = draft.call("add", "float16[5, 7]", 2.0)
    assert draft.plan.entries[0].toolkit is None
    assert str(y.spec) == "float16[5, 7]"
    with pytest.raises(nbx.Refused):
        draft.call("made::spread", "float32[5, 7]")
    with pytest.raises(nbx.SignatureError, match="add: x2 is a ndarray; a draft takes values"):
        draft.call("add", y, X)
    with pytest.raises(nbx.NbxError, match=r"facts of a device: .*sim:9"):
        reg.draft("sim:9")
    with pytest.raises(nbx.UnknownName, match="nvidia/h200-sxm"):
        reg.draft("nvidia/h200-sxn")
    with pytest.raises(nbx.UnknownName, match="did you mean 'nbx-host/add/numpy'"):
        draft.call("add", y, y, kernel="nbx-host/add/nump")
    with pytest.raises(nbx.SignatureError, match="x1 is a value of another draft"):
        reg.draft("cpu").call("add", y, 1.0)
    wrong: Any = 5
    with pytest.raises(nbx.SignatureError, match="5 is no spec of a tensor"):
        draft.given(wrong)


def test_a_plan_for_several_devices_asks_which(reg: nbx.Registry) -> None:
    def run() -> None:
        reg.call("sqrt", X)
        reg.call("sqrt", nbx.asarray(X, device="sim:0"))

    plan = record(reg, run)
    with pytest.raises(nbx.NbxError, match=r"the plan is for host/cpu, sim/loopback; name one with device="):
        plan.trace()
    with pytest.raises(nbx.NbxError, match="not for 'acme/one'"):
        plan.trace("acme/one")
    assert plan.trace("host/cpu") == [("alloc", 1, BYTES)]
    assert plan.trace("sim/loopback") == [("alloc", 3, BYTES)]
    assert nbx.Plan().trace() == []


def test_an_error_in_the_block_leaves_what_ran(reg: nbx.Registry) -> None:
    plans: list[nbx.Plan] = []

    def run() -> None:
        with reg.record() as plan:
            plans.append(plan)
            reg.call("sqrt", X)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run()
    assert len(plans[0].steps) == 1
    assert reg.observer is None


def scratch(runtime: str) -> Kernel:
    """Return a kernel of sqrt with workspace of as many bytes as its operand."""
    return Kernel(
        id=f"made/sqrt/{runtime}", op="sqrt@1", backend="made", runtimes=(runtime,), bind=print,
        workspace=(Workspace(name="scratch", dtype="float32", shape=("x.size",)),),
    )  # fmt: skip


def test_workspace_lives_during_its_call() -> None:
    draft = nbx.load(plugins=[made("made", scratch("host"))], require="any").draft("cpu")
    y = draft.call("sqrt", "float32[63]", kernel="made/sqrt/host")
    draft.call("sqrt", y, kernel="made/sqrt/host")
    assert draft.plan.trace() == [
        ("alloc", 1, 252),
        ("alloc", (0, 0), 252),
        ("free", (0, 0)),
        ("alloc", 2, 252),
        ("alloc", (1, 0), 252),
        ("free", (1, 0)),
        ("free", 1),
    ]


def test_regions_join_and_give_way() -> None:
    regions = Regions()
    weight = regions.read(1000, 100)
    assert regions.read(1040, 10) == weight
    a, b = regions.made(2000, 50), regions.made(2060, 40)
    assert regions.overwritten(2000, 50)
    assert not regions.overwritten(2000, 40)
    assert not regions.overwritten(1000, 100)
    joined = regions.read(2010, 100)
    assert regions.final(a) == regions.final(b) == joined == a
    assert regions.values()[joined] == (110, False)
    fresh = regions.made(1050, 1000)
    assert regions.read(1060, 1) == fresh
    assert regions.read(2055, 1) not in (fresh, joined, weight)
    assert regions.read(1000, 0) != regions.read(1000, 0)


def test_what_is_read_is_what_was_written_there() -> None:
    """Buffers come, are written and read in parts, and go; memory is handed out again at whatever offset."""
    for seed in range(200):
        draw, regions = random.Random(seed), Regions()
        live: list[tuple[int, int]] = []
        numbers: dict[int, int] = {}
        reads: list[tuple[int, int]] = []
        for _ in range(60):
            if live and draw.random() < 0.3:
                start, end = live.pop(draw.randrange(len(live)))
                for at in range(start, end):
                    numbers.pop(at, None)
            if draw.random() < 0.5:
                start = draw.randrange(0, 100)
                end = start + draw.choice([4, 8, 32])
                if all(end <= low or high <= start for low, high in live):
                    live.append((start, end))
                    if draw.random() < 0.5:
                        numbers.update(dict.fromkeys(range(start, end), regions.made(start, end - start)))
            elif live:
                start, end = draw.choice(live)
                low, high = (start, end) if draw.random() < 0.5 else sorted(draw.sample(range(start, end + 1), 2))
                if draw.random() < 0.5:
                    reads += [
                        (number, regions.read(low, high - low))
                        for number in {*map(numbers.get, range(low, high))}
                        if number is not None
                    ]
                else:
                    begins = regions.made if regions.overwritten(low, high - low) else regions.written
                    numbers.update(dict.fromkeys(range(low, high), begins(low, high - low)))
        assert all(regions.final(one) == regions.final(other) for one, other in reads)
        assert {regions.final(one) for one, _ in reads} <= set(regions.values())
