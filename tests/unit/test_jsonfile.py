"""JSON files: what is read of numbers and names, and how files are written as a whole."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from nbx_registry import jsonfile
from nbx_registry.errors import FileError
from nbx_registry.jsonfile import Reader


@pytest.mark.parametrize("number", [2**64 - 1, -(2**63), 0])
def test_integers_of_64_bits_are_read(number: int) -> None:
    assert jsonfile.parse(b'{"x": %d}' % number, Path("f.json")) == {"x": number}


@pytest.mark.parametrize("digits", [str(2**64), str(-(2**63) - 1), "1" + "0" * 400, "1" + "0" * 100_000])
def test_larger_integers_are_refused_by_what_they_are(digits: str) -> None:
    with pytest.raises(FileError, match=r"f\.json: -?\d{19,20}(\.\.\.)? is no integer of 64 bits"):
        jsonfile.parse(b'{"x": %s}' % digits.encode(), Path("f.json"))


@pytest.mark.parametrize("text", ["a\nb", "\x1b[31m", "\u202eb", "\x00", "a\tb"])
def test_names_that_no_line_of_text_shows_are_refused(text: str) -> None:
    reader = Reader(Path("f.json"), {"x": text, "l": ["a", text], "o": {text: "v"}, "n": {text: 1}})
    for read in (
        lambda: reader.string("x"),
        lambda: reader.names("l"),
        lambda: reader.strings("o"),
        reader.object("n").named,
        lambda: reader.object("n").known("y"),
    ):
        with pytest.raises(FileError) as refused:
            read()
        assert str(refused.value).isprintable()


def test_a_file_is_replaced_with_its_folder_made(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b.json"
    jsonfile.replace(path, b"1")
    jsonfile.replace(path, b"2")
    assert path.read_bytes() == b"2"
    assert [file.name for file in path.parent.iterdir()] == ["b.json"]


def test_behind_a_link_the_file_that_it_leads_to_is_written(tmp_path: Path) -> None:
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    link.symlink_to(target)
    jsonfile.replace(link, b"1")
    assert (link.is_symlink(), target.read_bytes()) == (True, b"1")


def test_what_is_no_file_is_left_as_it_is(tmp_path: Path) -> None:
    pipe, folder, file = tmp_path / "pipe", tmp_path / "folder", tmp_path / "file"
    os.mkfifo(pipe)
    folder.mkdir()
    file.write_bytes(b"")
    for path, why in (
        (pipe, "is no regular file; name another file"),
        (folder, "is a folder; name another file"),
        (file / "x" / "y.json", f"{file} is no folder; name another file"),
        (Path(), "names no file"),
    ):
        with pytest.raises(FileError, match=why):
            jsonfile.replace(path, b"1")
        assert why in jsonfile.obstacle(path)
    assert (pipe.is_fifo(), folder.is_dir()) == (True, True)


def test_a_stream_that_links_lead_to_is_left_as_it_is() -> None:
    read, write = os.pipe()
    try:
        assert "is no regular file" in jsonfile.obstacle(Path(f"/dev/fd/{write}"))
    finally:
        os.close(read)
        os.close(write)


def test_a_pipe_is_waited_for_only_where_it_was_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p.json")
    with pytest.raises(FileError, match=r"p\.json: cannot be read: it is a pipe"):
        jsonfile.read(tmp_path / "p.json", named=False)
    read, write = os.pipe()
    os.write(write, b"{}")
    os.close(write)
    assert jsonfile.read(Path(f"/dev/fd/{read}")) == b"{}"
    os.close(read)


def test_a_disk_that_is_full_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "b.json"
    path.write_bytes(b"old")

    def full(self: Path, content: bytes) -> int:
        self.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(FileError, match=r"b\.json: cannot be written: No space left on device"):
        jsonfile.replace(path, b"new")
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"b.json": b"old"}


def test_a_message_does_not_grow_with_what_it_is_about(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    reader = Reader(path, {"a": "x" * 100_000, "b" * 100_000: 1})
    for attempt in (lambda: reader.choice("a", ("y",)), lambda: reader.known("a"), lambda: reader.hexadecimal("a")):
        with pytest.raises(FileError) as caught:
            attempt()
        assert len(str(caught.value)) < len(str(path)) + 1300
