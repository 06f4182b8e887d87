import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import nbx_registry as nbx
from nbx_registry.cli import main

Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run ``nbx`` with the given words, at 80 columns, with no files of the user's."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NBX_CONFIG_DIR", str(tmp_path))

    def invoke(*words: str) -> Result:
        result = CliRunner().invoke(main, words)
        # An exception other than the exit itself would be a traceback on a user's screen.
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    return invoke


@pytest.fixture
def run_json(run: Run) -> Callable[..., Any]:
    """Run ``nbx`` with ``--json`` and return what it printed."""
    return lambda *words: json.loads(run(*words, "--json").stdout)


@pytest.fixture
def with_plugins(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make ``nbx`` see plugins of this process."""
    load = nbx.load

    def install(*plugins: object) -> None:
        monkeypatch.setattr(nbx, "load", lambda block=(): load(block=block, plugins=list(plugins)))

    return install
