"""Device files: the schema of facts, and reading one file against it. Every error names file, line, key and way out."""

from __future__ import annotations

import datetime
import keyword
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from nbx_registry import yamlfile
from nbx_registry.devicevalue import TYPES, UNITS, FactType, complaint, convert
from nbx_registry.errors import FileError, nearest
from nbx_registry.yamlfile import Table, is_list, kind

RESERVED = frozenset({"id", "vendor", "arch", "runtime", "evidence_class", "target"})
"""What ``device.<name>`` means beside facts; no fact's key begins with one."""

HEAD = ("arch", "targets", "runtime", "evidence_class", "match", "settings_from")
READ_WORDS: Mapping[str, str] = {
    "vendor": "the vendor's own text or code",
    "dev": "reported by a device",
    "q": "a vendor's number as quoted in someone else's text",
    "3p": "third party",
    "=": "arithmetic, with its formula",
    "measured": "measured",
    "unconfirmed": "no document found",
}
READ = tuple(READ_WORDS)
"""How a value was read."""

_KEY = re.compile(r"[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)*\Z")
_SCHEMA_KEY = re.compile(r"[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)*(\.\*)?\Z")
_FILE_KEYS = ("extends", *HEAD, "facts", "sources")
_OVERLAY_KEYS = ("facts", "sources")
_DATED = ("device", "measured")
"""Tags of what was found on a device; such a fact says when."""
_FACT_KEYS = ("value", "source", "read", "formula", "note", "date")
_MATCH_KEYS = ("names", "archs", "multiprocessors")


@dataclass(frozen=True, slots=True)
class Source:
    """A document that facts are taken from."""

    tag: str
    document: str
    publisher: str
    read: str
    """How values from it were read, unless a fact says otherwise: one of `READ`."""

    def __str__(self) -> str:
        return f"{self.document} ({self.publisher})"


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing known about a device, and how."""

    value: Any
    """An int, float, bool or str; a tuple of them; for a matrix unit a mapping of operand dtype name to the names of
    its accumulators (empty where no document says)."""
    source: str
    """Tags of the documents, ``X1, N6``."""
    file: Path
    line: int
    read: str = "vendor"
    """One of `READ`; where the file does not say, what its first document gives."""
    formula: str = ""
    """Where ``read`` is ``=``: the arithmetic, over numbers and other facts of the same device."""
    note: str = ""
    date: str = ""
    documents: tuple[Source, ...] = ()
    """The documents, in the order of the tags."""


@dataclass(frozen=True, slots=True)
class KeySchema:
    """What one key of a device file means."""

    key: str
    type: FactType
    unit: str
    meaning: str
    file: Path


@dataclass(frozen=True, slots=True)
class Schema:
    """The known keys. One ending in ``.*`` stands for every key with one more segment."""

    keys: Mapping[str, KeySchema]

    def find(self, key: str) -> KeySchema | None:
        """Return what is known of a key, or None."""
        found = self.keys.get(key)
        return found if found is not None else self.keys.get(key.rpartition(".")[0] + ".*")


@dataclass(frozen=True, slots=True)
class DeviceFile:
    """One file as read: its head and its facts, each with its line."""

    path: Path
    extends: str | None
    head: Mapping[str, Any]
    lines: Mapping[str, int]
    facts: Mapping[str, Fact]


def read_schema(path: Path) -> tuple[str | None, dict[str, KeySchema]]:
    """Read ``schema.yml``: the known keys, and the namespace of a fragment (None for the common schema)."""
    table = yamlfile.load(path)
    _known(table, ("namespace", "keys"), path, "schema")
    namespace = table.get("namespace")
    if namespace is not None and (not isinstance(namespace, str) or not _KEY.match(namespace) or "." in namespace):
        raise _error(path, table.lines["namespace"], f"namespace {namespace!r} is not one lower-case word, like acme")
    if namespace in RESERVED:
        raise _error(path, table.lines["namespace"], f"namespace {namespace!r} is taken: device.{namespace} is no fact")
    keys = _table(table, "keys", path)
    found: dict[str, KeySchema] = {}
    for key, row in keys.items():
        line = keys.lines[key]
        found[key] = _key_schema(key, row, path, line)
        if namespace is not None and not key.startswith(namespace + "."):
            raise _error(path, line, f"key {key!r} is outside the namespace {namespace!r}; call it {namespace}.{key}")
    return namespace, found


def read_sources(table: Table, path: Path) -> dict[str, Source]:
    """Read a mapping of tags to ``{document, publisher, read}``."""
    found: dict[str, Source] = {}
    for tag, row in table.items():
        line = table.lines[tag]
        where = f"sources.{tag}"
        if not isinstance(row, Table):
            raise _error(path, line, f"{where} is {kind(row)}; write {{document: ..., publisher: ..., read: ...}}")
        _known(row, ("document", "publisher", "read"), path, where)
        document, publisher = (_string(row, key, path, where) for key in ("document", "publisher"))
        found[tag] = Source(tag, document, publisher, _read_as(row, path, where) if "read" in row else "vendor")
    return found


def read_device(
    path: Path, schema: Callable[[], Schema], sources: Callable[[], Mapping[str, Source]], *, overlay: bool = False
) -> DeviceFile:
    """Read a device file, architecture file or overlay.

    Parameters
    ----------
    schema, sources
        Return the known keys, and the tags known beside the file's own; asked by a file that states facts or sources.
    overlay
        Whether the file only adds facts to a device described elsewhere.

    Raises
    ------
    FileError
        For anything malformed, with file, line, key and the nearest known name.
    """
    table = yamlfile.load(path)
    if "id" in table:
        raise _error(path, table.lines["id"], "leave id out: it is where the file lies, <vendor>/<product>.yml")
    if overlay and (extra := [key for key in (*HEAD, "extends") if key in table]):
        raise _error(
            path,
            table.lines[extra[0]],
            f"{extra[0]!r} is for the file that describes a device; this is an overlay, which states facts and sources",
        )
    _known(table, _OVERLAY_KEYS if overlay else _FILE_KEYS, path, "device file")
    stated = table.get("sources") or table.get("facts")
    known = dict(sources()) if stated else {}
    # A heading with nothing under it states nothing: a file that is being written may have one.
    if table.get("sources") is not None:
        own = _table(table, "sources", path)
        for tag, source in read_sources(own, path).items():
            if tag in known:
                raise _error(path, own.lines[tag], f"source {tag!r} is given twice; it is known as {known[tag]}")
            known[tag] = source
    extends = table.get("extends")
    if "extends" in table and not isinstance(extends, str):
        raise _error(
            path, table.lines["extends"], f"extends is {kind(extends)}; write a file's id, like nvidia/arch/sm_90"
        )
    facts: dict[str, Fact] = {}
    if table.get("facts") is not None:
        rows = _table(table, "facts", path)
        for key, row in rows.items():
            facts[key] = _fact(key, row, schema(), known, path, rows.lines[key])
    head = {key: _head(table, key, path) for key in HEAD if key in table}
    return DeviceFile(path, extends, head, dict(table.lines), facts)


def _key_schema(key: str, row: Any, path: Path, line: int) -> KeySchema:
    if not _SCHEMA_KEY.match(key):
        raise _error(path, line, f"key {key!r} is not of the form word.word (lower case, digits, underscores)")
    if unsaid := next((word for word in key.split(".") if keyword.iskeyword(word) or word.startswith("_")), None):
        raise _error(path, line, f"no condition can name {key!r}: {unsaid!r} is no name; choose another word")
    if key.partition(".")[0] in RESERVED:
        raise _error(path, line, f"key {key!r} is taken: device.{key.partition('.')[0]} is no fact")
    where = f"keys.{key}"
    if not isinstance(row, Table):
        raise _error(path, line, f"{where} is {kind(row)}; write {{type: ..., unit: ..., meaning: ...}}")
    _known(row, ("type", "unit", "meaning"), path, where)
    type_ = _string(row, "type", path, where)
    if type_ not in TYPES:
        raise _error(
            path, row.lines["type"], f"{where}: type {type_!r} is none of {', '.join(TYPES)}{nearest(type_, TYPES)}"
        )
    unit = ""
    if type_ in ("integer", "number", "integers"):
        unit = _string(row, "unit", path, where)
        if unit not in UNITS:
            raise _error(
                path, row.lines["unit"], f"{where}: unit {unit!r} is none of {', '.join(UNITS)}{nearest(unit, UNITS)}"
            )
        pattern = UNITS[unit]
        if pattern is not None and not key.endswith(".*") and not pattern.search(key.rpartition(".")[2]):
            suffix = unit.lower().replace("/s", "_per_s")
            raise _error(path, line, f"key {key!r} is in {unit} and its name does not say so; call it {key}_{suffix}")
    elif "unit" in row:
        raise _error(path, row.lines["unit"], f"{where}: a {type_} has no unit")
    return KeySchema(key, type_, unit, _string(row, "meaning", path, where), path)  # type: ignore[arg-type]


def _fact(key: str, row: Any, schema: Schema, sources: Mapping[str, Source], path: Path, line: int) -> Fact:
    known = schema.find(key)
    if known is None:
        raise _error(path, line, f"unknown fact {key!r}{_unknown_fact(key, row, schema)}")
    where = f"fact {key!r}"
    if not isinstance(row, Table):
        raise _error(path, line, f"{where} is {kind(row)}; write {{value: ..., source: ...}}")
    _known(row, _FACT_KEYS, path, where)
    if "value" not in row:
        raise _error(path, line, f"{where} has no value; leave the fact out where it is not known")
    if wrong := complaint(row["value"], known.type, known.unit):
        raise _error(path, row.lines["value"], f"{where} {wrong}")
    if "source" not in row:
        raise _error(path, line, f"{where} has no source; write the tag of the document that states it")
    tags = row["source"] if is_list(row["source"]) else [row["source"]]
    for tag in tags:
        if not isinstance(tag, str) or not tag:
            raise _error(path, row.lines["source"], f"{where}: source is {kind(tag)}; write a tag, or a list of tags")
        if tag not in sources:
            raise _error(
                path,
                row.lines["source"],
                f"{where}: source {tag!r} is no known tag{nearest(tag, sources)}; "
                f"describe it under sources: in this file or in sources.yml",
            )
    if not tags:
        raise _error(path, row.lines["source"], f"{where}: source is an empty list; write a tag")
    date = _date(row, path, where)
    if not date and (dated := next((tag for tag in tags if tag in _DATED), None)) is not None:
        raise _error(path, line, f"{where}: source {dated!r} is of a day; write date: YYYY-MM-DD")
    read = _read_as(row, path, where) if "read" in row else sources[tags[0]].read
    if (read == "=") != ("formula" in row):
        raise _error(path, line, f"{where}: read '=' and formula go together: arithmetic states how")
    return Fact(
        value=convert(row["value"], known.type),
        source=", ".join(tags),
        file=path,
        line=line,
        read=read,
        formula=_string(row, "formula", path, where) if "formula" in row else "",
        note=_string(row, "note", path, where) if "note" in row else "",
        date=date,
        documents=tuple(sources[tag] for tag in tags),
    )


def _date(row: Table, path: Path, where: str) -> str:
    if "date" not in row:
        return ""
    date = _string(row, "date", path, where)
    try:
        return datetime.date.fromisoformat(date).isoformat()
    except ValueError:
        raise _error(path, row.lines["date"], f"{where}: date {date!r} is no day; write YYYY-MM-DD") from None


def _read_as(row: Table, path: Path, where: str) -> str:
    read = _string(row, "read", path, where)
    if read not in READ:
        known = f"none of {', '.join(READ)}{nearest(read, READ)}"
        raise _error(path, row.lines["read"], f"{where}: read {read!r} is {known}")
    return read


def _unknown_fact(key: str, row: Any, schema: Schema) -> str:
    hint = nearest(key, schema.keys)
    value = row.get("value") if isinstance(row, Table) else row
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        last = key.rpartition(".")[2]
        if not any(pattern is not None and pattern.search(last) for pattern in UNITS.values()):
            hint += "; a number's key says its unit (_bytes, _bytes_per_s, _flop_per_s), unless it is a count"
    return hint + "; keys of your own are described in a schema.yml beside your files"


def _head(table: Table, key: str, path: Path) -> Any:
    value, line = table[key], table.lines[key]
    if key == "match":
        return _match(_table(table, "match", path), path)
    if key == "targets":
        checked = convert(value, "strings")
        if not checked:
            raise _error(path, line, f"targets is {kind(value)}; write a list of compile targets, like [sm_90, sm_90a]")
        return checked
    if not isinstance(value, str) or not value:
        raise _error(path, line, f"{key} is {kind(value)}; write a name")
    if key == "runtime" and not (value.isascii() and value.isidentifier() and value != "cpu"):
        raise _error(path, line, f"runtime {value!r} is no name of a runtime: letters, digits and '_', like cuda")
    return value


def _match(table: Table, path: Path) -> Mapping[str, Any]:
    _known(table, _MATCH_KEYS, path, "match")
    rule: dict[str, Any] = {}
    for key, value in table.items():
        checked = convert(value, "integer" if key == "multiprocessors" else "strings")
        if not checked:
            wanted = "a count" if key == "multiprocessors" else "a list of strings"
            raise _error(path, table.lines[key], f"match.{key} is {kind(value)}; write {wanted}")
        rule[key] = checked
    return MappingProxyType(rule)


def _table(table: Table, key: str, path: Path) -> Table:
    if key not in table:
        raise _error(path, table.line, f"{key} is missing; write a mapping {key}: {{...}}")
    value = table[key]
    if not isinstance(value, Table):
        raise _error(path, table.lines[key], f"{key} is {kind(value)}; write a mapping")
    return value


def _string(table: Table, key: str, path: Path, where: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value:
        got = f"is {kind(value)}" if key in table else "is missing"
        raise _error(path, table.lines.get(key, table.line), f"{where}: {key} {got}; write a string")
    return value


def _known(table: Table, known: tuple[str, ...], path: Path, where: str) -> None:
    for key in table:
        if key not in known:
            raise _error(
                path,
                table.lines[key],
                f"unknown key {key!r} in {where}{nearest(key, known) or '; known are ' + ', '.join(known)}",
            )


def _error(path: Path, line: int, message: str) -> FileError:
    return FileError(f"{path}:{line}: {message}")
