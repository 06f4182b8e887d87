"""Runtimes and emulators as registered: where each is made, so that a plugin is asked without its runtime's module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class RuntimeSpec:
    """A runtime as registered: its name and where it is made, so that registering imports no toolkit."""

    name: str
    factory: str
    """``module:function`` without arguments, returning the `Runtime`."""
    install: str = ""
    """The command that installs what it needs, for refusals."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Emulator:
    """A runtime that stands in for another when numbers are checked: an interpreter, a software device."""

    name: str
    backend: str
    """Kernels of this backend ..."""
    runtimes: tuple[str, ...]
    """... for these runtimes can be run on it."""
    factory: str
    """``module:function`` without arguments, returning the `Runtime`."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """Environment variables that the process must be started with."""
