"""Reading AMD code objects: is this one whole, and what does it say about its kernel.

A code object is a 64-bit ELF file for the machine AMDGPU. What the compiler knows about its kernels is a MessagePack
map in a note of owner ``AMDGPU`` and type 32 (LLVM, "User Guide for AMDGPU Backend", code objects from V3 on).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from nbx_registry.errors import NbxError
from nbx_triton import elf

_NOTE = 7
_METADATA = 32
_NOTE_HEAD = struct.Struct("<III")


class HsacoError(NbxError):
    """An AMD code object that is cut short, is none, or lacks the kernel asked for."""

    code = "HSACO"


_FORM = elf.Form("code object", 224, "AMDGPU", HsacoError)


@dataclass(frozen=True, slots=True)
class HsacoFacts:
    """What a code object says about one kernel."""

    registers: int
    """32-bit vector registers a thread uses; where there is one file for both, accumulation registers included."""
    scalar_registers: int
    """32-bit scalar registers a wavefront uses."""
    local_bytes: int
    """Bytes of private memory a thread uses: its stack frame, spilled registers included."""
    shared_bytes: int
    """Bytes of local data share (LDS) that the code itself declares; what a launch adds comes on top."""
    parameters: int
    """Kernel parameters, those that the compiler added included; not those that the runtime fills in."""
    wave: int
    """Threads of a wavefront."""
    threads: int
    """The most threads a workgroup may have."""
    target: str
    """What it is code for: ``amdgcn-amd-amdhsa--gfx942``."""


def read(image: bytes, entry: str) -> HsacoFacts:
    """Return what ``image`` says about kernel ``entry``. Raises `HsacoError` if it is not whole or lacks the kernel."""
    metadata = _metadata(image)
    kernels = {kernel.get(".name"): kernel for kernel in metadata.get("amdhsa.kernels", ())}
    found = kernels.get(entry)
    if found is None:
        known = ", ".join(map(str, kernels)) or "none"
        raise HsacoError(f"the code object has no kernel {entry!r}; it has {known}")
    try:
        return HsacoFacts(
            registers=found[".vgpr_count"],
            scalar_registers=found[".sgpr_count"],
            local_bytes=found[".private_segment_fixed_size"],
            shared_bytes=found[".group_segment_fixed_size"],
            parameters=sum(1 for each in found.get(".args", ()) if not each[".value_kind"].startswith("hidden_")),
            wave=found[".wavefront_size"],
            threads=found[".max_flat_workgroup_size"],
            target=metadata["amdhsa.target"],
        )
    except KeyError as error:
        raise HsacoError(f"the code object says nothing of {error} for kernel {entry!r}") from error


def _metadata(image: bytes) -> dict[str, Any]:
    for owner, kind, payload in _notes(image):
        if owner == b"AMDGPU" and kind == _METADATA:
            try:
                value, _ = _unpack(payload, 0)
            except (IndexError, struct.error) as error:
                raise HsacoError("the code object's metadata is cut short") from error
            if isinstance(value, dict):
                return value
    raise HsacoError("the code object says nothing about its kernels: it has no note of AMDGPU's metadata")


def _notes(image: bytes) -> Iterator[tuple[bytes, int, bytes]]:
    """Yield owner, type and payload of each note."""
    for _, kind, section in elf.sections(image, _FORM):
        if kind != _NOTE:
            continue
        at = 0
        while at + _NOTE_HEAD.size <= len(section):
            owner_size, size, note = _NOTE_HEAD.unpack_from(section, at)
            owner_at = at + _NOTE_HEAD.size
            payload_at = owner_at + owner_size + -owner_size % 4
            at = payload_at + size + -size % 4
            if payload_at + size > len(section):
                raise HsacoError("a note of the code object is cut short")
            yield section[owner_at : owner_at + owner_size].rstrip(b"\0"), note, section[payload_at : payload_at + size]


_NUMBERS = {0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
_LENGTHS = {
    0xD9: (">B", "text"),
    0xDA: (">H", "text"),
    0xDB: (">I", "text"),
    0xDC: (">H", "list"),
    0xDD: (">I", "list"),
    0xDE: (">H", "map"),
    0xDF: (">I", "map"),
}


def _unpack(data: bytes, at: int) -> tuple[Any, int]:
    """Return the MessagePack value at a position and where it ends; the kinds that code objects hold, and no others."""
    head = data[at]
    at += 1
    if head < 0x80:
        return head, at
    if head >= 0xE0:
        return head - 256, at
    if head in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[head], at
    if head in _NUMBERS:
        form = _NUMBERS[head]
        return struct.unpack_from(form, data, at)[0], at + struct.calcsize(form)
    if head in _LENGTHS:
        form, kind = _LENGTHS[head]
        length = struct.unpack_from(form, data, at)[0]
        at += struct.calcsize(form)
    elif head < 0xC0:
        length, kind = (head & 0x1F, "text") if head >= 0xA0 else (head & 0x0F, "list" if head >= 0x90 else "map")
    else:
        raise HsacoError(f"the code object's metadata holds a value of an unknown kind, {head:#x}")
    if kind == "text":
        if at + length > len(data):
            raise IndexError
        return data[at : at + length].decode("utf-8", "replace"), at + length
    values: list[Any] = []
    for _ in range(length * 2 if kind == "map" else length):
        value, at = _unpack(data, at)
        values.append(value)
    return (dict(zip(values[::2], values[1::2], strict=True)) if kind == "map" else values), at
