"""Files of settings are merged under a lock and replaced as a whole, whoever else writes, and whoever is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from nbx_registry.errors import FileError
from nbx_registry.settings import SettingsStore
from nbx_registry.tuning import store
from nbx_registry.tuning.store import check, file_for, merge

DEVICE = "host/cpu"

WRITER = """
import sys
from pathlib import Path
from nbx_registry.tuning.store import merge
path, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
for number in range(count):
    proof = {"date": "2026-11-30", "toolkit": "made 1", "deviation": 0, "bound": 1, "times": {"tuned_s": 1e-6}}
    merge(path, "host/cpu", [{"kernel": "made/add/" + name, "key": {"N": number + 1}, "settings": {}, "proof": proof}])
    print(number, flush=True)
"""


def entry(kernel: str = "made/add/a", n: int = 1, seconds: float = 1e-6, **settings: Any) -> dict[str, Any]:
    proof = {"date": "2026-11-30", "toolkit": "made 1", "deviation": 0, "bound": 1, "times": {"tuned_s": seconds}}
    return {"kernel": kernel, "key": {"N": n}, "settings": settings, "proof": proof}


def writer(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), name, str(count)], stdout=subprocess.PIPE, text=True
    )


def test_entries_of_the_same_key_are_replaced_and_others_stay(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "settings.json"
    merge(path, DEVICE, [entry(n=1, width=4), entry(n=2, width=4)])
    merge(path, DEVICE, [entry(n=2, width=8), entry("made/add/b", n=2, width=16)])
    found = {(e.kernel, e.key["N"]): e.settings["width"] for e in SettingsStore([path.parent]).entries()}
    assert found == {("made/add/a", 1): 4, ("made/add/a", 2): 8, ("made/add/b", 2): 16}


def test_an_entry_that_a_reader_refuses_is_kept_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps({"format": 1, "device": DEVICE, "entries": [{"kernel": 3, "mine": True}]}))
    merge(path, DEVICE, [entry()])
    assert {"kernel": 3, "mine": True} in json.loads(path.read_text())["entries"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ('{"format": 2, "device": "host/cpu", "entries": []}', "format: is 2"),
        ('{"format": 1, "device": "nvidia/t4", "entries": []}', "device: is nvidia/t4; settings of host/cpu go into"),
        ('{"format": 1, "device": "host/cpu", "entries": [], "more": 1}', "more: unknown key"),
    ],
)
def test_what_is_no_file_of_this_product_is_refused_and_left(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "s.json"
    path.write_text(text)
    for attempt in (lambda: check(path, DEVICE), lambda: merge(path, DEVICE, [entry()])):
        with pytest.raises(FileError, match=said):
            attempt()
    assert path.read_text() == text


def test_what_a_reader_would_refuse_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="is an extent of 0"):
        merge(tmp_path / "s.json", DEVICE, [entry(n=0)])
    assert not (tmp_path / "s.json").exists()


def test_a_name_that_ends_in_json_is_a_file_and_any_other_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NBX_CONFIG_DIR", str(tmp_path))
    assert file_for("nvidia/h200-sxm") == tmp_path / "settings" / "nvidia-h200-sxm.json"
    assert file_for("nvidia/h200-sxm", tmp_path / "out") == tmp_path / "out" / "nvidia-h200-sxm.json"
    assert file_for("nvidia/h200-sxm", tmp_path / "my.json") == tmp_path / "my.json"


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    writers = [writer(path, name, 12) for name in "abc"]
    assert [process.wait(60) for process in writers] == [0] * 3
    for process in writers:
        assert process.stdout is not None
        process.stdout.close()
    found = SettingsStore([tmp_path])
    assert len(found.entries()) == 36
    assert found.misses() == ()


@pytest.mark.skipif(os.name != "posix", reason="nothing is killed so elsewhere")
def test_a_process_that_is_killed_while_it_writes_tears_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    kept = 0
    for attempt in range(2):
        process = writer(path, f"k{attempt}", 100_000)
        assert process.stdout is not None
        for _ in range(3 + attempt):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        kept += len(process.stdout.read().splitlines()) + 3 + attempt
        process.stdout.close()
        process.wait()
        # What it said it wrote is there, and whole; it may have been killed before it said so.
        found = SettingsStore([tmp_path])
        assert found.misses() == ()
        assert kept <= len(found.entries()) <= kept + attempt + 1
    merge(path, DEVICE, [entry()])
    assert [p.name for p in sorted(tmp_path.iterdir())] == [".s.json.lock", "s.json"]


def test_what_a_killed_process_left_unfinished_is_taken_away(tmp_path: Path) -> None:
    (tmp_path / ".s[1].json.99999-1").write_text("half")
    (tmp_path / ".s[1].json.b-c.json.lock").write_text("of another file")
    merge(tmp_path / "s[1].json", DEVICE, [entry()])
    assert not (tmp_path / ".s[1].json.99999-1").exists()
    assert (tmp_path / ".s[1].json.b-c.json.lock").exists()


@pytest.mark.parametrize("value", ["1e999", r'"\ud800"'])
def test_an_entry_that_no_file_can_hold_again_is_refused_and_left(tmp_path: Path, value: str) -> None:
    path = tmp_path / "s.json"
    text = f'{{"format": 1, "device": "host/cpu", "entries": [{{"kernel": "made/add/a", "key": {{"N": {value}}}}}]}}'
    path.write_text(text)
    with pytest.raises(FileError, match=r"entries\[0\]: holds what cannot be written again"):
        check(path, DEVICE)
    assert path.read_text() == text


def test_a_lock_that_is_held_too_long_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "PATIENCE_S", 0.05)
    path = tmp_path / "s.json"
    began = time.monotonic()
    with store.locked(path), pytest.raises(FileError, match=r"\.s\.json\.lock is held by another process"):
        merge(path, DEVICE, [entry()])
    assert time.monotonic() - began < 30
    merge(path, DEVICE, [entry()])
