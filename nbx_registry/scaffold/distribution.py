"""Writing a plugin: the template is the plugin nbx-acme, a real one, whose name is replaced wherever it stands."""

from __future__ import annotations

import importlib.util
import keyword
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from nbx_registry.catalog import Catalog
from nbx_registry.entrypoints import canonical
from nbx_registry.errors import NbxError
from nbx_registry.plugins import OWN_BACKENDS

TEMPLATE = Path(__file__).with_name("template") / "nbx-acme"

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\Z")
_WORDS = re.compile("nbx-acme|nbx_acme|ACME|Acme|acme")
_LONGEST = 40
_YAML_WORDS = ("true", "false", "null")


@dataclass(frozen=True, slots=True)
class Names:
    """What a plugin is called, in every place that has its own way of writing it."""

    distribution: str
    """``nbx-big-iron``"""

    @property
    def module(self) -> str:
        """``nbx_big_iron``."""
        return self.distribution.replace("-", "_")

    @property
    def short(self) -> str:
        """``big_iron``: the runtime, the backend, the vendor of its devices."""
        return self.module.removeprefix("nbx_")

    @property
    def title(self) -> str:
        """``Big Iron``."""
        return self.short.replace("_", " ").title()

    def replace(self, text: str) -> str:
        """Return a text of the template under these names."""
        words = {
            "nbx-acme": self.distribution,
            "nbx_acme": self.module,
            "ACME": self.short.upper().replace("_", "-"),
            "Acme": self.title,
            "acme": self.short,
        }
        return _WORDS.sub(lambda match: words[match[0]], text)


def name_of(name: str) -> Names:
    """Return what a plugin of that name is called. Raises `NbxError` (code ``NAME``) where it cannot be called so."""
    suggestion = canonical(name).strip("-")
    if not _NAME.match(name):
        way = f"; write {suggestion}" if _NAME.match(suggestion) else ""
        raise _refusal(f"{name!r} is no name of a distribution: lower-case letters, digits and single '-'{way}")
    if len(name) > _LONGEST:
        raise _refusal(f"{name!r} has {len(name)} characters; at most {_LONGEST}")
    names = Names(name)
    if not names.short.isidentifier():
        raise _refusal(f"{name!r} would call a runtime {names.short!r}; begin that with a letter")
    for word in (names.module, names.short):
        if keyword.iskeyword(word) or keyword.issoftkeyword(word):
            raise _refusal(f"{name!r} would make a name of Python's keyword {word!r}; choose another")
    if names.short in _YAML_WORDS:
        raise _refusal(f"{name!r} would make a name of {names.short!r}, which is none in a device file; choose another")
    return names


def collision(names: Names, catalog: Catalog) -> str | None:
    """Return what is here already under one of these names, and the way out; None where they are free."""
    if names.distribution in map(canonical, catalog.plugins):
        return f"there is a plugin {names.distribution!r} already (nbx plugins); choose another name, or uninstall it"
    taken = {
        "runtime": names.short in ("cpu", *catalog.runtimes),
        "backend": names.short in {*catalog.backends, *OWN_BACKENDS},
    }
    for what, is_taken in taken.items():
        if is_taken:
            return f"{names.distribution!r} would bring the {what} {names.short!r}, which is there; choose another name"
    device = next((id for id in catalog.devices if id.startswith(f"{names.short}/")), None)
    if device is not None:
        file = next(iter(catalog.devices.files(device)), device)
        return (
            f"{names.distribution!r} would bring devices of the vendor {names.short!r}, of which {device} is there "
            f"({file}); choose another name, or move the file away"
        )
    if names.module in sys.stdlib_module_names or importlib.util.find_spec(names.module) is not None:
        return f"{names.distribution!r} would be imported as {names.module!r}, which is installed; choose another name"
    return None


def write(names: Names, folder: Path) -> list[Path]:
    """Write the distribution into ``folder/<name>``; return its files, in order.

    Raises `NbxError` (code ``NAME``) where that is there already, and `NbxError` where it cannot be written.
    """
    root = folder / names.distribution
    if os.path.lexists(root):
        raise _refusal(f"{root} is there already; choose another name or --folder, or remove it")
    written: list[Path] = []
    try:
        for source in _files(TEMPLATE):
            target = root / names.replace(source.relative_to(TEMPLATE).as_posix())
            text = names.replace(source.read_text("utf-8"))
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(_sorted_imports(text) if target.suffix == ".py" else text, "utf-8")
            written.append(target)
    except OSError as error:
        raise NbxError(f"{root} cannot be written: {error}; name another --folder") from error
    return written


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_file():
            yield path
        elif path.name != "__pycache__":
            yield from _files(path)


def _sorted_imports(text: str) -> str:
    """Sort adjacent ``from`` lines: under another name a module may come elsewhere among them."""
    found: list[str] = []
    for are_imports, group in groupby(text.splitlines(keepends=True), lambda line: line.lstrip().startswith("from ")):
        lines = list(group)
        found += sorted(lines, key=lambda line: line.split()[1]) if are_imports else lines
    return "".join(found)


def _refusal(message: str) -> NbxError:
    return NbxError(message, code="NAME")
