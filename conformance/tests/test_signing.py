"""Signatures: whose word a bundle is."""

from __future__ import annotations

import base64
import copy
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from nbx_conformance import cli
from nbx_conformance.bundles import bundle as bundles
from nbx_conformance.bundles import signing
from nbx_conformance.bundles.verify import NOT_VERIFIED, VERIFIED, Trusted, verify
from nbx_conformance.runs.session import Session
from nbx_registry import bundle
from nbx_registry.errors import FileError

# RFC 8032, section 7.1, test 1.
SEED = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
PUBLIC = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
PRIVATE = Ed25519PrivateKey.from_private_bytes(SEED)


def pem(key: Any, encryption: Any = None) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption or NoEncryption())


def public_pem(key: Any) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key.pem"
    path.write_bytes(pem(PRIVATE))
    return path


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys.txt"
    path.write_text(f"# who is trusted\n\nacme {PUBLIC}  # since 2026\n", "utf-8")
    return path


@pytest.fixture
def signed(sqrt_session: Session, key: Path, tmp_path: Path) -> Path:
    path = tmp_path / "bundle.json"
    path.write_bytes(bundles.seal(copy.deepcopy(bundles.compose(sqrt_session)[0])))
    signing.sign_file(path, signing.read_key(key))
    return path


def trusted(keys: Path) -> Trusted:
    return Trusted(keys, signing.read_trusted(keys))


def resealed(path: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    data = json.loads(path.read_bytes())
    change(data)
    path.write_bytes(bundles.seal(data))
    return path


def test_a_bundle_signed_by_a_trusted_key_is_verified_by_its_name(signed: Path, keys: Path) -> None:
    found = verify(signed, trusted=trusted(keys))
    assert (found.problems, found.code, found.label) == ((), VERIFIED, "verified (signed by acme)")
    assert bundle.read(signed).signature == PUBLIC


def test_what_is_signed_is_the_canonical_json_of_all_but_digest_and_signature(signed: Path) -> None:
    data = json.loads(signed.read_bytes())
    rest = {name: value for name, value in data.items() if name not in ("digest", "signature")}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    PRIVATE.public_key().verify(bytes.fromhex(data["signature"]["value"]), text.encode())
    assert data["signature"] == {"algorithm": "ed25519", "key": PUBLIC, "value": PRIVATE.sign(text.encode()).hex()}


def test_a_report_says_on_whose_word_a_bundle_is(signed: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(cli.conformance, ["report", str(signed), "--html", str(tmp_path / "page.html")])
    assert done.exit_code == 0, done.output
    page = (tmp_path / "page.html").read_text("utf-8")
    assert f"verified (self-reported, signed by an unknown key, {PUBLIC})" in page


def test_without_keys_the_signature_is_checked_but_nobodys(signed: Path) -> None:
    found = verify(signed)
    assert (found.code, found.label) == (VERIFIED, f"verified (self-reported, signed by an unknown key, {PUBLIC})")


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(created="2031-01-01T00:00:00+00:00"),
        lambda d: d["device"].update(id="host/cpu2"),
        lambda d: d["signature"].update(key="0" * 64),
        lambda d: d["signature"].update(value="0" * 128),
        lambda d: d["signature"].update(value=d["signature"]["value"].upper()),
        lambda d: d["signature"].update(value=d["signature"]["value"][:-2]),
        lambda d: d["signature"].pop("value"),
        lambda d: d["signature"].update(algorithm="none"),
        lambda d: d["signature"].pop("algorithm"),
        lambda d: d["signature"].update(value=7),
    ],
    ids=["date", "device", "key", "value", "upper", "short", "no-value", "algorithm", "no-algorithm", "number"],
)
@pytest.mark.parametrize("asked", [False, True], ids=["without-keys", "with-keys"])
def test_a_signature_that_does_not_hold_does_not_verify(
    signed: Path, keys: Path, change: Callable[[dict[str, Any]], Any], asked: bool
) -> None:
    found = verify(resealed(signed, change), trusted=trusted(keys) if asked else None)
    assert (found.code, found.label) == (NOT_VERIFIED, "NOT verified: signature does not hold")


def test_with_keys_another_key_does_not_do(signed: Path, tmp_path: Path) -> None:
    other = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    keys = tmp_path / "other.txt"
    keys.write_text(f"other {base64.b64encode(other).decode()}\n", "utf-8")
    found = verify(signed, trusted=trusted(keys))
    assert (found.code, found.problems) == (
        NOT_VERIFIED,
        (f"signed by a key that {keys} does not have: {PUBLIC}",),
    )


def test_with_keys_no_signature_does_not_do(signed: Path, keys: Path) -> None:
    found = verify(resealed(signed, lambda data: data.pop("signature")), trusted=trusted(keys))
    assert found.code == NOT_VERIFIED
    assert found.problems[0].startswith("unsigned; ")


def test_signing_again_replaces_the_signature(signed: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    other.write_bytes(Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    key = signing.read_key(other)
    signing.sign_file(signed, key)
    assert verify(signed, trusted=Trusted(other, {key.public: "other"})).label == "verified (signed by other)"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is no private key in PEM; make one with: openssl genpkey"),
        (b"\x00\xff", "is no private key in PEM"),
        (pem(PRIVATE)[:60], "is no private key in PEM"),
        (public_pem(PRIVATE), "is a public key; sign with the private one"),
        (pem(PRIVATE, BestAvailableEncryption(b"secret")), "is locked by a passphrase"),
        (pem(generate_private_key(65537, 2048)), "is a key of the kind RSA; bundles are signed with Ed25519"),
    ],
    ids=["empty", "bytes", "cut-off", "public", "locked", "rsa"],
)
def test_what_cannot_sign_is_told_by_what_it_is(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(content)
    with pytest.raises(FileError, match=why) as raised:
        signing.read_key(path)
    assert str(path) in str(raised.value)
    done = CliRunner().invoke(
        cli.conformance, ["run", "--op", "sqrt", "--out", str(tmp_path / "b.json"), "--sign", str(path)]
    )
    assert done.exit_code == 2
    assert "key.pem" in done.output
    assert not (tmp_path / "b.json").exists()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "holds no key"),
        ("# nobody\n", "holds no key"),
        (f"{PUBLIC}\n", ":1: .* must be a name without spaces, and a key"),
        (f"acme inc {PUBLIC}\n", ":1: .* must be a name without spaces, and a key"),
        (f"acme {PUBLIC[:-2]}\n", ":1: .* is no Ed25519 public key"),
        (f"\nacme {PUBLIC[:-1]}g\n", ":2: .* is no Ed25519 public key"),
        (f"\x1b[31macme {PUBLIC}\n", ":1: the name .* holds characters that no line of text shows"),
        (f"\ufeffacme {PUBLIC}\n", ":1: the name .* holds characters that no line of text shows"),
        (f"acme {PUBLIC}\nother {PUBLIC.upper()}\n", ":2: the key of 'other' is that of 'acme', above"),
        (pem(PRIVATE).decode(), "is a private key; give its public one"),
        (public_pem(PRIVATE).decode() * 2, "holds several keys in PEM"),
        (public_pem(generate_private_key(65537, 2048)).decode(), "is no Ed25519 key"),
        ("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "is no public key in PEM"),
    ],
    ids=[
        *("empty", "comments", "no-name", "two-names", "short", "no-hex", "escape", "byte-order-mark", "twice"),
        *("private", "several", "rsa", "no-pem"),
    ],
)
def test_files_of_keys_that_are_none_are_named(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "keys"
    path.write_text(text, "utf-8")
    with pytest.raises(FileError, match=why):
        signing.read_trusted(path)


def test_a_public_key_in_pem_is_named_by_its_file(tmp_path: Path) -> None:
    path = tmp_path / "acme.pem"
    path.write_bytes(public_pem(PRIVATE))
    assert signing.read_trusted(path) == {PUBLIC: "acme"}


@pytest.fixture
def without_cryptography(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)


def test_without_cryptography_a_signature_is_not_checked_and_that_is_said(
    signed: Path, keys: Path, without_cryptography: None
) -> None:
    found = verify(signed)
    assert (found.code, found.label) == (VERIFIED, "verified (self-reported, its signature was not checked)")
    assert "pip install 'nbx-conformance[sign]'" in found.notes[0]
    assert verify(signed, trusted=Trusted(keys, {PUBLIC: "acme"})).code == NOT_VERIFIED
    with pytest.raises(signing.Absent, match="pip install"):
        signing.read_trusted(keys)


def test_without_cryptography_nothing_is_signed(key: Path, without_cryptography: None) -> None:
    with pytest.raises(signing.Absent, match="pip install 'nbx-conformance\\[sign\\]'"):
        signing.read_key(key)


def test_a_merged_bundle_is_signed_anew_or_not_at_all(signed: Path, key: Path, keys: Path, tmp_path: Path) -> None:
    out = tmp_path / "merged.json"
    done = CliRunner().invoke(cli.conformance, ["merge", str(signed), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert bundle.read(out).signature is None
    done = CliRunner().invoke(cli.conformance, ["merge", str(signed), "--out", str(out), "--sign", str(key)])
    assert done.exit_code == 0, done.output
    assert verify(out, trusted=trusted(keys)).label == "verified (signed by acme)"


def test_the_commands_sign_and_ask_for_signatures(tmp_path: Path, key: Path, keys: Path, signed: Path) -> None:
    done = CliRunner().invoke(cli.conformance, ["run", "--op", "sqrt", "--sign", str(key)])
    assert (done.exit_code, "--sign needs --out" in done.output) == (2, True)
    done = CliRunner().invoke(cli.conformance, ["verify", "--json", "--keys", str(keys), str(signed)])
    told = json.loads(done.output)
    assert (told["exit_code"], told["bundles"][0]["signature"], told["bundles"][0]["signer"]) == (0, "trusted", "acme")
    keys.write_text("acme\n", "utf-8")
    done = CliRunner().invoke(cli.conformance, ["verify", "--keys", str(keys), str(signed)])
    assert (done.exit_code, "must be a name" in done.output) == (3, True)
