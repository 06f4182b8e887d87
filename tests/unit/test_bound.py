"""Bound calls whose kernel fails, whatever way the call goes; composites traced once a signature."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from making import host_kernel, made, plugin

import nbx_registry as nbx
from nbx_registry.kernel import Backend, Kernel, Workspace

X = np.arange(63, dtype=np.float32)


def kernels(function: Any) -> nbx.Registry:
    """Return a registry whose sqrt is ``function(x, out)``, by one way with workspace, by the other without."""

    def bind(context: nbx.BindContext) -> nbx.Launch:
        del context
        return nbx.Launch(function=lambda x, out, _: function(x, out), args=("x", "out", "scratch"))

    scratch = (Workspace(name="scratch", dtype="uint8", shape=("x.size",)),)
    own = [
        host_kernel("made/sqrt/plain", function),
        host_kernel("made/sqrt/scratch", function, bind=bind, workspace=scratch),
    ]
    return nbx.load(plugins=[made("made", *own)], require="any")


@pytest.mark.parametrize("library", ["numpy", "torch", "nbx"])
@pytest.mark.parametrize("kernel", ["made/sqrt/plain", "made/sqrt/scratch"])
def test_a_kernel_that_raises_is_at_fault_in_a_bound_call_too(library: str, kernel: str) -> None:
    broken: list[bool] = []

    def function(x: Any, out: Any) -> None:
        if broken:
            raise ZeroDivisionError("broken")
        np.sqrt(x, out=out)

    reg = kernels(function)
    x: Any = X
    if library == "torch":
        import torch

        x = torch.from_numpy(X)
    elif library == "nbx":
        x = nbx.asarray(X)
    bound = reg.bind("sqrt", x, kernel=kernel)
    np.testing.assert_array_equal(np.asarray(bound()), np.sqrt(X))
    broken.append(True)
    for ask in (bound, lambda: reg.call("sqrt", x, kernel=kernel)):
        with pytest.raises(nbx.PluginFault, match=f"{kernel} of made raised ZeroDivisionError: broken") as caught:
            ask()
        assert caught.value.plugin == "made"


@pytest.mark.parametrize("kernel", ["made/sqrt/plain", "made/sqrt/scratch"])
def test_an_output_that_became_read_only_is_the_caller_s(kernel: str) -> None:
    reg = kernels(np.sqrt)
    out = np.empty_like(X)
    bound = reg.bind("sqrt", X, out=out, kernel=kernel)
    bound()
    out.flags.writeable = False
    for ask in (bound, lambda: reg.call("sqrt", X, out=out, kernel=kernel)):
        with pytest.raises(nbx.SignatureError, match="sqrt: out= is read-only"):
            ask()


def test_composites_of_composites_are_traced_once_a_signature() -> None:
    traced: Counter[str] = Counter()
    chain = ["sqrt", "gelu", "softmax", "layer_norm"]

    def level(name: str, inner: str, **attributes: Any) -> Kernel:
        def function(trace: Any, x: Any, *rest: Any, **_: Any) -> Any:
            del rest
            traced[name] += 1
            a = trace.call(inner, x, **attributes)
            return trace.call(inner, a, **attributes)

        return Kernel(
            id=f"deep/{name}/parts",
            op=f"{name}@1",
            backend="composite",
            runtimes=(),
            bind=function,
            parts=(f"{inner}@1",),
        )

    composites = [level(name, inner) for inner, name in pairwise(chain)]
    own = plugin("deep", backends=[Backend(name="made")], kernels=[host_kernel("deep/sqrt/x", np.sqrt), *composites])
    probe = nbx.load(plugins=[own], require="any")
    names = [f"{name}@1" for name in chain]
    others = [k.id for k in probe.kernels.values() if k.op in names and not k.id.startswith("deep/")]
    reg = nbx.load(plugins=[own], require="any", block=others)
    y = reg.call("layer_norm", X)
    np.testing.assert_allclose(y, X ** (0.5**8), rtol=1e-5)
    # Two inner calls a level are of the same signature: each is traced once, not twice as often at every level.
    assert traced == {"gelu": 1, "softmax": 1, "layer_norm": 1}
    reg.decide("layer_norm", X)
    reg.price("layer_norm", X, device="cpu")
    assert traced["layer_norm"] == 1
