"""Writing settings: entries are merged into a file under a lock, so that no process loses what another one found.

The file is replaced as a whole, by one process at a time; a process that is killed leaves the old file or the new one,
and its lock goes with it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from nbx_registry import environment, jsonfile
from nbx_registry.errors import FileError
from nbx_registry.filelock import try_lock
from nbx_registry.jsonfile import Reader
from nbx_registry.settings import FORMAT, read_entry

PATIENCE_S: Final = 60.0
"""How long another process may hold the lock."""

_LOOK_S: Final = 0.01


def file_for(device: str, out: Path | None = None) -> Path:
    """Return the file of a product's settings: in the user's folder, in the folder ``out``, or ``out`` itself.

    A name that ends in ``.json`` is a file.
    """
    folder = environment.config_dir() / "settings" if out is None else out
    return folder if folder.suffix == ".json" else folder / f"{device.replace('/', '-')}.json"


def check(path: Path, device: str) -> None:
    """Raise `FileError` where a product's settings could not be merged into a file: before anything is measured."""
    obstacle = jsonfile.obstacle(path)
    if obstacle:
        raise FileError(f"{path}: {obstacle}")
    _known(path, device)


def merge(path: Path, device: str, entries: Iterable[Mapping[str, Any]]) -> None:
    """Write entries of a product into a file, in the place of those of the same kernel and key; others stay.

    Raises
    ------
    FileError
        What is there is no settings file, or one of another product: it is left as it is. Or nothing can be written.
    """
    given = list(entries)
    for number, entry in enumerate(given):
        # What a reader would refuse is not written.
        read_entry(Reader(path, entry, f"entries[{number}]"), device)
    with locked(path):
        found = {_key(entry): entry for entry in (*_known(path, device), *given)}
        content = {"format": FORMAT, "device": device, "entries": [found[key] for key in sorted(found)]}
        jsonfile.write(path, content)


@contextmanager
def locked(path: Path) -> Generator[None, None, None]:
    """Hold the lock beside a file; a process that ends, however it ends, lets it go. Raises `FileError`."""
    target = Path(os.path.realpath(path))
    lock = target.with_name(f".{target.name}.lock")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error.strerror or error}") from error
    try:
        _acquire(descriptor, lock)
        for other in target.parent.iterdir():
            # Only who holds the lock writes: this is of a process that was killed.
            if re.fullmatch(rf"\.{re.escape(target.name)}\.[0-9]+-[0-9]+", other.name):
                other.unlink(missing_ok=True)
        yield
    finally:
        # Closing lets the lock go; the file stays, or two processes could hold locks of one name.
        os.close(descriptor)


def _acquire(descriptor: int, lock: Path) -> None:
    end = time.monotonic() + PATIENCE_S
    while not try_lock(descriptor):
        if time.monotonic() > end:
            raise FileError(f"{lock} is held by another process for more than {PATIENCE_S:.0f} s; is one stopped?")
        time.sleep(_LOOK_S)


def _known(path: Path, device: str) -> list[Mapping[str, Any]]:
    """Return the entries of a file, as they are; of one that does not exist none."""
    if not path.exists():
        return []
    root = Reader(path, jsonfile.parse(jsonfile.read(path), path))
    root.known("format", "device", "entries")
    if root.integer("format") != FORMAT:
        root.refuse("format", f"is {root.data['format']}; this version writes format {FORMAT}")
    if root.string("device") != device:
        root.refuse("device", f"is {root.data['device']}; settings of {device} go into another file")
    found = root.objects("entries")
    for number, reader in enumerate(found):
        # What a reader would miss alone must not stand in the way of all others: it is told before anything is written.
        try:
            jsonfile.canonical(reader.data)
        except (ValueError, RecursionError) as error:
            root.refuse(f"entries[{number}]", f"holds what cannot be written again ({error}); mend or remove it")
    return [reader.data for reader in found]


def _key(entry: Mapping[str, Any]) -> bytes:
    return jsonfile.canonical([entry.get("kernel"), entry.get("key")])
