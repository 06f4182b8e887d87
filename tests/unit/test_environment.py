"""The NBX_ variables: strictly parsed, and unknown ones told."""

from __future__ import annotations

from pathlib import Path

import pytest

from nbx_registry import environment
from nbx_registry.errors import EnvironmentVariableError


def test_defaults_without_any_variable(monkeypatch):
    monkeypatch.setenv("HOME", "/srv/someone")
    assert environment.config_dir({}) == Path("/srv/someone/.config/nbx")
    assert environment.cache_dir({}) == Path("/srv/someone/.cache/nbx")
    assert environment.blocked({}) == ()
    assert environment.require({}) == "checked"


def test_values_are_read_from_the_process_unless_given(monkeypatch, tmp_path):
    monkeypatch.setenv("NBX_CONFIG_DIR", str(tmp_path))
    assert environment.config_dir() == tmp_path
    assert environment.config_dir({"NBX_CONFIG_DIR": "/elsewhere"}) == Path("/elsewhere")


def test_a_tilde_is_the_home_folder(monkeypatch):
    monkeypatch.setenv("HOME", "/srv/someone")
    assert environment.cache_dir({"NBX_CACHE_DIR": "~/c"}) == Path("/srv/someone/c")


@pytest.mark.parametrize("value", ["", "relative/folder", "./x", "/a\0b"])
def test_a_folder_must_be_absolute(value):
    with pytest.raises(EnvironmentVariableError, match=r"NBX_CONFIG_DIR=.*is no absolute path"):
        environment.config_dir({"NBX_CONFIG_DIR": value})


def test_an_unknown_home_names_the_variable_that_helps():
    with pytest.raises(EnvironmentVariableError, match=r"NBX_CACHE_DIR is '~nobody-at-all/x'.*set NBX_CACHE_DIR"):
        environment.cache_dir({"NBX_CACHE_DIR": "~nobody-at-all/x"})


@pytest.mark.parametrize(
    ("value", "names"),
    [("", ()), ("  ", ()), ("nbx-cuda", ("nbx-cuda",)), ("b , a,b", ("b", "a"))],
)
def test_block_lists_plugins_once_each_in_order(value, names):
    assert environment.blocked({"NBX_BLOCK": value}) == names


@pytest.mark.parametrize("value", [",", "a,,b", "a;b", "nbx cuda", "-a"])
def test_block_refuses_what_is_no_plugin_name(value):
    with pytest.raises(EnvironmentVariableError, match="is no plugin name"):
        environment.blocked({"NBX_BLOCK": value})


def test_require_gives_the_nearest_policy():
    with pytest.raises(EnvironmentVariableError, match=r"NBX_REQUIRE='cheked' is none of any.*did you mean 'checked'"):
        environment.require({"NBX_REQUIRE": "cheked"})


def test_unknown_names_are_warned_of_with_the_nearest():
    given = {"NBX_CONFG_DIR": "x", "NBX_ZZZ": "1", "PATH": "/bin", "nbx_block": "x"}
    with pytest.warns(UserWarning, match="NBX_") as caught:
        messages = environment.check(given)
    assert [str(warning.message) for warning in caught] == list(messages)
    assert messages[0] == "environment variable NBX_CONFG_DIR is not read; did you mean 'NBX_CONFIG_DIR'?"
    assert messages[1].startswith("environment variable NBX_ZZZ is not read; known are NBX_CONFIG_DIR")


def test_check_raises_for_a_bad_value():
    with pytest.raises(EnvironmentVariableError):
        environment.check({"NBX_REQUIRE": "everything"})


@pytest.mark.parametrize(("value", "threads"), [("1", 1), ("16", 16), ("1024", 1024)])
def test_threads_are_a_number(value, threads):
    assert environment.host_threads({"NBX_HOST_THREADS": value}) == threads


def test_threads_are_open_unless_set():
    assert environment.host_threads({}) is None


@pytest.mark.parametrize("value", ["", "0", "-1", "1025", "2.0", " 2", "all", "02"])
def test_threads_refuse_what_is_no_number_of_them(value):
    with pytest.raises(EnvironmentVariableError, match=r"NBX_HOST_THREADS=.*from 1 to 1024"):
        environment.host_threads({"NBX_HOST_THREADS": value})
    with pytest.raises(EnvironmentVariableError, match="NBX_HOST_THREADS"):
        environment.check({"NBX_HOST_THREADS": value})
