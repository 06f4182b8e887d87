"""Digests of code: comments, layout and docstrings do not count, what is computed does."""

from __future__ import annotations

from typing import Any

import pytest

from nbx_registry.digest import function_digest, function_source, normalise

FACTOR = 3


def one(x: Any) -> Any:
    """Do it."""
    return helper(x) * FACTOR


def helper(x: Any) -> Any:
    return x + 1


def test_layout_comments_and_docstrings_do_not_count() -> None:
    left = normalise(
        '"""Module."""\ndef f(a,b):\n    """Doc."""\n    # why\n    return (a+\n        b)\nclass C:\n  "doc"\n'
    )
    right = normalise("def f(a, b): return a + b\nclass C:\n    pass")
    assert left == right
    assert left != normalise("def f(a, b): return a - b\nclass C:\n    pass")


def test_strings_that_are_no_docstrings_count() -> None:
    assert normalise("x = 'a'") != normalise("x = 'b'")


def test_functions_and_constants_reached_count(monkeypatch: pytest.MonkeyPatch) -> None:
    before = function_digest(one)
    assert before == function_digest(one)
    monkeypatch.setitem(globals(), "FACTOR", 4)
    other_factor = function_digest(one)
    monkeypatch.setitem(globals(), "helper", lambda x: x + 2)
    assert len({before, other_factor, function_digest(one)}) == 3


def test_lambdas_are_told_apart() -> None:
    first = lambda x: x + 1  # noqa: E731
    second = lambda x: x + 2  # noqa: E731
    assert function_digest(first) != function_digest(second)


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(TypeError, match="no Python function"):
        function_digest(len)


def test_strings_inside_f_strings_read_the_same_on_every_python() -> None:
    # ast.unparse writes f"{x['a']}" with other quotes from Python 3.12 on.
    assert normalise("y = f\"{x['a']!r:>{w}} b\"") == "y = __fstring__((x['a'], 114, f'>{w}'), ' b')"
    assert normalise("y = f'{x} b'") == "y = f'{x} b'"


class Within:
    @staticmethod
    def decorated(x: Any) -> Any:
        """Say what it does."""
        text = """
no indentation, "quotes" and a # that is no comment
"""

        def inner(y: Any) -> Any:
            """Say what this does."""
            return f"{y['a']}{text}"  # why

        return inner(x)


def test_a_function_inside_others_has_a_source_of_its_own() -> None:
    decorated = function_source(Within.decorated)
    assert decorated.startswith("def decorated(x: Any) -> Any:\n    text = ")
    assert decorated.endswith("__fstring__((y['a'], -1, None), (text, -1, None))\n    return inner(x)")
    assert "why" not in decorated
    assert "Say" not in decorated
    assert 'no indentation, "quotes" and a # that is no comment\\n' in decorated


def test_of_lambdas_all_on_the_line_count() -> None:
    one, other = (lambda x: x + 1), (lambda x: x + 2)
    assert function_source(one) == function_source(other) == "lambda x: x + 1\nlambda x: x + 2"


def test_what_was_typed_at_a_prompt_has_its_code() -> None:
    space: dict[str, Any] = {}
    exec("def typed(x): return x + 1\ndef other(x): return x + 2", space)
    assert function_source(space["typed"]) != function_source(space["other"])
