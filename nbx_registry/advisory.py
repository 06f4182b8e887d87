"""Advisories: data that revokes a kernel for a window of versions, devices and sizes, without a release.

A kernel that an advisory is about is refused with ``ADVISORY``, whatever the policy and whether it is pinned or not.
What cannot be told is taken to hold: an advisory whose condition raises, or an entry that is malformed and yet names a
kernel, revokes it altogether. Where a file does not even say which kernels it names, nothing is decided until it is
mended.

Files are read when the first kernel is asked about.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbx_registry import entryfile, expr
from nbx_registry.decision import Refusal
from nbx_registry.entryfile import Entry
from nbx_registry.errors import FileError, MissingFact, NbxError
from nbx_registry.expr import Expr

if TYPE_CHECKING:
    from nbx_registry.device import Device
    from nbx_registry.signature import Signature

HEADING = "advisories"
"""The one key of a file, and the name of the user's folder."""
_KEYS = ("kernel", "versions", "device", "when", "reason", "link")


@dataclass(frozen=True, kw_only=True, slots=True)
class Advisory:
    """One entry of a file."""

    kernel: str
    """A kernel id, or a pattern of ids in which ``*`` stands for anything."""
    reason: str
    link: str
    """Where to read more; empty where the entry is wrong."""
    where: str
    """File and line."""
    versions: str | None = None
    """Which versions of the kernel's distribution, as PEP 440 writes it (``>=0.1,<0.3``); None for all."""
    device: str | None = None
    """A product, an evidence class, or a pattern of either; None for all."""
    when: str | None = None
    """A condition over what the op's names mean and over device facts; None for always."""
    wrong: str = ""
    """What is wrong with the entry; it counts for every version, device and size then."""

    def about(self, kernel: str) -> bool:
        """Return whether it names a kernel."""
        return fnmatchcase(kernel, self.kernel)

    def of_version(self, version: str | None) -> bool:
        """Return whether it is about a version of the distribution; True also where that cannot be told."""
        if self.versions is None or version is None:
            return True
        from packaging.specifiers import SpecifierSet  # few processes meet an advisory
        from packaging.version import InvalidVersion, Version

        try:
            return SpecifierSet(self.versions).contains(Version(version), prereleases=True)
        except InvalidVersion:
            return True

    def of_device(self, device: Device) -> bool:
        """Return whether it is about a product."""
        return self.device is None or any(fnmatchcase(name, self.device) for name in (device.id, device.evidence_class))


@dataclass(frozen=True, slots=True)
class Revocation:
    """An advisory about a kernel that is here, on a device that it is about: what is open is its condition."""

    advisory: Advisory
    distribution: str
    version: str | None
    device: Device

    def refusal(self, signature: Signature) -> Refusal | None:
        """Return the refusal of a request; None where the condition does not hold."""
        advisory = self.advisory
        if advisory.when is None:
            return self._refusal("")
        rule = expr.parse(advisory.when)

        def value(path: str) -> Any:
            return self.device.values[path[7:]] if path.startswith("device.") else signature.value(path)

        try:
            if _left_out(rule, signature) or not rule.evaluate(value):
                return None
        except MissingFact as error:
            return self._refusal(f"{rule.text}: {error}")
        except NbxError as error:
            return self._refusal(f"whether {rule.text} holds cannot be told: {error}")
        return self._refusal(rule.explain(value))

    def _refusal(self, met: str) -> Refusal:
        advisory = self.advisory
        found = f"{advisory.reason} ({'; '.join(filter(None, (advisory.link, advisory.where)))})"
        ways: list[str] = []
        if advisory.versions is not None:
            here = f" (here: {self.version})" if self.version is not None else ""
            ways.append(f"a version of {self.distribution} outside {advisory.versions} is installed{here}")
        if advisory.when is not None:
            ways.append(f"not ({advisory.when})")
        if advisory.device is not None:
            ways.append(f"the device were not of {advisory.device}")
        return Refusal(
            code="ADVISORY",
            reason=f"{met}: {found}" if met else found,
            would_run_if=" or ".join(ways) or f"the advisory {advisory.where} is withdrawn",
        )


class AdvisoryStore:
    """Advisories of some folders (``*.yml``, ``*.yaml``), read when the first kernel is asked about.

    Parameters
    ----------
    folders
        Folders, each with the plugin that brings it; None for the user's. One that does not exist holds none.
    """

    def __init__(self, folders: Iterable[tuple[Path, str | None]]) -> None:
        self._folders = sorted(set(folders), key=lambda one: (str(one[0]), one[1] or ""))
        self._read: tuple[tuple[Advisory, ...], tuple[FileError, ...]] | None = None
        self._lock = threading.Lock()

    def against(self, kernel: str, distribution: str, version: str | None, device: Device) -> tuple[Revocation, ...]:
        """Return the advisories about a kernel of a distribution of some version, on a device.

        Raises `FileError` where a file cannot be read: which kernels it revokes nobody can tell.
        """
        advisories, unread = self._all
        if unread:
            raise unread[0]
        return tuple(
            Revocation(advisory, distribution, version, device)
            for advisory in advisories
            if advisory.about(kernel) and advisory.of_version(version) and advisory.of_device(device)
        )

    @property
    def advisories(self) -> tuple[Advisory, ...]:
        """Every entry that names a kernel, by file and line."""
        return self._all[0]

    def check(self) -> tuple[str, ...]:
        """Return what is wrong with files and entries, in words; empty when all is well."""
        advisories, unread = self._all
        return (*map(str, unread), *(advisory.wrong for advisory in advisories if advisory.wrong))

    @property
    def _all(self) -> tuple[tuple[Advisory, ...], tuple[FileError, ...]]:
        if self._read is None:
            with self._lock:
                if self._read is None:
                    self._read = self._read_all()
        return self._read

    def _read_all(self) -> tuple[tuple[Advisory, ...], tuple[FileError, ...]]:
        found: list[Advisory] = []
        unread: list[FileError] = []
        for folder, plugin in self._folders:
            try:
                for path in entryfile.files(folder):
                    found += read(path)
            except FileError as error:
                out = "" if plugin is None else f", or block the plugin that brings it (block=[{plugin!r}])"
                way = f"until it is mended or removed{out}, nobody can tell which kernels it revokes"
                unread.append(FileError(f"{error}; {way}"))
        return tuple(found), tuple(unread)


def read(path: Path) -> list[Advisory]:
    """Read a file of advisories.

    An entry that is malformed and yet names a kernel is returned with what is ``wrong``. Raises `FileError` for
    everything else that is malformed, naming file, entry and key.
    """
    found: list[Advisory] = []
    for entry in entryfile.entries(path, HEADING):
        kernel = entry.text("kernel")
        try:
            found.append(_advisory(entry))
        except FileError as error:
            reason = f"an advisory about it is malformed, and so taken to hold always: {error}"
            found.append(Advisory(kernel=kernel, reason=reason, link="", where=entry.where, wrong=str(error)))
    return found


def _advisory(entry: Entry) -> Advisory:
    entry.known(*_KEYS)
    versions, when = entry.optional("versions"), entry.optional("when")
    if versions is not None:
        from packaging.specifiers import InvalidSpecifier, SpecifierSet  # few processes meet an advisory

        try:
            SpecifierSet(versions)
        except InvalidSpecifier as error:
            entry.refuse("versions", f"is no version specifier of PEP 440, like '>=0.1,<0.3': {error}")
    if when is not None:
        try:
            expr.parse(when)
        except NbxError as error:
            entry.refuse("when", f"is no condition: {error}")
    return Advisory(
        kernel=entry.text("kernel"),
        reason=entry.text("reason"),
        link=entry.link("link"),
        where=entry.where,
        versions=versions,
        device=entry.optional("device"),
        when=when,
    )


def _left_out(rule: Expr, signature: Signature) -> bool:
    """Return whether a rule reads a tensor that was left out, without asking for ``.given``."""
    names = signature.op.names
    asked = {path.partition(".")[0] for path in rule.names if path.endswith(".given")}
    for path in rule.names:
        name = names.get(path)
        if name is not None and name.kind != "attribute" and name.base not in asked and signature.value(path) is None:
            return True
    return False
