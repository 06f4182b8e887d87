"""What a caller blocks, by name: plugins, which are then not imported, and kernels, which are refused.

A name that nobody has would block nothing without a word, so it is an `UnknownName`. In ``NBX_BLOCK``, which may be set
for many machines and for every registry of a process, it is a warning. Known is also what may be here another time:
the plugins that the extras of nbx-registry install, and every kernel of a plugin that brings none now.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Final

from nbx_registry import distributions
from nbx_registry.catalog import Catalog
from nbx_registry.distributions import canonical
from nbx_registry.errors import UnknownName, nearest

_PATTERN: Final = frozenset("*?[")
"""What no name of a plugin or kernel has, and every pattern does."""


def check(catalog: Catalog, given: Iterable[str], everywhere: Iterable[str]) -> None:
    """Hold what is blocked against what there is.

    Parameters
    ----------
    given
        What ``block=`` names. Raises `UnknownName`, with the nearest, for what nobody has.
    everywhere
        What ``NBX_BLOCK`` names. Warns of what nobody has.
    """
    for name in vain(catalog, given):
        if _PATTERN & set(name):
            way = "of a pattern, make names: block=[name for name in nbx.load().kernels if fnmatch(name, pattern)]"
            raise UnknownName(f"block names {name!r}: names are taken as they are, and no patterns; {way}")
        kind = "kernel" if "/" in name else "plugin"
        hint = f"it would block nothing (nbx {kind}s lists those here)"
        raise UnknownName.of(f"{kind} in block=:", name, _alike(catalog, name), hint)
    for name in vain(catalog, everywhere):
        known = nearest(name, _alike(catalog, name))
        warnings.warn(f"NBX_BLOCK names {name!r}, a plugin that nobody has{known}", stacklevel=4)


def vain(catalog: Catalog, blocked: Iterable[str]) -> list[str]:
    """Return the names, in their order, that nothing has."""
    here = {canonical(plugin.name): plugin for plugin in catalog.plugins.values()}
    found: list[str] = []
    for name in blocked:
        owner = canonical(name.partition("/")[0])
        if "/" not in name:
            known = owner in here
        else:
            of_others = (kernel.id for plugin in here.values() if plugin.state != "active" for kernel in plugin.kernels)
            known = name in catalog.kernels or (owner in here and here[owner].state != "active") or name in of_others
        # What is not installed is asked last: it takes reading a file.
        if not known and not (owner not in here and owner in distributions.extras("nbx-registry")):
            found.append(name)
    return found


def _alike(catalog: Catalog, name: str) -> Iterable[str]:
    """Return the names that one may have been meant to be."""
    return catalog.kernels if "/" in name else (*catalog.plugins, *distributions.extras("nbx-registry"))
