"""Devices by id, from folders of device files, read when they are asked for.

A folder of device files holds ``<vendor>/<product>.yml`` (the device ``vendor/product``), ``<vendor>/arch/<name>.yml``
(an architecture, which products extend), and may hold ``schema.yml`` (the keys its files use), ``sources.yml`` and
``suggestions.yml``. A folder of overlays has the same form; its files add facts to devices or architectures described
elsewhere. In the user's folder a file is an overlay where its device is known, and a device where it is not.

Every fact is stated once. A key that a product and its architecture, or a file and an overlay, both state is refused,
naming both: a product that differs from its architecture means that the fact belongs in the product files. So what a
file says never depends on who else said something, nor on an order.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import combinations
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from nbx_registry import yamlfile
from nbx_registry.device import Device
from nbx_registry.devicefile import (
    HEAD,
    DeviceFile,
    Fact,
    Schema,
    Source,
    read_device,
    read_sources,
)
from nbx_registry.devicematch import matches, overlap, rules_out
from nbx_registry.deviceschema import Schemas, read_schemas
from nbx_registry.devicevalue import miscomputed
from nbx_registry.errors import DuplicateError, FileError, NbxError, UnknownName, nearest

if TYPE_CHECKING:
    from nbx_registry.runtime import LiveDevice
    from nbx_registry.suggestions import Suggestion

MAX_EXTENDS = 8
"""Longest chain of files that extend each other."""

_FOLDER_FILES = ("schema.yml", "sources.yml", "suggestions.yml")
_ID = re.compile(r"[a-z0-9][a-z0-9_.-]*/(arch/)?[a-z0-9][a-z0-9_.-]*\Z")


@dataclass(slots=True)
class _Files:
    """Where a device or architecture is described."""

    own: list[Path] = field(default_factory=list[Path])
    overlays: list[Path] = field(default_factory=list[Path])


@dataclass(slots=True)
class _Said:
    """What the files of a device say together."""

    chain: list[str]
    """Its id, and those that it extends."""
    files: list[Path] = field(default_factory=list[Path])
    head: dict[str, tuple[Any, Path, int]] = field(default_factory=dict[str, "tuple[Any, Path, int]"])
    facts: dict[str, Fact] = field(default_factory=dict[str, Fact])


class DeviceTable(Mapping[str, Device]):
    """Devices by id. Listing ids reads no file; a device's files are read when it is first asked for.

    Parameters
    ----------
    folders
        Folders of device files. One of them holds the common schema (a ``schema.yml`` without a namespace).
    overlays
        Folders of overlays.
    user_folder
        The user's folder of both; it need not exist.
    """

    def __init__(
        self, folders: Iterable[Path] = (), overlays: Iterable[Path] = (), user_folder: Path | None = None
    ) -> None:
        self._folders = sorted({Path(folder) for folder in folders})
        self._overlays = sorted({Path(folder) for folder in overlays})
        self._user = user_folder
        self._parts: dict[str, tuple[list[Path], dict[str, Any], dict[str, Fact]]] = {}
        self._devices: dict[str, Device] = {}
        self._matches: dict[tuple[object, ...], Device | None] = {}
        self._lock = threading.RLock()

    @property
    def user_folder(self) -> Path | None:
        """The user's folder of device files and overlays."""
        return self._user

    def __iter__(self) -> Iterator[str]:
        return (id for id in self._index if "/arch/" not in id)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, id: object) -> bool:
        return id in self._index and "/arch/" not in str(id)

    def __getitem__(self, id: str) -> Device:
        """Return a device.

        Raises `UnknownName` with the nearest id, `FileError` if its files are malformed, `DuplicateError` if two files
        describe it.
        """
        found = self._devices.get(id)
        if found is None:
            if id not in self:
                raise UnknownName.of("device", id, self, "nbx devices lists them")
            with self._lock:
                found = self._devices.get(id)
                if found is None:
                    found = self._devices[id] = self._device(id)
        return found

    def get(self, id: str, default: Any = None) -> Any:
        """Return a device, or the default where there is no file for it."""
        if id not in self:
            return default
        return self[id]

    def files(self, id: str) -> tuple[Path, ...]:
        """Return the files that describe a device or add to it; empty for an unknown id. Reads none."""
        found = self._index.get(id, _Files())
        return (*found.own, *found.overlays)

    def architecture(self, arch: str) -> str | None:
        """Return the id of the architecture file named after a compile target, ``nvidia/arch/sm_90``, or None."""
        return next((id for id in self.architectures if id.endswith(f"/arch/{arch}")), None)

    @property
    def architectures(self) -> tuple[str, ...]:
        """The ids that products extend. Reads no file."""
        return tuple(id for id in self._index if "/arch/" in id)

    def architecture_facts(self, id: str) -> Mapping[str, Fact]:
        """Return what an architecture's files state, those that it extends included. Raises `FileError`."""
        return self._said(id).facts

    def match(self, live: LiveDevice) -> Device | None:
        """Return the product that a live device is, by the files' ``match`` rules; None where no file matches.

        Raises
        ------
        DuplicateError
            If two files match, naming both.
        FileError
            If none matches, and some could not be read.
        """
        count = live.detected.get("multiprocessors")
        key = (live.runtime, live.name, live.arch, count)
        if key not in self._matches:
            self._matches[key] = self._match(live, count)
        return self._matches[key]

    @property
    def schema(self) -> Schema:
        """Every key that device files may state, but for those of a fragment that `check` complains of.

        Raises `FileError` where the common keys cannot be read.
        """
        if self._schemas.common is None and self._schemas.wrong:
            raise self._schemas.wrong[0]
        return self._schemas.schema

    @cached_property
    def sources(self) -> Mapping[str, Source]:
        """The documents that every file may name, by tag."""
        common = self._schemas.common
        return MappingProxyType(self._folder_sources(common)) if common is not None else {}

    @property
    def suggestions(self) -> Mapping[str, Suggestion]:
        """Which distribution has kernels for a capability, by capability; a runtime's is ``runtime.<name>``."""
        return self._suggestions[0]

    def check(self) -> tuple[str, ...]:
        """Read every file, and return what is wrong with each, in words; empty when all is well."""
        problems: list[str] = []
        for folder in self._all_folders:
            if not os.path.isdir(folder):
                if os.path.lexists(folder):
                    problems.append(f"{folder}: no folder, and so no folder of device files; move it away")
                continue
            if not os.access(folder, os.R_OK | os.X_OK):
                problems.append(f"{folder}: may not be read; allow it")
            known = {path for _, path in _scan(folder)} | {folder / name for name in _FOLDER_FILES}
            problems += [
                f"{path}: not read; device files are <vendor>/<product>.yml or <vendor>/arch/<name>.yml"
                for path in sorted((*folder.rglob("*.yml"), *folder.rglob("*.yaml")))
                if path not in known
            ]
        problems += map(str, (*self._schemas.wrong, *self._suggestions[1]))
        steps: list[Callable[[], object]] = [partial(self._known_sources, folder) for folder in self._all_folders]
        for id in self._index:
            steps.append(partial(self._part if "/arch/" in id else self.__getitem__, id))
        for folder in self._overlays:
            steps += [partial(self._read, path, overlay=True) for id, path in _scan(folder) if id not in self._index]
        for step in steps:
            try:
                step()
            except NbxError as error:
                if str(error) not in problems:
                    problems.append(str(error))
        return tuple(dict.fromkeys((*problems, *self._between())))

    def _between(self) -> Iterator[str]:
        """Yield what is wrong between products that are well by themselves."""
        for one, other in combinations(self._devices.values(), 2):
            if one.match is None or other.match is None or one.runtime != other.runtime:
                continue
            if overlap(one.match, other.match):
                yield f"{one.file} and {other.file} match the same card; make their match rules differ"
        for device in self._devices.values():
            lent = self._devices.get(device.settings_from) if device.settings_from is not None else device
            if lent is None or lent.evidence_class != device.evidence_class:
                yield (
                    f"{device.file}: settings_from {device.settings_from!r} is no product of the evidence class "
                    f"{device.evidence_class!r}{nearest(device.settings_from or '', self) if lent is None else ''}"
                )
            for key, fact in device.facts.items():
                if fact.read != "=":
                    continue
                why = miscomputed(fact.formula, fact.value, partial(self._operand, device))
                if why is not None:
                    yield f"{fact.file}:{fact.line}: fact {key!r}: {why}"

    def _operand(self, device: Device, key: str) -> Any:
        if self.schema.find(key) is None:
            raise UnknownName.of("fact", key, self.schema.keys)
        return device.fact(key)

    # Files.

    @cached_property
    def _all_folders(self) -> list[Path]:
        return [*self._folders, *self._overlays, *([self._user] if self._user is not None else [])]

    @cached_property
    def _schemas(self) -> Schemas:
        return read_schemas(self._all_folders)

    @cached_property
    def _suggestions(self) -> tuple[Mapping[str, Suggestion], tuple[NbxError, ...]]:
        from nbx_registry.suggestions import read_suggestions  # asked for by refusals alone

        return read_suggestions(self._all_folders)

    @cached_property
    def _index(self) -> Mapping[str, _Files]:
        index: dict[str, _Files] = {}
        for folder in self._folders:
            for id, path in _scan(folder):
                index.setdefault(id, _Files()).own.append(path)
        user = list(_scan(self._user)) if self._user is not None else []
        described = set(index)
        for id, path in user:
            files = index.setdefault(id, _Files())
            (files.overlays if id in described else files.own).append(path)
        for folder in self._overlays:
            for id, path in _scan(folder):
                # An overlay of a device that is not installed waits; `check` reads it all the same.
                if id in index:
                    index[id].overlays.append(path)
        return MappingProxyType(dict(sorted(index.items())))

    def _folder_sources(self, folder: Path) -> dict[str, Source]:
        path = folder / "sources.yml"
        return read_sources(yamlfile.load(path), path) if os.path.lexists(path) else {}

    def _read(self, path: Path, *, overlay: bool = False) -> DeviceFile:
        folder = next(f for f in self._all_folders if path.is_relative_to(f))
        return read_device(path, lambda: self.schema, partial(self._known_sources, folder), overlay=overlay)

    def _known_sources(self, folder: Path) -> Mapping[str, Source]:
        if folder == self._schemas.common:
            return self.sources
        own = self._folder_sources(folder)
        if twice := sorted(set(own) & set(self.sources)):
            raise DuplicateError(
                f"{folder / 'sources.yml'}: source {twice[0]!r} is known as {self.sources[twice[0]]}; rename it"
            )
        return {**self.sources, **own}

    def _part(self, id: str) -> tuple[list[Path], dict[str, Any], dict[str, Fact]]:
        """Read what the files of one id say, overlays included: the files, the head with ``extends``, the facts."""
        known = self._parts.get(id)
        if known is not None:
            return known
        files = self._index[id]
        if len(files.own) > 1:
            raise DuplicateError(f"device {id!r} is described by {' and by '.join(map(str, files.own))}; remove one")
        if not _ID.match(id):
            raise FileError(f"{files.own[0]}: {id!r} is no id: lower-case letters, digits, '.', '_' and '-'")
        path = files.own[0]
        own = self._read(path)
        head = {key: (value, path, own.lines[key]) for key, value in own.head.items()}
        if own.extends is not None:
            head["extends"] = (own.extends, path, own.lines["extends"])
        facts = dict(own.facts)
        for overlay in files.overlays:
            _merge_facts(facts, self._read(overlay, overlay=True))
        self._parts[id] = known = ([path, *files.overlays], head, facts)
        return known

    def _said(self, id: str) -> _Said:
        """Put together what the files of one id and of those it extends say."""
        said = _Said([id])
        while True:
            files, head, facts = self._part(said.chain[-1])
            said.files += files
            for key in HEAD:
                if key in head:
                    if key in said.head:
                        raise _twice(key, said.head[key][1:], head[key][1:])
                    said.head[key] = head[key]
            for key, fact in facts.items():
                if key in said.facts:
                    other = said.facts[key]
                    raise _twice(f"fact {key!r}", (other.file, other.line), (fact.file, fact.line))
                said.facts[key] = fact
            if "extends" not in head:
                return said
            said.chain.append(self._extended(said.chain, *head["extends"]))

    def _device(self, id: str) -> Device:
        said = self._said(id)
        if missing := [key for key in ("arch", "runtime", "evidence_class") if key not in said.head]:
            what, it = ("is", "it") if len(missing) == 1 else ("are", "them")
            raise FileError(
                f"{said.files[0]}:1: {' and '.join(missing)} {what} missing; state {it} here or in the architecture "
                f"that it extends{self._perhaps_overlay(id, said.files[0], said.head)}"
            )
        head = {key: value[0] for key, value in said.head.items()}
        head["extends"] = said.chain[1] if len(said.chain) > 1 else None
        return Device(id, said.files, head, said.facts, lambda: self.schema)

    def _perhaps_overlay(self, id: str, path: Path, head: Mapping[str, Any]) -> str:
        """Return a hint for a file of facts alone in the user's folder, which may be meant for another device."""
        if head or self._user is None or not path.is_relative_to(self._user):
            return ""
        known = [other for other, files in self._index.items() if other != id and files.own != [path]]
        return f". To add facts to a device that another file describes, name this one after it{nearest(id, known)}"

    def _extended(self, chain: list[str], target: str, path: Path, line: int) -> str:
        where = f"{path}:{line}"
        if target == chain[-1]:
            vendor = target.partition("/")[0]
            raise FileError(f"{where}: {target!r} extends itself; name an architecture, like {vendor}/arch/<name>")
        if target in chain:
            raise FileError(f"{where}: extends goes round in a circle: {' -> '.join([*chain, target])}")
        if target not in self._index or not self._index[target].own:
            raise FileError(
                f"{where}: extends {target!r}, for which there is no file{nearest(target, self.architectures)}; "
                f"a folder of device files would hold it as {target}.yml"
            )
        if "/arch/" not in target:
            raise FileError(
                f"{where}: extends {target!r}, a product; only architectures (<vendor>/arch/<name>) are extended"
            )
        if len(chain) > MAX_EXTENDS:
            raise FileError(f"{where}: more than {MAX_EXTENDS} files extend each other: {' -> '.join(chain)}")
        return target

    def _match(self, live: LiveDevice, count: object) -> Device | None:
        found: list[Device] = []
        unread: list[NbxError] = []
        for id in self:
            if all(rules_out(path, live, count) for path in self._index[id].own):
                continue
            try:
                device = self[id]
            except NbxError as error:
                unread.append(error)
                continue
            if device.match is not None and device.runtime == live.runtime and matches(device.match, live, count):
                found.append(device)
        if len(found) > 1:
            raise DuplicateError(
                f"{live.name!r} ({live.arch}) is matched by {' and by '.join(str(d.file) for d in found)}; "
                f"make their match rules differ"
            )
        if not found and unread:
            raise FileError(
                f"no device file matches {live.name!r} ({live.arch}), but {len(unread)} could not be read: "
                + "; ".join(map(str, unread))
            )
        return found[0] if found else None


def _scan(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield id and path of every file of a folder, in order."""
    # Path's methods raise where a folder around it may not be looked into.
    if not os.path.isdir(folder):
        return
    for path in sorted((*folder.glob("*/*.yml"), *folder.glob("*/arch/*.yml"))):
        yield path.relative_to(folder).with_suffix("").as_posix(), path


def _merge_facts(facts: dict[str, Fact], overlay: DeviceFile) -> None:
    for key, fact in overlay.facts.items():
        if key in facts:
            raise _twice(f"fact {key!r}", (facts[key].file, facts[key].line), (fact.file, fact.line))
        facts[key] = fact


def _twice(what: str, first: Sequence[Any], second: Sequence[Any]) -> FileError:
    return FileError(
        f"{second[0]}:{second[1]}: {what} is given twice; {first[0]}:{first[1]} states it too. State it in one of them"
    )
