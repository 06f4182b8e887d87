"""Ops as functions: the contract's signature, and the process's registry."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from making import plugin
from ops_made import made_ops

import nbx_registry as nbx
from nbx_registry.op import op


@pytest.fixture
def reg() -> nbx.Registry:
    return nbx.load(plugins=[made_ops()], require="any")


def test_a_namespace_of_a_plugin_is_an_attribute(reg: nbx.Registry) -> None:
    x = np.ones((2, 3), np.float32)
    assert reg.namespace.made.concat([x, x]).shape == (4, 3)
    assert dir(reg.namespace.made) == ["accumulate", "concat", "spread"]
    assert "made" in dir(reg.namespace)
    with pytest.raises(AttributeError, match="did you mean 'made::concat'"):
        reg.namespace.made.concatt  # noqa: B018


def test_a_function_has_the_contracts_signature(reg: nbx.Registry) -> None:
    signature = inspect.signature(reg.namespace.made.concat)
    assert str(signature) == "(xs, scale=None, *, axis=0, out=None, device=None, kernel=None, require=None)"
    assert reg.namespace.made.concat.__doc__ == "Join along an axis, then scale."


def test_functions_follow_the_process_registry(reg: nbx.Registry) -> None:
    before = nbx.set_default(reg)
    try:
        assert nbx.ops.made.spread(np.ones((2, 3), np.float32))[0].shape == (2,)
        nbx.set_default(nbx.load(require="any"))
        with pytest.raises(AttributeError):
            nbx.ops.made  # noqa: B018
    finally:
        nbx.set_default(before)


def test_tensors_may_be_called_like_our_own_parameters() -> None:
    @op("made::odd@1(op: F[N], self: F[N], name: F[N]? = None) -> F[N]")
    def odd(op, self, name):
        """Add."""
        return op + self

    reg = nbx.load(plugins=[plugin("made", ops=[odd])])
    decision = reg.decide("made::odd", op="float32[3]", self="float32[3]")
    assert decision.request == "made::odd(op: float32[3], self: float32[3])"
    with pytest.raises(nbx.Refused):
        reg.call("made::odd", op=np.ones(3), self=np.ones(3))
    with pytest.raises(nbx.Refused):
        reg.namespace.made.odd(op=np.ones(3), self=np.ones(3), name=np.ones(3))
