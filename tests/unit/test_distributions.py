"""Installed distributions are told as `importlib.metadata` tells them, wherever they lie."""

from __future__ import annotations

import importlib.metadata
import sys
import zipfile
from pathlib import Path

import pytest

from nbx_registry import distributions

Told = list[tuple[str, str | None, str | None, str | None]]


def ours() -> Told:
    """Return place, name, version and entry points of everything installed."""
    found: Told = []
    for each in distributions.installed():
        points = each.read("entry_points.txt")
        found.append((each.place, *each.identity(), None if points is None else points.decode()))
    return sorted(found, key=repr)


def theirs() -> Told:
    """Return the same as the standard library has it."""
    found: Told = [
        (str(d.locate_file("")), d.metadata["Name"], d.metadata["Version"], d.read_text("entry_points.txt"))
        for d in importlib.metadata.distributions()
    ]
    return sorted(found, key=repr)


def write(folder: Path, name: str, files: dict[str, str]) -> None:
    """Write the metadata of one distribution."""
    (folder / name).mkdir(parents=True)
    for file, text in files.items():
        (folder / name / file).write_text(text, "utf-8", newline="")


def head(name: str, version: str) -> str:
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_what_is_installed_here() -> None:
    assert len(ours()) > 5
    assert ours() == theirs()


def test_every_form_that_installers_leave(site: Path) -> None:
    write(site, "nbx_made-1.0.dist-info", {"METADATA": head("nbx-made", "1.0"), "entry_points.txt": "[a]\nb = c\n"})
    write(site, "Windows-2.dist-info", {"METADATA": head("Windows", "2").replace("\n", "\r\n") + "\r\nName: no\r\n"})
    write(site, "built.egg-info", {"PKG-INFO": "name: built\nVERSION:3\n\nVersion: 4\n"})
    write(site, "README-1.dist-info", {"METADATA": "Keywords: a: b\n" + head("README", "1") + "\nName: other\n"})
    write(site, "package", {"METADATA": head("package", "5")})
    (site / "old.egg-info").write_text(head("old", "6"))
    (site / "no-folder.dist-info").write_text("")
    told = ours()
    assert told == theirs()
    here = {(name, version) for place, name, version, _ in told if place == str(site) and name}
    assert here == {("nbx-made", "1.0"), ("Windows", "2"), ("built", "3"), ("README", "1"), ("old", "6")}


def test_without_its_metadata_one_has_no_name(site: Path) -> None:
    write(site, "bare-1.0.dist-info", {"entry_points.txt": ""})
    (bare,) = distributions.installed("bare")
    assert bare.identity() == (None, None)
    assert bare.read("METADATA") is None
    assert distributions.version("bare") is None


@pytest.mark.parametrize("name", ["nbx-made", "NBX_Made", "nbx.made"])
def test_a_version_by_any_spelling_of_the_name(site: Path, name: str) -> None:
    write(site, "nbx_made-1.0.dist-info", {"METADATA": head("nbx-made", "1.0")})
    write(site, "nbx_made_too-2.0.dist-info", {"METADATA": head("nbx-made-too", "2.0")})
    assert distributions.version(name) == importlib.metadata.version(name) == "1.0"


def test_the_first_on_the_path_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("second", "first"):
        write(tmp_path / place, f"made-{place}.dist-info", {"METADATA": head("made", place)})
        monkeypatch.syspath_prepend(tmp_path / place)
    assert distributions.version("made") == "first"
    assert [each.identity()[1] for each in distributions.installed("made")] == ["first", "second"]


def test_what_is_not_installed_has_no_version() -> None:
    assert distributions.version("nbx-nowhere") is None


def test_places_that_are_not_there_hold_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path / "nowhere"), *sys.path])
    assert ours() == theirs()


def test_an_archive_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "packages.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("zipped-1.5.dist-info/METADATA", head("zipped", "1.5"))
        file.writestr("zipped-1.5.dist-info/entry_points.txt", "[nbx_registry]\nzipped = zipped\n")
    monkeypatch.syspath_prepend(archive)
    assert distributions.version("zipped") == "1.5"
    assert len(ours()) == len(theirs())


def test_an_egg_has_its_metadata_within(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "laid-7.egg", "EGG-INFO", {"PKG-INFO": head("laid", "7")})
    monkeypatch.syspath_prepend(tmp_path / "laid-7.egg")
    assert distributions.version("laid") == "7"


def test_a_finder_with_distributions_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Own(importlib.metadata.Distribution):
        def read_text(self, filename: str) -> str | None:
            return head("own", "8") if filename == "METADATA" else None

        def locate_file(self, path: object) -> Path:
            return tmp_path / str(path)

    class Finder(importlib.metadata.DistributionFinder):
        def find_spec(self, *_: object) -> None:
            return None

        def find_distributions(self, context: object = None) -> list[importlib.metadata.Distribution]:
            return [Own()]

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
    assert (str(tmp_path), "own", "8", None) in ours()
