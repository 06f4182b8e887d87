"""The check `cold`: no kernel that does what its values ask for is accused, and none that does less gets away."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nbx_simulated", reason="the simulation lives beside the core's tests")

from virtual_made import LINE, Cache, Range, create, plugin

from nbx_conformance import cases, report
from nbx_conformance.bundles import bundle
from nbx_conformance.checks import cold
from nbx_conformance.problems.largest import LEAST_S, Largest
from nbx_conformance.problems.roof import roof_of
from nbx_conformance.runs.options import Options
from nbx_conformance.runs.session import Session
from nbx_conformance.trials.trial import Site, Trial
from nbx_registry.host import measure
from nbx_registry.kernel import Kernel
from nbx_registry.launch import BindContext, Launch, View
from nbx_registry.op import op
from nbx_registry.signature import Signature
from nbx_registry.spec import TensorSpec
from nbx_simulated.kernels import launch_of
from nbx_simulated.memory import Memory


@cache
def lines(address: int, spec: TensorSpec) -> list[int]:
    """Return the lines in which a tensor's elements are."""
    offsets = np.zeros(1, np.int64)
    for extent, stride in zip(spec.shape, spec.strides, strict=True):
        if stride:
            offsets = (offsets[:, None] + np.arange(extent) * stride).reshape(-1)
    return np.unique((address + offsets * spec.dtype.itemsize) // LINE).tolist()


class Run:
    """One launch as a kernel sees it: where its operands are and what they hold."""

    def __init__(self, signature: Signature, memory: Memory, addresses: tuple[Any, ...]) -> None:
        self.memory = memory
        self.specs = dict(signature.slots())
        self.addresses = dict(zip(self.specs, addresses, strict=True))
        self.inputs = [name for name in signature.names if name not in {o.name for o in signature.op.outputs}]
        self.outputs = [output.name for output in signature.op.outputs]
        self.written = [*self.outputs, *(param.name for param in signature.op.tensors if param.mutable)]

    def values(self, name: str) -> Any:
        return self.memory.array(self.addresses[name], self.specs[name])

    def whole(self, *names: str) -> Iterator[Range]:
        """Every element once, in lines."""
        for name in names:
            spec, address = self.specs[name], self.addresses[name]
            if spec.weak or not spec.size:
                continue
            for line in lines(address, spec):
                yield line * LINE, LINE, "write" if name in self.written else "read"

    def everything(self) -> Iterator[Range]:
        yield from self.whole(*self.inputs, *self.outputs)

    def rows(self, name: str, indices: Any, kind: Any = "read") -> Iterator[Range]:
        """The rows of a contiguous table that are named, each once."""
        spec = self.specs[name]
        row = spec.nbytes // spec.shape[0]
        for index in np.unique(indices).tolist():
            yield self.addresses[name] + index * row, row, kind


Touch = Callable[[Run], Any]
"""What a kernel touches: ranges; or ranges, and the operations it does."""


@dataclass
class Honest:
    """A case, and what a kernel touches that does no more than the values ask for."""

    id: str
    op: str
    tensors: dict[str, Any]
    touch: Touch = Run.everything
    attributes: dict[str, Any] | None = None
    values: dict[str, Any] | None = None
    layouts: dict[str, str] | None = None
    timed: bool = True
    """Whether its least time is large enough to say something."""

    def load(self, folder: Path) -> cases.Case:
        given = {"attributes": self.attributes, "values": self.values, "layouts": self.layouts}
        workload = {"name": self.id, "from": "these tests", "size": "full", "tensors": self.tensors}
        workload |= {key: value for key, value in given.items() if value is not None}
        file = folder / f"{self.id}.yml"
        file.write_text(json.dumps({"op": self.op, "workloads": [workload]}), "utf-8")
        (case,) = cases.load(file).cases
        return case


def written_and(*names: str) -> Touch:
    return lambda run: [*run.whole(*names), *run.whole(*run.outputs)]


def chosen_rows(table: str, index: str, *more: str) -> Touch:
    return lambda run: [*run.rows(table, run.values(index)), *run.whole(index, *more), *run.whole(*run.outputs)]


def appended(run: Run) -> Iterator[Range]:
    slot = run.values("slot")
    live = np.flatnonzero(slot >= 0)
    yield from run.whole("slot")
    yield from run.rows("new", live)
    row = run.specs["new"].nbytes // slot.size
    for at in slot[live].tolist():
        yield run.addresses["pool"] + at * row, row, "write"


def live_pages(run: Run) -> Iterator[Range]:
    lens, table = run.values("seq_lens"), run.values("block_table")
    yield from run.whole("seq_lens", "out")
    if not lens.any():
        return
    yield from run.whole("q")
    pages = [page for row, n in zip(table, lens, strict=True) for page in row[: -(-n // run.specs["k_pool"].shape[2])]]
    yield from run.rows("k_pool", pages)
    yield from run.rows("v_pool", pages)


def with_flops(share: float) -> Touch:
    """Everything is touched, and a share of the textbook's operations done, by the fastest unit."""

    def touch(run: Run) -> Any:
        inner = run.specs["x1"].shape[-1] if "x1" in run.specs else 9 * run.specs["w"].shape[1]
        return run.everything(), share * 2 * run.specs["out"].size * inner

    return touch


F = "float32[64, 1000]"
POOL = "float32[64, 1, 16, 64]"
PAGED = {"q": "float32[64, 4, 64]", "k_pool": POOL, "v_pool": POOL, "block_table": "int32[64, 8]"}
STEP = {"k_new": "float32[20000, 1, 1]", "v_new": "float32[20000, 1, 1]", "block_table": "int32[20000, 2]"}

HONEST = [
    # Dense work, in every layout.
    Honest("dense", "add@1", {"x1": F, "x2": F}),
    Honest("one_operand_expanded", "add@1", {"x1": F, "x2": F}, layouts={"x2": "expanded"}),
    Honest("both_operands_expanded", "multiply@1", {"x1": F, "x2": F}, layouts={"x1": "expanded", "x2": "expanded"}),
    Honest("broadcast_row", "add@1", {"x1": F, "x2": "float32[1000]"}),
    Honest("broadcast_scalar", "add@1", {"x1": F, "x2": 2.5}),
    Honest("strided", "sqrt@1", {"x": F}, values={"x": "uniform"}, layouts={"x": "strided"}),
    Honest("transposed", "gelu@1", {"x": F}, layouts={"x": "transposed"}),
    Honest("reduced_expanded", "sum@1", {"x": "float32[64, 16000]"}, layouts={"x": "expanded"}),
    Honest("reduced", "sum@1", {"x": F}, attributes={"axis": [-1]}),
    Honest("normalised", "layer_norm@1", {"x": F, "weight": "float32[1000]", "bias": "float32[1000]"}),
    Honest("softmax", "softmax@1", {"x": F}),
    Honest("joined", "concat@1", {"arrays": [F, "float32[32, 1000]"]}),
    Honest("moved", "pixel_shuffle@1", {"x": "float32[4, 16, 32, 32]"}, attributes={"r": 2}),
    Honest("copied", "permute_dims@1", {"x": F}, attributes={"axes": [1, 0], "copy": True}),
    Honest("converted", "astype@1", {"x": F}, attributes={"dtype": "float16"}),
    Honest("made_of_nothing", "full@1", {}, attributes={"shape": [64, 1000], "fill_value": 1.5, "dtype": "float32"}),
    Honest("random", "random_bits@1", {}, attributes={"shape": [64, 1000], "seed": 7}),
    # Work that its values hide.
    Honest(
        "one_row_again_and_again",
        "embedding@1",
        {"w": "float32[1000, 64]", "index": "int32[2000]"},
        chosen_rows("w", "index"),
        values={"index": {"constant": {"value": 3}}},
    ),
    Honest(
        "rows_at_random",
        "embedding@1",
        {"w": "float32[1000, 64]", "index": "int32[2000]"},
        chosen_rows("w", "index"),
        values={"index": {"index": {"below": 1000}}},
    ),
    Honest(
        "one_index_expanded",
        "embedding@1",
        {"w": "float32[1000, 64]", "index": "int32[2000]"},
        chosen_rows("w", "index"),
        values={"index": {"index": {"below": 1000}}},
        layouts={"index": "expanded"},
    ),
    Honest(
        "few_of_a_large_table",
        "take@1",
        {"x": "float32[20000, 64]", "indices": "int64[500]"},
        chosen_rows("x", "indices"),
        attributes={"axis": 0},
        values={"indices": {"index": {"below": 5}}},
    ),
    Honest(
        "all_tokens_at_one_position",
        "rotary_embedding@1",
        {"x": "float32[4, 4, 64, 64]", "position": "int32[4, 64]", "cos": "float32[64, 32]", "sin": "float32[64, 32]"},
        lambda run: [
            *run.whole("x", "position", "out"),
            *run.rows("cos", run.values("position")),
            *run.rows("sin", run.values("position")),
        ],
        values={"position": {"constant": {"value": 5}}},
    ),
    Honest(
        "every_slot_padding",
        "paged_kv_append@1",
        {"new": "float32[20000, 1, 1]", "slot": "int32[20000]", "pool": "float32[1250, 1, 16, 1]"},
        appended,
        values={"slot": {"constant": {"value": -1}}},
    ),
    Honest(
        "half_of_the_slots_padding",
        "paged_kv_append@1",
        {"new": "float32[20000, 1, 1]", "slot": "int32[20000]", "pool": "float32[1250, 1, 16, 1]"},
        appended,
        values={"slot": {"distinct": {"below": 20000, "negative": 0.5}}},
    ),
    Honest(
        "no_length_has_a_place",
        "paged_kv_append_step@1",
        {**STEP, "k_pool": "float32[9, 1, 4, 1]", "v_pool": "float32[9, 1, 4, 1]", "lens": "int32[20000]"},
        lambda run: run.whole("lens"),
        values={"lens": {"constant": {"value": -1}}, "block_table": {"index": {"below": 9}}},
    ),
    Honest(
        "no_sequence_has_a_page",
        "paged_kv_append_step@1",
        {**STEP, "k_pool": "float32[9, 1, 4, 1]", "v_pool": "float32[9, 1, 4, 1]", "lens": "int32[20000]"},
        lambda run: run.whole("lens", "block_table"),
        values={"lens": {"constant": {"value": 0}}, "block_table": {"constant": {"value": -1}}},
    ),
    Honest(
        "every_length_0",
        "paged_decode_attention@1",
        {**PAGED, "seq_lens": "int32[64]"},
        live_pages,
        values={"seq_lens": {"constant": {"value": 0}}, "block_table": {"constant": {"value": -1}}},
    ),
    Honest(
        "every_sequence_on_one_page",
        "paged_decode_attention@1",
        {**PAGED, "seq_lens": "int32[64]"},
        live_pages,
        attributes={"longest": 128},
        values={"seq_lens": {"constant": {"value": 16}}, "block_table": {"constant": {"value": 9}}},
    ),
    Honest(
        "keys_of_which_none_counts",
        "decode_attention@1",
        {
            "q": "float32[64, 4, 128]",
            "k": "float32[64, 1, 64, 128]",
            "v": "float32[64, 1, 64, 128]",
            "bias": "float32[64]",
        },
        written_and("bias"),
        values={"bias": {"special": {"values": ["-inf"], "rate": 1.0}}},
        timed=False,
    ),
    Honest(
        "all_keys_of_a_cache",
        "decode_attention@1",
        {"q": "float32[64, 4, 128]", "k": "float32[64, 1, 64, 128]", "v": "float32[64, 1, 64, 128]"},
    ),
    Honest(
        "every_split_empty",
        "decode_attention_reduce@1",
        {"o": "float32[1000, 4, 64]", "m": "float32[1000, 4]", "l": "float32[1000, 4]"},
        written_and("m"),
        timed=True,
    ),
    Honest(
        "causal",
        "scaled_dot_product_attention@1",
        {"q": "float32[2, 2, 128, 64]", "k": "float32[2, 1, 128, 64]", "v": "float32[2, 1, 128, 64]"},
        attributes={"causal": True},
    ),
    Honest(
        "causal_with_queries_that_see_nothing",
        "scaled_dot_product_attention@1",
        {"q": "float32[2, 2, 256, 64]", "k": "float32[2, 1, 16, 64]", "v": "float32[2, 1, 16, 64]"},
        lambda run: [*run.whole("k", "v", "out"), *list(run.whole("q"))[:8]],
        attributes={"causal": True},
    ),
    Honest(
        "a_mask_that_hides_all",
        "scaled_dot_product_attention@1",
        {
            "q": "float32[2, 2, 128, 64]",
            "k": "float32[2, 1, 128, 64]",
            "v": "float32[2, 1, 128, 64]",
            "mask": "bool[128, 128]",
        },
        written_and("mask"),
        values={"mask": {"constant": {"value": 0}}},
    ),
    Honest(
        "a_condition_that_always_holds",
        "where@1",
        {"condition": "bool[64, 1000]", "x1": F, "x2": F},
        written_and("condition", "x1"),
        values={"condition": {"constant": {"value": 1}}},
    ),
    Honest(
        "a_condition_that_never_holds_and_a_branch_of_one_element",
        "where@1",
        {"condition": "bool[64, 1000]", "x1": F, "x2": "float32[1]"},
        written_and("condition", "x2"),
        values={"condition": {"constant": {"value": 0}}},
    ),
    # Algorithms that do fewer operations than the textbook's.
    Honest("strassen", "matmul@1", {"x1": "float16[512, 512]", "x2": "float16[512, 512]"}, with_flops(0.77)),
    Honest(
        "products_of_narrower_ones", "matmul@1", {"x1": "float32[512, 512]", "x2": "float32[512, 512]"}, with_flops(1)
    ),
    Honest(
        "winograd",
        "conv2d@1",
        {"x": "float16[1, 64, 64, 64]", "w": "float16[64, 64, 3, 3]"},
        with_flops(0.25),
        attributes={"padding": 1},
    ),
    # Values that settle the result before all are read, which no contract counts: nothing is said.
    Honest("a_product_that_is_0_at_once", "prod@1", {"x": "int32[64000]"}, lambda run: run.whole("out"), timed=False),
    Honest(
        "a_maximum_that_is_nan_at_once",
        "max@1",
        {"x": F},
        lambda run: run.whole("out"),
        values={"x": {"special": {"values": ["nan"]}}},
        timed=False,
    ),
    Honest("selected", "topk@1", {"x": F}, lambda run: run.whole(*run.outputs), attributes={"k": 5}, timed=False),
    Honest("to_the_power_of_0", "pow@1", {"x": F, "e": 0.0}, lambda run: run.whole("out"), timed=False),
    Honest("times_0", "multiply@1", {"x1": "int32[64, 1000]", "x2": 0}, lambda run: run.whole("out"), timed=False),
    Honest("frozen_then_0", "pow@1", {"x": F, "e": -1.0}, lambda run: run.whole("out"), timed=False),
    # Nothing to speak of.
    Honest("no_elements", "add@1", {"x1": "float32[0, 5]", "x2": "float32[0, 5]"}, timed=False),
    Honest("resident", "add@1", {"x1": "float32[63]", "x2": "float32[63]"}, timed=False),
    Honest("counted_on_in_place", "paged_lens_advance@1", {"lens": "int32[64]"}, timed=False),
]


class Device:
    """The virtual device with a kernel for each op that touches what it is told to touch."""

    def __init__(self, folder: Path) -> None:
        self.touch: Touch = Run.everything
        ops = sorted({honest.op for honest in HONEST})
        made = plugin(folder / "devices", *(self._kernel(name) for name in ops))
        self.folder = folder
        self.site: Site = Session(Options(device="virt:0", size="full", extra=(made,))).site
        assert self.site.target.device is not None
        self.roof = roof_of(self.site.target.device)
        self.largest = Largest(self.site.registry, self.site.cases, self.site.target, self.roof)
        self.clock = create().clock

    def _kernel(self, name: str) -> Kernel:
        def bind(context: BindContext) -> Launch:
            signature = context.signature

            def run(memory: Memory, *addresses: Any) -> None:
                found = self.touch(Run(signature, memory, addresses))
                ranges, flops = found if isinstance(found, tuple) else (found, 0.0)
                self.clock.work(ranges, flops)

            return launch_of(signature, run)

        return Kernel(
            id=f"nbx-virtual/{name.partition('@')[0]}/x", op=name, backend="numpy", runtimes=("virt",), bind=bind
        )

    def time(self, honest: Honest, touch: Touch | None = None) -> cold.Cold | None:
        """Return the cold time on a case, None where nothing can be said."""
        case = honest.load(self.folder)
        if self.largest.least_s(case) < LEAST_S:
            return None
        self.touch = touch or honest.touch
        kernel = self.site.registry.catalog.kernel(f"nbx-virtual/{honest.op.partition('@')[0]}/x")
        found = cold.measured(Trial(self.site, kernel, case), self.roof)
        assert found is not None
        return found


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Device:
    return Device(tmp_path_factory.mktemp("virtual"))


@pytest.fixture
def unjudged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that only tell what they touch compute nothing."""
    monkeypatch.setattr(cold, "_wrong", lambda trial, benches: "")
    # Their time is counted: one window says all.
    monkeypatch.setattr(cold, "_WINDOWS", 1)
    monkeypatch.setattr(cold, "_MOST_ROUNDS", 2)


def test_there_are_thirty_honest_kernels_about_which_something_is_said() -> None:
    assert sum(honest.timed for honest in HONEST) >= 30


@pytest.mark.parametrize("keeps", ["recent", "old"])
@pytest.mark.parametrize("honest", HONEST, ids=lambda honest: honest.id)
def test_an_honest_kernel_at_the_bandwidth_of_the_memory_is_never_accused(
    device: Device, unjudged: None, honest: Honest, keeps: Any
) -> None:
    device.clock.cache = Cache(keeps)
    found = device.time(honest)
    assert (found is not None) == honest.timed
    if found is not None:
        assert found.seconds >= found.least_s > 0


# Kernels that do less ------------------------------------------------------------------------------------------------


def returns_early(run: Run) -> Iterator[Range]:
    del run
    yield from ()


def does_half(run: Run) -> list[Range]:
    return list(run.everything())[::2]


def gives_its_first_result_again(run: Run) -> Iterator[Range]:
    return run.whole("x1", "out")


class Remembers:
    """Does the work for operands it has not met, by their address."""

    def __init__(self) -> None:
        self.met: set[int] = set()

    def __call__(self, run: Run) -> Iterator[Range]:
        address = run.addresses["out"]
        if address not in self.met:
            self.met.add(address)
            yield from run.everything()


class TellsTurns:
    """Does the work where it is called on the same operands again, as whoever compares numbers does."""

    def __init__(self) -> None:
        self.last = 0

    def __call__(self, run: Run) -> Iterator[Range]:
        same, self.last = run.addresses["out"] == self.last, run.addresses["out"]
        return run.everything() if same else iter(())


@pytest.mark.parametrize("keeps", ["recent", "old"])
@pytest.mark.parametrize(
    "touch", [returns_early, does_half, Remembers, TellsTurns], ids=["early", "half", "remembers", "tells_turns"]
)
def test_a_kernel_that_does_less_than_the_least_is_found(
    device: Device, unjudged: None, touch: Any, keeps: Any
) -> None:
    device.clock.cache = Cache(keeps)
    found = device.time(HONEST[0], touch() if isinstance(touch, type) else touch)
    assert found is not None
    assert found.seconds < found.least_s


def test_a_kernel_that_reads_but_one_of_two_operands_is_found(device: Device, unjudged: None) -> None:
    device.clock.cache = Cache("recent")
    found = device.time(HONEST[0], gives_its_first_result_again)
    assert found is not None
    assert found.seconds < found.least_s


def test_a_product_that_is_not_computed_is_found(device: Device, unjudged: None) -> None:
    device.clock.cache = Cache("recent")
    found = device.time(
        Honest("large", "matmul@1", {"x1": "float16[64, 9000]", "x2": "float16[9000, 64]"}), returns_early
    )
    assert found is not None
    assert found.seconds < found.least_s


# From the case file to the bundle ------------------------------------------------------------------------------------


@op("made::shift@1(x: F[N, M]) -> F[N, M]", flops="x.size")
def shift(x: Any) -> Any:
    """One more."""
    return x + 1


def shifts(touches: float = 1.0, right: int = 1 << 30) -> Kernel:
    """Return a kernel that takes a share of the time that memory needs, and is right so many times."""

    def bind(context: BindContext) -> Launch:
        signature = context.signature
        (spec,) = signature.outputs
        runs = iter(range(1 << 30))

        def run(memory: Memory, x: int, out: int) -> None:
            more = 1 if next(runs) < right else 2
            memory.array(out, spec)[...] = memory.array(x, signature.tensors[0]) + np.float32(more)
            lines = list(Run(signature, memory, (x, out)).everything())
            create().clock.work(lines[: round(touches * len(lines))])

        return launch_of(signature, run)

    return Kernel(
        id="nbx-virtual/shift/x", op="made::shift@1", backend="numpy", runtimes=("virt",), bind=bind, overlap="same"
    )


def session(folder: Path, kernel: Kernel, without: tuple[str, ...] = ()) -> Session:
    create().clock.cache = Cache("recent")
    (folder / "shift.yml").write_text(
        "op: made::shift@1\nworkloads:\n"
        '  - {name: tiny, from: "one line", size: smoke, tensors: {x: "float32[7, 9]"}}\n'
        '  - {name: small, from: "some", size: full, tensors: {x: "float32[50, 1000]"}}\n'
        '  - {name: wide, from: "more", size: full, tensors: {x: "float32[64, 1000]"}}\n',
        "utf-8",
    )
    made = plugin(folder / "devices", kernel, without=without, ops=lambda: [shift], cases=lambda: [folder])
    options = Options(device="virt:0", size="full", kernels=("nbx-virtual/shift/x",), extra=(made,))
    found = Session(options)
    for item in found.items:
        found.run(item)
    return found


def by_case(found: Session) -> dict[str, Any]:
    return {record.case: record for record in found.records.values()}


def test_the_largest_case_has_a_cold_time_in_its_record_and_in_the_bundle(tmp_path: Path) -> None:
    records = by_case(session(tmp_path, shifts()))
    assert {record.verdict for record in records.values()} == {"pass"}
    assert [name for name, record in records.items() if "cold" in record.checks["pass"]] == ["wide"]
    taken = records["wide"].cold
    assert taken["seconds"] >= taken["least_s"] > 0
    assert taken["sets"] * 2 * 4 * 64 * 1000 > 4 * (1 << 18)
    assert records["small"].cold == {}
    (entry,) = bundle._entries(records["wide"])
    assert entry["cold"] == taken
    assert "cold" in entry["check"].split()


def test_a_time_below_the_least_is_an_error_that_gives_both(tmp_path: Path) -> None:
    record = by_case(session(tmp_path, shifts(touches=0.5)))["wide"]
    assert record.checks["error"] == ["cold"]
    assert "the work was not done" in record.details["cold"]
    assert record.cold["seconds"] < record.cold["least_s"]


def test_results_of_the_timed_runs_are_looked_at(tmp_path: Path) -> None:
    record = by_case(session(tmp_path, shifts(right=30)))["wide"]
    assert record.checks["fail"] == ["cold"]
    assert record.details["cold"].startswith("on operands that take turns: out[")


@pytest.mark.parametrize(
    ("fact", "named"),
    [("memory.bandwidth_bytes_per_s", "memory.bandwidth_bytes_per_s"), ("l2.bytes", "last_level_cache.bytes")],
)
def test_where_a_fact_is_missing_nothing_is_said_and_which_one_is_told_once(
    tmp_path: Path, fact: str, named: str
) -> None:
    found = session(tmp_path, shifts(touches=0.0), without=(fact,))
    records = by_case(found)
    assert {record.verdict for record in records.values()} == {"pass"}
    told = [record.details["cold"] for record in records.values() if "cold" in record.details]
    assert len(told) == 1
    assert told[0].startswith(f"FACT_MISSING: virtual/one states no {named!r}")
    assert list(report.notes(found)) == [f"cold says nothing: {told[0]}"]
    reasons = [entry.get("reason", "") for record in records.values() for entry in bundle._entries(record)]
    assert sum("FACT_MISSING" in reason for reason in reasons) == 1


def test_a_view_has_no_cold_time(device: Device) -> None:
    def bind(context: BindContext) -> View:
        (out,) = context.signature.outputs
        (x,) = context.signature.operands
        return View(of="x", shape=out.shape, strides=tuple(reversed(x.strides)))

    kernel = Kernel(id="nbx-virtual/permute/view", op="permute_dims@1", backend="view", runtimes=(), bind=bind)
    made = plugin(device.folder / "devices", kernel)
    site = Session(Options(device="virt:0", size="full", extra=(made,))).site
    case = Honest("view", "permute_dims@1", {"x": F}, attributes={"axes": [1, 0]}).load(device.folder)
    assert cold.check(Trial(site, kernel, case)) is None


# On the host, in real time -------------------------------------------------------------------------------------------

HOST = ("add/numpy", "sum/numpy", "softmax/numpy", "where/numpy", "astype/numpy", "embedding/numpy", "layer_norm/numpy")
SMALL_CACHE = 1 << 20


def host(folder: Path, monkeypatch: pytest.MonkeyPatch, bytes_per_s: float, *names: str) -> Session:
    """A session on the host with a stated bandwidth, beyond a cache so small that its sets are made in no time."""
    measure.write(folder / "devices", bytes_per_s, None, SMALL_CACHE)
    monkeypatch.setenv("NBX_CONFIG_DIR", str(folder))
    return Session(Options(device="cpu", size="full", kernels=tuple(f"nbx-host/{name}" for name in names)))


def taken(found: Session) -> dict[str, cold.Cold]:
    site = found.site
    assert site.target.device is not None
    roof = roof_of(site.target.device)
    largest = [item for item in found.items if item.case.size == "full" and site.is_largest(item.kernel, item.case)]
    times = {item.kernel.id: cold.measured(Trial(site, item.kernel, item.case), roof) for item in largest}
    return {kernel: time for kernel, time in times.items() if time is not None}


def test_no_kernel_of_the_host_is_accused_at_the_rate_at_which_it_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Sets beyond the small cache stay in the real one, and so must what is copied.
    found = taken(host(tmp_path, monkeypatch, measure.copy_bandwidth(5 * SMALL_CACHE // 2), *HOST))
    assert len(found) >= 5
    assert {kernel: time for kernel, time in found.items() if time.seconds < time.least_s or time.wrong} == {}


def test_on_a_host_said_to_be_slower_than_it_is_every_kernel_is_accused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = taken(host(tmp_path, monkeypatch, 1e7, *HOST[:2]))
    assert len(found) == 2
    assert all(time.seconds < time.least_s for time in found.values())
