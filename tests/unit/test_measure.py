"""Measuring the host: what is written, what is kept, and what is refused."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

import nbx_registry as nbx
from nbx_registry.errors import FileError
from nbx_registry.host import measure

DAY = datetime.date(2026, 11, 30)
BANDWIDTH, CACHE = "memory.bandwidth_bytes_per_s", "last_level_cache.bytes"


def facts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    monkeypatch.setenv("NBX_CONFIG_DIR", str(folder))
    return {key: fact.value for key, fact in nbx.load().devices["host/cpu"].facts.items()}


def test_rates_and_cache_are_written_as_measured_facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measure.write(tmp_path / "devices", 1.23456e10, 1e11, 50331648, today=DAY)
    found = facts(tmp_path, monkeypatch)
    assert (found[BANDWIDTH], found[CACHE]) == (1.235e10, 50331648)
    assert nbx.load().devices["host/cpu"].source(CACHE) == "measured"


def test_what_is_not_known_is_not_written_and_a_measurement_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure.write(tmp_path / "devices", 1e10, today=DAY)
    assert CACHE not in facts(tmp_path, monkeypatch)
    measure.write(tmp_path / "devices", 2e10, None, 1048576, today=DAY)
    assert facts(tmp_path, monkeypatch) == {BANDWIDTH: 2e10, CACHE: 1048576}


def test_a_cache_that_was_stated_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "devices" / "host" / "cpu.yml"
    path.parent.mkdir(parents=True)
    path.write_text(f"facts: {{{CACHE}: {{value: 4096, source: sheet}}}}\n", "utf-8")
    with pytest.raises(FileError, match=r"last_level_cache\.bytes is stated and was not measured"):
        measure.write(tmp_path / "devices", 1e10, None, 8192, today=DAY)


def test_the_largest_cache_is_that_of_any_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for index, size in enumerate(("48K", "2048K", "49152K", "many")):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(size + "\n", "ascii")
    monkeypatch.setattr(measure, "CACHES", tmp_path)
    assert measure.largest_cache() == 49152 * 1024
    monkeypatch.setattr(measure, "CACHES", tmp_path / "nothing")
    assert measure.largest_cache() == 0


def test_a_copy_has_a_rate() -> None:
    assert measure.copy_bandwidth(1 << 24, repeats=2) > 0
