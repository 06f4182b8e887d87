"""The kernels' numbers, from Triton's interpreter in processes of its own: one a file, so that workers share them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nbx_registry.errors import NbxError
from nbx_triton import interpreter

INTERPRETED = sorted(Path(__file__).with_name("interpreted").glob("test_*.py"))


def test_a_process_that_compiles_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(NbxError, match="TRITON_INTERPRET=1"):
        interpreter.runtime()


@pytest.mark.parametrize("file", INTERPRETED, ids=lambda file: file.stem)
def test_kernels_interpreted(file: Path) -> None:
    if os.environ.get("TRITON_INTERPRET") == "1":
        pytest.skip("this is that process")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", str(file)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
