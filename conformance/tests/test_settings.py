"""The check `settings`: every candidate of a kernel's space is right, or excluded by name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nbx_conformance.runs.runner import Record
from nbx_registry.hookspecs import hookimpl
from nbx_registry.kernel import Kernel, Workspace
from nbx_registry.launch import Artifact, BindContext, Launch
from nbx_registry.space import Space

Run = Callable[..., list[Record]]
CASE = "awkward-f32-N63"
"""The first of its dtype, and so a representative."""

DENSE = ("x1.contiguous", "x2.contiguous", "out.contiguous", "x1.size == x2.size")

SPACE = Space(
    parameters={"block": (32, 64, 128, 256), "tail": (True,)},
    exclude={"a block wider than the tensor": "block > x1.size"},
)


@pytest.fixture
def tried(try_kernel: Run, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Callable[..., Record]:
    """Give a function that tries a kernel with a space on one case: by default one that adds block by block."""
    # References are loaded once in a process: each test has a module of its own.
    module = ModuleType(f"nbx_settings_of_{request.node.name.partition('[')[0]}_{abs(hash(request.node.name))}")
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def run(space: Any, bind: Callable[[BindContext], Any], *extra: Any, device: str = "cpu", **changes: Any) -> Record:
        module.__dict__["SPACE"] = space
        stated: dict[str, Any] = {
            "id": "nbx-settings/kernel",
            "op": "add@1",
            "backend": "numpy",
            "runtimes": ("host",),
            "bind": bind,
            "when": (*DENSE, "x1.dtype == x2.dtype"),
            "deterministic": True,
            "defaults": {"block": 64, "tail": True},
            "settings": f"{module.__name__}:SPACE",
        }
        kernel = Kernel(**{**stated, **changes})
        plugin = SimpleNamespace(
            name="nbx-settings",
            NBX_HOOKS=1,
            nbx_register_kernels=hookimpl(lambda: [kernel], specname="nbx_register_kernels"),
        )
        (record,) = try_kernel("nbx-settings/kernel", *extra, plugin, device=device, cases=(CASE,))
        return record

    return run


def in_blocks(flaw: str = "") -> Callable[[BindContext], Launch]:
    """Return a binder of an addition in blocks; with a flaw, wrong where the block is 128."""

    def bind(context: BindContext) -> Launch:
        block = context.settings["block"]
        flawed = flaw and block == 128
        if flawed and flaw == "refuses":
            raise ValueError("128 is beyond me")

        def run(x1: Any, x2: Any, out: Any) -> None:
            if flawed and flaw == "raises":
                raise RuntimeError("out of resources")
            first, second, result = x1.reshape(-1), x2.reshape(-1), out.reshape(-1)
            whole = result.size // block * block if flawed and flaw == "tail" else result.size
            for start in range(0, whole, block):
                part = slice(start, min(start + block, whole))
                np.add(first[part], second[part], out=result[part])
            if flawed and flaw == "numbers":
                result *= np.float32(1 + 2**-20)
            if flawed and flaw == "input":
                first[:1] = 0

        return Launch(function=run, args=context.signature.names)

    return bind


def test_every_candidate_right_or_excluded_passes_and_both_are_counted(tried: Callable[..., Record]) -> None:
    record = tried(SPACE, in_blocks())
    assert record.verdict == "pass"
    assert record.details["settings"].startswith("3 of 4 candidates right, 1 excluded by 'a block wider")


@pytest.mark.parametrize(
    ("flaw", "verdict", "said"),
    [
        ("numbers", "fail", "elements wrong"),
        ("tail", "fail", "is nan"),
        ("input", "fail", "an input was written"),
        ("raises", "error", "out of resources"),
        ("refuses", "error", "128 is beyond me"),
    ],
)
def test_one_candidate_that_is_wrong_is_found_and_named(
    tried: Callable[..., Record], flaw: str, verdict: str, said: str
) -> None:
    record = tried(SPACE, in_blocks(flaw))
    assert record.checks[verdict] == ["settings"]
    assert "block=128" in record.details["settings"]
    assert "block=64" not in record.details["settings"]
    assert said in record.details["settings"]
    assert "2 of 4 candidates right" in record.details["settings"]


def test_a_candidate_that_is_excluded_by_name_need_not_be_right(tried: Callable[..., Record]) -> None:
    rules = {**SPACE.exclude, "not of that width": "block == 128"}
    record = tried(Space(parameters=SPACE.parameters, exclude=rules), in_blocks("refuses"))
    assert record.verdict == "pass"
    assert "1 excluded by 'not of that width'" in record.details["settings"]


def test_a_space_of_which_nothing_is_left_fails(tried: Callable[..., Record]) -> None:
    record = tried(Space(parameters=SPACE.parameters, exclude={"never": "block > 0"}), in_blocks())
    assert record.checks["fail"] == ["settings"]
    assert "nothing is left to try: 0 of 4 candidates right, 4 excluded by 'never'" in record.details["settings"]


def test_what_is_no_space_is_an_error(tried: Callable[..., Record]) -> None:
    record = tried({"block": (64, 128)}, in_blocks())
    assert record.checks["error"] == ["settings"]
    assert "is a dict; write nbx_registry.Space" in record.details["settings"]


def test_workspace_follows_the_settings(tried: Callable[..., Record]) -> None:
    def bind(context: BindContext) -> Launch:
        block = context.settings["block"]

        def run(x1: Any, x2: Any, out: Any, scratch: Any) -> None:
            assert scratch.size == block
            first, second, result = x1.reshape(-1), x2.reshape(-1), out.reshape(-1)
            for start in range(0, result.size, block):
                part = slice(start, min(start + block, result.size))
                piece = scratch[: part.stop - part.start]
                np.add(first[part], second[part], out=piece)
                result[part] = piece

        return Launch(function=run, args=(*context.signature.names, "scratch"))

    scratch = Workspace(name="scratch", dtype="float32", shape=("block",))
    when = (*DENSE, "x1.dtype == float32", "x2.dtype == float32")
    record = tried(SPACE, bind, workspace=(scratch,), when=when)
    assert record.verdict == "pass"
    assert record.details["settings"].startswith("3 of 4 candidates right")


CODE = """
def add(memory, x1, x2, out):
    import numpy as np
    n = {nbytes}
    total = memory.view(x1, n).view(np.float32) + memory.view(x2, n).view(np.float32)
    memory.view(out, n).view(np.float32)[...] = total
"""


def compiled(context: BindContext) -> Launch:
    """Bind code that takes 256 bytes of shared memory for each element of a block, as its compiler says."""
    nbytes = context.signature.outputs[0].nbytes
    code = Artifact(
        image=CODE.format(nbytes=nbytes).encode(),
        kind="python",
        entry="add",
        arch=context.device.arch,
        toolkit="simulation 1",
        shared_bytes=256 * context.settings["block"],
    )
    return Launch(function=context.load(code), args=context.signature.names)


def test_code_over_the_devices_shared_memory_is_excluded_by_name_once_it_is_built(tried: Callable[..., Record]) -> None:
    simulation = pytest.importorskip("nbx_simulated.plugin", reason="the simulation lives beside the core's tests")
    # The device has 49152 bytes a block, enough for 192 elements.
    space = Space(parameters={"block": (64, 128, 256)})
    when = (*DENSE, "x1.dtype == float32", "x2.dtype == float32")
    record = tried(space, compiled, simulation, device="sim:0", backend="loopback", runtimes=("sim",), when=when)
    assert record.verdict == "pass"
    assert record.details["settings"] == "2 of 3 candidates right, 1 excluded by 'shared memory'"
