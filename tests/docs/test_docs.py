"""The documentation is executed: Python blocks run, ``nbx`` lines exit and print as the page says.

In a page, the Python blocks run in order in one namespace. A block that cannot run says why in its info string:
``python no-run="needs a GPU"``. In a ``console`` block a line ``$ nbx ...`` is run; it must exit with 0, or with what
a comment states (``# exits 3``), and print what follows it up to the next ``$``, where ``...`` stands for anything.
The commands of a page run in order with one folder of the user's, into which a ``yaml`` block goes whose first line is
the path of a device file: ``# acme/one.yml``.

`WALKED` is followed as its reader does, in a shell: any command is run, and a block whose first line is a path
(``# nbx-acme/pyproject.toml``) must stand in that file, or becomes it; so does one that can hold no comment and has the
path as its title (``json title="nbx-acme/..."``).
"""

import doctest
import logging
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import mkdocs.commands.build
import mkdocs.config
import pytest
from click.testing import CliRunner

import nbx_registry
from nbx_registry.cli import main

ROOT = Path(__file__).parents[2]
GENERATED = ROOT / "docs/reference/ops"
"""Where the site's pages of ops lie, which no file in the repository holds."""
PATTERNS = ("*.md", "docs/**/*.md", "*/README.md", "plugins/*/README.md")
PAGES = sorted({page for pattern in PATTERNS for page in ROOT.glob(pattern) if ".venv" not in page.parts})
WALKED = ROOT / "docs/how-to/write-a-plugin.md"
READ_ONLY = {"text", "yaml", "toml", "json", "mermaid"}
"""Languages of blocks that nothing executes."""

_FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<body>.*?)^```\s*$", re.MULTILINE | re.DOTALL)
_EXITS = re.compile(r"\s+# exits (\d+)\s*$")
_DEVICE_FILE = re.compile(r"# ([a-z0-9-]+/[a-z0-9.-]+\.yml)\n")
_FILE = re.compile(r"# (nbx-acme/\S+?)(, at its end)?\n(?P<body>.*)", re.DOTALL)
_TITLE = re.compile(r'title="(nbx-acme/[^\s"]+)"')
_LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    language: str
    options: str
    body: str
    line: int


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text("utf-8")
    for match in _FENCE.finditer(text):
        language, _, options = match["info"].strip().partition(" ")
        yield Block(language, options.strip(), match["body"], text.count("\n", 0, match.start("body")))


@dataclass(frozen=True)
class File:
    path: str
    body: str
    at_its_end: bool = False


def file_of(block: Block) -> File | None:
    """The file that a block of `WALKED` stands in; None where it says none."""
    if title := _TITLE.fullmatch(block.options):
        return File(title[1], block.body)
    if found := _FILE.match(block.body):
        return File(found[1], found["body"], at_its_end=bool(found[2]))
    return None


def why_not(block: Block) -> str | None:
    """The written reason not to run a block; None for a block that runs."""
    if not block.options:
        return None
    match = re.fullmatch(r'no-run="([^"]{5,})"', block.options)
    assert match, f'line {block.line}: {block.options!r}; write no-run="the reason"'
    return match[1]


def commands(block: Block) -> Iterator[tuple[str, int, str]]:
    """The commands of a console block: the line, the exit code it states, the output it states."""
    parts = re.split(r"^\$ ", block.body, flags=re.MULTILINE)
    assert not parts[0].strip(), f"line {block.line}: a console block begins with '$ '"
    for part in parts[1:]:
        line, _, output = part.partition("\n")
        while line.endswith("\\"):
            more, _, output = output.partition("\n")
            line = line[:-1] + more
        code = _EXITS.search(line)
        yield _EXITS.sub("", line), int(code[1]) if code else 0, output


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_has_a_language_that_something_checks(page: Path) -> None:
    for block in blocks(page):
        assert block.language in {"python", "console", *READ_ONLY}, f"line {block.line}: {block.language!r}"
        if block.language == "python":
            why_not(block)


@pytest.mark.parametrize(
    "page", [p for p in PAGES if p != WALKED and any(b.language == "python" for b in blocks(p))], ids=name
)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NBX_CONFIG_DIR", str(tmp_path))
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.language == "python" and why_not(block) is None:
            # Blank lines before the code give tracebacks the line numbers of the page.
            exec(compile("\n" * block.line + block.body, str(page), "exec"), namespace)


CONSOLE = {page: [b for b in blocks(page) if b.language in ("console", "yaml")] for page in PAGES}
CONSOLE = {page: found for page, found in CONSOLE.items() if any(b.language == "console" for b in found)}
del CONSOLE[WALKED]


@pytest.mark.parametrize("page", CONSOLE, ids=name)
def test_commands_exit_and_print_as_stated(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NBX_CONFIG_DIR", str(tmp_path))
    for block in CONSOLE[page]:
        if block.language == "yaml":
            if device := _DEVICE_FILE.match(block.body):
                path = tmp_path / "devices" / device[1]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.body, "utf-8")
            continue
        for command, code, output in commands(block):
            if not command.startswith("nbx "):
                continue
            ran = CliRunner().invoke(main, shlex.split(command)[1:])
            assert ran.exit_code == code, f"line {block.line}: {command}\n{ran.output}"
            check_output(command, output, ran.output)


def check_output(command: str, stated: str, got: str) -> None:
    if stated.strip():
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        checker = doctest.OutputChecker()
        difference = checker.output_difference(doctest.Example(command, stated), got, flags)
        assert checker.check_output(stated, got, flags), difference


@pytest.fixture
def shell(tmp_path: Path) -> Callable[[list[str] | str], subprocess.CompletedProcess[str]]:
    """Runs commands in an environment of their own over this one: what is installed there is nowhere else."""
    bin = tmp_path / "venv" / "bin"
    venv.create(bin.parent, symlinks=True)
    python, here = bin / "python", sysconfig.get_path("purelib")
    (site,) = bin.parent.glob("lib/python*/site-packages")
    (site / "outer.pth").write_text(f"import site; site.addsitedir({here!r})\n", "utf-8")
    # No index is asked: what the plugin depends on is here.
    pip = f"{sys.executable} -m pip --python {python} --disable-pip-version-check"
    scripts = {
        "pip": f'{pip} "$@" --quiet --no-build-isolation --no-deps',
        "nbx": f"""{python} -c 'from nbx_registry.cli import main; main()' "$@\"""",
        "pytest": f'{python} -m pytest -p no:cacheprovider "$@"',
    }
    for command, script in scripts.items():
        (bin / command).write_text(f"#!/bin/sh\nexec {script}\n", "utf-8")
        (bin / command).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{bin}{os.pathsep}{os.environ['PATH']}",
        "COLUMNS": "100",
        "NBX_CONFIG_DIR": str(tmp_path / "config"),
    }
    work = tmp_path / "work"
    work.mkdir()

    def run(command: list[str] | str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            shell=isinstance(command, str),
            cwd=work,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    return run


def test_the_page_on_writing_a_plugin_writes_one(
    shell: Callable[[list[str] | str], subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    for block in blocks(WALKED):
        where = f"line {block.line}"
        if block.language == "console":
            for command, code, output in commands(block):
                ran = shell(command)
                assert ran.returncode == code, f"{where}: {command}\n{ran.stdout}"
                check_output(command, output, ran.stdout)
        elif file := file_of(block):
            path = tmp_path / "work" / file.path
            if file.at_its_end:
                path.write_text(path.read_text("utf-8") + file.body, "utf-8")
            elif path.exists():
                assert file.body in path.read_text("utf-8"), f"{where}: {file.path} is otherwise"
            else:
                path.write_text(file.body, "utf-8")
        else:
            assert block.language == "python", f"{where}: a block that nothing executes"
            ran = shell([str(tmp_path / "venv" / "bin" / "python"), "-W", "error", "-c", block.body])
            assert ran.returncode == 0, f"{where}: {ran.stdout}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_inside_the_repository_lead_somewhere(page: Path) -> None:
    for target in _LINK.findall(_FENCE.sub("", page.read_text("utf-8"))):
        if "://" not in target and not target.startswith("#"):
            path = Path(os.path.normpath(page.parent / target.partition("#")[0]))
            assert path.exists() or path.is_relative_to(GENERATED), f"{name(page)} links to {target}"


def test_the_site_builds_strictly_with_a_page_for_every_op(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = mkdocs.config.load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path / "site"), strict=True)
    with caplog.at_level(logging.WARNING, "mkdocs"):
        mkdocs.commands.build.build(config)
    assert not caplog.messages
    for op in nbx_registry.load().ops.values():
        page = tmp_path / "site/reference/ops" / f"{op.name.replace('::', '/')}.html"
        text = page.read_text("utf-8")
        for heading in ("Parameters", "Notes", "Cost", "Kernels"):
            assert f">{heading}<" in text, f"{op.name} says nothing under {heading}"


def test_pages_that_messages_name_exist() -> None:
    for source in (
        *ROOT.glob("nbx_registry/**/*.py"),
        *ROOT.glob("*/nbx_*/**/*.py"),
        *ROOT.glob("plugins/*/nbx_*/**/*.py"),
    ):
        for page in re.findall(r"docs/[\w/-]+\.md", source.read_text("utf-8")):
            assert (ROOT / page).is_file(), f"{source} names {page}"


def test_the_documentation_has_what_a_reader_looks_for() -> None:
    assert len(CONSOLE) >= 5
    for page in ("README.md", "CONTRIBUTING.md", "docs/explanation/design.md", "docs/how-to/call-ops.md"):
        assert (ROOT / page).is_file()
