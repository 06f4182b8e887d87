"""A device: facts about one product of hardware, each with its source."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from nbx_registry import dtypes
from nbx_registry.devicefile import Fact, Schema
from nbx_registry.devicevalue import is_unit
from nbx_registry.errors import MissingFact, UnknownName, nearest

__all__ = ["Device", "Fact"]


class Device:
    """One product, as its files describe it.

    Attributes
    ----------
    id : str
        ``nvidia/h200-sxm``.
    file : Path
        The product's own file; ``files`` adds the architecture's and the overlays'.
    extends : str or None
        The architecture it extends, ``nvidia/arch/sm_90``.
    arch : str
        The compile target its architecture file names, ``sm_90``; ``targets`` are all it runs.
    runtime : str
        Which runtime drives it: ``host``, ``cuda``, ``hip``, ``wgpu``.
    evidence_class : str
        The group of products that run the same binaries within the same limits.
    match : Mapping
        How a live device is recognised: ``names``, ``archs``, ``multiprocessors``; None where it cannot be.
    settings_from : str or None
        Another product of the evidence class whose tuned settings serve this one too, its memory system being the same.
    facts : Mapping
        `Fact` by key.
    values : dict
        What ``device.<name>`` means in an expression, by name. Beside the facts' values: ``id``, ``vendor``, ``arch``,
        ``runtime``, ``evidence_class``; ``target.<name>``; a matrix unit as the tuple of its operand dtypes (empty
        where there is none), and ``matrix_unit.<shape>.<operand>`` as a boolean. A name nobody states raises
        `MissingFact`.
    """

    def __init__(
        self,
        id: str,
        files: Sequence[Path],
        head: Mapping[str, Any],
        facts: Mapping[str, Fact],
        schema: Callable[[], Schema],
    ) -> None:
        self.id = id
        self.vendor = id.partition("/")[0]
        self.file = files[0]
        self.files = tuple(files)
        self.extends: str | None = head.get("extends")
        self.arch: str = head["arch"]
        self.targets: tuple[str, ...] = head.get("targets", (self.arch,))
        self.runtime: str = head["runtime"]
        self.evidence_class: str = head["evidence_class"]
        self.match: Mapping[str, Any] | None = head.get("match")
        self.settings_from: str | None = head.get("settings_from")
        self.facts: Mapping[str, Fact] = MappingProxyType(dict(sorted(facts.items())))
        self._schema = schema
        self.values: dict[str, Any] = _Values(self)

    def fact(self, key: str) -> Any:
        """Return the value of a fact. Raises `MissingFact` naming the key and the file that could state it."""
        found = self.facts.get(key)
        if found is None:
            raise self.missing(key)
        return found.value

    def source(self, key: str) -> str:
        """Return the tags of a fact's documents. Raises `MissingFact`."""
        found = self.facts.get(key)
        if found is None:
            raise self.missing(key)
        return found.source

    def capability(self, name: str) -> bool:
        """Return whether the device has a capability, as stated.

        Raises `MissingFact` where nobody states it, `UnknownName` for a fact that is no capability.
        """
        found = self.facts.get(name)
        if found is None:
            value = self.values[name]
            if not isinstance(value, bool):
                raise UnknownName(f"{name!r} is no capability but a name of {self.id}")
            return value
        value = found.value
        if isinstance(value, bool) or is_unit(value):
            return bool(value)
        raise UnknownName(f"{name!r} of {self.id} is {found.value!r}, no capability: ask for it with fact()")

    def has(self, name: str) -> bool:
        """Return whether a capability is stated and true; False also where nobody says."""
        return name in self.values and bool(self.values[name])

    def missing(self, key: str) -> MissingFact:
        """Return the error for a fact that nobody states."""
        schema = self._schema()
        known = schema.find(key)
        hint = nearest(key, self.facts) if known is not None else nearest(key, {**schema.keys, **self.facts})
        unit = f" ({known.unit})" if known is not None and known.unit else ""
        once = "" if known is not None else ", once a schema.yml describes the key"
        return MissingFact(
            f"{self.id} states no {key!r}{unit}{hint}; {self.file} could state it, or an overlay in the user's folder "
            f"of device files{once}"
        )

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what the files say (not of how, or why): the same for the same values."""
        said = {
            "arch": self.arch,
            "targets": self.targets,
            "runtime": self.runtime,
            "evidence_class": self.evidence_class,
            "facts": {key: _plain(fact.value) for key, fact in self.facts.items()},
        }
        return hashlib.sha256(json.dumps(said, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    def __repr__(self) -> str:
        return f"<Device {self.id} ({self.arch}, {self.runtime}), {len(self.facts)} facts>"


class _Values(dict[str, Any]):
    def __init__(self, device: Device) -> None:
        super().__init__(
            id=device.id,
            vendor=device.vendor,
            arch=device.arch,
            runtime=device.runtime,
            evidence_class=device.evidence_class,
        )
        self._device = device
        self.update((f"target.{target}", True) for target in device.targets)
        for key, fact in device.facts.items():
            value = fact.value
            if is_unit(value):
                self[key] = tuple(dtypes.TABLE.get(operand, operand) for operand in value)
                self.update((f"{key}.{operand}", True) for operand in value)
            else:
                self[key] = () if key.startswith("matrix_unit.") else value

    def __missing__(self, key: str) -> Any:
        # Two lists are whole: the compile targets, and the operands of a stated matrix unit. What they lack is false.
        if key.startswith("target."):
            return False
        if key.startswith("matrix_unit.") and key.rpartition(".")[0] in self:
            return False
        raise self._device.missing(key)


def _plain(value: Any) -> Any:
    if is_unit(value):
        return {key: list(accumulators) for key, accumulators in value.items()}
    return value
