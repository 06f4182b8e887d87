"""Schema strings: what they declare, and what is refused where."""

from __future__ import annotations

import time

import pytest

from nbx_registry.errors import SchemaError
from nbx_registry.expr import parse as parse_expression
from nbx_registry.head import split_head
from nbx_registry.schema import REQUIRED, Attribute, Output, Param, Schema, parse

DEPTHWISE = (
    "depthwise_conv2d@1(x: F[N, C, H, W], w: F[C, 1, KH, KW], bias: F[C]? = None, *,"
    " stride: int[2] = 1, padding: int[2] = 0, dilation: int[2] = 1) -> F[N, C, OH, OW]"
)


def test_parameters_attributes_and_the_single_output() -> None:
    assert parse(DEPTHWISE) == Schema(
        "depthwise_conv2d",
        1,
        (
            Param("x", "F", ("N", "C", "H", "W")),
            Param("w", "F", ("C", 1, "KH", "KW")),
            Param("bias", "F", ("C",), optional=True),
        ),
        (
            Attribute("stride", "int[2]", default=1),
            Attribute("padding", "int[2]", default=0),
            Attribute("dilation", "int[2]", default=1),
        ),
        (Output("out", "F", ("N", "C", "OH", "OW")),),
    )


def test_namespace_and_named_outputs() -> None:
    schema = parse(
        "sdm::wy_solve@3(A: float32[N, C, C], beta: float32[N, C]) -> (X: float32[N, C, C], QX: float32[N, C])"
    )
    assert (schema.name, schema.version) == ("sdm::wy_solve", 3)
    assert [output.name for output in schema.outputs] == ["X", "QX"]
    assert schema.params[0].letter is None


def test_written_in_place_without_outputs() -> None:
    for arrow in (" -> ()", ""):
        schema = parse(f"append@1(new: F1[N, D], pool: mut F2[P, D], *, saturate: bool = False){arrow}")
        assert schema.outputs == ()
        assert [param.mutable for param in schema.params] == [False, True]


def test_leading_axes_lists_and_expressions() -> None:
    schema = parse("f@1(xs: list[T[*B, K]], y: I1[]) -> T[*B, K // 2 + 1, 3, max(K, 2)]")
    assert schema.params[0] == Param("xs", "T", ("*B", "K"), is_list=True)
    assert schema.params[1].axes == ()
    assert schema.outputs[0].axes == ("*B", parse_expression("K // 2 + 1"), 3, parse_expression("max(K, 2)"))
    assert schema.input_axes() == ("*B", "K")
    assert not schema.params[0].broadcast
    assert parse("g@1(x: N[*A])").params[0].broadcast


@pytest.mark.parametrize(
    ("text", "attribute"),
    [
        ("a: int", Attribute("a", "int")),
        ("a: int? = None", Attribute("a", "int", nullable=True, default=None)),
        ("a: int?", Attribute("a", "int", nullable=True)),
        ("a: int = -1", Attribute("a", "int", default=-1)),
        ("a: int[] = (0, -2)", Attribute("a", "int[]", default=(0, -2))),
        ("a: int[2] = [3, 4]", Attribute("a", "int[2]", default=(3, 4))),
        ("a: int[]? = None", Attribute("a", "int[]", nullable=True, default=None)),
        ("a: float = 1e-5", Attribute("a", "float", default=1e-5)),
        ("a: float = 1", Attribute("a", "float", default=1)),
        ("a: bool = True", Attribute("a", "bool", default=True)),
        ("a: str = 'none'", Attribute("a", "str", default="none")),
        ('a: str? = "x"', Attribute("a", "str", nullable=True, default="x")),
        ("a: dtype", Attribute("a", "dtype")),
        ("a: int|float|bool", Attribute("a", "int|float|bool")),
        ("a: int | float? = None", Attribute("a", "int|float", nullable=True, default=None)),
        ("a: int|float = 1.5", Attribute("a", "int|float", default=1.5)),
        ("a: dtype = 'float32'", Attribute("a", "dtype", default="float32")),
    ],
)
def test_attribute(text: str, attribute: Attribute) -> None:
    found = parse(f"f@1(x: T[], *, {text},) -> T[]").attributes
    assert found == (attribute,)
    assert (found[0].default is REQUIRED) == ("=" not in text)


@pytest.mark.parametrize(
    "text",
    [
        DEPTHWISE,
        "uniform@2(*, shape: int[], seed: int, offset: int = 0, dtype: dtype = 'float32') -> F[*S]",
        "full@1(*, shape: int[], fill_value: int|float|bool, dtype: dtype? = None) -> T[*S]",
        "f@1(xs: list[T[*L]], m: B[K]? = None, *, s: str? = 'a') -> (o: T[*L, K - 1], n: int64[])",
        "concat@1(arrays: list[*T1[*X]], *, axis: int? = 0) -> T2[*Y]",
        "append@1(pool: mut F[P]) -> ()",
    ],
)
def test_printed_schema_parses_to_itself(text: str) -> None:
    schema = parse(text)
    assert parse(str(schema)) == schema
    assert str(parse(str(schema))) == str(schema)


def test_head_is_split_without_parsing_the_rest() -> None:
    assert split_head("sdm::wy_solve@12(nonsense") == ("sdm::wy_solve", 12)
    with pytest.raises(SchemaError, match="must begin with"):
        split_head("wy_solve(x)")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "must begin with"),
        ("f(x: F[N])", "must begin with"),
        ("f@0(x: F[N])", "must begin with"),
        ("a::b::f@1(x: F[N])", "must begin with"),
        ("f@1(x: F[N]", "expected ',', not the end"),
        ("f@1(x: F[N) -> F[N]", "expected ',', not '\\)'"),
        ("f@1(x: F[N]) -> F[N] junk", "'junk' follows the end"),
        ("f@1(x: F[N] y: F[N])", "expected ',', not 'y'"),
        ("f@1(x: G[N])", "unknown dtype 'G'; class letters are F floating"),
        ("f@1(x: float17[N])", "unknown dtype 'float17'; did you mean 'float1"),
        ("f@1(x: int = 3)", "attributes come after"),
        ("f@1(x: F[N], *, y: F[N])", "tensors come before"),
        ("f@1(*, n: integer)", "unknown attribute type 'integer'; known: int, float, bool, str, dtype"),
        ("f@1(x: F[N], x: F[N])", "'x' is already a parameter"),
        ("f@1(x: F[N], *, x: int)", "'x' is already a parameter"),
        ("f@1(x: F[N]) -> (x: F[N])", "'x' is already a parameter"),
        ("f@1(out: F[N])", "'out' is a keyword of every call"),
        ("f@1(x: F[N], *, device: str)", "'device' is a keyword of every call"),
        ("f@1(kernel: F[N])", "'kernel' is a keyword of every call"),
        ("f@1(x: F[N], *, require: str)", "'require' is a keyword of every call"),
        ("f@1(lambda: F[N])", "'lambda' is a word of Python"),
        ("f@1(float16: F[N])", "'float16' is the name of a dtype"),
        ("f@1(x: F[N]?)", r"write '\? = None'"),
        ("f@1(x: F[N] = None)", r"write 'x: F\[N\]\? = None'"),
        ("f@1(x: F[N]? = 3)", "expected 'None', not '3'"),
        ("f@1(x: F[N]? = None, y: F[N])", "y is required, but follows the optional x"),
        ("f@1(xs: mut list[F[N]])", "cannot be mut"),
        ("f@1(xs: list[*float16[N]])", r"'\*float16' is no class of dtypes"),
        ("f@1(x: *F[N])", "expected the name of a dtype"),
        ("f@1(x: F[N, *B])", "must be the first of the axes"),
        ("f@1(x: F[B], y: F[*B])", "B is one axis, and \\*B several"),
        ("f@1(x: F[N + 1])", "axis 'N \\+ 1' of an input must be a name, a number or '\\*name'"),
        ("f@1(x: F[N]) -> F[N +]", "expected a value, not the end"),
        ("f@1(x: F[N]) -> F[__import__(N)]", "is not understood|unknown function"),
        ("f@1(x: N[N])", "'N' is a dtype letter and also names an axis"),
        ("f@1(x: F[F1])", "'F1' cannot name an axis"),
        ("f@1(x: F[n], *, n: int)", "'n' names an axis and an attribute"),
        ("f@1(x: F[n], *, T1: int)", "cannot name an attribute"),
        ("f@1(*, a: int = 1.5)", "the default 1.5 of a is no int"),
        ("f@1(*, a: int = True)", "the default True of a is no int"),
        ("f@1(*, a: int = None)", r"write 'int\? = None'"),
        ("f@1(*, a: int[2] = (1, 2, 3))", "is no int\\[2\\]"),
        ("f@1(*, a: int[0])", "the length is 1 to 32"),
        ("f@1(*, a: int[999999999])", "the length is 1 to 32"),
        ("f@1(*, a: str = 3)", "the default 3 of a is no str"),
        ("f@1(*, a: dtype = 'float17')", "is no dtype"),
        ("f@1(*, a: str = print)", "'print' is no default"),
        ("f@1(*, a: int = 99999999999999999999999)", "out of range"),
        ("f@1(*, a: int, *, b: int)", "a second '\\*'"),
        ("f@1(*, a: int|int)", r"'int\|int': different ones of int, float, bool unite"),
        ("f@1(*, a: int|str)", "different ones of int, float, bool unite"),
        ("f@1(*, a: int[2]|float)", "different ones of int, float, bool unite"),
        ("f@1(*, a: int|float = True)", r"the default True of a is no int\|float"),
        ("f@1(x: F[é])", "is not understood"),
        ("f@1(_x: F[N])", "'_' is not understood"),
        ("f@1(" + ", ".join(f"x{i}: F[N]" for i in range(65)) + ")", "more than 64 parameters"),
        ("f@1(x: F[" + ", ".join(f"a{i}" for i in range(40)) + "])", "more than 32 axes"),
        ("f@1(x: F[" + "a" * 5000, "at most 4000"),
    ],
)
def test_malformed_schema_is_refused(text: str, why: str) -> None:
    with pytest.raises(SchemaError, match=why):
        parse(text)


def test_error_names_the_schema_and_the_position() -> None:
    with pytest.raises(SchemaError) as caught:
        parse("sdm::gather@2(x: F[N], y: Q[N])")
    assert str(caught.value).startswith("schema of sdm::gather@2, position 26 (near")


@pytest.mark.parametrize("bracket", ["(", "[", "f@1(x: F[", "f@1(x: F[N]) -> F[" + "(" * 1000])
def test_unbalanced_text_is_refused_quickly(bracket: str) -> None:
    began = time.perf_counter()
    with pytest.raises(SchemaError):
        parse("f@1(x: F[N]) -> F[" + bracket * 100)
    assert time.perf_counter() - began < 0.25
