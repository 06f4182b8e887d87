"""The plugin: one folder of device files. It imports pluggy alone, since the core depends on these files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pluggy

NBX_HOOKS = 1

hookimpl = pluggy.HookimplMarker("nbx_registry")


@hookimpl
def nbx_register_devices() -> Iterable[Path]:
    """The folder of this package: its subfolders are vendors."""
    return [Path(__file__).parent]
