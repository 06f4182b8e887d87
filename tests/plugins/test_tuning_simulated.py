"""Tuning on simulated devices: memory by address, cold operands, limits of compiled code, cards of one product."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import nbx_registry as nbx
from nbx_registry.hookspecs import hookimpl
from nbx_registry.kernel import Kernel, Workspace
from nbx_registry.launch import Artifact, BindContext, Launch
from nbx_registry.space import Space
from nbx_registry.tuning import Job, processes, tune
from nbx_registry.tuning.bench import Bench
from nbx_registry.tuning.problem import Problem
from nbx_registry.tuning.session import alike
from nbx_simulated.kernels import Loopback, launch_of

SPECS = ("float32[63, 127]", "float32[63, 127]")
ID = "made/add/blocked"
HERE = Path(__file__).parent

CODE = """
def add(memory, x1, x2, out):
    memory.view(out, {n})[...] = (memory.view(x1, {n}).view("f4") + memory.view(x2, {n}).view("f4")).view("u1")
"""


def compiled(shared: Mapping[int, int]) -> Callable[[BindContext], Launch]:
    """Return a binder of code that takes so much shared memory for each block."""

    def bind(context: BindContext) -> Launch:
        image = CODE.format(n=context.signature.outputs[0].nbytes).encode()
        artifact = Artifact(
            image=image,
            kind="python",
            entry="add",
            arch="sim_1",
            toolkit="made 1",
            shared_bytes=shared.get(context.settings["block"], 0),
        )
        return Launch(function=context.load(artifact), args=context.signature.names)

    return bind


SCRATCH = (Workspace(name="scratch", dtype="float32", shape=("2",)),)


def beside(does: Callable[..., None], block: int) -> Callable[[BindContext], Launch]:
    """Return a binder of a right kernel with workspace, which at one setting does something more."""

    def bind(context: BindContext) -> Launch:
        kernel, more = Loopback(context.signature), context.settings["block"] == block

        def run(memory: Any, x1: int, x2: int, out: int, scratch: int) -> None:
            kernel.run(memory, x1, x2, out)
            if more:
                does(memory, x1, x2, out, scratch)

        return Launch(function=run, args=("x1", "x2", "out", "scratch"))

    return bind


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Callable[..., nbx.Registry]:
    import nbx_simulated.plugin

    module = ModuleType(f"nbx_tuned_there_{abs(hash(request.node.nodeid))}")
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def load(bind: Any, **changes: Any) -> nbx.Registry:
        module.__dict__["SPACE"] = Space(parameters={"block": (64, 128, 256)})
        stated: dict[str, Any] = {
            "id": ID,
            "op": "add@1",
            "backend": "loopback",
            "runtimes": ("sim",),
            "bind": bind,
            "when": ("x1.contiguous", "x2.contiguous", "x1.size == x2.size"),
            "key": ("out.size",),
            "defaults": {"block": 128},
            "settings": f"{module.__name__}:SPACE",
        }
        kernel = Kernel(**{**stated, **changes})
        own = SimpleNamespace(
            name="made",
            NBX_HOOKS=1,
            nbx_register_kernels=hookimpl(lambda: [kernel], specname="nbx_register_kernels"),
        )
        return nbx.load(plugins=[nbx_simulated.plugin, own], require="any")

    return load


def test_code_beyond_the_device_is_excluded_before_it_is_loaded(
    make: Callable[..., nbx.Registry], tmp_path: Path
) -> None:
    times = {64: 1e-6, 128: 3e-6, 256: 1e-7}
    reg = make(compiled({64: 49152, 256: 49153}))
    (found,) = tune(
        reg,
        "add",
        SPECS,
        devices=["sim:0"],
        kernel=ID,
        out=tmp_path,
        stopwatch=lambda settings, kind, measured: times[settings["block"]],
    ).tuned
    assert (found.settings, found.device) == ({"block": 64}, "sim/loopback")
    (excluded,) = found.excluded
    assert (excluded.settings, excluded.rule) == ({"block": 256}, "shared memory")
    assert "takes 49153 bytes a block; sim/loopback has 49152" in excluded.reason
    assert found.machine["versions"] == {"simulation": "1"}
    assert (found.times["tuned_cold_s"], found.times["tuned_warm_s"]) == (1e-6, 1e-6)
    assert (tmp_path / "sim-loopback.json").exists()


def test_real_times_are_taken_there_cold_and_warm(make: Callable[..., nbx.Registry], tmp_path: Path) -> None:
    (found,) = tune(make(compiled({})), "add", SPECS, devices=["sim:0"], kernel=ID, out=tmp_path).tuned
    assert all(0 < seconds < 1 for seconds in found.times.values())
    assert found.times["tuned_s"] == found.times["tuned_cold_s"]
    assert found.deviation <= found.bound


def test_sets_of_operands_are_together_beyond_the_cache_that_the_file_states(
    make: Callable[..., nbx.Registry],
) -> None:
    reg = make(compiled({}))
    target = reg.target("sim:0")
    assert target.device is not None
    assert target.runtime is not None
    assert target.live is not None

    def bench(*specs: str) -> Bench:
        signature, _ = reg.signature("add", *specs)
        return Bench(Problem(signature, {}), target.runtime, target.live, target.device)  # type: ignore[arg-type]

    one = bench(*SPECS)
    assert one.cold
    assert one.sets * 3 * 63 * 127 * 4 >= 5 * target.device.fact("l2.bytes")
    # Too small to fill the cache with, and so large that one set does.
    assert not bench("float32[8]", "float32[8]").cold
    large = bench("float32[1024, 1024]", "float32[1024, 1024]")
    assert (large.cold, large.sets) == (True, 3)


def test_memory_that_is_kept_for_reuse_is_room_for_sets(make: Callable[..., nbx.Registry]) -> None:
    target = make(compiled({})).target("sim:0")
    assert target.runtime is not None
    # What tests before this one left in cycles may go at any time.
    gc.collect()
    target.runtime.synchronize(0)
    before = target.runtime.memory(0)
    assert before.available is not None
    kept = target.runtime.allocate(0, before.available - 4096)
    del kept
    target.runtime.synchronize(0)
    after = target.runtime.memory(0)
    assert after.free is not None
    assert after.free < before.available // 8
    assert after.available == before.available
    test_sets_of_operands_are_together_beyond_the_cache_that_the_file_states(make)


def test_cold_runs_take_the_sets_in_turn_and_warm_ones_stay(make: Callable[..., nbx.Registry]) -> None:
    reg = make(compiled({}))
    target = reg.target("sim:0")
    signature, _ = reg.signature("add", *SPECS)
    bench = Bench(Problem(signature, {}), target.runtime, target.live, target.device)  # type: ignore[arg-type]
    places: list[int] = []
    for _ in range(3):
        bench.seconds(places.append, bench.sets // 2, warm=False)
    assert places[: bench.sets] == list(range(bench.sets))
    places.clear()
    bench.seconds(places.append, 5, warm=True)
    assert len(places) == 6
    assert len(set(places)) == 1


def test_what_a_candidate_breaks_for_all_is_named(make: Callable[..., nbx.Registry], tmp_path: Path) -> None:
    broken: list[int] = []

    def bind(context: BindContext) -> Launch:
        block = context.settings["block"]

        def run(memory: Any, x1: int, x2: int, out: int) -> None:
            if block == 64:
                broken.append(block)
            if broken:
                raise RuntimeError("an illegal memory access was encountered")
            n = 63 * 127 * 4
            memory.view(out, n)[...] = (memory.view(x1, n).view("f4") + memory.view(x2, n).view("f4")).view("u1")

        return Launch(function=run, args=context.signature.names)

    (failure,) = tune(make(bind), "add", SPECS, devices=["sim:0"], kernel=ID, out=tmp_path).failed
    assert "block=64 left sim:0 unusable" in failure.message
    assert "exclude it by a rule" in failure.message
    assert not (tmp_path / "sim-loopback.json").exists()


def test_another_process_tunes_where_that_is_asked_for(
    make: Callable[..., nbx.Registry], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def shared(reg: nbx.Registry, jobs: list[Job], targets: list[Any], file: Path) -> list[Any]:
        told.extend(target.name for target in targets)
        return []

    monkeypatch.setattr(processes, "shared", shared)
    reg = make(compiled({}))
    tune(reg, "add", SPECS, devices=["sim:0"], kernel=ID, out=tmp_path, apart=True)
    assert told == ["sim:0"]
    # Another process has no array of this one's.
    given = np.ones((63, 127), np.float32)
    (found,) = tune(reg, "add", (given, SPECS[1]), devices=["sim:0"], kernel=ID, out=tmp_path, apart=True).tuned
    assert (told, found.timed) == (["sim:0"], 3)


@pytest.mark.parametrize(
    "specs",
    [
        ("float32[63, 127];strides=[1, 63]", "float32[63, 127]"),
        ("float32[63, 127];strides=[0, 1]", "float32[63, 127];strides=[-127, 1];offset=3"),
        ("bfloat16[63, 127];offset=8", "float32[127]"),
        ("float32[63, 127]", 2.5),
    ],
    ids=["transposed", "expanded-reversed", "offset", "scalar"],
)
def test_operands_lie_as_the_request_says(make: Callable[..., nbx.Registry], tmp_path: Path, specs: Any) -> None:
    reg = make("nbx_simulated.kernels:bind", when=())
    (found,) = tune(reg, "add", specs, devices=["sim:1"], kernel=ID, out=tmp_path).tuned
    assert (found.timed, found.excluded) == (3, ())


# Memory beside results ------------------------------------------------------------------------------------------------

N = 63 * 127 * 4

ASTRAY: dict[str, tuple[Callable[..., None], str, str]] = {
    "behind-its-output": (
        lambda memory, x1, x2, out, scratch: memory.view(out + N, 1).fill(0),
        "1 byte of out changed, the first 32004 bytes from the first element of its 32004",
        "float32[63, 127]",
    ),
    "before-its-output": (
        lambda memory, x1, x2, out, scratch: memory.view(out - 8, 4).fill(0),
        "4 bytes of out changed, the first -8 bytes",
        "float32[63, 127]",
    ),
    "behind-its-workspace": (
        lambda memory, x1, x2, out, scratch: memory.view(scratch + 8, 4).fill(0),
        "4 bytes of workspace scratch changed, the first 8 bytes from the first element of its 8",
        "float32[63, 127]",
    ),
    "behind-an-input": (
        lambda memory, x1, x2, out, scratch: memory.view(x1 + N, 4096).fill(7),
        "4096 bytes of x1 changed, the first 32004 bytes",
        "float32[63, 127]",
    ),
    "into-an-input": (
        lambda memory, x1, x2, out, scratch: memory.view(x2 + 100, 4).fill(7),
        "4 bytes of x2 changed, the first 100 bytes",
        "float32[63, 127]",
    ),
    "into-a-gap-of-an-input": (
        lambda memory, x1, x2, out, scratch: memory.view(x2 + 4, 4).fill(7),
        "4 bytes of x2 changed, the first 4 bytes",
        "float32[63, 127];strides=[254, 2]",
    ),
}
"""What a kernel does beside its work, how it is told, and how its second operand lies."""


@pytest.mark.parametrize("what", ASTRAY)
def test_what_is_written_beside_results_excludes_a_candidate(
    make: Callable[..., nbx.Registry], tmp_path: Path, what: str
) -> None:
    does, said, x2 = ASTRAY[what]
    reg = make(beside(does, 64), when=(), workspace=SCRATCH)
    (found,) = tune(reg, "add", (SPECS[0], x2), devices=["sim:0"], kernel=ID, out=tmp_path).tuned
    (excluded,) = found.excluded
    assert (excluded.settings, excluded.rule) == ({"block": 64}, "wrong")
    assert said in excluded.reason
    assert excluded.reason.startswith("on input 0: ")


def test_a_default_that_writes_beside_its_output_is_told_and_nothing_written(
    make: Callable[..., nbx.Registry], tmp_path: Path
) -> None:
    reg = make(beside(ASTRAY["behind-its-output"][0], 128), workspace=SCRATCH)
    (failure,) = tune(reg, "add", SPECS, devices=["sim:0"], kernel=ID, out=tmp_path).failed
    assert (
        "the default (block=128) is wrong: on input 0: written where nothing may be: 1 byte of out" in failure.message
    )
    assert not (tmp_path / "sim-loopback.json").exists()


@pytest.mark.parametrize("extremum", ["maximum", "minimum"])
def test_workspace_that_nobody_wrote_changes_a_result(
    make: Callable[..., nbx.Registry], tmp_path: Path, extremum: str
) -> None:
    # An extremum that should begin at 0 begins at what the workspace holds: fmax and fmin pass over NaN.
    chosen = {"maximum": np.fmax, "minimum": np.fmin}[extremum]

    def unwritten(memory: Any, x1: int, x2: int, out: int, scratch: int) -> None:
        values = memory.view(out, N).view("f4")
        values += chosen(memory.view(scratch, 4).view("f4")[0], np.float32(0))

    reg = make(beside(unwritten, 64), workspace=SCRATCH)
    (found,) = tune(reg, "add", SPECS, devices=["sim:0"], kernel=ID, out=tmp_path).tuned
    (excluded,) = found.excluded
    assert (excluded.settings, excluded.rule) == ({"block": 64}, "wrong")


def test_what_is_written_in_place_keeps_the_gaps_of_its_layout(
    make: Callable[..., nbx.Registry], tmp_path: Path
) -> None:
    def bind(context: BindContext) -> Launch:
        kernel, astray = Loopback(context.signature), context.settings["block"] == 64

        def run(memory: Any, lens: int) -> None:
            kernel.run(memory, lens)
            if astray:
                memory.view(lens + 12, 4).fill(0)

        return launch_of(context.signature, run)

    reg = make(bind, op="paged_lens_advance@1", id="made/paged_lens_advance/x", when=(), key=("lens.size",))
    (found,) = tune(
        reg,
        "paged_lens_advance",
        ("int32[5];strides=[2]",),
        devices=["sim:0"],
        kernel="made/paged_lens_advance/x",
        out=tmp_path,
    ).tuned
    (excluded,) = found.excluded
    assert (excluded.settings, excluded.rule) == ({"block": 64}, "wrong")
    assert "4 bytes of lens changed, the first 12 bytes from the first element of its 36" in excluded.reason


# Several cards --------------------------------------------------------------------------------------------------------

TWINS = """
import os, signal, time
from pathlib import Path
import nbx_simulated.plugin as plugin
from nbx_registry.hookspecs import hookimpl
from nbx_registry.kernel import Kernel
from nbx_registry.launch import Launch
from nbx_registry.runtimespec import RuntimeSpec
from nbx_registry.space import Space
from nbx_simulated.kernels import Loopback, launch_of
from nbx_simulated.plugin import nbx_register_backends, nbx_register_devices
from nbx_simulated.runtime import LIVE, SimulatedRuntime
from dataclasses import replace

NBX_HOOKS = 1
SPACE = Space(parameters={"block": (64, 128)})

class Twins(SimulatedRuntime):
    def devices(self):
        return (LIVE[0], replace(LIVE[0], index=1))

def create():
    return Twins()

@hookimpl
def nbx_register_runtimes():
    return [RuntimeSpec(name="sim", factory="TWINS:create")]

@hookimpl
def nbx_register_kernels():
    return [Kernel(id="twins/add/blocked", op="add@1", backend="loopback", runtimes=("sim",), bind="TWINS:bind",
                   key=("out.size",), defaults={"block": 128}, settings="TWINS:SPACE")]

def bind(context):
    kernel = Loopback(context.signature)
    block = context.settings["block"]

    def run(memory, *operands):
        if context.signature.outputs[0].size == 13 and block == 64:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(1e-3 if block == 128 else 0)
        kernel.run(memory, *operands)
        print("kernels may print")
        os.write(1, b"and what they call")

    return launch_of(context.signature, run)
"""


@pytest.fixture
def twins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Two cards of one product, in a distribution that processes of their own find."""
    site = tmp_path / "site"
    (site / "nbx_twins-1.dist-info").mkdir(parents=True)
    (site / "nbx_twins.py").write_text(TWINS.replace("TWINS", "nbx_twins"))
    (site / "nbx_twins-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: nbx-twins\nVersion: 1\n")
    (site / "nbx_twins-1.dist-info" / "entry_points.txt").write_text("[nbx_registry]\nnbx-twins = nbx_twins\n")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", f"{site}:{HERE / 'nbx-simulated'}")
    monkeypatch.setenv("NBX_CONFIG_DIR", str(tmp_path / "config"))
    yield tmp_path
    sys.modules.pop("nbx_twins", None)


def plan_of(reg: nbx.Registry, *sizes: int) -> nbx.Plan:
    draft = reg.draft("sim/loopback", require="any")
    for size in sizes:
        draft.call("add", f"float32[{size}]", f"float32[{size}]", kernel="twins/add/blocked")
    return draft.plan


@pytest.mark.skipif(sys.platform == "win32", reason="the path of processes is joined as POSIX does")
def test_cards_of_one_product_share_the_keys_of_one_file(twins: Path) -> None:
    reg = nbx.load()
    handles = alike(reg, ["sim:0"], None)
    assert handles == ["sim:0", "sim:1"]
    found = tune(reg, plan_of(reg, 63, 13, 129), devices=handles)
    # Each key is tuned once, whichever card did it; one has a candidate that ends its process.
    assert found.failed == ()
    assert sorted(one.key["out.size"] for one in found.tuned) == [13, 63, 129]
    excluded = {one.key["out.size"]: one.excluded for one in found.tuned if one.excluded}
    assert list(excluded) == [13]
    assert (excluded[13][0].settings, excluded[13][0].rule) == ({"block": 64}, "unusable")
    assert "SIGKILL ended the process at block=64" in excluded[13][0].reason
    assert {one.machine["handle"] for one in found.tuned} == {"sim:0", "sim:1"}
    (file,) = found.files
    stored = json.loads(file.read_text())
    assert stored["device"] == "sim/loopback"
    assert sorted(entry["key"]["out.size"] for entry in stored["entries"]) == [13, 63, 129]
    # Entries are of the product: either card takes them.
    again = nbx.load(require="any")
    for handle in ("sim:0", "sim:1"):
        x = nbx.asarray(np.ones(129, np.float32))
        assert again.decide("add", x.spec, x.spec, device=handle).candidate("twins/add/blocked").tuned is not None


TUNES = """
import sys
from pathlib import Path
import nbx_registry as nbx
from nbx_registry.tuning import tune

number, said = int(sys.argv[1]), Path(sys.argv[2])
reg = nbx.load(require="any")
for size in range(100 * number + 1, 100 * number + 4):
    specs = (f"float32[{size}]", f"float32[{size}]")
    found = tune(reg, "add", specs, devices=[f"sim:{number % 2}"], kernel="twins/add/blocked")
    assert not found.failed, found.failed
    with said.open("a") as file:
        print(size, file=file, flush=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="nothing is killed so elsewhere")
def test_processes_that_tune_two_cards_at_once_and_are_killed_lose_nothing(twins: Path) -> None:
    logs = [twins / f"said-{number}" for number in range(1, 9)]
    running = [
        subprocess.Popen([sys.executable, "-c", TUNES, str(number), str(log)], stdout=subprocess.DEVNULL)
        for number, log in enumerate(logs, 1)
    ]

    def said() -> set[int]:
        # A line may be half there.
        texts = [log.read_text() for log in logs if log.exists()]
        return {int(line) for text in texts for line in text.splitlines(keepends=True) if line.endswith("\n")}

    file = twins / "config" / "settings" / "sim-loopback.json"
    try:
        for process in running[:4]:
            known = len(said())
            while len(said()) == known and process.poll() is None:
                time.sleep(0.01)
            process.kill()
            # Whoever reads amid all this finds a whole file.
            if file.exists():
                json.loads(file.read_text())
        assert [process.wait(120) for process in running[4:]] == [0] * 4
    finally:
        for process in running:
            process.kill()
            process.wait()
    stored = json.loads(file.read_text())
    sizes = {entry["key"]["out.size"] for entry in stored["entries"]}
    assert sizes >= said() >= {100 * number + k for number in range(5, 9) for k in (1, 2, 3)}
    assert {entry["proof"]["machine"]["handle"] for entry in stored["entries"]} == {"sim:0", "sim:1"}
    reg = nbx.load(require="any")
    assert reg.catalog.settings.check() == ()
    # What a killed one left unfinished is gone with the next that writes.
    tune(reg, "add", ("float32[7]", "float32[7]"), devices=["sim:0"], kernel="twins/add/blocked")
    assert sorted(path.name for path in file.parent.iterdir()) == [f".{file.name}.lock", file.name]
