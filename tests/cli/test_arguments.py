import click
import pytest

from nbx_registry.cli.arguments import MAX_LENGTH, parse
from nbx_registry.errors import SpecError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("float16[1, 63, 64]", "float16[1, 63, 64]"),
        ("float32[4, 4];strides=[1, 4]", "float32[4, 4];strides=[1, 4]"),
        ("2.5", 2.5),
        ("-3", -3),
        ("None", None),
        ("True", True),
        ("['float16[2]', 'float16[3]']", ["float16[2]", "float16[3]"]),
    ],
)
def test_a_positional_argument_is_a_spec_or_a_literal(text: str, value: object) -> None:
    assert parse([text], []) == ([value], {})


def test_a_named_argument_is_a_keyword_and_the_strides_of_a_spec_are_no_name() -> None:
    assert parse(["float32[4];strides=[2]", "bias=float32[4];strides=[2]"], []) == (
        ["float32[4];strides=[2]"],
        {"bias": "float32[4];strides=[2]"},
    )


def test_attributes_are_literals_or_words() -> None:
    given = ["r=2", "approximate=tanh", "axis=(0, -1)", "scale=None", "dtype=float8_e4m3fn"]
    expected = {"r": 2, "approximate": "tanh", "axis": (0, -1), "scale": None, "dtype": "float8_e4m3fn"}
    assert parse([], given) == ([], expected)


@pytest.mark.parametrize("text", ["word", "__import__('os').getcwd()", "2 +", "(" * 500, "x=", "1" * 5000, ""])
def test_what_is_neither_spec_nor_literal_is_refused_and_not_run(text: str) -> None:
    with pytest.raises(SpecError):
        parse([text], [])


def test_an_argument_beyond_the_length_limit_is_refused() -> None:
    with pytest.raises(SpecError, match=f"at most {MAX_LENGTH}"):
        parse(["[" + "1," * MAX_LENGTH + "]"], [])


@pytest.mark.parametrize(
    ("arguments", "attributes", "message"),
    [
        (["x=float16[2]", "float16[2]"], [], "follows a named one"),
        (["x=float16[2]", "x=float16[3]"], [], "'x' is given twice"),
        (["float16[2]"], ["r"], "not of the form name=value"),
        (["float16[2]"], ["device=cpu"], "use the option --device"),
    ],
)
def test_a_wrong_command_line_says_what_is_wrong(arguments: list[str], attributes: list[str], message: str) -> None:
    with pytest.raises(click.UsageError, match=message):
        parse(arguments, attributes)
