"""Random catalogs, and random requests of each: what the registry answers beside what the rules say.

    python tests/fuzz/dispatches.py --count 1000000 --workers 2

Half of the requests are calls on NumPy arrays, whose kernels write their own number, so that the way a call goes, with
everything it remembers, is what is tried; the others are decisions about devices that are not here, compared candidate
by candidate.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from obvious import LEVELS, POLICIES, Advisory, Answer, Clause, Facts, Made, Missing, answer

import nbx_registry as nbx
from nbx_registry.decision import Evidence
from nbx_registry.hookspecs import hookimpl
from nbx_registry.kernel import Backend, Kernel
from nbx_registry.launch import BindContext, Launch
from nbx_registry.space import Space
from nbx_registry.spec import TensorSpec

PER_CATALOG = 5000

# What is stated of some devices, and of the host, where nothing is.
DEVICES: dict[str, dict[str, Any]] = {
    "cpu": {"id": "host/cpu", "runtime": "host", "arch": None},
    "nvidia/h200-sxm": {
        "id": "nvidia/h200-sxm",
        "runtime": "cuda",
        "arch": "sm_90",
        "multiprocessors": 132,
        "async_copy.tma": True,
        "matrix_unit.m8n8k4": False,
    },
    "nvidia/v100-sxm2-16gb": {
        "id": "nvidia/v100-sxm2-16gb",
        "runtime": "cuda",
        "arch": "sm_70",
        "multiprocessors": 80,
        "async_copy.tma": False,
        "matrix_unit.m8n8k4": True,
    },
}
FLOATS = ("float32", "float16", "float64")


# Requests.


@dataclass
class Tensor:
    """A tensor to be asked about: its array is made when it is needed."""

    dtype: str
    shape: tuple[int, ...]
    layout: str = "dense"
    start: int = 0
    """Elements from an aligned address to the first one."""

    @property
    def align(self) -> int:
        # What has no elements has no address.
        return 16 if self.start == 0 or 0 in self.shape else np.dtype(self.dtype).itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        dense = [prod(self.shape[axis + 1 :]) for axis in range(len(self.shape))]
        if self.layout == "transposed" and len(self.shape) > 1:
            turned = (*self.shape[:-2], self.shape[-1], self.shape[-2])
            other = [prod(turned[axis + 1 :]) for axis in range(len(turned))]
            return (*other[:-2], other[-1], other[-2])
        if self.layout == "strided":
            return tuple(2 * stride for stride in dense)
        if self.layout == "expanded" and self.shape:
            return (0, *dense[1:])
        return tuple(dense)

    @property
    def contiguous(self) -> bool:
        if 0 in self.shape:
            return True
        dense = Tensor(self.dtype, self.shape).strides
        return all(n == 1 or s == d for n, s, d in zip(self.shape, self.strides, dense, strict=True))

    def spec(self) -> TensorSpec:
        return TensorSpec(nbx.dtypes.get(self.dtype), self.shape, self.strides, align=self.align)

    def array(self) -> np.ndarray[Any, Any]:
        itemsize = np.dtype(self.dtype).itemsize
        strides = tuple(stride * itemsize for stride in self.strides)
        return np.ndarray(self.shape, self.dtype, _memory(self.dtype), self.start * itemsize, strides)

    def facts(self, name: str) -> dict[str, Any]:
        return {
            f"{name}.given": True,
            f"{name}.dtype": self.dtype,
            f"{name}.rank": len(self.shape),
            f"{name}.size": prod(self.shape),
            f"{name}.contiguous": self.contiguous,
            f"{name}.distinct": 0
            if 0 in self.shape
            else prod(n for n, s in zip(self.shape, self.strides, strict=True) if s),
            f"{name}.shape": self.shape,
            f"{name}.align": self.align,
        }


_BUFFERS: dict[str, np.ndarray[Any, Any]] = {}


def _memory(dtype: str) -> np.ndarray[Any, Any]:
    """One buffer for all inputs: nobody reads what is in it, and its start is aligned as arrays are."""
    found = _BUFFERS.get(dtype)
    if found is None:
        found = _BUFFERS[dtype] = np.ones(1 << 16, dtype)
        assert found.ctypes.data % 16 == 0
    return found


@dataclass
class Request:
    op: str
    tensors: list[Tensor | float | None]
    attributes: dict[str, Any]
    facts: dict[str, Any]
    out: tuple[tuple[int, ...], str] | None = None
    """Shape and dtype of an ``out=`` to give; None to have it made."""


def _tensor(rng: random.Random, dtype: str, shape: tuple[int, ...]) -> Tensor:
    layout = rng.choice(["dense", "dense", "dense", "transposed", "strided", "expanded"])
    return Tensor(dtype, shape, layout, rng.choice([0, 0, 0, 1]))


def _extents(rng: random.Random, least: int, most: int) -> tuple[int, ...]:
    return tuple(rng.choice([1, 2, 3, 4, 5, 7, 8, 0]) for _ in range(rng.randint(least, most)))


def binary(rng: random.Random) -> Request:
    op = rng.choice(["add", "multiply"])
    x1 = _tensor(rng, rng.choice([*FLOATS, "int32"]), _extents(rng, 0, 4))
    second: Tensor | float
    if rng.random() < 0.2:
        second, facts = rng.choice([2, 3]), {"x2.rank": 0, "x2.dtype": x1.dtype, "x2.size": 1}
    else:
        cut = x1.shape[rng.randint(0, len(x1.shape)) :]
        # A broadcast operand: an axis may be 1 in either.
        second = _tensor(rng, x1.dtype, tuple(rng.choice([n, n, 1]) for n in cut))
        facts = second.facts("x2")
    out = prod(x1.shape)
    given = (x1.shape, x1.dtype) if rng.random() < 0.3 else None
    return Request(op, [x1, second], {}, {**x1.facts("x1"), **facts, "out.size": out, "out.rank": len(x1.shape)}, given)


def unary(rng: random.Random) -> Request:
    x = _tensor(rng, rng.choice(FLOATS), _extents(rng, 0, 4))
    return Request("sqrt", [x], {}, {**x.facts("x"), "out.size": prod(x.shape), "out.rank": len(x.shape)})


def normalized(rng: random.Random) -> Request:
    x = _tensor(rng, rng.choice(FLOATS), _extents(rng, 1, 3))
    width = (x.shape[-1],)
    weight, bias = (_tensor(rng, x.dtype, width) if rng.random() < 0.5 else None for _ in range(2))
    facts = {**x.facts("x"), "D": x.shape[-1], "out.size": prod(x.shape), "weight.given": False, "bias.given": False}
    for name, tensor in (("weight", weight), ("bias", bias)):
        facts |= {} if tensor is None else tensor.facts(name)
    facts["eps"] = rng.choice([1e-5, 1e-3])
    given = (x.shape, x.dtype) if rng.random() < 0.3 else None
    return Request("layer_norm", [x, weight, bias], {"eps": facts["eps"]}, facts, given)


def shuffled(rng: random.Random) -> Request:
    r = rng.choice([1, 2, 3])
    shape = (rng.choice([1, 2]), r * r * rng.choice([1, 2, 3]), rng.choice([1, 4, 5]), rng.choice([3, 4]))
    x = _tensor(rng, rng.choice([*FLOATS, "int32"]), shape)
    facts = {**x.facts("x"), "r": r, "C": shape[1], "H": shape[2], "W": shape[3], "out.size": prod(shape)}
    return Request("pixel_shuffle", [x], {"r": r}, facts)


MAKERS: tuple[Callable[[random.Random], Request], ...] = (binary, unary, normalized, shuffled)


# Conditions.


def _stated(device: Facts, key: str) -> Any:
    if key not in device:
        raise Missing
    return device[key]


def of_tensor(name: str, optional: bool = False) -> list[Clause]:
    """Conditions on one tensor parameter."""
    reads = (name,) if optional else ()

    def clause(text: str, holds: Callable[[Facts], bool], code: str, static: bool = False) -> Clause:
        return Clause(text.format(name), lambda f, _: holds(f), code, static, reads=reads)

    return [
        clause("{}.dtype == float32", lambda f: f[f"{name}.dtype"] == "float32", "DTYPE", True),
        clause("{}.dtype in (float16, float32)", lambda f: f[f"{name}.dtype"] in ("float16", "float32"), "DTYPE", True),
        clause("{}.rank <= 2", lambda f: f[f"{name}.rank"] <= 2, "SHAPE", True),
        clause("{}.rank != 1", lambda f: f[f"{name}.rank"] != 1, "SHAPE", True),
        clause("{}.size > 8", lambda f: f[f"{name}.size"] > 8, "SHAPE"),
        clause("{}.size % 2 == 0", lambda f: f[f"{name}.size"] % 2 == 0, "SHAPE"),
        clause("{}.contiguous", lambda f: f[f"{name}.contiguous"], "LAYOUT"),
        clause("{}.align >= 16", lambda f: f[f"{name}.align"] >= 16, "LAYOUT"),
        clause("{}.align < 16", lambda f: f[f"{name}.align"] < 16, "LAYOUT"),
        clause("not {}.contiguous", lambda f: not f[f"{name}.contiguous"], "LAYOUT"),
    ]


ANYWHERE = [
    Clause("out.size >= 12", lambda f, _: f["out.size"] >= 12, "SHAPE"),
    Clause("out.size < 100 or out.size % 3 == 0", lambda f, _: f["out.size"] < 100 or f["out.size"] % 3 == 0, "SHAPE"),
    Clause("device.arch == 'sm_90'", lambda _, d: d["arch"] == "sm_90", "ARCH", True, "arch"),
    Clause("device.async_copy.tma", lambda _, d: _stated(d, "async_copy.tma"), "CAPABILITY", True, "arch"),
    Clause("device.matrix_unit.m8n8k4", lambda _, d: _stated(d, "matrix_unit.m8n8k4"), "CAPABILITY", True, "arch"),
    Clause("device.multiprocessors >= 100", lambda _, d: _stated(d, "multiprocessors") >= 100, "DEVICE", True, "fact"),
    Clause(
        "device.multiprocessors < 2 * out.size",
        lambda f, d: _stated(d, "multiprocessors") < 2 * f["out.size"],
        "DEVICE",
        False,
        "fact",
    ),
    Clause("device.no.such_fact > 0", lambda _, d: _stated(d, "no.such_fact") > 0, "DEVICE", True, "fact"),
    # A bug: it divides by zero for some sizes.
    Clause("100 // out.size >= 0", lambda f, _: 100 // f["out.size"] >= 0, "SHAPE"),
]
OF_OP: dict[str, list[Clause]] = {
    "add": [
        *of_tensor("x1"),
        Clause("x2.rank == x1.rank", lambda f, _: f["x2.rank"] == f["x1.rank"], "SHAPE", True),
        Clause("x2.size == x1.size", lambda f, _: f["x2.size"] == f["x1.size"], "SHAPE"),
        Clause("1 // (x1.rank - 3) < 2", lambda f, _: 1 // (f["x1.rank"] - 3) < 2, "SHAPE", True),
    ],
    "sqrt": [
        *of_tensor("x"),
        Clause("x.distinct == x.size", lambda f, _: f["x.distinct"] == f["x.size"], "LAYOUT"),
        Clause("x.shape == (4, 5)", lambda f, _: f["x.shape"] == (4, 5), "SHAPE"),
    ],
    "layer_norm": [
        *of_tensor("x"),
        *of_tensor("weight", optional=True),
        Clause("D <= 4", lambda f, _: f["D"] <= 4, "SHAPE"),
        Clause("weight.given", lambda f, _: f["weight.given"], "ATTRIBUTE", True),
        Clause("not bias.given", lambda f, _: not f["bias.given"], "ATTRIBUTE", True),
        Clause("bias.given or weight.given", lambda f, _: f["bias.given"] or f["weight.given"], "ATTRIBUTE", True),
        Clause("eps < 1e-4", lambda f, _: f["eps"] < 1e-4, "ATTRIBUTE", True),
    ],
    "pixel_shuffle": [
        *of_tensor("x"),
        Clause("r == 2", lambda f, _: f["r"] == 2, "ATTRIBUTE"),
        Clause("r in (1, 3) or H > 1", lambda f, _: f["r"] in (1, 3) or f["H"] > 1, "SHAPE"),
        Clause("C // r**2 > 1", lambda f, _: f["C"] // f["r"] ** 2 > 1, "SHAPE"),
        Clause("W == H", lambda f, _: f["W"] == f["H"], "SHAPE"),
    ],
}
OF_OP["multiply"] = OF_OP["add"]


# Catalogs.


def make(rng: random.Random) -> list[Made]:
    """Return the kernels of one catalog."""
    made: list[Made] = []
    for op, clauses in OF_OP.items():
        for number in range(rng.randint(1, 7)):
            composite = op == "add" and rng.random() < 0.15
            when = rng.sample([*clauses, *ANYWHERE], rng.choice([0, 1, 1, 2, 2, 3]))
            seconds = {
                (device["id"], size): rng.choice([1e-6, 2e-6, 3e-6])
                for device in DEVICES.values()
                for size in rng.sample([1, 4, 6, 8, 12, 16, 20, 24, 36, 40, 48], rng.choice([0, 0, 4]))
            }
            made.append(
                Made(
                    id=f"made/{op}/{number}",
                    op=op,
                    runtimes=() if composite else rng.choice([("host",), ("cuda",), ("host", "cuda")]),
                    when=tuple(when),
                    preference=rng.randint(-1, 1),
                    level=rng.choice([*LEVELS, "here", "here"]),
                    composite_of="multiply" if composite else None,
                    blocked=rng.random() < 0.06,
                    advisories=tuple(advisory(rng, clauses) for _ in range(rng.choice([0, 0, 0, 0, 0, 0, 1, 2]))),
                    seconds={} if composite else seconds,
                )
            )
    return made


def advisory(rng: random.Random, clauses: list[Clause]) -> Advisory:
    """Return an advisory about a kernel whose op these clauses are for."""
    return Advisory(
        current=rng.random() < 0.8,
        device=rng.choice([None, None, *(device["id"] for device in DEVICES.values())]),
        when=rng.choice([None, *rng.sample([*clauses, *ANYWHERE], 4)]),
    )


def marker(number: int) -> Callable[[BindContext], Launch]:
    """Return the binder of a kernel that writes its number, and nothing else."""

    def run(*arrays: Any) -> None:
        arrays[-1].fill(number)

    def bind(context: BindContext) -> Launch:
        return Launch(function=run, args=context.signature.names)

    return bind


def by_product(trace: Any, x1: Any, x2: Any) -> Any:
    """Make an addition of a product: which kernel runs is all that is asked."""
    return trace.call("multiply", x1, x2)


SPACES: Any = ModuleType("nbx_fuzz_spaces")
SPACES.SETTINGS = Space(parameters={"width": (2, 4)})
sys.modules[SPACES.__name__] = SPACES


def registry(made: list[Made], folder: Path) -> nbx.Registry:
    """Load a registry in which these kernels, and none of the host's, may run."""
    kernels: list[Kernel] = []
    for number, one in enumerate(made, 1):
        facts: dict[str, Any] = {"backend": "made", "bind": marker(number), "settings": f"{SPACES.__name__}:SETTINGS"}
        facts["defaults"] = {"width": 2}
        if one.composite_of is not None:
            facts = {"backend": "composite", "bind": by_product, "parts": (f"{one.composite_of}@1",)}
        kernels.append(
            Kernel(
                id=one.id,
                op=f"{one.op}@1",
                runtimes=one.runtimes,
                when=tuple(clause.text for clause in one.when),
                key=("out.size",),
                preference=one.preference,
                **facts,
            )
        )
    for name, device in DEVICES.items():
        entries = [
            {
                "kernel": one.id,
                "key": {"out.size": size},
                "settings": {"width": 4},
                "proof": {
                    "date": "2026-11-30",
                    "toolkit": "made 1",
                    "deviation": 0,
                    "bound": 1,
                    "times": {"tuned_s": seconds},
                },
            }
            for one in made
            for (place, size), seconds in one.seconds.items()
            if place == device["id"]
        ]
        text = json.dumps({"format": 1, "device": device["id"], "entries": entries})
        (folder / f"{name.replace('/', '-')}.json").write_text(text)
    rows = [
        {
            "kernel": one.id,
            "versions": ">=1.2,<2" if item.current else "<1.2",
            "reason": "made",
            "link": "https://example.com",
            **({"device": item.device} if item.device is not None else {}),
            **({"when": item.when.text} if item.when is not None else {}),
        }
        for one in made
        for item in one.advisories
    ]
    # JSON is YAML.
    (folder / "advisories.yml").write_text(json.dumps({"advisories": rows}))
    hooks = {"kernels": kernels, "backends": [Backend(name="made")], "settings": [folder], "advisories": [folder]}
    plugin = SimpleNamespace(
        name="made",
        NBX_HOOKS=1,
        **{
            f"nbx_register_{kind}": hookimpl(lambda values=values: values, specname=f"nbx_register_{kind}")
            for kind, values in hooks.items()
        },
    )
    host = [kernel for kernel in nbx.load().kernels if kernel.startswith("nbx-host/")]
    block = ["nbx-triton", "nbx-sdm", *host, *(one.id for one in made if one.blocked)]
    found = nbx.load(plugins=[plugin], block=block)
    found.catalog.plugins["made"].version = "1.4"
    levels = {one.id: Evidence(one.level) for one in made}  # type: ignore[arg-type]
    # Which bundle says so is another matter, with tests of its own.
    found._selector.evidence = lambda kernel, target: levels.get(kernel.id, Evidence("none"))  # type: ignore[method-assign]
    return found


# Comparing.


class Disagreement(AssertionError):
    """The registry and the rules answer differently."""


def decided(reg: nbx.Registry, request: Request, place: str, require: str, pin: str | None, expected: Answer) -> str:
    """Compare a decision, candidate by candidate."""
    specs = [tensor.spec() if isinstance(tensor, Tensor) else tensor for tensor in request.tensors]
    if place == "cpu":
        specs = [tensor.array() if isinstance(tensor, Tensor) else tensor for tensor in request.tensors]
    found = reg.decide(request.op, *specs, device=place, require=require, kernel=pin, **request.attributes)
    mine = [candidate for candidate in found.candidates if candidate.kernel.startswith("made/")]
    accepted = [(candidate.kernel, candidate.evidence.level) for candidate in mine if candidate.accepted]
    refused = {candidate.kernel: candidate.code for candidate in mine if not candidate.accepted}
    best = expected.best
    if (
        found.chosen != (best and best.id)
        or accepted != [(one.id, level) for one, level, _ in expected.accepted]
        or refused != expected.refused
    ):
        raise Disagreement(f"{found}\n\nthe rules: {expected}")
    return "faulty" if expected.faulty else "refused" if best is None else "chosen"


def called(
    reg: nbx.Registry, request: Request, require: str, pin: str | None, expected: Answer, numbers: dict[str, int]
) -> str:
    """Compare which kernel a call runs."""
    arrays = [tensor.array() if isinstance(tensor, Tensor) else tensor for tensor in request.tensors]
    best = expected.accepted[0] if expected.best is not None else None
    given = None if request.out is None else np.empty(*request.out)
    try:
        out = reg.call(request.op, *arrays, out=given, require=require, kernel=pin, **request.attributes)
    except nbx.PluginFault as error:
        if not expected.faulty:
            raise Disagreement(f"{error}\n\nthe rules: {expected}") from error
        return "faulty"
    except nbx.Refused as error:
        if best is not None or expected.faulty:
            raise Disagreement(f"{error}\n\nthe rules: {expected}") from error
        return "refused"
    if best is None:
        raise Disagreement(f"{request} ran, and should not have: {expected}")
    ran = best[2] or best[0]
    if given is not None and out is not given:
        raise Disagreement(f"{request} did not return the out= it was given")
    if out.size and not (out == numbers[ran.id]).all():
        raise Disagreement(f"{request} ran {out.ravel()[0]}, not {ran.id} ({numbers[ran.id]}): {expected}")
    return "chosen"


def fuzz(count: int, seed: int, per_catalog: int = PER_CATALOG) -> Counter[str]:
    """Compare this many dispatches; return how many ended how. Raises `Disagreement` naming seed and request."""
    ended: Counter[str] = Counter()
    catalog = 0
    while ended.total() < count:
        rng = random.Random(f"{seed} {catalog}")
        made = make(rng)
        numbers = {one.id: number for number, one in enumerate(made, 1)}
        with tempfile.TemporaryDirectory() as folder:
            reg = registry(made, Path(folder))
            for turn in range(min(per_catalog, count - ended.total())):
                request = rng.choice(MAKERS)(rng)
                require = rng.choice(["any", *POLICIES])
                pin = rng.choice([one.id for one in made if one.op == request.op]) if rng.random() < 0.1 else None
                call = turn % 2 == 0
                place = "cpu" if call else rng.choice([*DEVICES])
                expected = answer(made, request.op, request.facts, DEVICES[place], require, pin)
                try:
                    if call:
                        end = called(reg, request, require, pin, expected, numbers)
                    else:
                        end = decided(reg, request, place, require, pin, expected)
                except Disagreement as error:
                    error.add_note(
                        f"seed {seed}, catalog {catalog}, turn {turn}: {request} on {place}, {require}, {pin}"
                    )
                    raise
                ended[end] += 1
        catalog += 1
    return ended


def _share(task: tuple[int, int]) -> Counter[str]:
    return fuzz(*task)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    start = time.perf_counter()
    tasks = [(options.count // options.workers, options.seed + worker) for worker in range(options.workers)]
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        ended = sum(pool.map(_share, tasks, chunksize=1), Counter[str]())
    seconds = time.perf_counter() - start
    print(f"{ended.total()} dispatches agree in {seconds:.0f} s: {dict(ended)}")


if __name__ == "__main__":
    main()
