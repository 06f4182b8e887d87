"""Strict YAML: plain data with lines, or an error that names file and line; never a crash, a hang or code run."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nbx_registry import yamlfile
from nbx_registry.errors import FileError
from nbx_registry.yamlfile import Table


def test_scalars_resolve_by_the_core_schema():
    text = "a: 4.8e12\nb: no\nc: [1, -2, 0x1F, 0o17, .inf, ~]\nd: 'true'\ne: true\nf: 2026-11-30\ng: 1_000\nh: 12:30\n"
    assert yamlfile.parse(text) == {
        "a": 4.8e12,
        "b": "no",
        "c": [1, -2, 31, 15, math.inf, None],
        "d": "true",
        "e": True,
        "f": "2026-11-30",
        "g": "1_000",
        "h": "12:30",
    }


def test_each_mapping_knows_the_line_of_each_key():
    table = yamlfile.parse("# head\na: 1\nb:\n  c: 2\n\n  d: [x]\n")
    assert table.lines == {"a": 2, "b": 3}
    assert table["b"].lines == {"c": 4, "d": 6}
    assert table["b"].line == 4


def test_core_tags_say_the_type_and_are_held_to_it():
    assert yamlfile.parse("a: !!str 12\nb: !!float 3\nc: !!map {d: !!seq []}") == {"a": "12", "b": 3.0, "c": {"d": []}}
    with pytest.raises(FileError, match="f:1: 'x' is no int, as its tag claims"):
        yamlfile.parse("a: !!int x", "f")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("a: &x 1", "f:1: refused: anchor &x", id="anchor"),
        pytest.param("a: 1\nb: *x", "f:2: refused: alias *x", id="alias"),
        pytest.param("b:\n  <<: {c: 1}", "f:2: refused: merge key", id="merge"),
        pytest.param(
            "a: !!python/object/apply:os.system [x]", "refused: tag 'tag:yaml.org,2002:python", id="python-tag"
        ),
        pytest.param("a: !custom 1", "f:1: refused: tag '!custom'", id="custom-tag"),
        pytest.param("a: !!set {b}", "refused: tag 'tag:yaml.org,2002:set'", id="set"),
        pytest.param("a: !!binary aGk=", "refused: tag 'tag:yaml.org,2002:binary'", id="binary"),
        pytest.param("%TAG ! tag:x,2000:\n---\na: !y 1", "f:3: refused: tag 'tag:x,2000:y'", id="tag-directive"),
        pytest.param("a: 1\nb: 2\na: 3", "f:3: key 'a' is given twice; first on line 1", id="key-twice"),
        pytest.param("? [a]\n: b", "f:1: a key is a collection; keys are strings", id="collection-as-key"),
        pytest.param("a: 1\n---\nb: 2", "f:2: a second document", id="two-documents"),
        pytest.param("- 1", "f:1: the file is a list; it must be a mapping", id="list"),
        pytest.param("", "f:1: the file is empty", id="empty"),
        pytest.param("a: 'x\n", "f:2: not YAML: while scanning a quoted scalar", id="unterminated"),
        pytest.param("a: 1\nb: \x07", "f:2: not YAML: control characters are not allowed", id="control-character"),
        pytest.param(b"a: 1\nb: \xff", "f:2: not UTF-8", id="not-utf8"),
        pytest.param("\ud800: 1", "f: holds a lone surrogate", id="surrogate"),
        pytest.param("a: 1e999", "f:1: 1e999 is too large for a float64", id="infinite-float"),
        pytest.param("a: " + "9" * 100_000, "f:1: an integer wider than 128 bits", id="digits"),
        pytest.param("a: " + "[" * 33 + "]" * 33, "f:1: nested deeper than 32 levels", id="deep-flow"),
        pytest.param("a: " + "[" * 100_000, "f:1: n", id="very-deep-flow"),
        pytest.param(
            "\n".join(" " * i + "a:" for i in range(50)), "f:33: nested deeper than 32 levels", id="deep-block"
        ),
    ],
)
def test_what_is_not_plain_data_is_refused_with_file_and_line(text, message):
    with pytest.raises(FileError) as caught:
        yamlfile.parse(text, "f")
    assert message in str(caught.value)


def test_a_bomb_of_aliases_is_refused_before_it_grows():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    with pytest.raises(FileError, match="anchor &a0"):
        yamlfile.parse("\n".join(lines))


def test_a_file_of_too_many_values_is_refused(monkeypatch):
    monkeypatch.setattr(yamlfile, "MAX_NODES", 100)
    assert len(yamlfile.parse("a: [" + "1," * 90 + "]")["a"]) == 90
    with pytest.raises(FileError, match="more than 100 values"):
        yamlfile.parse("a: [" + "1," * 200 + "]")


def test_a_file_that_is_too_large_missing_or_a_folder_is_named(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(yamlfile, "MAX_BYTES", 10)
    large = tmp_path / "large.yml"
    large.write_text("a: 12345678")
    for path, message in (
        (large, "larger than the 10 bytes"),
        (tmp_path / "none.yml", "cannot be read"),
        (tmp_path, "cannot"),
    ):
        with pytest.raises(FileError, match=message) as caught:
            yamlfile.load(path)
        assert str(caught.value).startswith(str(path))


_ALPHABET = st.sampled_from(list("ab01.:-+[]{},&*!|>'\"#%@`?~<=\n\t \\exn/\0\x85\ufeff\U0001f600"))


def complaint(content: str | bytes) -> str:
    """Parse, and return the error's text; empty where there is none."""
    try:
        assert isinstance(yamlfile.parse(content, "f"), Table)
    except FileError as error:
        return str(error)
    return ""


@settings(max_examples=400, deadline=None)
@given(st.text(_ALPHABET, max_size=60))
@example("a: !!float ''")
@example("? ")
@example("a: !!null x")
def test_any_text_is_data_or_a_file_error(text):
    assert re.match(r"f:\d+: |f: holds|\Z", complaint(text))


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_data_or_a_file_error(content):
    assert re.match(r"f:\d+: |\Z", complaint(content))


_PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**100), 2**100) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.text(max_size=5), _PLAIN, max_size=4))
def test_what_another_writer_writes_reads_back_equal(data):
    # Writers of YAML 1.1 leave plain what 1.2 reads as a number (1e5 is a string to them): quote every string.
    text = yaml.dump(data, Dumper=_Quoting, allow_unicode=True)
    assert yamlfile.parse(text) == data


class _Quoting(yaml.SafeDumper):
    def ignore_aliases(self, data):
        return True


_Quoting.add_representer(str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"'))
