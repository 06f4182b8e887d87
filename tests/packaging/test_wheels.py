"""Every distribution's wheel holds all its files, and metadata that agrees with the others'."""

import subprocess
import sys
import tomllib
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MEMBERS = {
    "nbx-registry": ".",
    "nbx-devices": "devices",
    "nbx-conformance": "conformance",
    "nbx-examples": "examples",
    "nbx-triton": "plugins/nbx-triton",
    "nbx-cuda": "plugins/nbx-cuda",
    "nbx-sdm": "plugins/nbx-sdm",
}


def project(name: str) -> dict[str, object]:
    return tomllib.loads((ROOT / MEMBERS[name] / "pyproject.toml").read_text("utf-8"))["project"]


@pytest.fixture(scope="module", params=MEMBERS)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, zipfile.ZipFile]:
    name = request.param
    out = tmp_path_factory.mktemp(name)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    ran = subprocess.run(command, cwd=ROOT / MEMBERS[name], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    (wheel,) = out.glob("*.whl")
    return name, zipfile.ZipFile(wheel)


def test_a_wheel_holds_every_file_of_its_package_and_nothing_else(built: tuple[str, zipfile.ZipFile]) -> None:
    name, wheel = built
    folder = ROOT / MEMBERS[name]
    package = name.replace("-", "_")
    expected = {
        path.relative_to(folder).as_posix()
        for path in (folder / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    packed = {entry for entry in wheel.namelist() if ".dist-info/" not in entry}
    assert packed == expected
    assert f"{package}/__init__.py" in packed


def test_a_wheel_carries_the_license_and_its_requirements(built: tuple[str, zipfile.ZipFile]) -> None:
    _, wheel = built
    (metadata_file,) = [entry for entry in wheel.namelist() if entry.endswith(".dist-info/METADATA")]
    metadata = HeaderParser().parsestr(wheel.read(metadata_file).decode())
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert any(entry.endswith("licenses/LICENSE") for entry in wheel.namelist())


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("nbx-registry", "nbx_registry/dtypes.yml"),
        ("nbx-registry", "nbx_registry/host/evidence/*.json"),
        ("nbx-devices", "nbx_devices/nvidia/h200-sxm.yml"),
        ("nbx-devices", "nbx_devices/host/cpu.yml"),
        ("nbx-devices", "nbx_devices/intel/arch/xe-hpc.yml"),
        ("nbx-devices", "nbx_devices/suggestions.yml"),
        ("nbx-conformance", "nbx_conformance/cases/*.yml"),
        ("nbx-triton", "nbx_triton/evidence/*.json"),
        ("nbx-sdm", "nbx_sdm/evidence/*.json"),
        ("nbx-examples", "nbx_examples/minilm/reference.json"),
    ],
)
def test_data_files_are_where_the_code_reads_them(name: str, pattern: str) -> None:
    assert list((ROOT / MEMBERS[name]).glob(pattern)), f"no {pattern}"


def test_every_distribution_has_one_version() -> None:
    assert {str(project(name)["version"]) for name in MEMBERS} == {str(project("nbx-registry")["version"])}


def test_every_member_of_the_workspace_is_tested_here() -> None:
    manifests = [*ROOT.glob("*/pyproject.toml"), *ROOT.glob("plugins/*/pyproject.toml")]
    members = {path.parent.relative_to(ROOT).as_posix() for path in manifests}
    assert members == set(MEMBERS.values()) - {"."}


def test_the_extra_all_names_every_other_extra() -> None:
    extras = project("nbx-registry")["optional-dependencies"]
    assert isinstance(extras, dict)
    named = extras["all"][0].partition("[")[2].rstrip("]").split(",")
    assert set(named) == set(extras) - {"all"}
