"""Evidence: what has been checked about a kernel for a device, read from bundles, and the gate it must pass.

A bundle counts where contract and kernel code are those it was made with. What it says is ``here`` for devices of its
evidence class on its runtime, with its toolkit, runtime and suite versions; with others of these ``elsewhere``. Of
another class it says what was built, and no more. ``elsewhere`` counts only for kernels that are also built for the
device, within its limits.

Of several bundles from the same place (reach, means, class, runtime, versions) the latest speaks; of several places the
best, except that a failure here is made good only by a later pass here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from nbx_registry import bundle as bundles
from nbx_registry import distributions, jsonfile
from nbx_registry.bundle import Built, Bundle, Record, Sealed
from nbx_registry.decision import NO_EVIDENCE, Evidence, Refusal
from nbx_registry.errors import FileError, NbxError

if TYPE_CHECKING:
    from nbx_registry.device import Device
    from nbx_registry.kernel import Kernel
    from nbx_registry.runtime import LiveDevice

SUITE = "nbx-conformance"
"""The distribution whose version is the suite's."""

_RANK = {"none": 0, "built": 1, "elsewhere": 2, "here": 3}
_NEEDED = {"any": 0, "checked": 2, "checked_here": 3, "tuned": 3}
_LIMITS = (
    ("shared_bytes", "shared.bytes_per_block_optin"),
    ("registers", "registers.per_thread"),
    ("threads", "threads.per_block"),
)

_Found = tuple[Bundle, Record]


@dataclass(frozen=True, slots=True)
class _Refused:
    """A file that is no bundle, and what it holds."""

    error: FileError
    content: bytes


_File = bytes | Sealed | Bundle | _Refused
"""A file as far as it was read."""


class EvidenceStore:
    """Bundles of some folders (``*.json``). What one says of a kernel is read when the kernel is first asked about.

    Parameters
    ----------
    folders
        Folders of bundles; one that does not exist holds none.
    """

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = sorted({Path(folder) for folder in folders})
        self._files: dict[Path, _File] | None = None
        self._of: dict[str, Sequence[_Found]] = {}
        self._broken: dict[str, tuple[Path, FileError]] = {}
        self._digests: dict[tuple[str, str], str] = {}
        self._installed: dict[str, str | None] = {}
        self._lock = threading.Lock()

    def level(
        self,
        kernel: Kernel,
        *,
        op_digest: str | Callable[[], str],
        kernel_digest: str | Callable[[], str],
        device: Device,
        live: LiveDevice | None = None,
        toolkit: str | None = None,
    ) -> Evidence:
        """Return what has been checked about a kernel for a device.

        Parameters
        ----------
        op_digest, kernel_digest
            Digests of contract and kernel code, or what returns them: asked once a kernel, and only where some
            bundle names it.
        live
            The device itself, whose versions are compared; None takes those of the bundle as given.
        toolkit
            The distribution that is the kernel's toolkit, whose installed version is compared; None as above.

        Returns
        -------
        Evidence
            ``tuned`` is False: settings are a matter of a key, not of a device.
        """
        found = self._of.get(kernel.id)
        if found is None:
            found = self._of[kernel.id] = tuple(self._find(kernel.id))
        if not found and kernel.id not in self._broken:
            return NO_EVIDENCE
        try:
            digests = (self._value("op", kernel.op, op_digest), self._value("kernel", kernel.id, kernel_digest))
        except NbxError as error:
            return Evidence("none", stale=f"the code that it rests on cannot be read: {error}")
        current: list[_Found] = []
        stale: list[tuple[_Found, str]] = []
        for one in found:
            changed = _changed(kernel, one[1], *digests)
            if changed:
                stale.append((one, changed))
            else:
                current.append(one)
        evidence = self._best(_latest(current), device, live, toolkit)
        if _RANK[evidence.level] < _RANK["elsewhere"]:
            shown = [one for one in stale if one[0][1].verdict == "pass" and _same_place(one[0][0], device)]
            if shown:
                (bundle, _), changed = max(shown, key=lambda one: _order(one[0]))
                evidence = replace(evidence, bundle=str(bundle.path), stale=changed)
            elif kernel.id in self._broken:
                path, error = self._broken[kernel.id]
                evidence = replace(evidence, bundle=str(path), stale=f"the bundle is refused: {error}")
        return evidence

    def _value(self, kind: str, name: str, digest: str | Callable[[], str]) -> str:
        if isinstance(digest, str):
            return digest
        known = self._digests.get((kind, name))
        if known is None:
            known = self._digests[kind, name] = digest()
        return known

    def bundles(self) -> tuple[Bundle, ...]:
        """Read every bundle, and return those that are well formed, by path."""
        self._read_all()
        assert self._files is not None
        return tuple(file for file in self._files.values() if isinstance(file, Bundle))

    def check(self) -> tuple[str, ...]:
        """Read every bundle, and return what is wrong with each, in words; empty when all is well.

        A malformed bundle opens nothing.
        """
        self._read_all()
        assert self._files is not None
        return tuple(str(file.error) for file in self._files.values() if isinstance(file, _Refused))

    # Reading.

    def _find(self, kernel: str) -> Iterator[_Found]:
        # The name in quotes: cheaper than parsing a bundle of other kernels to find that it has nothing to say.
        needle = b'"' + kernel.encode() + b'"'
        for path, content in list(self._listed().items()):
            if isinstance(content, bytes) and needle in content:
                content = self._glance(path, content)
            if isinstance(content, Sealed):
                try:
                    record = content.record(kernel)
                except FileError as error:
                    content = self._listed()[path] = _Refused(error, content.text.encode())
                else:
                    if record is not None:
                        yield content.bundle, record
                    continue
            if isinstance(content, Bundle) and kernel in content.records:
                yield content, content.records[kernel]
            elif isinstance(content, _Refused) and needle in content.content:
                self._broken[kernel] = (path, content.error)

    def _listed(self) -> dict[Path, _File]:
        if self._files is None:
            with self._lock:
                if self._files is None:
                    self._files = {path: _content(path) for f in self._folders for path in sorted(f.glob("*.json"))}
        return self._files

    def _glance(self, path: Path, content: bytes) -> Sealed | Bundle | _Refused:
        found = bundles.glance(content, path)
        if found is None:
            return self._parse(path, content)
        self._listed()[path] = found
        return found

    def _parse(self, path: Path, content: bytes) -> Bundle | _Refused:
        try:
            parsed: Bundle | _Refused = bundles.parse(content, path)
        except FileError as error:
            parsed = _Refused(error, content)
        self._listed()[path] = parsed
        return parsed

    def _read_all(self) -> None:
        for path, content in list(self._listed().items()):
            if isinstance(content, Sealed):
                self._parse(path, content.text.encode())
            elif isinstance(content, bytes):
                self._parse(path, content)

    # Judging.

    def _best(
        self, current: Sequence[_Found], device: Device, live: LiveDevice | None, toolkit: str | None
    ) -> Evidence:
        built = _built(current, device)
        best = NO_EVIDENCE if built is None else Evidence("built", bundle=str(built.path))
        for bundle, record in current:
            judged = self._judge(bundle, record, device, live, toolkit)
            if judged is None:
                continue
            if judged.level == "none":
                if best.level == "here":
                    continue
                return replace(judged, level="none" if built is None else "built")
            if judged.level == "elsewhere" and built is None and bundle.reach != "here":
                if best.where is None:
                    where = f"checked elsewhere ({judged.where}), but not built for {device.arch}"
                    best = replace(best, bundle=judged.bundle, where=where)
                continue
            if _RANK[judged.level] > _RANK[best.level]:
                best = judged
        return best

    def _judge(
        self,
        bundle: Bundle,
        record: Record,
        device: Device,
        live: LiveDevice | None,
        toolkit: str | None,
    ) -> Evidence | None:
        """Return what one record says for a device: elsewhere, here, or none for a failure here; None for nothing."""
        path = str(bundle.path)
        if not _same_place(bundle, device):
            return None
        other = "; ".join(self._other(bundle, record, live, toolkit))
        if record.verdict == "fail" and bundle.reach == "here" and not other:
            return Evidence("none", bundle=path, where=f"failed here: {record.failed}")
        if record.verdict != "pass":
            return None
        if bundle.reach == "here" and not other:
            return Evidence("here", bundle=path, where=bundle.via)
        where = f"{bundle.via}, with {other}" if other else bundle.via
        return Evidence("elsewhere", bundle=path, where=where)

    def _other(self, bundle: Bundle, record: Record, live: LiveDevice | None, toolkit: str | None) -> Iterator[str]:
        """Yield in which versions a bundle was made that are not the ones here."""
        if toolkit is not None and (version := self._version(toolkit)) is not None:
            here = f"{toolkit} {version}"
            if record.toolkit is not None and record.toolkit != here:
                yield f"{record.toolkit} (here: {here})"
        if live is not None:
            for name, version in sorted(bundle.versions.items()):
                if name in live.versions and live.versions[name] != version:
                    yield f"{name} {version} (here: {live.versions[name]})"
        suite = self._version(SUITE)
        if suite is not None and suite != bundle.suite:
            yield f"suite {bundle.suite} (here: {suite})"

    def _version(self, distribution: str) -> str | None:
        if distribution not in self._installed:
            self._installed[distribution] = distributions.version(distribution)
        return self._installed[distribution]


def gate(evidence: Evidence, require: str, *, kernel: str, device: str) -> Refusal | None:
    """Return why evidence does not satisfy a policy, or None where it does.

    ``tuned`` asks here for what ``checked_here`` does; that settings are proven for the key is asked where the key is
    known.
    """
    if _RANK[evidence.level] >= _NEEDED[require]:
        return None
    name = f", bundle {Path(evidence.bundle).name}" if evidence.bundle else ""
    if evidence.stale:
        what = f"its evidence is stale: {evidence.stale}{name}"
    elif evidence.where and evidence.level != "elsewhere":
        what = f"it {evidence.where}{name}" if evidence.where.startswith("failed") else f"it is {evidence.where}{name}"
    elif evidence.level == "elsewhere":
        what = f"it is checked elsewhere ({evidence.where}{name})"
    elif evidence.level == "built":
        what = f"it is only built ({name.removeprefix(', ') or 'unchecked'})"
    else:
        what = "nothing has been checked about it"
    weaker = "checked" if evidence.level == "elsewhere" else "any"
    return Refusal(
        code="EVIDENCE",
        reason=f"require={require!r} but {what}",
        would_run_if=f"nbx conformance run --device {device} --kernel {kernel} passes, or require={weaker!r}",
    )


def weakest(parts: Sequence[Evidence]) -> Evidence:
    """Return the evidence of something made of parts: that of its weakest, tuned where all are."""
    if not parts:
        return NO_EVIDENCE
    least = min(parts, key=lambda part: _RANK[part.level])
    return replace(least, tuned=all(part.tuned for part in parts))


def _content(path: Path) -> bytes | _Refused:
    try:
        return jsonfile.read(path, named=False)
    except FileError as error:
        return _Refused(error, b"")


def _changed(kernel: Kernel, record: Record, op_digest: str, kernel_digest: str) -> str:
    """Return what changed since a record was made; empty where nothing did."""
    changes: list[str] = []
    if record.op != kernel.op:
        changes.append(f"the contract was {record.op}, it is {kernel.op}")
    elif record.op_digest != op_digest:
        changes.append(f"the contract {kernel.op} changed ({record.op_digest[:8]} -> {op_digest[:8]})")
    if record.kernel_digest != kernel_digest:
        changes.append(f"the kernel's code changed ({record.kernel_digest[:8]} -> {kernel_digest[:8]})")
    return "; ".join(changes)


def _order(found: _Found) -> tuple[object, ...]:
    """Later is greater; of one time a failure is, then the later path."""
    bundle, record = found
    return (bundle.created, record.verdict == "fail", str(bundle.path))


def _latest(current: Iterable[_Found]) -> list[_Found]:
    """Return the latest record of each place, the latest first; what was not run whole takes nothing back."""
    places: dict[tuple[object, ...], _Found] = {}
    for found in sorted(current, key=_order):
        bundle, record = found
        versions = (record.toolkit, bundle.suite, *sorted(bundle.versions.items()))
        place = (bundle.reach, bundle.via, bundle.evidence_class, bundle.runtime, *versions)
        if record.verdict != "incomplete" or place not in places:
            places[place] = found
    return sorted(places.values(), key=_order, reverse=True)


def _same_place(bundle: Bundle, device: Device) -> bool:
    return bundle.runtime == device.runtime and bundle.evidence_class == device.evidence_class


def _entries(found: _Found, device: Device) -> Iterator[Built]:
    """Yield a record's built entries for a device's compile targets."""
    for entry in found[1].built:
        if entry.arch == device.arch or entry.arch in device.targets:
            yield entry


def _built(current: Sequence[_Found], device: Device) -> Bundle | None:
    """Return the latest bundle in which a kernel was built for a device, within its limits."""
    for found in current:
        if found[0].runtime == device.runtime and any(_fits(entry, device) for entry in _entries(found, device)):
            return found[0]
    return None


def _fits(entry: Built, device: Device) -> bool:
    for name, key in _LIMITS:
        needed = getattr(entry, name)
        if needed is not None and key in device.facts and needed > device.facts[key].value:
            return False
    return True
