"""Whatever kernels there are, `choose` and `decide` agree, and with the documented order read by somebody else."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nbx_registry as nbx
from nbx_registry.decision import Evidence
from nbx_registry.hookspecs import hookimpl
from nbx_registry.kernel import Backend, Kernel

DEVICE = "nvidia/h200-sxm"
SPECS = ("float32[63, 127]", "float32[127]")
POLICIES = {"any": 0, "checked": 2, "checked_here": 3, "tuned": 3}
LEVELS = ("none", "built", "elsewhere", "here")

# Clause: whether it holds of add on SPECS and DEVICE (None: it raises), whether sizes enter, how specific it is.
CLAUSES: dict[str, tuple[bool | None, bool, int]] = {
    "x1.dtype == float32": (True, False, 2),
    "x1.dtype in (float16, bfloat16)": (False, False, 2),
    "out.size > 1000": (True, True, 2),
    "out.size % 2 == 0": (False, True, 2),
    "device.arch == 'sm_90'": (True, False, 0),
    "device.async_copy.tma": (True, False, 0),
    "device.arch == 'sm_70'": (False, False, 0),
    "device.multiprocessors >= 100": (True, False, 1),
    "device.multiprocessors * 1000 < out.size": (False, True, 1),
    "out.size // (x1.rank - 2) == 1": (None, True, 2),
    "device.no.such_fact > 0": (False, False, 1),
}


@dataclass(frozen=True)
class Made:
    """One kernel of an example."""

    op: str
    number: int
    when: tuple[str, ...]
    preference: int
    level: str
    seconds: float | None
    composite: bool
    blocked: bool

    @property
    def id(self) -> str:
        return f"made/{self.op}/{self.number}"

    @property
    def specificity(self) -> int:
        return min((CLAUSES[clause][2] for clause in self.when), default=2)

    def kernel(self) -> Kernel:
        if self.composite:
            facts: dict[str, Any] = {
                "backend": "composite",
                "runtimes": (),
                "bind": by_product,
                "parts": ("multiply@1",),
            }
        else:
            facts = {"backend": "made", "runtimes": ("cuda",), "bind": by_product, "settings": "made:SETTINGS"}
        return Kernel(
            id=self.id, op=f"{self.op}@1", when=self.when, preference=self.preference, key=("out.size",), **facts
        )


def by_product(trace: Any, x1: Any, x2: Any) -> Any:
    """Make an addition of a product: nothing is computed here."""
    return trace.call("multiply", x1, x2)


# Most kernels are accepted: of those that are not there is no order to get wrong.
HOLDING = [clause for clause, (holds, *_) in CLAUSES.items() if holds]
kernels = st.builds(
    Made,
    op=st.sampled_from(["add", "add", "add", "multiply"]),
    number=st.integers(0, 999),
    when=st.lists(st.sampled_from([*CLAUSES, *HOLDING * 4]), max_size=2, unique=True).map(tuple),
    preference=st.integers(-1, 1),
    level=st.sampled_from(LEVELS),
    seconds=st.none() | st.sampled_from([1e-6, 2e-6, 3e-6]),
    composite=st.sampled_from([False, False, True]),
    blocked=st.sampled_from([False] * 7 + [True]),
)


@st.composite
def examples(draw: st.DrawFn) -> tuple[list[Made], str, str | None]:
    made = draw(st.lists(kernels, min_size=3, max_size=9, unique_by=lambda one: one.id))
    # Only additions are made of products: a product made of itself is refused anyhow.
    made = [one for one in made if not (one.composite and one.op == "multiply")]
    ids = [one.id for one in made if one.op == "add"]
    pin = draw(st.sampled_from([None] * 2 * len(made) + ids))
    return made, draw(st.sampled_from(["any", "any", "checked", "checked_here", "tuned"])), pin


# The documented order, slowly.


class Faulty(Exception):
    """A plugin is at fault where it matters."""


def condition(one: Made) -> bool:
    """Whether a kernel's conditions hold. Clauses without sizes come first; then all, in the kernel's order."""
    if any(CLAUSES[clause][0] is False for clause in one.when if not CLAUSES[clause][1]):
        return False
    for clause in one.when:
        if CLAUSES[clause][0] is None:
            raise Faulty
        if not CLAUSES[clause][0]:
            return False
    return True


def accepted(made: list[Made], op: str, require: str, pin: str | None) -> list[tuple[Made, int]]:
    """Return the accepted kernels of an op, best first, each with its level. Raises `Faulty`."""
    plain: list[tuple[Made, int]] = []
    for one in made:
        if one.op != op or one.composite or one.blocked or pin not in (None, one.id):
            continue
        level = LEVELS.index(one.level)
        if condition(one) and level >= POLICIES[require] and (require != "tuned" or one.seconds is not None):
            plain.append((one, level))
    ranked = sorted(plain, key=rank)
    composites = [one for one in made if one.op == op and one.composite and not one.blocked and pin in (None, one.id)]
    for one in sorted(composites, key=lambda one: rank((one, 0))):
        if not condition(one):
            continue
        try:
            parts = accepted(made, "multiply", require, None)
        except Faulty:
            # What a part does wrong counts where the composite, at its best, would be the one.
            if not ranked or rank((one, LEVELS.index("here"))) < rank(ranked[0]):
                raise
            continue
        if parts:
            ranked = sorted([*ranked, (one, parts[0][1])], key=rank)
    # Two that were timed on this key stand in the order of their times.
    for i in range(len(ranked)):
        for j in range(i + 1, len(ranked)):
            a, b = ranked[i][0], ranked[j][0]
            both = not a.composite and not b.composite and a.seconds is not None and b.seconds is not None
            if both and (b.seconds, b.id) < (a.seconds, a.id):
                ranked[i], ranked[j] = ranked[j], ranked[i]
    return ranked


def rank(pair: tuple[Made, int]) -> tuple[int, int, int, str]:
    one, level = pair
    return (-level, one.specificity, -one.preference, one.id)


# The registry's.


def registry(made: list[Made], folder: Path) -> nbx.Registry:
    entries = [
        {
            "kernel": one.id,
            "key": {"out.size": 63 * 127},
            "settings": {"width": 4},
            "proof": {
                "date": "2026-11-30",
                "toolkit": "made 1",
                "deviation": 0,
                "bound": 1,
                "times": {"tuned_s": one.seconds},
            },
        }
        for one in made
        if one.seconds is not None and not one.composite
    ]
    (folder / "made.json").write_text(json.dumps({"format": 1, "device": DEVICE, "entries": entries}))
    hooks = {
        "kernels": [one.kernel() for one in made],
        "backends": [Backend(name="made", modules=("not_installed",))],
        "settings": [folder],
    }
    plugin = SimpleNamespace(
        name="made",
        NBX_HOOKS=1,
        **{
            f"nbx_register_{kind}": hookimpl(lambda values=values: values, specname=f"nbx_register_{kind}")
            for kind, values in hooks.items()
        },
    )
    reg = nbx.load(plugins=[plugin], block=["nbx-triton", *(one.id for one in made if one.blocked)])
    levels = {one.id: Evidence(one.level) for one in made}
    reg._selector.evidence = lambda kernel, target: levels.get(kernel.id, Evidence("none"))
    return reg


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(examples())
def test_choose_and_decide_agree_with_the_documented_order(example: tuple[list[Made], str, str | None]) -> None:
    made, require, pin = example
    with tempfile.TemporaryDirectory() as folder:
        reg = registry(made, Path(folder))
        decision = reg.decide("add", *SPECS, device=DEVICE, require=require, kernel=pin)
        signature, _ = reg.signature("add", *SPECS)
        choice = reg._selector.choose(signature, reg.target(DEVICE), require, pin)
    try:
        expected = accepted(made, "add", require, pin)
    except Faulty:
        assert decision.chosen is None
        assert choice is None
        assert decision.faults
        return
    best = expected[0][0].id if expected else None
    assert decision.chosen == best
    assert (None if choice is None else choice.kernel.id) == best
    # Beside ours there are the host's kernels, refused here.
    mine = [c for c in decision.candidates if c.kernel.startswith("made/")]
    assert [c.kernel for c in mine if c.accepted] == [one.id for one, _ in expected]
    assert {c.kernel for c in mine} == {one.id for one in made if one.op == "add"}
    assert [c.evidence.level for c in mine if c.accepted] == [LEVELS[level] for _, level in expected]
    assert all(c.code and c.reason for c in mine if not c.accepted)
    if choice is not None and choice.tuned is not None:
        assert choice.settings == {"width": 4}
