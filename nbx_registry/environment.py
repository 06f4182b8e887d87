"""The ``NBX_`` environment variables: every one that is read, strictly.

A bad value is an `EnvironmentVariableError` naming variable, value and way out; an unknown ``NBX_`` name is a warning
with the nearest known one. Values are read when asked for, so importing this looks at nothing.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping
from pathlib import Path

from nbx_registry.errors import EnvironmentVariableError, nearest
from nbx_registry.policy import REQUIRE

VARIABLES: Mapping[str, str] = {
    "NBX_CONFIG_DIR": "the user's folder: devices, evidence, settings, advisories (absolute; default ~/.config/nbx)",
    "NBX_CACHE_DIR": "folder of what can be made again: compiled kernels (absolute; default ~/.cache/nbx)",
    "NBX_BLOCK": "plugins that are not to be loaded, separated by commas (default: none)",
    "NBX_HOST_THREADS": "threads for work over large arrays on the host (1 to 1024; default: the process's cores)",
    "NBX_REQUIRE": f"the evidence a kernel must have: {', '.join(REQUIRE)} (default: checked)",
}
"""Every variable by name, and what it means."""

MAX_THREADS = 1024

_PLUGIN = r"[A-Za-z0-9][A-Za-z0-9._-]*"


def config_dir(environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder of the user's files (which need not exist): ``NBX_CONFIG_DIR``, else ``~/.config/nbx``."""
    return _folder("NBX_CONFIG_DIR", ".config", environ)


def cache_dir(environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder of what can be made again (which need not exist): ``NBX_CACHE_DIR``, else ``~/.cache/nbx``."""
    return _folder("NBX_CACHE_DIR", ".cache", environ)


def blocked(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the plugins that ``NBX_BLOCK`` names, each once, in its order."""
    text = _given(environ).get("NBX_BLOCK", "")
    names = [part.strip() for part in text.split(",")] if text.strip() else []
    for name in names:
        if not re.fullmatch(_PLUGIN, name):
            raise EnvironmentVariableError(
                f"NBX_BLOCK={text!r}: {name!r} is no plugin name; separate names by commas, like nbx-cuda,nbx-sdm"
            )
    return tuple(dict.fromkeys(names))


def require(environ: Mapping[str, str] | None = None) -> str:
    """Return the evidence policy that ``NBX_REQUIRE`` sets, ``checked`` if it is not set."""
    value = _given(environ).get("NBX_REQUIRE", "checked")
    if value not in REQUIRE:
        raise EnvironmentVariableError(
            f"NBX_REQUIRE={value!r} is none of {', '.join(REQUIRE)}{nearest(value, REQUIRE)}"
        )
    return value


def host_threads(environ: Mapping[str, str] | None = None) -> int | None:
    """Return the number of threads that ``NBX_HOST_THREADS`` sets, None if it is not set."""
    value = _given(environ).get("NBX_HOST_THREADS")
    if value is None:
        return None
    if not re.fullmatch(r"[1-9][0-9]{0,3}", value) or int(value) > MAX_THREADS:
        raise EnvironmentVariableError(
            f"NBX_HOST_THREADS={value!r} is no number of threads; write an integer from 1 to {MAX_THREADS}"
        )
    return int(value)


def check(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Parse every variable and warn of each ``NBX_`` name that nobody reads.

    Returns
    -------
    tuple of str
        The warnings' messages, by variable name.

    Raises
    ------
    EnvironmentVariableError
        For the first variable whose value does not parse.
    """
    given = _given(environ)
    config_dir(given)
    cache_dir(given)
    blocked(given)
    require(given)
    host_threads(given)
    known = f"; known are {', '.join(VARIABLES)}"
    messages = tuple(
        f"environment variable {name} is not read{nearest(name, VARIABLES) or known}"
        for name in sorted(given)
        if name.startswith("NBX_") and name not in VARIABLES
    )
    for message in messages:
        warnings.warn(message, stacklevel=2)
    return messages


def _given(environ: Mapping[str, str] | None) -> Mapping[str, str]:
    return os.environ if environ is None else environ


def _folder(variable: str, default: str, environ: Mapping[str, str] | None) -> Path:
    value = _given(environ).get(variable)
    try:
        folder = Path.home() / default / "nbx" if value is None else Path(value).expanduser()
    except RuntimeError as error:
        raise EnvironmentVariableError(
            f"{variable} is {'not set' if value is None else repr(value)} and the home folder cannot be told: "
            f"set {variable} to an absolute path"
        ) from error
    if not folder.is_absolute() or "\0" in str(folder):
        raise EnvironmentVariableError(
            f"{variable}={value!r} is no absolute path; a relative one would change with the working directory"
        )
    return folder
