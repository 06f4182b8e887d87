"""Evidence bundles: one file for one run of the suite on one device (or in its stead), strictly read.

A bundle is sealed: ``digest`` is the SHA-256 of the canonical JSON of everything else. It shows that the file is whole,
not who made it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Literal, cast

from nbx_registry import jsonfile
from nbx_registry.errors import FileError
from nbx_registry.jsonfile import Reader

FORMAT = 2

Reach = Literal["here", "elsewhere", "built"]
REACHES: tuple[str, ...] = ("here", "elsewhere", "built")
"""Where the numbers were checked: on a device of the class; in its stead (an interpreter, another device); nowhere,
kernels were only built."""

VERDICTS: tuple[str, ...] = ("pass", "fail", "incomplete", "built")
"""What came out for a kernel: every case passed or is refused as specified; one failed; not all were run; only built.
Only ``pass`` opens a gate."""

CASE_VERDICTS: tuple[str, ...] = ("pass", "refused", "waived", "fail", "error")
"""What came out for a case: its checks passed; it is refused as specified; a check failed, which a waiver expects; a
check failed; the kernel raised."""

_RECORD_KEYS = (
    *("op", "op_digest", "kernel_digest", "backend", "toolkit", "built", "verdict", "expected", "cases"),
    # Of a composite: the kernels that ran within it.
    "parts",
)

_CASE_KEYS = frozenset(
    ("case", "check", "verdict", "profile", "seed", "output_digest", "seconds", "reason", "handle", "cold", "waiver")
)


@dataclass(frozen=True, slots=True)
class Built:
    """That binding gave code for a compile target; None where the compiler does not say."""

    arch: str
    toolkit: str | None = None
    shared_bytes: int | None = None
    registers: int | None = None
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """What a bundle says of one kernel, without its cases."""

    kernel: str
    op: str
    op_digest: str
    kernel_digest: str
    backend: str
    toolkit: str | None
    built: tuple[Built, ...]
    verdict: str
    cases: int
    """How many entries its cases have."""
    expected: int
    """How many cases the whole run has for it; fewer in the file leave it ``incomplete``."""
    failed: str
    """The first case that failed, and its check; empty where none did."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """One bundle, without the cases."""

    path: Path
    suite: str
    """Version of the suite."""
    suite_digest: str
    created: datetime
    device: str
    evidence_class: str
    handles: tuple[str, ...]
    """Of the devices that it was made on: several of one machine may share a run; none where nothing ran on one."""
    runtime: str
    versions: Mapping[str, str]
    """Of driver and toolkit, as the runtime gave them."""
    reach: Reach
    via: str
    """How: ``device``, ``interpreter``, ``ptx sm_70 on nvidia/h200-sxm``, ..."""
    distributions: Mapping[str, str]
    records: Mapping[str, Record]
    """By kernel id."""
    seconds: float
    """Wall time of the run."""
    signature: str | None
    """The public key, in hexadecimal, of whoever is said to have signed it; None where nobody did. That the signature
    holds is for ``nbx conformance verify`` to find out."""
    digest: str

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.name


def read(path: Path) -> Bundle:
    """Read and check a bundle, its cases included.

    Raises
    ------
    FileError
        For anything malformed, naming file and key; for a digest that does not fit.
    """
    return parse(jsonfile.read(path), path)


def parse(content: bytes, path: Path) -> Bundle:
    """Check a bundle's bytes; as `read`."""
    data = jsonfile.parse(content, path)
    root = Reader(path, data)
    head = _head(root)
    if not _fits(content, head.digest) and jsonfile.digest(data, path) != head.digest:
        root.refuse(
            "digest", "does not fit the content: the file was changed after it was written; run the suite again"
        )
    kernels = root.object("kernels")
    kernels.named()
    records = {kernel: _record(kernel, kernels.object(kernel), head.reach) for kernel in kernels.data}
    return replace(head, records=records)


class Sealed:
    """A bundle as it was sealed, of which a kernel's record is read when it is asked for.

    A bundle holds thousands of cases, and a request asks about a few kernels.

    Attributes
    ----------
    bundle : Bundle
        Without its records.
    text : str
        The file's.
    """

    def __init__(self, bundle: Bundle, text: str, start: int, end: int) -> None:
        self.bundle = bundle
        self.text = text
        self._range = (start, end)

    def record(self, kernel: str) -> Record | None:
        """Return what the bundle says of a kernel, None where it has nothing to say. Raises `FileError`."""
        name = f'"{kernel}":'
        # In canonical JSON this is what every record begins with, and no string can hold it.
        needle = name + '{"backend":'
        at = self.text.find(needle, *self._range)
        if at < 0:
            return None
        path = self.bundle.path
        if self.text.find(needle, at + 1, self._range[1]) >= 0:
            raise FileError(f"{path}: kernels: key {kernel!r} is given twice")
        data = jsonfile.parse_at(self.text, at + len(name), path)
        return _record(kernel, Reader(path, data, f"kernels.{kernel}"), self.bundle.reach)


def glance(content: bytes, path: Path) -> Sealed | None:
    """Return a bundle of which only the head was read; None for one that has to be read whole.

    It is canonical JSON with the digest that it states: what its maker wrote, who checked it then.
    """
    try:
        text = content.decode("utf-8")
        start, end = text.find(_KERNELS), text.rfind(_BEHIND)
        if not 0 <= start < end:
            return None
        root = Reader(path, jsonfile.parse((text[:start] + text[end + 1 :]).encode(), path))
        bundle = _head(root)
    except (UnicodeDecodeError, FileError):
        return None
    return Sealed(bundle, text, start, end) if _fits(content, bundle.digest) else None


_KERNELS = ',"kernels":{'
_BEHIND = '},"plugins":{'
"""What follows the kernels where keys are sorted."""


def _head(root: Reader) -> Bundle:
    """Check everything but the kernels, and the digest."""
    if root.integer("format") != FORMAT:
        root.refuse("format", f"is {root.data.get('format')!r}; this version reads format {FORMAT}")
    root.known(
        "format",
        "suite",
        "created",
        "seconds",
        "selection",
        "device",
        "runtime",
        "reach",
        "via",
        "distributions",
        "kernels",
        "plugins",
        "waivers",
        "signature",
        "digest",
    )
    digest = root.hexadecimal("digest")
    suite = root.object("suite")
    suite.known("version", "digest")
    device = root.object("device")
    device.known("id", "evidence_class", "digest", "handles", "detected")
    device.hexadecimal("digest")
    device.object("detected")
    runtime = root.object("runtime")
    runtime.known("name", "versions")
    reach = cast("Reach", root.choice("reach", REACHES))
    handles = tuple(device.names("handles"))
    if reach == "here" and not handles:
        device.refuse("handles", "is empty; what was checked here was checked on a device")
    root.object("selection")
    root.object("plugins").named()
    root.objects("waivers")
    signature = None
    if "signature" in root.data:
        signed = root.object("signature")
        signed.known("algorithm", "key", "value")
        signature = signed.hexadecimal("key")
    return Bundle(
        path=root.path,
        suite=suite.string("version"),
        suite_digest=suite.hexadecimal("digest"),
        created=_time(root, "created"),
        device=device.string("id"),
        evidence_class=device.string("evidence_class"),
        handles=handles,
        runtime=runtime.string("name"),
        versions=runtime.strings("versions"),
        reach=reach,
        via=root.string("via"),
        distributions=root.strings("distributions"),
        records={},
        seconds=root.number("seconds"),
        signature=signature,
        digest=digest,
    )


def _fits(content: bytes, digest: str) -> bool:
    """Return whether a file as it is written, canonical, has that digest: no need then to write it out anew."""
    rest = content.removesuffix(b"\n").replace(f'"digest":"{digest}",'.encode(), b"", 1)
    return hashlib.sha256(rest).hexdigest() == digest


def _record(kernel: str, reader: Reader, reach: Reach) -> Record:
    reader.known(*_RECORD_KEYS)
    verdict = reader.choice("verdict", VERDICTS)
    if (verdict == "built" and reach != "built") or (verdict == "pass" and reach == "built"):
        reader.refuse("verdict", f"is {verdict!r} in a bundle whose reach is {reach!r}")
    if "parts" in reader.data:
        reader.names("parts")
    cases = reader.objects("cases")
    failed = ""
    passed = 0
    for case in cases:
        outcome = _case(case)
        passed += outcome == "pass"
        if outcome in ("fail", "error") and not failed:
            failed = f"{case.data['case']}, {case.data['check']}"
    expected, known = reader.integer("expected"), len({case.data["case"] for case in cases})
    if verdict == "pass" and (failed or not passed):
        reader.refuse("verdict", f"is 'pass', but {'no case passed' if not failed else f'a case failed ({failed})'}")
    if verdict in ("pass", "built") and known < expected:
        reader.refuse("verdict", f"is {verdict!r}, but {known} of {expected} cases were run")
    if verdict == "fail" and not failed:
        reader.refuse("verdict", "is 'fail', but no case failed")
    return Record(
        kernel=kernel,
        op=reader.string("op"),
        op_digest=reader.hexadecimal("op_digest"),
        kernel_digest=reader.hexadecimal("kernel_digest"),
        backend=reader.string("backend"),
        toolkit=reader.optional_string("toolkit"),
        built=tuple(_built(entry) for entry in reader.objects("built")),
        verdict=verdict,
        cases=len(cases),
        expected=expected,
        failed=failed,
    )


def _case(reader: Reader) -> str:
    data = reader.data
    # There are thousands: see first whether all is well, and look for what is wrong only where it is not.
    if (
        data.keys() <= _CASE_KEYS
        and data.get("verdict") in CASE_VERDICTS
        and type(data.get("case")) is str
        and type(data.get("check")) is str
        and data["case"]
        and data["check"]
        and data["case"].isprintable()
        and data["check"].isprintable()
    ):
        return data["verdict"]
    reader.known(*_CASE_KEYS)
    reader.string("case")
    reader.string("check")
    return reader.choice("verdict", CASE_VERDICTS)


def _built(reader: Reader) -> Built:
    # A compiler may say more than this; what it says is kept in the file and not judged.
    numbers = {
        name: reader.integer(name) if reader.data.get(name) is not None else None
        for name in ("shared_bytes", "registers", "threads")
    }
    return Built(reader.string("arch"), reader.optional_string("toolkit"), **numbers)


def _time(reader: Reader, name: str) -> datetime:
    text = reader.string(name)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        reader.refuse(name, f"{text!r} is no ISO 8601 time")
    if time.tzinfo is None:
        reader.refuse(name, f"{text!r} has no time zone; write one, like +00:00")
    return time
