"""Settings spaces: candidates and what excludes them, by name; and binding with settings that are given."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from making import made

import nbx_registry as nbx
from nbx_registry import space
from nbx_registry.errors import MissingFact, PluginFault, SignatureError, UnknownName
from nbx_registry.kernel import Kernel, Workspace
from nbx_registry.launch import Artifact, BindContext, Launch
from nbx_registry.space import Space

BLOCKS = Space(
    parameters={"block": (64, 128, 256), "warps": (4, 8)},
    exclude={"a block wider than the tensor": "block > x1.size", "few warps": "warps * 32 > block"},
)


@pytest.fixture
def spaces(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module that spaces are put into, to be found by reference."""
    module = ModuleType("nbx_spaces_made")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def blocked(**changes: Any) -> Kernel:
    def bind(context: BindContext) -> Launch:
        block = context.settings["block"]

        def run(x1: Any, x2: Any, out: Any) -> None:
            for start in range(0, x1.size, block):
                part = slice(start, start + block)
                np.add(x1[part], x2[part], out=out[part])

        return Launch(function=run, args=context.signature.names)

    stated: dict[str, Any] = {
        "id": "made/add/blocked",
        "op": "add@1",
        "backend": "made",
        "runtimes": ("host",),
        "bind": bind,
        "when": ("x1.rank == 1",),
        "key": ("x1.size", "x1.dtype"),
        "defaults": {"block": 128, "warps": 4},
        "settings": "nbx_spaces_made:BLOCKS",
    }
    return Kernel(**{**stated, **changes})


def registry(**changes: Any) -> nbx.Registry:
    return nbx.load(plugins=[made("made", blocked(**changes))])


def loaded(reg: nbx.Registry, spaces: ModuleType, name: str, value: Any) -> Space:
    setattr(spaces, name, value)
    found = reg.space("made/add/blocked")
    assert found is not None
    return found


def signature(reg: nbx.Registry, extent: int) -> Any:
    return reg.signature("add", f"float32[{extent}]", f"float32[{extent}]")[0]


# Candidates -----------------------------------------------------------------------------------------------------------


def test_candidates_are_the_product_and_each_exclusion_is_named(spaces: ModuleType) -> None:
    reg = registry()
    found = loaded(reg, spaces, "BLOCKS", BLOCKS)
    candidates = list(found.candidates(reg.kernels["made/add/blocked"], signature(reg, 129), reg.devices["host/cpu"]))
    assert len(candidates) == found.size == 6
    assert {str(c): c.excluded for c in candidates} == {
        "block=64, warps=4": "few warps",
        "block=64, warps=8": "few warps",
        "block=128, warps=4": "",
        "block=128, warps=8": "few warps",
        "block=256, warps=4": "a block wider than the tensor",
        "block=256, warps=8": "a block wider than the tensor",
    }
    assert candidates[4].reason == "block > x1.size (block = 256, x1.size = 129)"


def test_settings_that_the_space_leaves_alone_keep_their_defaults(spaces: ModuleType) -> None:
    reg = registry(settings="nbx_spaces_made:SOME")
    found = loaded(reg, spaces, "SOME", Space(parameters={"block": (128, 64)}))
    kernel = reg.kernels["made/add/blocked"]
    first, *_ = found.candidates(kernel, signature(reg, 129), reg.devices["host/cpu"])
    assert first.settings == {"block": 128, "warps": 4}


@pytest.mark.parametrize(("device", "kept"), [("nvidia/t4", 1), ("nvidia/h200-sxm", 3)])
def test_a_rule_on_a_device_fact_prunes_by_the_device_file_alone(spaces: ModuleType, device: str, kept: int) -> None:
    reg = registry(settings=f"nbx_spaces_made:{device[7:9].upper()}")
    rule = {"shared memory": "512 * block > device.shared.bytes_per_block_optin"}
    found = loaded(reg, spaces, device[7:9].upper(), Space(parameters={"block": (128, 256, 384)}, exclude=rule))
    kernel = reg.kernels["made/add/blocked"]
    candidates = list(found.candidates(kernel, signature(reg, 1000), reg.devices[device]))
    assert [c.excluded for c in candidates] == [""] * kept + ["shared memory"] * (3 - kept)
    assert all("device.shared.bytes_per_block_optin = " in c.reason for c in candidates if c.excluded)


def test_a_fact_that_nobody_states_excludes_and_says_which(spaces: ModuleType) -> None:
    reg = registry(settings="nbx_spaces_made:UNSTATED")
    rule = {"wide": "block > device.warp.width"}
    found = loaded(reg, spaces, "UNSTATED", Space(parameters={"block": (128,)}, exclude=rule))
    kernel = reg.kernels["made/add/blocked"]
    (candidate,) = found.candidates(kernel, signature(reg, 1000), reg.devices["host/cpu"])
    assert candidate.excluded == "wide"
    assert "host/cpu states no 'warp.width'" in candidate.reason


def test_a_rule_that_cannot_be_computed_is_the_plugins_fault(spaces: ModuleType) -> None:
    reg = registry(settings="nbx_spaces_made:BROKEN")
    rule = {"halves": "block % (x1.size - 129) > 0"}
    found = loaded(reg, spaces, "BROKEN", Space(parameters={"block": (128,)}, exclude=rule))
    with pytest.raises(PluginFault, match=r"rule 'halves' of 'nbx_spaces_made:BROKEN'.*made/add/blocked"):
        list(found.candidates(reg.kernels["made/add/blocked"], signature(reg, 129), reg.devices["host/cpu"]))


@pytest.mark.parametrize(
    ("number", "value", "said"),
    [
        (0, {"block": (128,)}, "is a dict; write nbx_registry.Space"),
        (1, Space(parameters={}), "has no parameters"),
        (2, Space(parameters={"blok": (128,)}), "'blok' has no default"),
        (3, Space(parameters={"block": (64, 256)}), "the default block=128 is none of its values"),
        (4, Space(parameters={"block": [128]}), "write a tuple"),  # type: ignore[dict-item]
        (5, Space(parameters={"block": (128, 128)}), "one of them twice"),
        (6, Space(parameters={"block": (128, object())}), "write a tuple of numbers"),
        (7, Space(parameters={"block": tuple(range(600)), "warps": (4, 8)}), "has 1200 candidates; at most 1024"),
        (8, Space(parameters={"block": (128,)}, exclude={"r": "blok > 1"}), "did you mean 'block'?"),
        (9, Space(parameters={"block": (128,)}, exclude={"r": "block >"}), "expected a value"),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else "",
)
def test_what_is_no_space_of_the_kernel_is_named(spaces: ModuleType, number: int, value: Any, said: str) -> None:
    # References are loaded once: each case has one of its own.
    reg = registry(settings=f"nbx_spaces_made:WRONG{number}")
    with pytest.raises(PluginFault) as caught:
        loaded(reg, spaces, f"WRONG{number}", value)
    assert said in str(caught.value)
    assert f"'nbx_spaces_made:WRONG{number}', settings of kernel 'made/add/blocked'" in str(caught.value)


def test_a_parameter_called_as_an_axis_is_refused(spaces: ModuleType) -> None:
    kernel = blocked(id="made/matmul/x", op="matmul@1", when=(), key=("M",), defaults={"K": 1})
    spaces.AXIS = Space(parameters={"K": (1, 2)})
    with pytest.raises(PluginFault, match=r"'K' is called as what matmul@1 calls so already"):
        space.of(kernel, nbx.load().ops["matmul"], spaces.AXIS)


def test_a_kernel_without_settings_has_no_space() -> None:
    assert registry(settings=None).space("made/add/blocked") is None


# Limits that the compiler tells ---------------------------------------------------------------------------------------


def launch(shared: int, dynamic: int = 0) -> Launch:
    code = Artifact(image=b"x", kind="cubin", entry="rows", arch="sm_90", toolkit="made 1", shared_bytes=shared)
    return Launch(function=code, args=(), shared_bytes=dynamic)


def test_code_over_the_devices_shared_memory_is_told_with_both_figures() -> None:
    device = nbx.load().devices["nvidia/h200-sxm"]
    limit = device.fact("shared.bytes_per_block_optin")
    assert space.over_limit([launch(1000), launch(limit, limit)], device) == ""
    told = space.over_limit([launch(1000), launch(limit, limit + 16)], device)
    assert told == f"rows takes {limit + 16} bytes a block; nvidia/h200-sxm has {limit}"


def test_without_a_stated_limit_only_code_without_shared_memory_passes() -> None:
    device = nbx.load().devices["host/cpu"]
    assert space.over_limit([launch(0)], device) == ""
    with pytest.raises(MissingFact, match=r"shared\.bytes_per_block_optin"):
        space.over_limit([launch(1)], device)


# Binding with settings ------------------------------------------------------------------------------------------------


def bound(reg: nbx.Registry, extent: int, settings: dict[str, Any], kernel: str | None = "made/add/blocked") -> Any:
    return reg.bind_specs("add", signature(reg, extent), device="cpu", kernel=kernel, settings=settings)


def test_given_settings_take_the_place_of_defaults_and_reach_binder_and_workspace() -> None:
    reg = registry(workspace=(Workspace(name="scratch", dtype="uint8", shape=("block * 2",)),))
    program = bound(reg, 1000, {"block": 64})
    assert program.settings == {"block": 64, "warps": 4}
    assert program.workspace[0].spec.shape == (128,)
    assert bound(reg, 1000, {}).settings == {"block": 128, "warps": 4}


def test_a_setting_that_the_kernel_lacks_is_refused_by_name() -> None:
    with pytest.raises(UnknownName, match=r"setting of made/add/blocked 'blok'.*did you mean 'block'.*block, warps"):
        bound(registry(), 1000, {"blok": 64})
    with pytest.raises(UnknownName, match=r"it has none"):
        bound(registry(defaults={}, settings=None), 1000, {"block": 64})


def test_an_extent_of_zero_in_the_key_is_refused_by_name() -> None:
    with pytest.raises(SignatureError, match=r"x1\.size of the key of made/add/blocked is an extent of 0"):
        bound(registry(), 0, {"block": 64})


def test_settings_without_a_kernel_are_refused() -> None:
    with pytest.raises(SignatureError, match=r"name it, kernel="):
        bound(registry(), 1000, {"block": 64}, kernel=None)
