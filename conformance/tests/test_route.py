from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

import nbx_registry as nbx
from nbx_conformance.runs.options import Options
from nbx_conformance.runs.route import find
from nbx_conformance.runs.runner import Record, verdict_of
from nbx_conformance.runs.session import Session, sessions
from nbx_registry.errors import NbxError, UnknownName
from nbx_registry.hookspecs import hookimpl
from nbx_registry.kernel import Kernel
from nbx_registry.launch import Artifact, BindContext, Launch, View
from nbx_registry.runtimespec import Emulator


class Compiled:
    """A plugin with a compiled kernel for CUDA, and an emulator that runs nothing."""

    NBX_HOOKS = 1
    name = "nbx-compiled"

    def __init__(self, *, shared_bytes: int = 0, when: tuple[str, ...] = (), view: bool = False) -> None:
        def bind(context: BindContext) -> Launch | View:
            if view:
                return View(
                    of="x", shape=context.signature.outputs[0].shape, strides=context.signature.outputs[0].strides
                )
            image = Artifact(
                image=b"code",
                kind="cubin",
                entry="sqrt",
                arch="sm_100",
                toolkit="compiler 1",
                shared_bytes=shared_bytes,
            )
            return Launch(function=context.load(image), args=("x", "out"), block=(128, 1, 1))

        self.kernel = Kernel(
            id="nbx-compiled/sqrt/it", op="sqrt@1", backend="numpy", runtimes=("cuda",), bind=bind, when=when
        )

    @hookimpl
    def nbx_register_kernels(self) -> list[Kernel]:
        return [self.kernel]

    @hookimpl
    def nbx_register_emulators(self) -> list[Emulator]:
        return [
            Emulator(
                name="compiled-emulator",
                backend="numpy",
                runtimes=("cuda",),
                factory="nbx_registry.host.runtime:host_runtime",
                environment={"NBX_TEST_EMULATOR": "1"},
            )
        ]


@pytest.fixture(scope="module")
def registry() -> nbx.Registry:
    return nbx.load(plugins=[Compiled()])


def test_a_live_device_is_reached_on_the_device(registry: nbx.Registry) -> None:
    for name in ("cpu", "host/cpu"):
        route = find(registry, name)
        assert (route.reach, route.via, route.target.name, route.why) == ("here", "device", "cpu", "")


def test_an_absent_device_is_built_for_and_it_says_why_not_more(registry: nbx.Registry) -> None:
    route = find(registry, "nvidia/b200", "build")
    assert (route.reach, route.via) == ("built", "build")
    assert route.why


def test_an_emulator_stands_in_in_a_process_of_its_own_where_it_needs_variables(
    registry: nbx.Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    route = find(registry, "nvidia/b200", "compiled-emulator")
    assert (route.reach, route.via, route.apart) == ("elsewhere", "compiled-emulator", True)
    monkeypatch.setenv("NBX_TEST_EMULATOR", "1")
    assert not find(registry, "nvidia/b200", "compiled-emulator").apart


@pytest.mark.parametrize(
    ("device", "via", "error", "why"),
    [
        ("nvidia/b300", "auto", UnknownName, "did you mean 'nvidia/b200'"),
        ("cpu", "interpretr", UnknownName, "did you mean 'interpreter'"),
        ("nvidia/b200", "device", NbxError, "is not here"),
        ("cpu", "compiled-emulator", NbxError, "stands in for cuda; cpu is driven by host"),
        ("cpu", "interpreter", NbxError, "0 emulators"),
    ],
)
def test_a_route_that_does_not_exist_is_refused_by_name(
    registry: nbx.Registry, device: str, via: str, error: type[NbxError], why: str
) -> None:
    with pytest.raises(error, match=why):
        find(registry, device, via)


def built(run: Callable[..., list[Record]], **kernel: object) -> list[Record]:
    return run("nbx-compiled/sqrt/it", Compiled(**kernel), device="nvidia/b200", via="build", cases=("minilm",))


def test_what_is_built_within_the_limits_passes_and_is_described(try_kernel: Callable[..., list[Record]]) -> None:
    (record,) = built(try_kernel)
    assert record.checks == {"pass": ["built"]}
    assert verdict_of([record]) == "pass"
    assert record.output is None
    assert (record.built[0]["arch"], record.built[0]["toolkit"], record.built[0]["threads"]) == (
        "sm_100",
        "compiler 1",
        128,
    )


def test_built_catches_what_takes_more_than_the_device_has(try_kernel: Callable[..., list[Record]]) -> None:
    (record,) = built(try_kernel, shared_bytes=2**20)
    assert record.verdict == "fail"
    assert "takes 1048576 bytes of shared memory a block; nvidia/b200 has" in record.details["built"]


def test_nothing_built_is_no_pass(try_kernel: Callable[..., list[Record]]) -> None:
    (record,) = built(try_kernel, view=True)
    assert verdict_of([record]) == "unmeasured"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"ops": ("sqrtt",)}, "did you mean 'sqrt'"),
        ({"kernels": ("nbx-host/sqrt/nmpy",)}, "did you mean 'nbx-host/sqrt/numpy'"),
        ({"plugins": ("nbx-hots",)}, "did you mean 'nbx-host'"),
        ({"size": "tiny"}, "sizes are smoke, full"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(
    registry: nbx.Registry, options: dict[str, object], why: str
) -> None:
    with pytest.raises(UnknownName, match=why):
        _ = Session(Options(device="cpu", **options), registry).items


def test_without_a_device_the_first_live_one_of_each_runtime_is_taken() -> None:
    (found,) = sessions(Options(plugins=("nbx-host",)))
    assert found.options.device == "cpu"


def test_without_a_device_and_none_here_nothing_can_be_measured() -> None:
    if any(target.runtime_name == "cuda" for target in nbx.load().live()):
        pytest.skip("there is a CUDA device here")
    with pytest.raises(NbxError, match="nothing can be measured: no device of cuda is here"):
        sessions(Options(plugins=("nbx-compiled",), extra=(Compiled(),)))


def handles_of(registry: nbx.Registry, device: str) -> list[str]:
    return [find(registry, device, slot=slot).target.name for slot in range(3)]


def test_processes_that_share_a_run_are_dealt_out_over_the_devices_of_one_product(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from nbx_simulated import plugin
    from nbx_simulated.runtime import LIVE

    registry = nbx.load(plugins=(plugin,))
    present = (replace(LIVE[0], index=0), replace(LIVE[1], index=1), replace(LIVE[0], index=2))
    monkeypatch.setattr(registry.runtime("sim"), "devices", lambda: present)
    assert handles_of(registry, "sim/loopback") == ["sim:0", "sim:2", "sim:0"]
    assert handles_of(registry, "sim") == ["sim:0", "sim:2", "sim:0"]
    assert handles_of(registry, "sim/loopback-large") == ["sim:1"] * 3
    assert handles_of(registry, "sim:2") == ["sim:2"] * 3
    assert find(registry, "sim", slot=1).handles == ("sim:0", "sim:2")
    assert handles_of(registry, "host/cpu") == ["cpu"] * 3
