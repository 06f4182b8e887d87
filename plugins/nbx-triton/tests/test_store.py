"""Artifacts on disk: for other processes, and believed only if they are what was written."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import triton

from nbx_registry.launch import Artifact
from nbx_triton import pipeline, targets
from nbx_triton import store as store_module
from nbx_triton.compiler import Options, Source
from nbx_triton.store import Store
from nbx_triton.triton_compiler import Triton

KEY = ("source", "sm_90")
MADE = Artifact(
    image=b"\x7fELF\n\0\xff" * 50,
    kind="cubin",
    entry="_scale",
    arch="sm_90",
    toolkit="triton 3.6.0",
    registers=16,
    spills=0,
    threads=64,
    parameters=6,
)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "made" / "here")


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What Triton's stages run for, in order."""
    targets_: list[str] = []
    run = pipeline.run

    def counted(source: Any, target: targets.Target, options: Any) -> pipeline.Made:
        targets_.append(target.name)
        return run(source, target, options)

    monkeypatch.setattr(pipeline, "run", counted)
    return targets_


def test_what_was_put_is_got(store: Store) -> None:
    assert store.get(KEY) is None
    store.put(KEY, MADE)
    assert store.get(KEY) == MADE
    assert store.get((*KEY, "")) is None


def test_artifacts_that_say_something_else_have_files_of_their_own(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = store.path(KEY)
    monkeypatch.setattr(store_module, "_FORMAT", (*store_module._FORMAT, "another_field"))
    assert store.path(KEY) != before
    assert {"image", "entry", "parameters"} < set(store_module._FORMAT)


@pytest.mark.parametrize("keep", [0, 30, 64, 65, 200, -1])
def test_a_file_cut_short_is_told_and_not_believed(store: Store, keep: int) -> None:
    store.put(KEY, MADE)
    path = store.path(KEY)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.warns(RuntimeWarning, match=f"{path.name} is not what was written"):
        assert store.get(KEY) is None


def test_a_bit_flipped_anywhere_is_told(store: Store) -> None:
    store.put(KEY, MADE)
    path = store.path(KEY)
    whole = path.read_bytes()
    for at in [*range(0, len(whole), 13), len(whole) - 1]:
        if at == 64:
            # The byte between digest and content says nothing.
            continue
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        with pytest.warns(RuntimeWarning, match="compiled again"):
            assert store.get(KEY) is None


def test_a_file_in_anothers_place_is_told(store: Store) -> None:
    store.put(KEY, MADE)
    other = store.path(("source", "sm_80"))
    other.parent.mkdir(exist_ok=True)
    shutil.copy(store.path(KEY), other)
    with pytest.warns(RuntimeWarning, match="is not what was written"):
        assert store.get(("source", "sm_80")) is None


def test_what_cannot_be_read_or_written_is_done_without(store: Store) -> None:
    store.path(KEY).mkdir(parents=True)
    with pytest.warns(RuntimeWarning, match="cannot be read"):
        assert store.get(KEY) is None
    with pytest.warns(RuntimeWarning, match="is not kept for other processes"):
        store.put(KEY, MADE)
    # It is told once.
    store.put(KEY, MADE)
    assert store.path(KEY).is_dir()
    assert [path.name for path in store.path(KEY).parent.iterdir()] == [store.path(KEY).name]
    blocked = Store(store.path(KEY) / "x")
    store.path(KEY).rmdir()
    store.path(KEY).write_text("no folder")
    with pytest.warns(RuntimeWarning, match="is not kept for other processes"):
        blocked.put(KEY, MADE)
    assert store.path(KEY).read_text() == "no folder"


def test_another_process_compiles_nothing(
    store: Store, compiled: list[str], source: Callable[..., Source], options: Options
) -> None:
    first = Triton(store=store).compile(source(), "sm_90", options)
    assert Triton(store=store).compile(source(), "sm_90", options) == first
    assert compiled == ["sm_90"]


def test_a_flipped_byte_of_the_code_is_compiled_again(
    store: Store, compiled: list[str], source: Callable[..., Source], options: Options
) -> None:
    first = Triton(store=store).compile(source(), "sm_90", options)
    (path,) = (path for path in store.folder.rglob("*") if path.is_file())
    whole = path.read_bytes()
    path.write_bytes(whole[:-200] + bytes([whole[-200] ^ 1]) + whole[-199:])
    with pytest.warns(RuntimeWarning, match="compiled again"):
        assert Triton(store=store).compile(source(), "sm_90", options) == first
    assert compiled == ["sm_90", "sm_90"]
    assert path.read_bytes() == whole


def test_all_that_decides_the_code_is_in_the_key(
    monkeypatch: pytest.MonkeyPatch, source: Callable[..., Source], options: Options
) -> None:
    sm_90 = targets.of("sm_90")
    plain = pipeline.fingerprint(source(), sm_90, options)
    assert pipeline.fingerprint(source(), sm_90, options) == plain
    others = [
        pipeline.fingerprint(source(divisible=()), sm_90, options),
        pipeline.fingerprint(source(constants=(((4,), 128),)), sm_90, options),
        pipeline.fingerprint(source(constants=(((4,), 256.0),)), sm_90, options),
        pipeline.fingerprint(
            source(signature=(*source().signature[:3], ("count", "i64"), ("BLOCK", "constexpr"))), sm_90, options
        ),
        pipeline.fingerprint(source(), targets.of("sm_80"), options),
        pipeline.fingerprint(source(), targets.of("gfx90a"), options),
        pipeline.fingerprint(source(), sm_90, replace(options, enable_fp_fusion=True)),
        pipeline.fingerprint(source(), sm_90, replace(options, num_stages=2)),
    ]
    monkeypatch.setenv("TRITON_DISABLE_LINE_INFO", "1")
    others.append(pipeline.fingerprint(source(), sm_90, options))
    monkeypatch.delenv("TRITON_DISABLE_LINE_INFO")
    with triton.knobs.nvidia.scope():
        triton.knobs.nvidia.disable_ptxas_opt = True
        others.append(pipeline.fingerprint(source(), sm_90, options))
    assert pipeline.fingerprint(source(), sm_90, options) == plain
    assert len({plain, *others}) == 1 + len(others)


def test_triton_itself_is_in_the_key() -> None:
    installed = pipeline._installed()
    assert installed[0] == triton.__version__
    for name in (
        "_C/libtriton.so ",
        "backends/nvidia/bin/ptxas ",
        "backends/amd/lib/ocml.bc ",
        "compiler/compiler.py ",
    ):
        assert any(entry.startswith(name) for entry in installed), name


def test_processes_that_write_at_once_leave_whole_files(store: Store) -> None:
    script = f"""
import sys
from pathlib import Path
from nbx_registry.launch import Artifact
from nbx_triton.store import Store
store = Store(Path({str(store.folder)!r}))
made = Artifact(image=b"code" * 20000, kind="cubin", entry="_scale", arch="sm_90", toolkit="triton 3.6.0")
for turn in range(50):
    store.put(("one",), made)
    assert store.get(("one",)) == made
"""
    running = [subprocess.Popen([sys.executable, "-W", "error", "-c", script]) for _ in range(3)]
    assert [process.wait(timeout=120) for process in running] == [0, 0, 0]
    assert [path.name for path in store.folder.rglob("*") if path.is_file()] == [store.path(("one",)).name]
