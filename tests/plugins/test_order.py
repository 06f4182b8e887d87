"""The order in which plugins are registered, and kernels within one, never changes an answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nbx_acme.plugin
import nbx_simulated.plugin
from nbx_registry import plugins
from nbx_registry.catalog import Catalog
from nbx_registry.dtypes import DType
from nbx_registry.hookspecs import hookimpl
from nbx_registry.kernel import Backend, Kernel
from nbx_registry.registry import Registry

STRUCTURE = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Brings:
    """An in-process plugin that brings kernels and, if asked, other things."""

    NBX_HOOKS = 1

    def __init__(self, name: str, *kernels: Kernel, backends: Sequence[Backend] = (), dtypes: Sequence[DType] = ()):
        self.name = name
        self.kernels = list(kernels)
        self._backends = list(backends)
        self._dtypes = list(dtypes)

    @hookimpl
    def nbx_register_kernels(self) -> list[Kernel]:
        return self.kernels

    @hookimpl
    def nbx_register_backends(self) -> list[Backend]:
        return self._backends

    @hookimpl
    def nbx_register_dtypes(self) -> list[DType]:
        return self._dtypes


def kernel(identifier: str, op: str = "add@1", **stated: Any) -> Kernel:
    fields: dict[str, Any] = {
        "id": identifier,
        "op": op,
        "backend": "loopback",
        "runtimes": ("sim", "acme"),
        "bind": "nbx_simulated.kernels:bind",
    }
    return Kernel(**{**fields, **stated})


def crowd() -> list[Any]:
    """Plugins that compete, tie, collide and fail, in every way there is."""
    return [
        nbx_simulated.plugin,
        nbx_acme.plugin,
        # Ties that only the id breaks.
        Brings("tie-b", kernel("tie-b/add/one"), kernel("tie-b/add/two")),
        Brings("tie-a", kernel("tie-a/add/one"), kernel("tie-a/add/two")),
        # Preference, specificity by fact and by capability.
        Brings(
            "ranked",
            kernel("ranked/add/preferred", preference=3),
            kernel("ranked/add/fact", when=("device.multiprocessors >= 1",)),
            kernel("ranked/add/capability", when=("device.async_copy.tma",)),
            kernel("ranked/sqrt/rank", op="sqrt@1", when=("x.rank == 2",)),
        ),
        # The same id twice: once by who it belongs to, once not; and by two to whom it does not.
        Brings("owner", kernel("owner/sqrt/mine", op="sqrt@1")),
        Brings("thief", kernel("owner/sqrt/mine", op="sqrt@1"), kernel("thief/add/lost")),
        Brings("claimant-a", kernel("nobody/add/x")),
        Brings("claimant-b", kernel("nobody/add/x")),
        Brings("backend-a", backends=[Backend(name="disputed")]),
        Brings("backend-b", kernel("backend-b/add/x", backend="disputed"), backends=[Backend(name="disputed")]),
        # A dtype that two describe, differently and not.
        Brings("dtype-a", dtypes=[DType(name="test_fixed16", kind="int", bits=16, key="tfx16")]),
        Brings("dtype-b", dtypes=[DType(name="test_fixed16", kind="int", bits=16, key="tfx16")]),
        # What names ops or backends that nobody brings, and falls with who brought them.
        Brings("orphan", kernel("orphan/nothing/x", op="nothing@1")),
        Brings("leaning", kernel("leaning/add/x", backend="disputed")),
        # A predicate that fails.
        Brings("faulty", kernel("faulty/gelu/x", op="gelu@1", when=("x.colour == 3",))),
    ]


SPECS = ("float32[3, 63]", "float32[3, 63]")
REQUESTS: list[tuple[str, tuple[str, ...], dict[str, Any]]] = [
    ("add", SPECS, {"device": "sim/loopback"}),
    ("add", SPECS, {"device": "sim/loopback-large"}),
    ("add", SPECS, {"device": "sim:0", "kernel": "tie-b/add/two"}),
    ("add", SPECS, {"device": "acme/one"}),
    ("add", SPECS, {"device": "cpu"}),
    ("sqrt", SPECS[:1], {"device": "sim/loopback"}),
    ("gelu", SPECS[:1], {"device": "sim/loopback"}),
    ("linear", ("float32[3, 63]", "float32[5, 63]"), {"device": "acme/one"}),
    ("matmul", ("float16[3, 63]", "float16[63, 5]"), {"device": "nvidia/h200-sxm", "require": "checked"}),
]


def load(extra: Sequence[Any]) -> Registry:
    return Registry(Catalog(plugins.discover((), extra)), "any")


def answers(registry: Registry) -> str:
    """Everything that an answer says, and what became of every plugin."""
    state = {
        name: (plugin.state, plugin.reason, plugin.way_out, sorted(k.id for k in plugin.kernels))
        for name, plugin in registry.plugins.items()
    }
    decisions = [registry.decide(op, *specs, **keywords).to_dict() for op, specs, keywords in REQUESTS]
    for decision in decisions:
        for fault in decision["faults"]:
            # Where the fault was met is in the message; the lines of a traceback are not part of the answer.
            fault.pop("traceback")
    prices = [registry.price("add", *SPECS, device=device).workspace for device in ("sim/loopback", "acme/one")]
    listed = [list(registry.kernels), list(registry.ops), list(registry.devices), list(registry.catalog.backends)]
    return json.dumps([state, decisions, prices, listed, registry.diagnostics()], sort_keys=True, default=str)


@pytest.fixture(scope="module")
def reference() -> str:
    return answers(load(crowd()))


def test_the_crowd_does_what_it_is_there_for(reference):
    state, decisions, *_ = json.loads(reference)
    gone = {name for name, (word, *_) in state.items() if word == "quarantined"}
    assert gone == {"thief", "claimant-a", "claimant-b", "backend-a", "backend-b", "orphan", "leaning"}
    # The last request is about what has been checked so far, which is nobody's matter here.
    assert [decision["chosen"] for decision in decisions[:-1]] == [
        "ranked/add/fact",
        "ranked/add/capability",
        "tie-b/add/two",
        "nbx-acme/add/scratchpad",
        "nbx-host/add/numpy",
        "nbx-simulated/sqrt/loopback",
        None,
        "nbx-acme/linear/parts",
    ]
    assert decisions[6]["faults"]


@STRUCTURE
@given(order=st.permutations(range(len(crowd()))), data=st.data())
def test_permuting_plugins_and_their_kernels_changes_nothing(reference, order, data):
    members = crowd()
    for member in members:
        if isinstance(member, Brings):
            member.kernels = data.draw(st.permutations(member.kernels))
    assert answers(load([members[position] for position in order])) == reference


@STRUCTURE
@given(order=st.permutations(range(6)), split=st.integers(1, 5))
def test_which_plugin_brings_a_kernel_does_not_matter_to_its_rank(order, split):
    kernels = [kernel(f"shared/add/{letter}", preference=int(letter in "bd")) for letter in "fbdace"]
    mixed = [kernels[position] for position in order]
    registry = load([nbx_simulated.plugin, Brings("p", *mixed[:split]), Brings("q", *mixed[split:])])
    decision = registry.decide("add", *SPECS, device="sim/loopback")
    ranked = [candidate.kernel for candidate in decision.candidates if candidate.accepted]
    expected = [f"shared/add/{letter}" for letter in "bdacef"]
    assert ranked == [expected[0], expected[1], "nbx-simulated/add/loopback", *expected[2:]]


@STRUCTURE
@given(order=st.permutations(range(len(REQUESTS))))
def test_what_was_asked_before_does_not_change_an_answer(reference, order):
    registry = load(crowd())
    expected = json.loads(reference)[1]
    for position in order:
        op, specs, keywords = REQUESTS[position]
        found = registry.decide(op, *specs, **keywords).to_dict()
        for fault in found["faults"]:
            fault.pop("traceback")
        assert json.loads(json.dumps(found, default=str)) == expected[position]


def test_results_are_the_same_bits_in_any_order():
    x = np.random.default_rng(0).standard_normal((3, 63)).astype(np.float32)
    outcomes = set()
    for extra in ([nbx_simulated.plugin, nbx_acme.plugin], [nbx_acme.plugin, nbx_simulated.plugin]):
        registry = load(extra)
        outcomes.add(registry.call("softmax", x).tobytes())
    assert len(outcomes) == 1
