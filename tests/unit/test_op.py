"""Ops: signatures from specs and attributes, what is refused with which words, oracles, digests."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from nbx_registry import dtypes
from nbx_registry.errors import NbxError, PluginFault, SchemaError, SignatureError
from nbx_registry.op import Op, Signature, op
from nbx_registry.spec import TensorSpec, parse


@op(
    "depthwise_conv2d@1(x: F[N, C, H, W], w: F[C, 1, KH, KW], bias: F[C]? = None, *,"
    " stride: int[2] = 1, padding: int[2] = 0, dilation: int[2] = 1) -> F[N, C, OH, OW]",
    where={
        "OH": "(H + 2*padding[0] - dilation[0]*(KH - 1) - 1) // stride[0] + 1",
        "OW": "(W + 2*padding[1] - dilation[1]*(KW - 1) - 1) // stride[1] + 1",
    },
    require=("min(stride) >= 1 and min(dilation) >= 1", "OH >= 1 and OW >= 1"),
)
def depthwise(x: Any, w: Any, bias: Any, *, stride: Any, padding: Any, dilation: Any) -> Any:
    """Convolve each channel with its own filter."""
    raise NotImplementedError


@op("shuffle@1(x: T[N, C, H, W], *, r: int) -> T[N, C // r**2, H*r, W * r]", require=("r >= 1", "C % r**2 == 0"))
def shuffle(x: Any, *, r: int) -> Any:
    """Move channels into pixels."""
    raise NotImplementedError


@op("linear@2(x: F[*B, K], w: F[J, K], bias: F[J]? = None) -> F[*B, J]")
def linear(x: Any, w: Any, bias: Any) -> Any:
    """Multiply by w transposed, add bias."""
    return x @ w.T + (0 if bias is None else bias)


def _broadcast(signature: Signature) -> TensorSpec:
    first, second = signature.tensor("x1"), signature.tensor("x2")
    dtype = second.dtype if first.weak else first.dtype
    return TensorSpec(dtype, np.broadcast_shapes(first.shape, second.shape))


@op("add@1(x1: N1[*A], x2: N2[*B]) -> N3[*C]", infer=_broadcast)
def add(x1: Any, x2: Any) -> Any:
    """Add."""
    return x1 + x2


@op("append@1(new: F1[M, D], slot: int32[M], pool: mut F2[P, D], *, saturate: bool = False) -> ()")
def append(new: Any, slot: Any, pool: Any, *, saturate: bool) -> Any:
    """Write rows."""
    pool[slot] = new
    return pool


@op(
    "concat@1(xs: list[T[*X, K]], *, axis: int? = 0) -> T[R, K]",
    infer=lambda s: TensorSpec(s.letters["T"], (sum(x.shape[0] for x in s.tensor("xs")), s.axes["K"])),
)
def concat(xs: Any, *, axis: int | None) -> Any:
    """Join."""
    return np.concatenate(xs)


def sign(contract: Op, *tensors: Any, **attributes: Any) -> Signature:
    return contract.signature([_spec(t) for t in tensors], attributes)


def _spec(tensor: Any) -> Any:
    if isinstance(tensor, str):
        return parse(tensor)
    return tuple(map(_spec, tensor)) if isinstance(tensor, list) else tensor


WEAK_INT = TensorSpec(dtypes.get("int64"), (), weak=True)
WEAK_FLOAT = TensorSpec(dtypes.get("float64"), (), weak=True)
WEAK_BOOL = TensorSpec(dtypes.get("bool"), (), weak=True)


def test_axes_letters_attributes_and_outputs() -> None:
    found = sign(depthwise, "bfloat16[2, 5, 17, 9]", "bfloat16[5, 1, 3, 2]", "bfloat16[5]", stride=2, padding=(1, 0))
    assert found.axes == {"N": 2, "C": 5, "H": 17, "W": 9, "KH": 3, "KW": 2, "OH": 9, "OW": 4}
    assert found.letters == {"F": dtypes.get("bfloat16")}
    assert found.attributes == {"stride": (2, 2), "padding": (1, 0), "dilation": (1, 1)}
    assert found.outputs == (parse("bfloat16[2, 5, 9, 4]"),)
    assert found.names == ("x", "w", "bias", "out")
    assert found.tensor("w") == parse("bfloat16[5, 1, 3, 2]")
    assert found.tensor("out") is found.outputs[0]


def test_optional_tensor_left_out() -> None:
    for tensors in (["float32[2, 3]", "float32[5, 3]"], ["float32[2, 3]", "float32[5, 3]", None]):
        found = sign(linear, *tensors)
        assert found.tensors[2] is None
        assert found.names == ("x", "w", "out")
        assert found.value("bias.given") is False
        assert found.value("bias.dtype") is None


@pytest.mark.parametrize("lead", [(), (7,), (3, 1, 2)])
def test_leading_axes(lead: tuple[int, ...]) -> None:
    found = sign(linear, f"float16{[*lead, 3]}", "float16[5, 3]")
    assert found.axes["*B"] == lead
    assert found.value("B") == lead
    assert found.outputs[0].shape == (*lead, 5)


def test_text_of_a_signature_leaves_defaults_out() -> None:
    assert str(sign(shuffle, "float16[1, 256, 64, 64]", r=2)) == "shuffle(x: float16[1, 256, 64, 64], r=2)"
    text = str(sign(depthwise, "float32[1, 2, 3, 3]", "float32[2, 1, 1, 1]", stride=(1, 1), padding=1))
    assert text == "depthwise_conv2d(x: float32[1, 2, 3, 3], w: float32[2, 1, 1, 1], padding=(1, 1))"
    assert str(sign(add, "float16[3]", WEAK_INT)) == "add(x1: float16[3], x2: Python int)"
    assert str(sign(concat, ["int8[3, 2]", "int8[4, 2]"])) == "concat(xs: [int8[3, 2], int8[4, 2]])"


def test_values_of_names() -> None:
    found = sign(shuffle, "int8[1, 8, 3, 5];strides=[120, 15, 5, 1];align=4", r=2)
    names = ("C", "r", "T", "x.dtype", "x.rank", "x.align", "x.contiguous", "out.shape")
    assert [found.value(name) for name in names] == [
        8,
        2,
        dtypes.get("int8"),
        dtypes.get("int8"),
        4,
        4,
        True,
        (1, 2, 6, 10),
    ]
    with pytest.raises(NbxError, match=r"shuffle@1 has no 'x\.dtypes'; did you mean 'x\.dtype'"):
        found.value("x.dtypes")
    with pytest.raises(NbxError, match="known of a tensor: dtype, weak, rank"):
        found.value("x.zzz")


@pytest.mark.parametrize(
    ("contract", "tensors", "attributes", "message"),
    [
        (depthwise, ["float16[2, 4, 9, 9]", "float16[3, 1, 3, 3]"], {}, "axis C of w is 3, but C of x is 4"),
        (
            depthwise,
            ["float16[2, 4, 9, 9]", "float16[4, 2, 3, 3]"],
            {},
            "axis 1 of w is 2, but must be 1: [C, 1, KH, KW]",
        ),
        (
            depthwise,
            ["float16[2, 4, 9, 9]", "float32[4, 1, 3, 3]"],
            {},
            "w is float32, but x is float16; they must be equal",
        ),
        (depthwise, ["int8[2, 4, 9, 9]", "int8[4, 1, 3, 3]"], {}, "x is int8, but must be floating"),
        (
            depthwise,
            ["float16[4, 9, 9]", "float16[4, 1, 3, 3]"],
            {},
            "x has rank 3 (float16[4, 9, 9]), but must have rank 4: [N, C, H, W]",
        ),
        (depthwise, ["float16[2, 4, 9, 9]"], {}, "tensor w is missing; the call is depthwise_conv2d(x, w, bias=None)"),
        (depthwise, ["float16[2, 4, 9, 9]", None, "float16[4]"], {}, "tensor w is missing"),
        (depthwise, ["float16[1]"] * 4, {}, "4 tensors given, but it takes 3: x, w, bias"),
        (
            depthwise,
            ["float16[2, 4, 9, 9]", "float16[4, 1, 3, 3]", "float16[5]"],
            {},
            "axis C of bias is 5, but C of x is 4",
        ),
        (depthwise, ["float16[2, 4, 2, 9]", "float16[4, 1, 3, 3]"], {}, "needs OH >= 1 and OW >= 1 (OH = 0, OW = 7)"),
        (
            depthwise,
            ["float16[2, 4, 9, 9]", "float16[4, 1, 3, 3]"],
            {"stride": 0},
            "needs min(stride) >= 1 and min(dilation) >= 1 (stride = (0, 0), dilation = (1, 1))",
        ),
        (
            depthwise,
            ["float16[2, 4, 9, 9]", "float16[4, 1, 3, 3]"],
            {"padding": -9},
            "axis OH comes out as -11, which is no extent",
        ),
        (
            depthwise,
            ["float16[2, 4, 9, 9]", "float16[4, 1, 3, 3]"],
            {"strides": 2},
            "unknown attribute 'strides'; did you mean 'stride'?",
        ),
        (shuffle, ["float16[1, 3, 4, 4]"], {"r": 2}, "needs C % r**2 == 0 (C = 3, r = 2)"),
        (shuffle, ["float16[1, 3, 4, 4]"], {"r": 0}, "needs r >= 1 (r = 0)"),
        (shuffle, ["float16[1, 3, 4, 4]"], {}, "attribute r is missing; it has no default"),
        (shuffle, ["float16[1, 3, 4, 4]"], {"r": 1, "zzz": 1}, "unknown attribute 'zzz'; known: r"),
        (shuffle, [WEAK_INT], {"r": 1}, "x is a Python int; only arrays are taken there"),
        (
            linear,
            ["float32[]", "float32[5, 3]"],
            {},
            "x has rank 0 (float32[]), but must have rank at least 1: [*B, K]",
        ),
        (linear, ["float32[2]", "float32[5, 3]"], {}, "axis K of w is 3, but K of x is 2"),
        (append, ["float32[1, 2]", "int64[1]", "float16[4, 2]"], {}, "slot is int64, but must be int32"),
        (add, ["bool[2]", "float16[2]"], {}, "x1 is bool, but must be numeric"),
        (add, [WEAK_BOOL, "float16[2]"], {}, "x1 is a Python bool, but must be numeric"),
        (concat, ["int8[2, 2]"], {}, "xs takes a list of at least one tensor"),
        (concat, [[]], {}, "xs takes a list of at least one tensor, not ()"),
        (concat, [["int8[2, 2]", "int16[2, 2]"]], {}, "xs[1] is int16, but xs[0] is int8; they must be equal"),
        (concat, [["int8[2, 2]", "int8[2, 3]"]], {}, "axis K of xs[1] is 3, but K of xs[0] is 2"),
        (linear, [["float32[2]"], "float32[5, 2]"], {}, "x takes one tensor, not"),
    ],
)
def test_mismatch_names_both_sides(
    contract: Op, tensors: Sequence[Any], attributes: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(SignatureError) as caught:
        sign(contract, *tensors, **attributes)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{contract.name}: ")
    assert isinstance(caught.value, TypeError)


@op(
    "typed@1(*, i: int = 1, n: int? = None, f: float = 0.5, b: bool = False, s: str = 'a', d: dtype = 'int8',"
    " pair: int[2] = 0, many: int[] = (), u: int|float|bool = 1, w: int|float? = None) -> float32[]"
)
def typed(**attributes: Any) -> Any:
    """Take one attribute of each type."""
    return np.zeros(())


@pytest.mark.parametrize(
    ("name", "value", "normal"),
    [
        ("i", np.int32(7), 7),
        ("i", 2**64 - 1, 2**64 - 1),
        ("n", None, None),
        ("n", -3, -3),
        ("f", 2, 2.0),
        ("f", np.float32(0.25), 0.25),
        ("b", np.bool_(True), True),
        ("s", "tanh", "tanh"),
        ("d", "bfloat16", dtypes.get("bfloat16")),
        ("d", dtypes.get("bfloat16"), dtypes.get("bfloat16")),
        ("pair", 3, (3, 3)),
        ("pair", [3, 4], (3, 4)),
        ("pair", (np.int64(3), 4), (3, 4)),
        ("many", -1, (-1,)),
        ("many", [], ()),
        ("many", (0, 1, 2), (0, 1, 2)),
        ("u", np.uint8(3), 3),
        ("u", np.float32(3), 3.0),
        ("u", np.bool_(True), True),
        ("u", 2**63, 2**63),
        ("w", -2, -2),
        ("w", -2.0, -2.0),
        ("w", None, None),
    ],
)
def test_attribute_is_normalised(name: str, value: Any, normal: Any) -> None:
    found = sign(typed, **{name: value}).attributes[name]
    assert found == normal
    assert type(found) is type(normal)
    assert sign(typed).attributes["d"] is dtypes.get("int8")


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("i", True, "takes an integer"),
        ("i", 1.0, "takes an integer"),
        ("i", "1", "takes an integer"),
        ("i", None, "takes an integer"),
        ("i", 2**64, "at most 64 bits"),
        ("n", 1.5, "takes an integer, or None"),
        ("f", True, "takes a number"),
        ("f", "1", "takes a number"),
        ("f", 10**400, "range of float64"),
        ("b", 1, "takes True or False"),
        ("s", b"a", "takes a string"),
        ("d", np.float32, "takes a dtype or its name"),
        ("d", "float17", "unknown dtype 'float17'; did you mean"),
        ("pair", (1, 2, 3), "takes 2 integers"),
        ("pair", (1, True), "takes 2 integers"),
        ("many", "12", "takes integers"),
        ("many", range(100), "takes integers"),
        ("many", [1] * 65, "takes integers"),
        ("u", "1", "takes an integer or a float or True or False"),
        ("u", 1j, "takes an integer or a float or True or False"),
        ("u", 2**64, "at most 64 bits"),
        ("w", True, "takes an integer or a float, or None"),
    ],
)
def test_attribute_of_another_type_is_refused(name: str, value: Any, wanted: str) -> None:
    with pytest.raises(SignatureError) as caught:
        sign(typed, **{name: value})
    assert f"attribute {name}" in str(caught.value)
    assert wanted in str(caught.value)


def test_values_that_are_equal_and_of_different_types_are_different_signatures() -> None:
    keys = {sign(typed, u=value).key for value in (1, 1.0, True, 0.0, -0.0, 0, float("nan"))}
    assert len(keys) == 7
    assert sign(typed, f=float("nan")).key == sign(typed, f=float("inf") - float("inf")).key


def test_python_scalars_bind_nothing_beside_arrays() -> None:
    @op("both@1(x: N[*A], y: N[*A], z: F[*B]) -> N[*A]")
    def both(x: Any, y: Any, z: Any) -> Any:
        """Take three."""

    found = sign(both, WEAK_INT, "float16[3]", WEAK_FLOAT)
    assert found.axes == {"*A": (3,), "*B": ()}
    assert found.letters == {"N": dtypes.get("float16"), "F": dtypes.get("float64")}
    assert found.outputs == (parse("float16[3]"),)


def test_axis_of_an_absent_tensor_is_absent_and_its_constraints_pass() -> None:
    @op("two@1(a: T[*X, K], m: F[K, J]? = None, n: F[J]? = None) -> T[*X, K]", require=("J > 2", "n.given or K < 9"))
    def two(a: Any, m: Any, n: Any) -> Any:
        """Take up to three."""

    assert sign(two, "int8[3]").axes == {"*X": (), "K": 3}
    assert sign(two, "int8[3]", None, "float32[5]").axes["J"] == 5
    for tensors, message in (
        (["int8[3]", None, "float32[1]"], "needs J > 2 (J = 1)"),
        (["int8[3]", "float32[3, 5]", "float32[6]"], "axis J of n is 6, but J of m is 5"),
        (["int8[9]"], "needs n.given or K < 9 (n.given = False, K = 9)"),
    ):
        with pytest.raises(SignatureError) as caught:
            sign(two, *tensors)
        assert message in str(caught.value)


def test_repeated_axis_within_a_tensor() -> None:
    @op("square@1(a: T[K, K]) -> T[K]")
    def square(a: Any) -> Any:
        """Take a square."""

    assert sign(square, "int8[3, 3]").outputs[0].shape == (3,)
    with pytest.raises(SignatureError, match="axis K of a is 4, but the first K of it is 3"):
        sign(square, "int8[3, 4]")


def test_rule_that_divides_by_zero_is_the_callers_mismatch() -> None:
    @op("chunks@1(x: T[N, C], *, size: int) -> T[N // size, C]")
    def chunks(x: Any, *, size: int) -> Any:
        """Cut."""

    with pytest.raises(SignatureError, match=r"chunks: N // size \(N = 7, size = 0\): .*zero"):
        sign(chunks, "int8[7, 1]", size=0)


@pytest.mark.parametrize(
    ("schema", "rules", "why"),
    [
        ("f@1(x: F[N]) -> F[M]", {}, "axis M of output out of f@1 is no parameter's; give where={'M': ...} or infer="),
        ("f@1(x: F[N]) -> F[*M]", {}, "axis \\*M .* give infer="),
        ("f@1(x: F1[N]) -> F2[N]", {}, "dtype F2 of output out of f@1 is no parameter's; give infer="),
        ("f@1(x: F[N]) -> F[M]", {"where": {"M": "K + 1"}}, "where={'M': ...} of f@1, 'K \\+ 1': f@1 has no 'K'"),
        ("f@1(x: F[N]) -> F[M]", {"where": {"M": "N +"}}, "where={'M': ...} of f@1: expression 'N \\+', position 3"),
        ("f@1(x: F[N]) -> F[N / 2]", {}, "extents are integers; divide with // or cdiv"),
        ("f@1(x: F[N]) -> F[N]", {"where": {"N": "3"}}, "N is an axis of a parameter already"),
        (
            "f@1(x: F[N]) -> F[N]",
            {"require": ("y.dtype == F",)},
            "require= of f@1, .* f@1 has no 'y.dtype'; did you mean 'x.dtype'",
        ),
        ("f@1(x: F[N]) -> F[N]", {"require": ("out.rank == 1",)}, "f@1 has no 'out.rank'"),
        ("f@1(x: F[N], y: F[M]? = None) -> F[M]", {}, "axis M of output out"),
        ("f@1(x: F[N], y: F[M]? = None) -> F[K]", {"where": {"K": "M + 1"}}, "reads what an optional tensor alone has"),
        ("f@1(x: F[N]) -> F[N", {}, "the axes have no end"),
    ],
)
def test_rules_that_do_not_fit_the_schema_are_refused(schema: str, rules: Mapping[str, Any], why: str) -> None:
    contract = op(schema, **rules)(lambda x: x)
    with pytest.raises(SchemaError, match=why):
        contract.signature([parse("float32[3]")], {})


def test_schema_is_not_parsed_at_import() -> None:
    contract = op("lazy@7(this is no schema")(lambda x: x)
    assert (contract.id, contract.name, contract.version) == ("lazy@7", "lazy", 7)
    assert op("sdm::f@1()")(lambda: ()).namespace == "sdm"
    with pytest.raises(SchemaError):
        _ = contract.schema


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (lambda s: (), "gave 0 outputs; its schema has 1"),
        (lambda s: TensorSpec(dtypes.get("bool"), (3,)), "gave bool\\[3\\] for out: N2\\[K\\]"),
        (lambda s: TensorSpec(dtypes.get("int8"), (4,)), "where K is 3"),
        (lambda s: TensorSpec(dtypes.get("int8"), (3, 3)), "gave int8\\[3, 3\\]"),
        (lambda s: 1 // 0, "raised ZeroDivisionError"),
    ],
)
def test_infer_rule_that_breaks_its_schema_is_a_fault(result: Any, why: str) -> None:
    contract = op("f@1(x: N1[K]) -> N2[K]", infer=result)(lambda x: x)
    with pytest.raises(PluginFault, match=why):
        sign(contract, "float32[3]")


def test_infer_rule_may_raise_signature_errors() -> None:
    with pytest.raises(ValueError, match="broadcast"):
        np.broadcast_shapes((2,), (3,))

    def refuse(signature: Signature) -> TensorSpec:
        raise SignatureError("no")

    with pytest.raises(SignatureError, match=r"^f: no$"):
        sign(op("f@1(x: N1[K]) -> N2[K]", infer=refuse)(lambda x: x), "float32[3]")


def test_kind_is_the_same_for_other_sizes_and_not_for_other_dtypes() -> None:
    first = sign(linear, "float16[2, 3]", "float16[5, 3]")
    assert first.kind == sign(linear, "float16[7, 4]", "float16[1, 4]").kind
    assert hash(first.kind) == hash(sign(linear, "float16[7, 4]", "float16[1, 4]").kind)
    others = [
        sign(linear, "float32[2, 3]", "float32[5, 3]"),
        sign(linear, "float16[1, 2, 3]", "float16[5, 3]"),
        sign(linear, "float16[2, 3]", "float16[5, 3]", "float16[5]"),
    ]
    assert len({first.kind, *(other.kind for other in others)}) == 4
    assert sign(append, "float32[1, 2]", "int32[1]", "float16[4, 2]").kind != (
        sign(append, "float32[1, 2]", "int32[1]", "float16[4, 2]", saturate=True).kind
    )


def test_oracle_gets_float64_and_gives_outputs_and_written_tensors() -> None:
    x, w = np.ones((2, 3), np.float16), np.full((5, 3), 0.5, np.float16)
    (out,) = linear.run_oracle(sign(linear, "float16[2, 3]", "float16[5, 3]"), [x, w, None])
    assert out.dtype == np.float64
    assert (out == 1.5).all()
    pool = np.zeros((4, 2), np.float32)
    signature = sign(append, "float32[1, 2]", "int32[1]", "float32[4, 2]")
    (written,) = append.run_oracle(signature, [np.full((1, 2), 7, np.float32), np.array([3], np.int32), pool])
    assert written[3].tolist() == [7, 7]
    assert not pool.any()


def test_oracle_keeps_integers() -> None:
    big = np.array([2**62 + 1])
    (out,) = add.run_oracle(sign(add, "int64[1]", "int64[1]"), [big, np.array([2])])
    assert out.dtype == np.int64
    assert out[0] == 2**62 + 3


@pytest.mark.parametrize("result", [np.zeros(3), (np.zeros((2, 5)), np.zeros(1)), None])
def test_oracle_that_breaks_its_contract_is_a_fault(result: Any) -> None:
    contract = op("f@1(x: F[A, C]) -> F[A, C]")(lambda x: result)
    with pytest.raises(PluginFault, match="the oracle of f@1 gave"):
        contract.run_oracle(sign(contract, "float32[2, 5]"), [np.zeros((2, 5), np.float32)])


def test_arguments_are_sorted_into_tensors_and_attributes() -> None:
    assert depthwise.arguments((1, 2), {"stride": 3}) == ([1, 2, None], {"stride": 3})
    assert depthwise.arguments((1,), {"bias": 5, "w": 4}) == ([1, 4, 5], {})
    for args, kwargs, why in (
        ((1, 2, 3, 4), {}, "4 positional arguments given, but it takes 3 tensors"),
        ((1, 2), {"w": 3}, "w is given twice"),
        ((1, 2), {"strid": 3}, "unknown argument 'strid'; did you mean 'stride'"),
        ((1, 2), {"out": 3}, "unknown argument 'out'"),
    ):
        with pytest.raises(SignatureError, match=why):
            depthwise.arguments(args, kwargs)


def _oracle(x: Any) -> Any:
    """Double."""
    return _helper(x)


def _helper(x: Any) -> Any:
    # A comment.
    return 2 * x


def _other(x: Any) -> Any:
    return 3 * x


def test_digest_covers_schema_rules_and_code() -> None:
    base = op("f@1(x: F[N]) -> F[N]")(_oracle).digest
    assert base == op("f@1( x : F[ N ] )  -> F[N]")(_oracle).digest
    changed = [
        op("f@1(x: F[M]) -> F[M]")(_oracle),
        op("f@2(x: F[N]) -> F[N]")(_oracle),
        op("f@1(x: F[N]) -> F[N]", flops="N")(_oracle),
        op("f@1(x: F[N]) -> F[N]", require="N > 1")(_oracle),
        op("f@1(x: F[N]) -> F[N]")(_other),
        op("f@1(x: F[N]) -> F[N]", magnitude=_other)(_oracle),
    ]
    assert len({base, *(contract.digest for contract in changed)}) == 7


def test_signature_of_a_known_op_is_quick() -> None:
    specs = [parse("float16[2, 64, 33, 33]"), parse("float16[64, 1, 3, 3]"), parse("float16[64]")]
    depthwise.signature(specs, {})
    best = min(_seconds(lambda: depthwise.signature(specs, {"stride": 2, "padding": (1, 1)})) for _ in range(20))
    assert best < 40e-6


def _seconds(call: Any) -> float:
    began = time.perf_counter()
    for _ in range(50):
        call()
    return (time.perf_counter() - began) / 50
