"""Artifacts on disk, for other processes: each a file of its own, written whole and believed only if it is whole.

A file begins with a digest over its name and all that follows, so one that was cut short, changed in any bit, or put in
another's place is found out; it is told and made again. It is no seal: whoever may write the folder can write a file
that is believed, as with any cache of code.

Processes write beside the file and rename, so that readers see the old one or the new one, and nobody waits.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path

from nbx_registry import jsonfile
from nbx_registry.errors import FileError
from nbx_registry.launch import Artifact

_FORMAT = ("nbx artifact 1", *(field.name for field in fields(Artifact)))
"""What a file holds: a version of the core whose artifacts say something else keeps files of its own."""

_UNKEPT: set[Path] = set()
"""Folders of which it was told that nothing can be kept there."""


class Store:
    """A folder of artifacts.

    Parameters
    ----------
    folder : Path
        Need not exist. Where it cannot be written, what was compiled stays in the process.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, key: Sequence[str]) -> Path:
        """Return the file of a key: texts that together decide what is compiled."""
        name = hashlib.sha256(json.dumps([*_FORMAT, *key]).encode()).hexdigest()
        return self.folder / name[:2] / name

    def get(self, key: Sequence[str]) -> Artifact | None:
        """Return the artifact of a key; None where there is none, or one that is not what was written (a warning)."""
        path = self.path(key)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            _tell(f"compiled code in {path} cannot be read ({error}); it is compiled again")
            return None
        digest, body = content[:64], content[65:]
        if digest != _digest(path.name, body):
            _tell(f"compiled code in {path} is not what was written there; it is compiled again")
            return None
        head, _, image = body.partition(b"\n")
        return Artifact(image=image, **json.loads(head))

    def put(self, key: Sequence[str], artifact: Artifact) -> None:
        """Keep an artifact. Where the folder cannot be written, nothing is kept, which is told once (a warning)."""
        path = self.path(key)
        facts = {name: value for name, value in asdict(artifact).items() if name != "image"}
        body = json.dumps(facts, sort_keys=True).encode() + b"\n" + artifact.image
        try:
            jsonfile.replace(path, _digest(path.name, body) + b"\n" + body)
        except FileError as error:
            # A full disk, or a folder of somebody else's. Once is enough: the next one will not be kept either.
            if self.folder not in _UNKEPT:
                _UNKEPT.add(self.folder)
                _tell(f"compiled code is not kept for other processes, which compile it again: {error}")


def _digest(name: str, body: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\n" + body).hexdigest().encode()


def _tell(what: str) -> None:
    warnings.warn(what, RuntimeWarning, stacklevel=4)
