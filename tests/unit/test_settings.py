"""Tuned settings: found by kernel, device and key; whatever is malformed tunes nothing and is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nbx_registry.settings import SettingsStore

NAMES = ("N", "stride", "x.dtype")
VALUES = (4096, (2, 2), "f16")


def entry(**changes: Any) -> dict[str, Any]:
    proof = {
        "date": "2026-11-30",
        "toolkit": "triton 3.6.0",
        "deviation": 1e-3,
        "bound": 2e-3,
        "times": {"tuned_s": 1.2e-5, "default_s": 1.5e-5},
        **changes.pop("proof", {}),
    }
    return {
        "kernel": "p/softmax/rows",
        "key": {"N": 4096, "stride": [2, 2], "x.dtype": "f16"},
        "settings": {"num_warps": 8},
        "proof": proof,
        **changes,
    }


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., SettingsStore]:
    def write(*entries: Any, device: str = "n/h", name: str = "a.json", **changes: Any) -> SettingsStore:
        data = {"format": 1, "device": device, "entries": list(entries), **changes}
        (tmp_path / name).write_text(json.dumps(data))
        return SettingsStore([tmp_path])

    return write


def look(store: SettingsStore, values: Any = VALUES, **changes: Any) -> Any:
    return store.lookup("p/softmax/rows", "n/h", NAMES, values, **changes)


def test_an_entry_is_found_by_its_key(folder):
    store = folder(entry())
    found = look(store)
    assert found.settings == {"num_warps": 8}
    assert found.seconds == 1.2e-5
    assert (found.proof.date, found.proof.bound) == ("2026-11-30", 2e-3)
    assert store.has("p/softmax/rows")
    assert store.misses() == ()


def test_the_order_of_the_key_is_of_no_matter(folder):
    store = folder(entry())
    assert store.lookup("p/softmax/rows", "n/h", NAMES[::-1], VALUES[::-1]) is look(store)
    assert look(store, (4096, [2, 2], "f16")) is look(store)


@pytest.mark.parametrize(
    "values",
    [(4095, (2, 2), "f16"), (4096, (2, 1), "f16"), (4096, (2, 2), "bf16"), (4096, None, "f16"), (4096, {}, "f16")],
)
def test_another_key_is_not_tuned(folder, values):
    store = folder(entry())
    assert look(store, values) is None
    assert store.misses() == ()


def test_another_device_or_kernel_is_not_tuned(folder):
    store = folder(entry())
    assert store.lookup("p/softmax/rows", "n/other", NAMES, VALUES) is None
    assert store.lookup("p/other/rows", "n/h", NAMES, VALUES) is None
    assert not store.has("p/other/rows")


def test_no_folder_is_no_settings(tmp_path):
    assert look(SettingsStore([tmp_path / "none"])) is None


def test_the_later_proof_counts_whatever_the_file(folder):
    later = entry(settings={"num_warps": 4}, proof={"date": "2026-12-01"})
    folder(later, name="a.json")
    assert look(folder(entry(), name="b.json")).settings == {"num_warps": 4}
    folder(entry(), name="a.json")
    assert look(folder(later, name="b.json")).settings == {"num_warps": 4}


def test_of_one_day_the_later_second_counts_and_a_second_counts_more_than_a_day(folder):
    dates = ["2026-11-30", "2026-11-30T09:14:00Z", "2026-11-30T09:14:01Z"]
    entries = [entry(settings={"num_warps": n}, proof={"date": date}) for n, date in enumerate(dates)]
    assert look(folder(*entries)).settings == {"num_warps": 2}
    assert look(folder(*entries[::-1])).settings == {"num_warps": 2}
    assert look(folder(*entries[1::-1])).settings == {"num_warps": 1}


def test_the_circumstances_of_a_proof_are_read(folder):
    machine = {"handle": "cuda:0", "name": "NVIDIA H200", "arch": "sm_90", "versions": {"driver": "580.1"}}
    wrong = {"settings": {"num_warps": 16}, "rule": "wrong", "reason": "out[0] is 3"}
    stated = {"default": {"num_warps": 4}, "timed": 5, "dropped": 1, "pruned": {"wide": 2}, "excluded": [wrong]}
    proof = look(folder(entry(proof={"machine": machine, **stated}))).proof
    assert (proof.machine, proof.default, proof.timed, proof.dropped) == (machine, {"num_warps": 4}, 5, 1)
    assert (proof.pruned, proof.excluded) == ({"wide": 2}, (wrong,))


def test_an_entry_that_is_rejected_is_a_miss_for_good(folder):
    store = folder(entry())
    store.reject(look(store), "none of the space's")
    assert look(store) is None
    assert "settings of p/softmax/rows for {'N': 4096" in str(store.misses()[0])
    assert "none of the space's" in str(store.misses()[0])


def test_an_entry_for_an_extent_of_0_is_a_miss_where_the_key_says_which_are_extents(folder):
    store = folder(entry(key={"pages": 0}))
    assert store.lookup("p/softmax/rows", "n/h", ("pages",), (0,)) is not None
    assert store.lookup("p/softmax/rows", "n/h", ("pages",), (0,), extents=("pages",)) is None
    assert "pages is an extent of 0" in str(store.misses()[0])


def test_settings_that_the_kernel_has_not_are_a_miss_by_name(folder):
    store = folder(entry(settings={"num_wraps": 8}))
    assert look(store, parameters=("num_warps", "BLOCK")) is None
    assert "name 'num_wraps', which is none of that kernel's; did you mean 'num_warps'" in str(store.misses()[0])


@pytest.mark.parametrize("settings", [{}, {"num_warps": 8}], ids=str)
def test_settings_that_are_not_all_of_the_kernels_are_a_miss_by_name(folder, settings):
    # Beside another default than the one of then they are proven for nothing.
    store = folder(entry(settings=settings))
    assert look(store, parameters=("num_warps", "BLOCK")) is None
    left_out = "BLOCK" if settings else "num_warps"
    assert f"leave out {left_out!r}, so that they are not all that was proven" in str(store.misses()[0])


def test_a_key_that_the_kernel_has_not_is_a_miss_by_name(folder):
    store = folder(entry(key={"N": 4096, "strid": [2, 2], "x.dtype": "f16"}))
    assert look(store) is None
    told = store.check()
    assert "names 'strid', which is no part of its launch key; did you mean 'stride'" in told[0]
    assert "leaves out 'stride'" in told[1]


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ({"N": "4096"}, "N is '4096'; an extent is an integer"),
        ({"N": 4096.5}, "N is 4096.5; an extent is an integer"),
        ({"N": None}, "N is None; an extent is an integer"),
        ({"N": [4096]}, "N is (4096,); an extent is an integer"),
        ({"x.dtype": "float16"}, "x.dtype is 'float16'; write 'f16'"),
        ({"x.dtype": "half"}, "x.dtype is 'half'; a dtype is its short name"),
        ({"x.dtype": 16}, "x.dtype is 16; a dtype is its short name"),
    ],
    ids=str,
)
def test_a_key_whose_values_can_be_none_is_a_miss_by_name(folder, key, message):
    store = folder(entry(key={**entry()["key"], **key}))
    assert look(store, extents=("N",)) is None
    (miss,) = store.misses()
    assert message in str(miss)


@pytest.mark.parametrize(("stored", "asked"), [(True, 1), (1.0, 1), (4096.0, 4096)], ids=str)
def test_what_only_equals_an_extent_is_none(folder, stored, asked):
    store = folder(entry(key={**entry()["key"], "N": stored}))
    assert look(store, (asked, *VALUES[1:]), extents=("N",)) is None
    assert f"N is {stored!r}; an extent is an integer" in str(store.misses()[0])


def test_a_null_is_a_value_of_what_is_no_extent(folder):
    store = folder(entry(key={**entry()["key"], "stride": None}))
    assert look(store, extents=("N",)) is None
    assert look(store, (4096, None, "f16"), extents=("N",)) is not None
    assert store.misses() == ()


def test_settings_proven_for_other_code_are_a_miss(folder):
    store = folder(entry(proof={"kernel_digest": "a" * 64}))
    assert look(store, kernel_digest=lambda: "a" * 64) is not None
    assert look(store, kernel_digest="b" * 64) is None
    assert "were proven for other code (aaaaaaaa -> bbbbbbbb)" in str(store.misses()[0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kernel": 3}, "entries[0].kernel: is a number; it must be a string"),
        ({"kernl": "x"}, "entries[0].kernl: unknown key; did you mean 'kernel'"),
        ({"key": []}, "entries[0].key: is a list"),
        ({"key": {"N": 0}}, "entries[0].key.N: is an extent of 0"),
        ({"key": {"N": {}}}, "entries[0].key.N: is an object"),
        ({"settings": {"a": [{}]}}, "entries[0].settings.a: is an object"),
        ({"proof": {"date": "today"}}, "entries[0].proof.date: 'today' is no date"),
        ({"proof": {"toolkit": ""}}, "entries[0].proof.toolkit: is an empty string"),
        ({"proof": {"bound": -1}}, "entries[0].proof.bound: is -1; it must be a number, zero or more"),
        ({"proof": {"deviation": 1}}, "entries[0].proof.deviation: 1.0 exceeds the bound 0.002"),
        ({"proof": {"times": {}}}, "entries[0].proof.times.tuned_s: is missing"),
        ({"proof": {"times": {"tuned_s": 0}}}, "entries[0].proof.times.tuned_s: is 0; it must be measured"),
        ({"proof": {"times": {"tuned_s": "1"}}}, "entries[0].proof.times.tuned_s: is a string"),
        ({"key": {"x.size": 0}}, "entries[0].key.x.size: is an extent of 0"),
        ({"proof": {"date": "2026-11-30T25:00:00Z"}}, "is no date (YYYY-MM-DD, or YYYY-MM-DDTHH:MM:SSZ)"),
        ({"proof": {"timed": -1}}, "entries[0].proof.timed: is -1"),
        ({"proof": {"machine": {"handle": "cpu"}}}, "entries[0].proof.machine.name: is missing"),
        ({"proof": {"excluded": [{"settings": {}, "rule": ""}]}}, "excluded[0].rule: is an empty string"),
        ({"proof": {"kernel_digest": "x"}}, "entries[0].proof.kernel_digest: 'x' is no SHA-256"),
    ],
)
def test_a_bad_entry_tunes_nothing_and_spoils_no_other(folder, tmp_path, changes, message):
    good = entry(key={"N": 1, "stride": [1, 1], "x.dtype": "f32"})
    store = folder(entry(**changes), good)
    assert look(store) is None
    assert look(store, (1, (1, 1), "f32")) is not None
    (problem,) = store.check()
    assert problem.startswith(f"{tmp_path / 'a.json'}: ")
    assert message in problem


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "a.json:1: not JSON"),
        ('{"format": 9, "device": "n/h", "entries": []}', "format: is 9; this version reads format 1"),
        ('{"format": 1, "entries": []}', "device: is missing"),
        ('{"format": 1, "device": "n/h", "entries": {}}', "entries: is an object; it must be a list"),
        ('{"format": 1, "device": "n/h", "entries": [1]}', "entries[0]: is a number"),
        ('{"format": 1, "device": "n/h", "entries": [], "x": 1}', "x: unknown key"),
    ],
)
def test_a_bad_file_is_a_named_miss_and_no_crash(folder, tmp_path, text, message):
    folder(entry(), name="b.json")
    (tmp_path / "a.json").write_text(text)
    store = SettingsStore([tmp_path])
    assert look(store) is not None
    (miss,) = store.misses()
    assert miss.file == tmp_path / "a.json"
    assert message in miss.message


def test_zero_is_a_fine_value_of_what_is_no_extent(folder):
    store = folder(entry(key={"N": 4096, "stride": [2, 2], "x.dtype": "f16", "padding": 0}))
    assert store.misses() == ()
    assert [one.key["padding"] for one in store.entries()] == [0]
