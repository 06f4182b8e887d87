"""Installed plugins: found by the metadata of their distributions, however broken another's is."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest

from nbx_registry import plugins

METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
GOOD = "NBX_HOOKS = 1\n"


def install(site: Path, points: str, *, name: str = "nbx-made", version: str = "1.0", metadata: str = METADATA) -> None:
    """Leave in ``site`` what an installer leaves of a distribution."""
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    if metadata:
        (folder / "METADATA").write_text(metadata.format(name=name, version=version), "utf-8")
    (folder / "entry_points.txt").write_text(points, "utf-8")


def point(value: str, name: str = "nbx-made") -> str:
    return f"[nbx_registry]\n{name} = {value}\n"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def found(*block: str) -> dict[str, plugins.Plugin]:
    states = {plugin.name: plugin for plugin in plugins.discover(block)}
    assert states["nbx-host"].state == "active"
    return states


def module(site: Path, name: str, code: str) -> None:
    (site / f"{name}.py").write_text(code, "utf-8")


def test_a_good_one_is_found_with_its_distribution(site: Path) -> None:
    module(site, "entry_good", GOOD)
    install(site, point("entry_good"))
    made = found()["nbx-made"]
    assert (made.state, made.distribution, made.version) == ("active", "nbx-made", "1.0")


def test_a_mark_of_byte_order_hides_none(site: Path) -> None:
    module(site, "entry_good", GOOD)
    install(site, "\ufeff" + point("entry_good"))
    assert found()["nbx-made"].state == "active"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("entry_nowhere.plugin", "No module named 'entry_nowhere'"),
        ("nbx_registry:nothing", "AttributeError"),
        ("two words", "'two words' names no module"),
        ("nbx-made/plugin.py", "'nbx-made/plugin.py' names no module"),
        (":plugin", "':plugin' names no module"),
    ],
)
def test_an_entry_point_to_nothing_is_quarantined(site: Path, value: str, reason: str) -> None:
    install(site, point(value))
    made = found()["nbx-made"]
    assert made.state == "quarantined"
    assert reason in made.reason
    assert "nbx-made" in made.way_out


@pytest.mark.parametrize("points", ["[nbx_registry]\nnbx-made\n", "[nbx_registry]\n= x\n"], ids=["no-value", "no-name"])
def test_entry_points_that_cannot_be_read_are_told_and_hide_no_others(site: Path, points: str) -> None:
    install(site, points, name="nbx-broken")
    module(site, "entry_good", GOOD)
    install(site, point("entry_good"))
    states = found()
    assert states["nbx-made"].state == "active"
    (bad,) = [plugin for plugin in states.values() if plugin.state == "quarantined"]
    assert "nbx-broken" in bad.reason + bad.way_out


def test_a_file_that_is_no_text_is_told(site: Path) -> None:
    install(site, "", name="nbx-broken")
    (site / "nbx_broken-1.0.dist-info" / "entry_points.txt").write_bytes(b"[nbx_registry]\n\xff = x\n")
    (bad,) = [plugin for plugin in found().values() if plugin.state == "quarantined"]
    assert "UnicodeDecodeError" in bad.reason


def test_a_distribution_without_metadata_still_has_its_plugin(site: Path) -> None:
    module(site, "entry_good", GOOD)
    install(site, point("entry_good"), metadata="")
    assert found()["nbx-made"].state == "active"


@pytest.mark.parametrize(("version", "copies"), [("2.0", 1), ("1.0", 0)])
def test_of_two_versions_the_first_counts_and_the_other_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, copies: int
) -> None:
    for folder, each in (("second", version), ("first", "1.0")):
        monkeypatch.syspath_prepend(tmp_path / folder)
        install(tmp_path / folder, point("entry_good"), version=each)
        module(tmp_path / folder, "entry_good", GOOD)
    made = found()["nbx-made"]
    assert (made.state, made.version, len(made.copies)) == ("active", "1.0", copies)
    assert all(copy == f"2.0 in {tmp_path / 'second'}" for copy in made.copies)


def test_two_distributions_that_name_one_plugin_are_told(site: Path) -> None:
    module(site, "entry_good", GOOD)
    install(site, point("entry_good"), name="nbx-made")
    install(site, point("entry_good", "NBX_Made"), name="nbx-other")
    (bad,) = [plugin for plugin in found().values() if plugin.state == "quarantined"]
    assert "nbx-made and nbx-other" in bad.reason


def test_a_blocked_one_is_never_imported(site: Path) -> None:
    module(site, "entry_never", "raise SystemExit('imported')\n")
    install(site, point("entry_never"))
    made = found("NBX-Made")["nbx-made"]
    assert made.state == "blocked"
    assert "entry_never" not in sys.modules


def test_one_that_exits_is_quarantined(site: Path) -> None:
    module(site, "entry_exits", "import sys\nsys.exit(7)\n")
    install(site, point("entry_exits"))
    assert "SystemExit: 7" in found()["nbx-made"].reason


@pytest.mark.parametrize(("action", "state"), [("error", "quarantined"), ("ignore", "active")])
def test_a_warning_on_import_is_an_error_only_where_warnings_are(site: Path, action: str, state: str) -> None:
    module(site, f"entry_warns_{action}", f"import warnings\nwarnings.warn('old', stacklevel=2)\n{GOOD}")
    install(site, point(f"entry_warns_{action}"))
    with warnings.catch_warnings():
        warnings.simplefilter(action)
        made = found()["nbx-made"]
    assert made.state == state
    assert made.state == "active" or "UserWarning: old" in made.reason
