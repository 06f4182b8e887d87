"""Reading CUDA binaries: is this one whole, and what does it say about its kernel.

A cubin is a 64-bit ELF file. What the compiler knows about a kernel sits in the sections ``.nv.info`` (all kernels)
and ``.nv.info.<kernel>``, as a list of attributes. Their layout is not documented by NVIDIA; the codes below are those
that ``cuobjdump -elf`` of CUDA 12.8 and 13.0 prints by name.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from nbx_registry.errors import NbxError
from nbx_triton import elf

# Attributes are (format, code, 16 bits); format 4 says that the 16 bits are the length of what follows.
_SIZED = 4
_FRAME_SIZE = 0x11
_PARAMETER = 0x17
_REGISTERS = 0x2F


class CubinError(NbxError):
    """A CUDA binary that is cut short, is none, or lacks the kernel asked for."""

    code = "CUBIN"


_FORM = elf.Form("cubin", 190, "CUDA", CubinError)


@dataclass(frozen=True, slots=True)
class CubinFacts:
    """What a cubin says about one kernel."""

    registers: int
    """32-bit registers a thread uses."""
    local_bytes: int
    """Bytes of local memory a thread uses: its stack frame, spilled registers included."""
    parameters: int
    """Kernel parameters, those that the compiler added included."""


def read(image: bytes, entry: str) -> CubinFacts:
    """Return what ``image`` says about kernel ``entry``. Raises `CubinError` if it is not whole or lacks the kernel."""
    sections = {section.name: section.content for section in elf.sections(image, _FORM)}
    if f".text.{entry}" not in sections:
        kernels = [name.removeprefix(".text.") for name in sections if name.startswith(".text.")]
        raise CubinError(f"the cubin has no kernel {entry!r}; it has {', '.join(kernels) or 'none'}")
    symbol = _symbol(sections, entry)
    facts = {_REGISTERS: 0, _FRAME_SIZE: 0}
    for code, payload in _attributes(sections.get(".nv.info", b"")):
        if code in facts and len(payload) == 8:
            index, value = struct.unpack("<II", payload)
            if index == symbol:
                facts[code] = value
    own = sections.get(f".nv.info.{entry}")
    if own is None or not facts[_REGISTERS]:
        raise CubinError(f"the cubin says nothing about kernel {entry!r}: its .nv.info sections are missing")
    parameters = sum(1 for code, _ in _attributes(own) if code == _PARAMETER)
    return CubinFacts(facts[_REGISTERS], facts[_FRAME_SIZE], parameters)


def _symbol(sections: dict[str, bytes], entry: str) -> int:
    """Return the index of ``entry`` in the symbol table."""
    table, names = sections.get(".symtab", b""), sections.get(".strtab", b"")
    for i in range(len(table) // 24):
        (name,) = struct.unpack_from("<I", table, i * 24)
        if elf.text(names, name) == entry:
            return i
    raise CubinError(f"the cubin's symbol table lacks kernel {entry!r}")


def _attributes(section: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (code, payload) of each attribute; the payload of one without a length is its two bytes."""
    at = 0
    while at + 4 <= len(section):
        form, code, value = struct.unpack_from("<BBH", section, at)
        at += 4
        if form == _SIZED:
            if at + value > len(section):
                raise CubinError("an attribute of the cubin's .nv.info section is cut short")
            yield code, section[at : at + value]
            at += value
        else:
            yield code, struct.pack("<H", value)
