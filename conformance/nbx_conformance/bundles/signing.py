"""Signatures of bundles: Ed25519 (RFC 8032) over the canonical JSON of everything but the digest and the signature.

The arithmetic is that of the ``cryptography`` package, which only those who sign, or check signatures, need.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nbx_conformance.bundles import bundle as bundles
from nbx_registry import bundle, jsonfile
from nbx_registry.errors import FileError, NbxError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

ALGORITHM: Final = "ed25519"

_SIGNATURE: Final = re.compile("[0-9a-f]{128}")
_PEM: Final = b"-----BEGIN "


class Absent(NbxError):
    """The package that signatures need is not installed."""

    code = "ABSENT"


@dataclass(frozen=True)
class Key:
    """A private key.

    Attributes
    ----------
    public
        The public one that belongs to it, in hexadecimal: what those who trust it write into their file.
    """

    public: str
    private: Ed25519PrivateKey


def read_key(path: Path) -> Key:
    """Read a private key: PEM (PKCS 8) or OpenSSH's form, without a passphrase.

    Raises
    ------
    FileError
        For what is no such key, saying what it is.
    Absent
        Where ``cryptography`` is not installed.
    """
    _needed()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_private_key

    content = jsonfile.read(path)
    read = load_ssh_private_key if b"BEGIN OPENSSH" in content else load_pem_private_key
    if b"PUBLIC KEY" in content:
        raise FileError(f"{path}: is a public key; sign with the private one")
    try:
        found = read(content, password=None)
    except TypeError as error:
        raise FileError(
            f"{path}: is locked by a passphrase; write it out without one: openssl pkey -in {path} -out unlocked.pem"
        ) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise FileError(
            f"{path}: is no private key in PEM; make one with: openssl genpkey -algorithm ed25519 -out {path.name}"
        ) from error
    if not isinstance(found, Ed25519PrivateKey):
        kind = type(found).__name__.strip("_").removesuffix("PrivateKey")
        raise FileError(
            f"{path}: is a key of the kind {kind}; bundles are signed with Ed25519: "
            "openssl genpkey -algorithm ed25519 -out key.pem"
        )
    return Key(found.public_key().public_bytes_raw().hex(), found)


def sign(data: Mapping[str, Any], key: Key) -> dict[str, Any]:
    """Return a bundle's data with a signature, in place of any that it had, and unsealed."""
    rest = {name: value for name, value in data.items() if name not in ("digest", "signature")}
    value = key.private.sign(jsonfile.canonical(rest)).hex()
    return {**rest, "signature": {"algorithm": ALGORITHM, "key": key.public, "value": value}}


def sign_file(path: Path, key: Key) -> None:
    """Sign a bundle where it lies. Raises `FileError`, and changes nothing, if it is malformed."""
    content = jsonfile.read(path)
    bundle.parse(content, path)
    bundles.put(sign(jsonfile.parse(content, path), key), path)


def holds(data: Mapping[str, Any]) -> bool:
    """Return whether the signature of a bundle that has one is that of its key over its content. Raises `Absent`."""
    _needed()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    signature = data["signature"]
    value = signature.get("value")
    if signature.get("algorithm") != ALGORITHM or not isinstance(value, str) or not _SIGNATURE.fullmatch(value):
        return False
    rest = {name: value for name, value in data.items() if name not in ("digest", "signature")}
    try:
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(signature["key"]))
        public.verify(bytes.fromhex(value), jsonfile.canonical(rest))
    except (InvalidSignature, ValueError):
        return False
    return True


def read_trusted(path: Path) -> Mapping[str, str]:
    """Read the public keys of a file; return their names by key, in hexadecimal.

    A line holds a name and a key, hexadecimal or base64; behind a ``#`` is a comment. Or the file is one public key in
    PEM, and the name is the file's, without its suffix.

    Raises
    ------
    FileError
        For a line that is none of these, a key given twice, a file without keys.
    Absent
        Where ``cryptography`` is not installed.
    """
    _needed()
    content = jsonfile.read(path)
    if content.lstrip().startswith(_PEM):
        return {_from_pem(content, path): path.stem}
    found: dict[str, str] = {}
    for number, name, key in _lines(content, path):
        if key in found:
            raise FileError(f"{path}:{number}: the key of {name!r} is that of {found[key]!r}, above")
        found[key] = name
    if not found:
        raise FileError(f"{path}: holds no key; write one a line: a name, and the key in hexadecimal")
    return found


def _lines(content: bytes, path: Path) -> Iterator[tuple[int, str, str]]:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: not UTF-8 ({error.reason})") from error
    for number, line in enumerate(text.split("\n"), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 2:
            raise FileError(f"{path}:{number}: {line.strip()[:80]!r} must be a name without spaces, and a key")
        if not words[0].isprintable():
            raise FileError(f"{path}:{number}: the name {words[0][:80]!r} holds characters that no line of text shows")
        key = _key_bytes(words[1])
        if key is None:
            raise FileError(
                f"{path}:{number}: {words[1][:80]!r} is no Ed25519 public key: 32 bytes, in hexadecimal or base64"
            )
        yield number, words[0], key.hex()


def _key_bytes(text: str) -> bytes | None:
    if re.fullmatch("[0-9a-fA-F]{64}", text):
        return bytes.fromhex(text)
    try:
        key = base64.b64decode(text, validate=True)
    except binascii.Error:
        return None
    return key if len(key) == 32 else None


def _from_pem(content: bytes, path: Path) -> str:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    if b"PRIVATE KEY" in content:
        raise FileError(f"{path}: is a private key; give its public one: openssl pkey -in {path} -pubout")
    if content.count(_PEM) > 1:
        raise FileError(f"{path}: holds several keys in PEM, which have no names; write a line for each: a name, a key")
    try:
        found = load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise FileError(f"{path}: is no public key in PEM") from error
    if not isinstance(found, Ed25519PublicKey):
        raise FileError(f"{path}: is no Ed25519 key, and bundles are signed with nothing else")
    return found.public_bytes_raw().hex()


def _needed() -> None:
    try:
        import cryptography  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError as error:
        raise Absent(
            "signatures need the package 'cryptography', which is not installed; "
            "install it with: pip install 'nbx-conformance[sign]' (in a checkout: pip install './conformance[sign]')"
        ) from error
