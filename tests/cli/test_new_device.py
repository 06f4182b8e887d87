"""A person with a new card: the file is begun, completed, checked, and the card is known."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

import nbx_registry as nbx
from nbx_devices import plugin as files
from nbx_registry.cli import newdevice
from nbx_registry.devicetable import DeviceTable
from nbx_registry.runtime import LiveDevice
from nbx_registry.runtimespec import RuntimeSpec
from nbx_simulated.runtime import SimulatedRuntime

Run = Callable[..., Result]

CARD = LiveDevice(
    runtime="cuda",
    index=0,
    name="NVIDIA GeForce RTX 4090",
    arch="sm_89",
    # What nbx-cuda asks a driver for; the architecture states warp.width and threads.per_block already.
    detected={
        "memory.bytes": 25_250_627_584,
        "multiprocessors": 128,
        "l2.bytes": 75_497_472,
        "warp.width": 32,
        "threads.per_block": 1024,
    },
)


def table(user: Path) -> DeviceTable:
    return DeviceTable(files.nbx_register_devices(), (), user)


def complete(path: Path, **values: str) -> None:
    """Take the ``#`` from the lines of these facts and write their values, as a person does."""
    text = path.read_text("utf-8").replace("  # sheet:", "  sheet:")
    for key, value in values.items():
        text, count = re.subn(rf"^  # {key.replace('__', '[.]')}: {{value: ,(.*)$", rf"  @{value},\1", text, flags=re.M)
        assert count == 1, key
        text = text.replace(f"  @{value},", f"  {key.replace('__', '.')}: {{value: {value},")
    path.write_text(text, "utf-8")


def test_a_card_that_is_here_fills_in_what_it_reports(tmp_path: Path) -> None:
    day = datetime.date(2026, 12, 1)
    path, count = newdevice.begin(table(tmp_path), "nvidia/rtx-4090", CARD, None, today=day)
    assert (path, count) == (tmp_path / "nvidia/rtx-4090.yml", 3)
    begun = table(tmp_path)
    assert begun.check() == ()
    device = begun["nvidia/rtx-4090"]
    assert begun.match(CARD) is device
    assert (device.extends, device.arch, device.evidence_class) == ("nvidia/arch/sm_89", "sm_89", "nvidia-rtx-4090")
    fact = device.facts["memory.bytes"]
    assert (fact.value, fact.source, fact.read, fact.date) == (25_250_627_584, "device", "dev", "2026-12-01")
    assert device.fact("warp.width") == 32


def test_completed_it_is_checked_and_priced(tmp_path: Path) -> None:
    path, _ = newdevice.begin(table(tmp_path), "nvidia/rtx-4090", CARD, None)
    complete(
        path,
        memory__bandwidth_bytes_per_s="1.0e12",
        peak__vector__float32_flop_per_s="8.0e13",
        peak__matrix__float16_flop_per_s="1.6e14",
    )
    done = table(tmp_path)
    assert done.check() == ()
    assert done["nvidia/rtx-4090"].fact("memory.bandwidth_bytes_per_s") == 1.0e12
    assert str(done["nvidia/rtx-4090"].facts["peak.matrix.float16_flop_per_s"].documents[0]).startswith(
        "title, revision"
    )


def test_like_another_it_asks_for_the_facts_that_one_has(tmp_path: Path) -> None:
    known = table(tmp_path)
    path, count = newdevice.begin(known, "nvidia/l40", None, known["nvidia/l40s"])
    text = path.read_text("utf-8")
    assert count == 0
    assert "extends: nvidia/arch/sm_89" in text
    for key, fact in known["nvidia/l40s"].facts.items():
        assert (f"# {key}: " in text) is (fact.file == known["nvidia/l40s"].file), key
    begun = table(tmp_path)
    assert begun.check() == ()
    assert begun["nvidia/l40"].facts.keys() == {
        key for key, fact in known["nvidia/l40s"].facts.items() if fact.file != known["nvidia/l40s"].file
    }


def test_of_an_architecture_without_a_file_it_says_what_to_write(tmp_path: Path) -> None:
    path, _ = newdevice.begin(table(tmp_path), "acme/one", None, None)
    (problem,) = table(tmp_path).check()
    assert problem.startswith(f"{path}:1: arch and runtime are missing")
    bare = path.read_text("utf-8").replace("# arch: ", "arch: ").replace("# runtime: ", "runtime: ")
    path.write_text(bare, "utf-8")
    # What a line explains is no value of it.
    (problem,) = table(tmp_path).check()
    assert problem == f"{path}:6: arch is empty; write a name"
    path.write_text(bare.replace("arch: ", "arch: acme1").replace("runtime: ", "runtime: acme"), "utf-8")
    assert table(tmp_path).check() == ()
    known, _ = newdevice.begin(table(tmp_path), "amd/mi210", None, None)
    assert "# extends: amd/arch/gfx908  # or amd/arch/gfx90a, amd/arch/gfx942" in known.read_text("utf-8")


@pytest.mark.parametrize(
    "name", ["nvidia", "nvidia/RTX", "../../x/y", "nvidia/arch/sm_90", "nvidia/arch", "a/b/c", "/a/b"]
)
def test_what_is_no_id_is_refused(run: Run, tmp_path: Path, name: str) -> None:
    result = run("devices", "--new", name)
    assert result.exit_code == 2
    assert "is no id of a device" in result.output
    assert not list(tmp_path.rglob("*.yml"))


def test_a_device_that_has_a_file_is_not_begun_again(run: Run, tmp_path: Path) -> None:
    result = run("devices", "--new", "nvidia/l40s")
    assert result.exit_code == 2
    told = " ".join(result.output.split())
    assert "nvidia/l40s is described by" in told
    assert "go into an overlay" in told
    assert run("devices", "--new", "acme/one").exit_code == 0
    before = (tmp_path / "devices/acme/one.yml").read_text("utf-8")
    again = run("devices", "--new", "acme/one")
    assert again.exit_code == 2
    assert "edit that file" in " ".join(again.output.split())
    assert (tmp_path / "devices/acme/one.yml").read_text("utf-8") == before


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--like", "nvidia/l40s"), 2, "go with --new"),
        (("nvidia/l40s", "--new", "acme/one"), 2, "asks for another thing"),
        (("--new", "acme/one", "--like", "nvidia/l40"), 2, "did you mean 'nvidia/l40s'"),
        (("--new", "acme/one", "--card", "cpu"), 2, "cpu is host/cpu"),
        (("--new", "acme/one", "--card", "tpu:0"), 1, "unknown runtime 'tpu'"),
        (("--new", "acme/one", "--card", "nvidia/l40s"), 1, "--card takes a card that is here"),
    ],
)
def test_a_wrong_request_says_what_is_wrong(
    run: Run, tmp_path: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    result = run("devices", *words)
    assert result.exit_code == code
    assert message in " ".join(result.output.split())
    assert not (tmp_path / "devices").exists()


def test_a_folder_that_cannot_be_written_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "devices").write_text("a file in its place", "utf-8")
    result = run("devices", "--new", "acme/one")
    assert result.exit_code == 1
    assert "cannot be written" in " ".join(result.output.split())


class Odd(SimulatedRuntime):
    """A runtime with a card that no file describes."""

    name = "odd"

    def devices(self) -> Any:
        detected = {"multiprocessors": 4, "memory.bytes": 1024, "l2.bytes": -1, "unheard_of": 3}
        return [LiveDevice(runtime="odd", index=0, name='Odd "One": #1\nand more', arch="odd_1", detected=detected)]


class Pair(SimulatedRuntime):
    """A runtime with two of them."""

    name = "pair"

    def devices(self) -> Any:
        return [LiveDevice(runtime="pair", index=i, name=f"Pair {i}", arch="pair_1") for i in range(2)]


def with_runtime(name: str, factory: str) -> Any:
    class Brings:
        NBX_HOOKS = 1

        @nbx.hookimpl
        def nbx_register_runtimes(self) -> list[RuntimeSpec]:
            return [RuntimeSpec(name=name, factory=f"{__name__}:{factory}")]

    found = Brings()
    found.name = f"nbx-{name}"  # type: ignore[attr-defined]
    return found


def test_an_unknown_card_leads_to_its_file(run: Run, with_plugins: Callable[..., None], tmp_path: Path) -> None:
    with_plugins(with_runtime("odd", "Odd"))
    told = " ".join(run("devices").output.split())
    assert "no device file matches 'Odd \"One\": #1\\nand more' (odd_1)" in told
    assert "nbx devices --new <vendor>/<product> --card odd:0 begins it" in told
    begun = run("devices", "--new", "odd/one")
    assert begun.exit_code == 0, begun.output
    assert "with 2 facts that odd:0 reports" in " ".join(begun.output.split())
    shown = run("devices", "odd:0")
    assert shown.exit_code == 0, shown.output
    assert "odd/one: odd_1 on the runtime 'odd'" in shown.output
    assert "reported by the device, on the date given" in " ".join(shown.output.split())


def test_of_several_unknown_cards_one_is_named(run: Run, run_json: Any, with_plugins: Callable[..., None]) -> None:
    with_plugins(with_runtime("pair", "Pair"))
    result = run("devices", "--new", "pair/one")
    assert result.exit_code == 2
    assert "pair:0, pair:1; say which with --card" in " ".join(result.output.split())
    begun = run_json("devices", "--new", "pair/one", "--card", "pair:1")
    assert (begun["card"], begun["facts"]) == ("pair:1", 0)
    assert 'match: {names: ["Pair 1"], archs: ["pair_1"]}' in Path(begun["file"]).read_text("utf-8")


def test_doctor_notes_what_a_file_of_yours_lacks_for_prices(run: Run, run_json: Any, tmp_path: Path) -> None:
    assert run("devices", "--new", "nvidia/l40", "--like", "nvidia/l40s").exit_code == 0
    notes = [row for row in run_json("doctor") if row["about"] == "nvidia/l40"]
    assert [row["kind"] for row in notes] == ["note", "note"]
    assert "states no memory.bandwidth_bytes_per_s" in notes[0]["text"]
    complete(
        tmp_path / "devices/nvidia/l40.yml",
        memory__bandwidth_bytes_per_s="864e9",
        peak__vector__float32_flop_per_s="9.0e13",
    )
    assert not [row for row in run_json("doctor") if row["about"] == "nvidia/l40"]


# What doctor says of the files of a person, by what they wrote.
WRONG = {
    "an unknown key": ("memory.byts: {value: 1, source: S}", "did you mean 'memory.bytes'"),
    "no source": ("memory.bytes: {value: 1}", "has no source"),
    "an unknown source": ("memory.bytes: {value: 1, source: sheet}", "source 'sheet' is no known tag"),
    "text with a unit": ("memory.bandwidth_bytes_per_s: {value: 3.35 TB/s, source: S}", "got '3.35 TB/s', a string"),
    "other units": ("memory.bandwidth_bytes_per_s: {value: 3.35, source: S}", "no device is that slow"),
    "a zero rate": ("memory.bandwidth_bytes_per_s: {value: 0, source: S}", "above zero (bytes/s); got 0"),
    "a negative rate": ("peak.vector.float32_flop_per_s: {value: -1.0e12, source: S}", "above zero (FLOP/s)"),
    "not a number": ("peak.vector.float32_flop_per_s: {value: .nan, source: S}", "is a finite number"),
    "infinity": ("peak.vector.float32_flop_per_s: {value: .inf, source: S}", "is a finite number"),
    "no multiprocessors": ("multiprocessors: {value: 0, source: S}", "above zero (count); got 0"),
    "bytes as a float": ("memory.bytes: {value: 24e9, source: S}", "a number; write 24000000000"),
    "a key without a value": ("memory.bytes: {value: , source: S}", "got empty"),
    "what the architecture states": ("warp.width: {value: 32, source: S}", "is given twice"),
}


@pytest.mark.parametrize(("fact", "message"), WRONG.values(), ids=WRONG)
def test_doctor_tells_what_is_wrong_with_a_file_of_yours(
    run_json: Any, tmp_path: Path, fact: str, message: str
) -> None:
    path = tmp_path / "devices/nvidia/mine.yml"
    path.parent.mkdir(parents=True)
    path.write_text(
        "extends: nvidia/arch/sm_89\nevidence_class: mine\nsources: {S: {document: D, publisher: P}}\n"
        f"facts:\n  {fact}\n",
        "utf-8",
    )
    (problem,) = [row["text"] for row in run_json("doctor") if row["about"] == "device files"]
    assert message in problem
    assert str(path) in problem


@pytest.mark.parametrize(
    ("name", "text", "messages"),
    [
        ("nvidia/mine", "extends: nvidia/arch/sm_88\nevidence_class: m", ("did you mean 'nvidia/arch/sm_8",)),
        ("nvidia/mine", "id: nvidia/mine\nextends: nvidia/arch/sm_89", ("leave id out: it is where the file lies",)),
        ("nvidia/Mine", "extends: nvidia/arch/sm_89\nevidence_class: m", ("'nvidia/Mine' is no id",)),
        ("nvidia/cards/mine", "extends: nvidia/arch/sm_89", ("not read; device files are <vendor>/<product>.yml",)),
        (
            "nvidia/mine",
            "extends: nvidia/arch/sm_90\nevidence_class: m\nmatch: {names: [NVIDIA H200]}",
            ("mine.yml", "h200-sxm.yml", "match the same card"),
        ),
        (
            "nvidia/h200-sxm",
            "facts: {multiprocessors: {value: 132, source: measured, date: 2026-11-30}}",
            ("devices/nvidia/h200-sxm.yml:1: fact 'multiprocessors' is given twice", "nbx_devices/nvidia/h200-sxm.yml"),
        ),
        (
            "nvidia/h200-sxn",
            "facts: {rate.matrix_product: {value: 0.7, source: measured, date: 2026-11-30}}",
            ("name this one after it; did you mean 'nvidia/h200-sxm'",),
        ),
        (
            "nvidia/mine",
            "extends: nvidia/arch/sm_90\nevidence_class: m\nsettings_from: nvidia/h200-sxm",
            ("settings_from 'nvidia/h200-sxm' is no product of the evidence class 'm'",),
        ),
    ],
)
def test_doctor_names_both_files_and_the_way_out(
    run_json: Any, tmp_path: Path, name: str, text: str, messages: tuple[str, ...]
) -> None:
    path = tmp_path / f"devices/{name}.yml"
    path.parent.mkdir(parents=True)
    path.write_text(text, "utf-8")
    problems = " ".join(row["text"] for row in run_json("doctor") if row["about"] == "device files")
    for message in messages:
        assert message in problems


def test_a_card_that_two_files_match_is_told_and_the_listing_goes_on(
    run: Run, run_json: Any, with_plugins: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    with_plugins(with_runtime("odd", "Odd"))
    for name in ("one", "two"):
        path = tmp_path / f"devices/odd/{name}.yml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("arch: odd_1\nruntime: odd\nevidence_class: odd\nmatch: {archs: [odd_1]}\n", "utf-8")
    listed = run("devices")
    assert listed.exit_code == 0
    assert "odd/two" in listed.output
    for told in (" ".join(listed.output.split()), " ".join(row["text"] for row in run_json("doctor"))):
        assert "odd/one.yml and by " in told
        assert "odd/two.yml; make their match rules differ" in told
