"""Tuned settings: launch settings proven for a kernel's key on a product, read from files.

A file (``*.json``) holds entries of one device::

    {"format": 1, "device": "nvidia/h200-sxm", "entries": [
      {"kernel": "nbx-triton/softmax/rows", "key": {"N": 4096, "x.dtype": "f16"}, "settings": {"num_warps": 8},
       "proof": {"date": "2026-11-30T09:14:00Z", "toolkit": "triton 3.6.0", "kernel_digest": "...", "deviation": 1e-3,
                 "bound": 2e-3, "times": {"tuned_s": 1.2e-5, "default_s": 1.5e-5}, "default": {"num_warps": 4},
                 "machine": {"handle": "cuda:0", "name": "NVIDIA H200", "arch": "sm_90", "versions": {"driver": "..."}},
                 "timed": 5, "dropped": 1, "pruned": {"a block wider than the row": 2},
                 "excluded": [{"settings": {"num_warps": 16}, "rule": "wrong", "reason": "..."}]}}]}

The key is the kernel's launch key: each expression of ``Kernel.key`` with its value. What stands behind ``times`` in a
proof may be left out. A file or entry that is malformed tunes nothing and is told as a `Miss`; it never stops a call.
`nbx_registry.tuning` writes such files.
"""

from __future__ import annotations

import datetime
import math
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from nbx_registry import dtypes, jsonfile
from nbx_registry.errors import FileError, nearest
from nbx_registry.jsonfile import Reader

FORMAT = 1

_DEEPEST: Final = 8
"""Lists in lists that a value may be."""


@dataclass(frozen=True, slots=True)
class Proof:
    """How settings were proven."""

    date: str
    """A day, or a second of it in UTC."""
    toolkit: str
    deviation: float
    """The error nearest to what is allowed; at most ``bound``."""
    bound: float
    """What the contract allows there."""
    times: Mapping[str, float]
    """Seconds by what was timed; ``tuned_s`` are these settings, ``default_s`` those used where nothing is tuned."""
    kernel_digest: str | None = None
    """Digest of the kernel's code then; None where the file does not say."""
    default: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The settings that they were held against."""
    machine: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Handle, name and architecture of the device that times were taken on, and versions, as its driver gives them."""
    timed: int = 0
    """Candidates that were timed, of which ``dropped`` early as too slow."""
    dropped: int = 0
    pruned: Mapping[str, int] = field(default_factory=dict[str, int])
    """Candidates that were not compiled, by the rule that excludes them."""
    excluded: tuple[Mapping[str, Any], ...] = ()
    """Candidates that were, and why they were not timed to the end: ``settings``, ``rule``, ``reason``."""


@dataclass(frozen=True, slots=True)
class TunedEntry:
    """Settings proven for one key."""

    kernel: str
    device: str
    key: Mapping[str, Any]
    settings: Mapping[str, Any]
    proof: Proof
    file: Path

    @property
    def seconds(self) -> float:
        """Median seconds of one call with these settings."""
        return self.proof.times["tuned_s"]


@dataclass(frozen=True, slots=True)
class Miss:
    """A file or entry that tunes nothing, and why."""

    file: Path
    message: str

    def __str__(self) -> str:
        return self.message


class SettingsStore:
    """Tuned settings of some folders (``*.json``). All are read when one is first asked for.

    Parameters
    ----------
    folders
        Folders of settings; one that does not exist holds none.
    """

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = sorted({Path(folder) for folder in folders})
        self._entries: dict[tuple[str, str], dict[frozenset[tuple[str, Any]], TunedEntry]] | None = None
        self._kernels: frozenset[str] = frozenset()
        self._misses: dict[str, Miss] = {}
        self._checked: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    def has(self, kernel: str) -> bool:
        """Return whether anything is tuned for a kernel, on whatever device."""
        self._read()
        return kernel in self._kernels

    def lookup(
        self,
        kernel: str,
        device: str,
        names: Sequence[str],
        values: Sequence[Any],
        parameters: Collection[str] | None = None,
        kernel_digest: str | Callable[[], str] | None = None,
        extents: Collection[str] = (),
    ) -> TunedEntry | None:
        """Return the settings proven for a key, or None.

        Parameters
        ----------
        names, values
            The kernel's key expressions and their values.
        parameters
            Names of the kernel's settings. An entry that sets another, or not all of them, is a miss.
        kernel_digest
            Digest of the kernel's code, or what returns it. An entry proven for other code is a miss.
        extents
            Names of the key that are extents. An entry for one of 0 is a miss.
        """
        entries = self._read().get((kernel, device))
        if entries is None:
            return None
        try:
            found = entries.get(frozenset(zip(names, map(_plain, values), strict=True)))
        except TypeError:
            # A value that cannot be hashed is in no file.
            return None
        if found is None:
            self._check_keys(kernel, device, entries, names, values, extents)
            return None
        for name in extents:
            wrong = "" if found.key[name] else "is an extent of 0: there is nothing to run, and so nothing to tune"
            if wrong := no_extent(found.key[name]) or wrong:
                self._miss(found.file, f"{found.file}: key {dict(found.key)} of {kernel}: {name} {wrong}")
                return None
        if parameters is not None:
            unknown = [name for name in found.settings if name not in parameters]
            if unknown:
                self._miss(
                    found.file,
                    f"{found.file}: settings of {kernel} for {dict(found.key)} name {unknown[0]!r}, which is none of "
                    f"that kernel's{nearest(unknown[0], parameters)}",
                )
                return None
            left_out = [name for name in parameters if name not in found.settings]
            if left_out:
                # A default in its place may be another than it was.
                self._miss(
                    found.file,
                    f"{found.file}: settings of {kernel} for {dict(found.key)} leave out {left_out[0]!r}, so that they "
                    "are not all that was proven; tune again",
                )
                return None
        if kernel_digest is not None and found.proof.kernel_digest is not None:
            digest = kernel_digest if isinstance(kernel_digest, str) else kernel_digest()
            if digest != found.proof.kernel_digest:
                self._miss(
                    found.file,
                    f"{found.file}: settings of {kernel} for {dict(found.key)} were proven for other code "
                    f"({found.proof.kernel_digest[:8]} -> {digest[:8]}); tune again",
                )
                return None
        return found

    def reject(self, entry: TunedEntry, why: str) -> None:
        """Turn an entry that was found into a miss, for good."""
        self._miss(entry.file, f"{entry.file}: settings of {entry.kernel} for {dict(entry.key)}: {why}")
        with self._lock:
            place = self._read_all_once().get((entry.kernel, entry.device), {})
            place.pop(frozenset(entry.key.items()), None)

    def entries(self) -> tuple[TunedEntry, ...]:
        """Return every entry, by kernel, device and key."""
        return tuple(
            entry
            for _, entries in sorted(self._read().items())
            for _, entry in sorted(entries.items(), key=lambda item: sorted(map(repr, item[0])))
        )

    def misses(self) -> tuple[Miss, ...]:
        """Return what was found to tune nothing so far, and why."""
        self._read()
        return tuple(self._misses.values())

    def check(self) -> tuple[str, ...]:
        """Read every file, and return what is wrong, in words; empty when all is well."""
        return tuple(map(str, self.misses()))

    def _check_keys(
        self,
        kernel: str,
        device: str,
        entries: Mapping[frozenset[tuple[str, Any]], TunedEntry],
        names: Sequence[str],
        values: Sequence[Any],
        extents: Collection[str],
    ) -> None:
        """Tell, once, of entries of a kernel whose key can be no key of it, beside one of its keys."""
        if (kernel, device) in self._checked:
            return
        self._checked.add((kernel, device))
        for entry in entries.values():
            for name in entry.key:
                if name not in names:
                    self._miss(
                        entry.file,
                        f"{entry.file}: key of {entry.kernel} names {name!r}, which is no part of its launch key"
                        f"{nearest(name, names)}; the key is {', '.join(names)}",
                    )
            for name, value in zip(names, values, strict=True):
                if name not in entry.key:
                    self._miss(entry.file, f"{entry.file}: key {dict(entry.key)} of {entry.kernel} leaves out {name!r}")
                    continue
                wrong = ""
                if name in extents:
                    wrong = no_extent(entry.key[name])
                elif isinstance(value, str) and not _no_dtype(value):
                    wrong = _no_dtype(entry.key[name])
                if wrong:
                    self._miss(entry.file, f"{entry.file}: key {dict(entry.key)} of {entry.kernel}: {name} {wrong}")

    def _miss(self, file: Path, message: str) -> None:
        self._misses.setdefault(message, Miss(file, message))

    def _read(self) -> dict[tuple[str, str], dict[frozenset[tuple[str, Any]], TunedEntry]]:
        if self._entries is None:
            with self._lock:
                return self._read_all_once()
        return self._entries

    def _read_all_once(self) -> dict[tuple[str, str], dict[frozenset[tuple[str, Any]], TunedEntry]]:
        """Read, unless it was done; under the lock."""
        if self._entries is None:
            self._entries = self._read_all()
        return self._entries

    def _read_all(self) -> dict[tuple[str, str], dict[frozenset[tuple[str, Any]], TunedEntry]]:
        found: dict[tuple[str, str], dict[frozenset[tuple[str, Any]], TunedEntry]] = {}
        for path in (path for folder in self._folders for path in sorted(folder.glob("*.json"))):
            try:
                root = Reader(path, jsonfile.parse(jsonfile.read(path, named=False), path))
                root.known("format", "device", "entries")
                if root.integer("format") != FORMAT:
                    root.refuse("format", f"is {root.data['format']}; this version reads format {FORMAT}")
                device = root.string("device")
                readers = root.objects("entries")
            except FileError as error:
                self._miss(path, str(error))
                continue
            for reader in readers:
                try:
                    entry = read_entry(reader, device)
                except FileError as error:
                    self._miss(path, str(error))
                    continue
                place = found.setdefault((entry.kernel, device), {})
                key = frozenset(entry.key.items())
                other = place.get(key)
                # Proven twice, the later proof counts; of one day, the later file.
                if other is None or (other.proof.date, str(other.file)) <= (entry.proof.date, str(path)):
                    place[key] = entry
        self._kernels = frozenset(kernel for kernel, _ in found)
        return found


def read_entry(reader: Reader, device: str) -> TunedEntry:
    """Check one entry. Raises `FileError` naming file and key."""
    reader.known("kernel", "key", "settings", "proof")
    keys = reader.object("key")
    key = _values(keys)
    for name, value in key.items():
        if (
            isinstance(value, int)
            and not isinstance(value, bool)
            and value == 0
            and ((name.isidentifier() and name.isupper()) or name.endswith((".size", ".nbytes")))
        ):
            keys.refuse(name, "is an extent of 0: there is nothing to run, and so nothing to tune")
    settings = _values(reader.object("settings"))
    proof = reader.object("proof")
    proof.known(*Proof.__dataclass_fields__)
    times = proof.object("times")
    seconds = {name: times.number(name) for name in times.data}
    if not seconds.get("tuned_s"):
        times.refuse("tuned_s", "is 0; it must be measured" if "tuned_s" in seconds else "is missing")
    deviation, bound = proof.number("deviation"), proof.number("bound")
    if deviation > bound:
        proof.refuse("deviation", f"{deviation} exceeds the bound {bound}: these settings are disproven")
    return TunedEntry(
        kernel=reader.string("kernel"),
        device=device,
        key=key,
        settings=settings,
        proof=Proof(
            date=_date(proof, "date"),
            toolkit=proof.string("toolkit"),
            deviation=deviation,
            bound=bound,
            times=seconds,
            kernel_digest=proof.hexadecimal("kernel_digest") if "kernel_digest" in proof.data else None,
            **_circumstances(proof),
        ),
        file=reader.path,
    )


def _circumstances(proof: Reader) -> dict[str, Any]:
    """Check what a proof may leave out; return it by field of `Proof`."""
    found: dict[str, Any] = {}
    given = proof.data
    if "default" in given:
        found["default"] = _values(proof.object("default"))
    if "machine" in given:
        machine = proof.object("machine")
        machine.known("handle", "name", "arch", "versions")
        texts = {name: machine.string(name) for name in ("handle", "name", "arch")}
        found["machine"] = {**texts, "versions": machine.strings("versions")}
    found.update((name, proof.integer(name)) for name in ("timed", "dropped") if name in given)
    if "pruned" in given:
        pruned = proof.object("pruned")
        found["pruned"] = {rule: pruned.integer(rule) for rule in pruned.data}
    if "excluded" in given:
        excluded: list[Mapping[str, Any]] = []
        for one in proof.objects("excluded"):
            one.known("settings", "rule", "reason")
            settings = _values(one.object("settings"))
            excluded.append({"settings": settings, "rule": one.string("rule"), "reason": one.string("reason")})
        found["excluded"] = tuple(excluded)
    return found


def _date(reader: Reader, name: str) -> str:
    text = reader.string(name)
    try:
        if text.endswith("Z") and "T" in text:
            return datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").strftime("%Y-%m-%dT%H:%M:%SZ")
        return datetime.date.fromisoformat(text).isoformat()
    except ValueError:
        reader.refuse(name, f"{text!r} is no date (YYYY-MM-DD, or YYYY-MM-DDTHH:MM:SSZ)")


def _values(reader: Reader) -> dict[str, Any]:
    """Return the values of a key, or settings, by name."""
    reader.named()
    return {name: _value(reader, name, value) for name, value in reader.data.items()}


def _value(reader: Reader, name: str, value: Any, depth: int = 0) -> Any:
    """Return a key's or setting's value in hashable form; lists of plain values become tuples."""
    if isinstance(value, list):
        if depth == _DEEPEST:
            reader.refuse(name, f"holds lists in lists, more than {_DEEPEST} deep")
        return tuple(_value(reader, name, item, depth + 1) for item in cast("list[object]", value))
    if isinstance(value, dict):
        reader.refuse(name, "is an object; it must be a number, string, boolean, null or a list of these")
    if isinstance(value, float) and not math.isfinite(value):
        reader.refuse(name, "is a number beyond float64")
    if isinstance(value, str) and not value.isprintable():
        reader.refuse(name, f"{value[:80]!r} holds characters that no line of text shows")
    return value


def no_extent(value: Any) -> str:
    """Return why a key's value is no extent; 1, 1.0 and True are equal, and the first alone is one."""
    return "" if type(value) is int else f"is {value!r}; an extent is an integer"


def _no_dtype(value: Any) -> str:
    """Return why a key's value is no dtype as keys have it."""
    if any(dtype.key == value for dtype in dtypes.TABLE.values()):
        return ""
    named = dtypes.TABLE.get(value) if isinstance(value, str) else None
    return f"is {value!r}; " + (
        f"write {named.key!r}" if named is not None else "a dtype is its short name, like 'f16'"
    )


def _plain(value: Any) -> Any:
    """Return a key value as files hold it: a dtype (or anything with a short ``key``) by that, a list as a tuple."""
    if isinstance(value, (list, tuple)):
        return tuple(_plain(item) for item in cast("Sequence[object]", value))
    return getattr(value, "key", value)
