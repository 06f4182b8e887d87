"""Prices: exact figures, floors from facts, and what is missing named."""

from __future__ import annotations

import pytest
from making import made

import nbx_registry as nbx
from nbx_registry.kernel import Kernel, Workspace
from nbx_registry.memory.slab import first_fit_extent
from nbx_registry.plan import Step

H200 = "nvidia/h200-sxm"


@pytest.fixture(scope="module")
def reg() -> nbx.Registry:
    return nbx.load(require="any")


def test_figures_are_exact_integers_and_need_no_device(reg: nbx.Registry) -> None:
    price = reg.price("matmul", "float16[127, 63]", "float16[63, 1000]")
    assert price.flops == price.least_flops == 2 * 127 * 63 * 1000
    assert price.bytes_read == 2 * (127 * 63 + 63 * 1000)
    assert price.bytes_written == 2 * 127 * 1000
    assert price.least_bytes == price.bytes_read + price.bytes_written
    assert [str(spec) for spec in price.outputs] == ["float16[127, 1000]"]
    for ask in (lambda: price.floor_s, lambda: price.workspace):
        with pytest.raises(nbx.MissingFact, match="device="):
            ask()


def test_the_floor_is_the_larger_of_bytes_and_operations(reg: nbx.Registry) -> None:
    facts = reg.devices[H200]
    bandwidth = facts.fact("memory.bandwidth_bytes_per_s")
    memory = reg.price("add", "float32[1000, 1000]", "float32[1000, 1000]", device=H200)
    assert memory.floor() == (pytest.approx(12_000_000 / bandwidth), "memory")
    work = reg.price("matmul", "float16[4096, 4096]", "float16[4096, 4096]", device=H200)
    peak = facts.fact("peak.matrix.float16_flop_per_s")
    assert work.floor() == (pytest.approx(2 * 4096**3 / peak), "matrix")


def test_a_rate_is_asked_for_only_where_there_is_work(reg: nbx.Registry) -> None:
    assert reg.price("permute_dims", "float32[3, 5]", axes=(1, 0), copy=True, device=H200).floor_s > 0
    assert reg.price("add", "float32[0]", "float32[0]", device=H200).floor_s == 0


def test_a_missing_fact_is_named_when_it_is_asked_for(reg: nbx.Registry) -> None:
    price = reg.price("matmul", "float8_e4m3fn[64, 64]", "float8_e4m3fn[64, 64]", device="host/cpu")
    assert price.flops == 2 * 64**3
    with pytest.raises(nbx.MissingFact, match=r"memory\.bandwidth_bytes_per_s"):
        _ = price.floor_s


def test_a_device_that_is_not_here_is_named_when_a_floor_is_asked_for(reg: nbx.Registry) -> None:
    price = reg.price("add", "float32[63]", "float32[63]", device="nowhere:0")
    assert price.flops == 63
    with pytest.raises(nbx.MissingFact, match="a floor needs a device: nowhere:0: unknown runtime 'nowhere'"):
        _ = price.floor_s


def test_a_refused_request_is_priced_all_the_same(reg: nbx.Registry) -> None:
    price = nbx.load(block=list(reg.kernels)).price("add", "float32[63]", "float32[63]", device=H200)
    assert price.floor_s > 0
    assert price.decision is not None
    assert price.decision.chosen is None
    with pytest.raises(nbx.Refused, match="BLOCKED"):
        _ = price.workspace


def test_a_pin_that_is_no_kernel_is_named(reg: nbx.Registry) -> None:
    with pytest.raises(nbx.UnknownName, match="did you mean 'nbx-host/add/numpy'"):
        reg.price("add", "float32[63]", "float32[63]", device=H200, kernel="nbx-host/add/nmpy")


def layers(reg: nbx.Registry, device: str, count: int, product: str | None = None) -> nbx.Plan:
    """Return a plan of ``count`` layers x + gelu(x @ w), each with a weight of its own, by a kernel of products."""
    draft = reg.draft(device)
    x = draft.given("float16[63, 1000]")
    for _ in range(count):
        y = draft.call("matmul", x, "float16[1000, 1000]", kernel=product)
        x = draft.call("add", x, draft.call("gelu", y))
    return draft.plan


def test_a_plan_s_figures_are_the_sums_of_its_calls(reg: nbx.Registry) -> None:
    price = reg.price(layers(reg, H200, 7))
    specs = {"matmul": ["float16[63, 1000]", "float16[1000, 1000]"], "gelu": ["float16[63, 1000]"]}
    specs["add"] = specs["gelu"] * 2
    singles = [reg.price(op, *given, device=H200) for op, given in specs.items()]
    for name in ("flops", "bytes_read", "bytes_written", "least_flops", "least_bytes"):
        assert getattr(price, name) == 7 * sum(getattr(single, name) for single in singles)
    assert price.floor_s == pytest.approx(7 * sum(single.floor_s for single in singles))
    assert [(row.entry.op, row.calls) for row in price.rows] == [("matmul@1", 7), ("gelu@1", 7), ("add@1", 7)]
    assert [row.kernel for row in price.rows] == [entry.kernel for entry in layers(reg, H200, 1)]
    assert price.refused == ()


def test_a_plan_s_memory_is_what_lives_at_a_time(reg: nbx.Registry) -> None:
    # Products without workspace, so that tensors are all that lives.
    plan = layers(reg, H200, 7, product="nbx-triton/matmul/tiles")
    price = reg.price(plan)
    nbytes = 63 * 1000 * 2
    assert price.given_bytes == nbytes + 7 * 2_000_000
    # At an add: what it adds to, the gelu and the sum; the first x is given.
    assert price.peak_live_bytes == 3 * nbytes
    assert price.peak_live_bytes <= price.slab_bytes == first_fit_extent(price.trace())
    assert price.best_layout(seconds=0.1).extent <= price.slab_bytes
    assert reg.price(nbx.Plan()).slab_bytes == reg.price(nbx.Plan()).peak_live_bytes == 0


def test_a_plan_is_priced_for_another_device_with_the_workspace_of_its_kernels() -> None:
    def kernel(runtime: str, shape: str) -> Kernel:
        return Kernel(
            id=f"made/sqrt/{runtime}", op="sqrt@1", backend="made", runtimes=(runtime,), bind=print, preference=9,
            workspace=(Workspace(name="w", dtype="uint8", shape=(shape,)),),
        )  # fmt: skip

    own = [kernel("host", "x.size"), kernel("cuda", "3 * x.size")]
    blocked = ["nbx-host/sqrt/numpy", "nbx-triton/sqrt/dense", "nbx-triton/sqrt/strided"]
    reg = nbx.load(plugins=[made("made", *own)], require="any", block=blocked)
    draft = reg.draft("cpu")
    draft.call("sqrt", draft.call("sqrt", "float64[1000]"))
    host, h200 = reg.price(draft.plan), reg.price(draft.plan, device=H200)
    assert host.devices == ["host/cpu"]
    assert h200.devices == [H200]
    assert [price.peak_live_bytes for price in (host, h200)] == [2 * 8000 + 1000, 2 * 8000 + 3000]
    assert h200.floor_s == pytest.approx(2 * reg.price("sqrt", "float64[1000]", device=H200).floor_s)
    assert host.least_bytes == 4 * 8000
    if "memory.bandwidth_bytes_per_s" not in reg.devices["host/cpu"].facts:
        with pytest.raises(nbx.MissingFact, match=r"memory\.bandwidth_bytes_per_s"):
            _ = host.floor_s


def test_what_has_no_kernel_has_a_floor_and_no_workspace() -> None:
    reg = nbx.load(require="any")
    plan = layers(reg, "cpu", 1)
    gelus = [identifier for identifier, kernel in reg.kernels.items() if kernel.op == "gelu@1"]
    price = nbx.load(block=gelus, require="any").price(plan, device=H200)
    assert price.floor_s == pytest.approx(reg.price(plan, device=H200).floor_s)
    (refused,) = price.refused
    assert refused.op == "gelu@1"
    for ask in (lambda: price.slab_bytes, lambda: price.peak_live_bytes, price.trace, price.best_layout):
        with pytest.raises(nbx.Refused, match="gelu"):
            ask()


def test_a_plan_over_several_devices_has_a_slab_on_each(reg: nbx.Registry) -> None:
    plan, other = layers(reg, H200, 2), layers(reg, "nvidia/v100-sxm2-32gb", 3)
    both = nbx.Plan(
        plan.entries + other.entries,
        plan.values + other.values,
        plan.steps
        + [
            Step(
                step.entry + len(plan),
                tuple(None if v is None else v + len(plan.values) for v in step.inputs),
                tuple(v + len(plan.values) for v in step.outputs),
            )
            for step in other.steps
        ],
    )
    price = reg.price(both)
    assert price.slab_bytes == reg.price(plan).slab_bytes + reg.price(other).slab_bytes
    with pytest.raises(nbx.NbxError, match="name one with device="):
        price.best_layout()
    assert price.best_layout(device=H200, seconds=0).extent == reg.price(plan).slab_bytes
