"""The census: launch keys of a plan on whatever device, equal to those a real run forms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from making import add, host_kernel, plugin
from ops_made import made_ops

import nbx_registry as nbx
import nbx_simulated.kernels
import nbx_simulated.plugin
from nbx_registry import expr
from nbx_registry.census import LaunchKey
from nbx_registry.dtypes import DType
from nbx_registry.kernel import Backend, Kernel
from nbx_registry.registry import set_default

Formed = dict[LaunchKey, None]


def key_of(context: nbx.BindContext) -> LaunchKey:
    """Return a launch key by evaluating its expressions, one by one, where the kernel is bound."""

    def look(path: str) -> Any:
        return context.device.values[path[7:]] if path.startswith("device.") else context.signature.value(path)

    def plain(value: Any) -> Any:
        return value.key if isinstance(value, DType) else value

    key = tuple((text, plain(expr.parse(text).evaluate(look))) for text in context.kernel.key)
    settings = tuple(sorted(context.settings.items()))
    return LaunchKey(context.kernel.id, context.device.id, context.device.arch, key, settings)


KEYS = {
    "add": ("out.size", "x1.dtype", "x1.contiguous", "device.multiprocessors"),
    "matmul": ("x1.shape", "x2.strides"),
    "multiply": ("out.shape",),
}


def keyed(runtime: str, formed: Formed) -> list[Kernel]:
    """Return kernels with launch keys and settings, which note the keys they are bound with."""
    functions: dict[str, Callable[..., Any]] = {"add": add, "matmul": np.matmul, "multiply": np.multiply}

    def binder(op: str) -> Callable[[nbx.BindContext], nbx.Launch]:
        def bind(context: nbx.BindContext) -> nbx.Launch:
            formed[key_of(context)] = None
            if runtime == "sim":
                return nbx_simulated.kernels.bind(context)
            function = functions[op]
            return nbx.Launch(function=lambda *a: function(*a[:-1], out=a[-1]), args=context.signature.names)

        return bind

    host = runtime == "host"
    return [
        host_kernel(
            f"keyed/{op}/{runtime}", add, bind=binder(op), key=key[:3] if host else key, runtimes=(runtime,),
            defaults={"width": 8, "stages": 2}, preference=9, backend="keyed" if host else "loopback", overlap="any",
        )
        for op, key in KEYS.items()
    ]  # fmt: skip


def linear(trace: Any, x: Any, w: Any, bias: Any, *, activation: Any) -> Any:
    del activation
    y = trace.call("matmul", x, trace.permute(w, (1, 0)))
    return y if bias is None else trace.call("add", y, bias)


def gelu(trace: Any, x: Any, *, approximate: str) -> Any:
    del approximate
    return trace.call("linear", trace.call("multiply", x, 2.0), trace.expand(trace.index(x, slice(0, 1)), (127, 127)))


def composite(op: str, function: Callable[..., Any], *parts: str) -> Kernel:
    return Kernel(
        id=f"keyed/{op}/parts", op=f"{op}@1", backend="composite", runtimes=(), bind=function, parts=parts, preference=9
    )


COMPOSITES = [
    composite("linear", linear, "matmul@1", "add@1"),
    composite("gelu", gelu, "linear@1", "multiply@1"),
]


def registry(formed: Formed) -> nbx.Registry:
    kernels = [*keyed("host", formed), *keyed("sim", formed), *COMPOSITES]
    made = plugin("keyed", backends=[Backend(name="keyed")], kernels=kernels)
    blocked = [f"nbx-{o}/{op}/{k}" for o, k in (("host", "numpy"), ("simulated", "loopback")) for op in (*KEYS, "gelu")]
    blocked += ["nbx-host/linear/numpy", "nbx-simulated/linear/loopback"]
    return nbx.load(plugins=[nbx_simulated.plugin, made_ops(), made], block=blocked, require="any")


@pytest.fixture
def formed() -> Formed:
    return {}


@pytest.fixture
def reg(formed: Formed) -> Iterator[nbx.Registry]:
    made = registry(formed)
    before = set_default(made)
    yield made
    set_default(before)


def work(reg: nbx.Registry, place: str) -> None:
    def put(*shape: int, dtype: Any = np.float32) -> Any:
        x = np.ones(shape, dtype)
        return x if place == "cpu" else nbx.asarray(x, device=place)

    x = put(63, 127)
    for y in (x, put(63, 127), put(1, 127), put(63, 127, dtype=np.float16)):
        reg.call("add", y, y)
        reg.call("add", y, 2.0)
    reg.call("linear", x, put(1000, 127), put(1000))
    reg.call("gelu", put(63, 127))
    turned = reg.call("permute_dims", x, axes=(1, 0))
    reg.call("add", turned, turned)
    reg.call("matmul", x, turned)
    # Not a multiple of 16 bytes: another program, of the same key.
    reg.call("add", x[1:], x[1:])


@pytest.mark.parametrize("place", ["cpu", "sim:0", "sim:1"])
def test_the_census_is_what_a_real_run_forms(reg: nbx.Registry, formed: Formed, place: str) -> None:
    with reg.record() as plan:
        work(reg, place)
    census = reg.keys(plan)
    assert set(census) == set(formed)
    assert len(census) == len(set(census)) > 8
    assert census.refused == ()
    # Views launch nothing, and a composite's keys are its parts'.
    assert {key.kernel.rpartition("/")[0] for key in census} == {"keyed/add", "keyed/matmul", "keyed/multiply"}
    formed.clear()
    fresh = registry(formed)
    assert list(fresh.keys(plan)) == list(census)
    assert formed == {}
    fresh.prepare(plan, device=place)
    assert set(formed) == set(census)


@pytest.mark.parametrize(
    ("ran", "asked", "product"), [("cpu", "sim:1", "sim/loopback-large"), ("sim:0", "cpu", "host/cpu")]
)
def test_another_device_s_keys_are_those_of_a_run_there(
    reg: nbx.Registry, formed: Formed, ran: str, asked: str, product: str
) -> None:
    with reg.record() as plan:
        work(reg, ran)
    formed.clear()
    with reg.record():
        work(reg, asked)
    for device in (asked, product):
        assert set(reg.keys(plan, device=device)) == set(formed)


def test_what_nothing_may_run_is_named_beside_the_keys(reg: nbx.Registry) -> None:
    with reg.record() as plan:
        reg.call("add", np.ones(3, np.float32), 1.0)
        reg.call("made::spread", np.ones((3, 5), np.float32))
    census = reg.keys(plan, device="nvidia/h200-sxm")
    ((entry, decision),) = census.refused
    assert entry.op == "made::spread@1"
    assert decision.chosen is None
    assert len(census) == 1
    assert census[0].arch == "sm_90"
    assert "refused: spread" in str(census) or "refused: made::spread" in str(census)
    assert str(reg.keys(plan)[0]) == (
        f"keyed/add/host [{reg.devices['host/cpu'].arch}] (out.size=3, x1.dtype=f32, x1.contiguous=True) "
        "{stages=2, width=8}"
    )


def test_a_device_without_facts_and_a_broken_key_are_told(reg: nbx.Registry) -> None:
    plan = nbx.Plan()
    with pytest.raises(nbx.NbxError, match="sim:9 has no facts: there is no sim:9"):
        reg.keys(plan, device="sim:9")
    bad = host_kernel("bad/add/x", add, key=("1 // (x1.size - 3)",), preference=10)
    broken = nbx.load(plugins=[plugin("bad", backends=[Backend(name="made")], kernels=[bad])], require="any")
    draft = broken.draft("cpu")
    draft.call("add", "float32[3]", 1.0, kernel="bad/add/x")
    with pytest.raises(nbx.PluginFault, match=r"the key .* of kernel 'bad/add/x' raised ZeroDivisionError"):
        broken.keys(draft.plan)
