"""Reading ELF files, the form in which both vendors' code comes: 64 bits, little-endian, and whole."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from nbx_registry.errors import NbxError

_NOBITS = 8
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")


@dataclass(frozen=True, slots=True)
class Form:
    """The files of one vendor, and what is raised for one that is none of them."""

    name: str
    """In messages: ``cubin``."""
    machine: int
    """``e_machine`` of the header."""
    machine_name: str
    error: type[NbxError]


class Section(NamedTuple):
    """One section of a file."""

    name: str
    kind: int
    """``sh_type``."""
    content: bytes


def sections(image: bytes, form: Form) -> list[Section]:
    """Return the sections in order, after checking that every table, segment and section lies inside the file.

    Raises the form's error for a file that is cut short, or another one's.
    """
    if len(image) < _HEADER.size:
        raise form.error(f"a {form.name} of {len(image)} bytes is shorter than an ELF header")
    ident, _, machine, _, _, segments_at, sections_at, _, _, segment_size, segments, section_size, count, names_at = (
        _HEADER.unpack_from(image)
    )
    if ident[:6] != b"\x7fELF\x02\x01" or machine != form.machine:
        raise form.error(f"not a {form.name}: no 64-bit little-endian ELF file for {form.machine_name}")
    if names_at >= count or section_size != _SECTION.size or (segments and segment_size != _SEGMENT.size):
        raise form.error(f"the {form.name}'s ELF header is malformed")
    _inside(image, form, "section table", sections_at, count * section_size)
    _inside(image, form, "segment table", segments_at, segments * segment_size)
    for i in range(segments):
        kind, _, offset, _, _, size, _, _ = _SEGMENT.unpack_from(image, segments_at + i * segment_size)
        if kind:
            _inside(image, form, f"segment {i}", offset, size)
    table = [_SECTION.unpack_from(image, sections_at + i * section_size) for i in range(count)]
    for i, (_, kind, _, _, offset, size, *_) in enumerate(table):
        if kind not in (0, _NOBITS):
            _inside(image, form, f"section {i}", offset, size)
    names = image[table[names_at][4] : table[names_at][4] + table[names_at][5]]
    return [
        Section(text(names, name), kind, b"" if kind == _NOBITS else image[offset : offset + size])
        for name, kind, _, _, offset, size, *_ in table
    ]


def text(names: bytes, at: int) -> str:
    """Return the string that begins at a place of a table of strings."""
    return names[at : names.find(b"\0", at)].decode("ascii", "replace")


def _inside(image: bytes, form: Form, what: str, offset: int, size: int) -> None:
    if offset + size > len(image):
        raise form.error(f"the {form.name} is cut short: its {what} ends at byte {offset + size} of {len(image)}")
