"""The stub of ops: as the contracts are now, and as the functions are at run time."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import get_args

import pytest

import nbx_registry as nbx
from nbx_registry import contracts, dtypes, ops
from nbx_registry.op import op
from nbx_registry.stub import function, stub
from nbx_registry.typing import DTypeName

FILE = Path(ops.__file__).with_suffix(".pyi")
TREE = ast.parse(FILE.read_text("utf-8"))
FUNCTIONS = {node.name: node for node in TREE.body if isinstance(node, ast.FunctionDef)}


def test_the_file_is_what_the_contracts_say() -> None:
    assert FILE.read_text("utf-8") == stub(contracts.ALL), "run: nbx ops --stub > nbx_registry/ops.pyi"
    assert FILE.with_name("py.typed").is_file()


def test_dtypes_have_the_names_of_the_table() -> None:
    plain = [name for name, dtype in dtypes.TABLE.items() if dtype.numpy_name]
    assert list(get_args(DTypeName)) == plain


@pytest.fixture(scope="module")
def reg() -> nbx.Registry:
    return nbx.load(plugins=[])


@pytest.mark.parametrize("name", [op.name for op in contracts.ALL])
def test_a_function_of_the_file_is_the_function_of_the_registry(name: str, reg: nbx.Registry) -> None:
    node, run = FUNCTIONS[name], getattr(reg.namespace, name)
    parameters = inspect.signature(run).parameters.values()
    positional = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    keywords = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
    assert [argument.arg for argument in node.args.args] == [p.name for p in positional]
    assert [argument.arg for argument in node.args.kwonlyargs] == [p.name for p in keywords]
    optional = [p.default for p in positional if p.default is not p.empty]
    assert [ast.literal_eval(default) for default in node.args.defaults] == optional
    pairs = zip(keywords, node.args.kw_defaults, strict=True)
    given = [p.empty if default is None else ast.literal_eval(default) for p, default in pairs]
    assert given == [p.default for p in keywords]
    assert ast.get_docstring(node) == inspect.cleandoc(run.__doc__)


def test_types_are_those_of_the_contract() -> None:
    @op(
        "made@1(x: N1[*A], y: N2[*B], i: int32[*A]? = None, m: mut F[N]? = None, *,"
        " how: str = 'a', k: int, s: int[2] = 1, d: dtype? = None) -> (u: N3[*C], v: int64[])",
        require=("how in ('a', 'b')", "k > 0"),
        infer=lambda signature: (signature.operands[0], signature.operands[1]),
    )
    def made(x, y, i, m, *, how, k, s, d):
        """Say "\\ and \"\"\"."""

    text = function(made)
    for line in (
        "x: ArrayLike,",
        "i: ArrayLike | None = None,",
        "m: ArrayLike | None = None,",
        'how: Literal["a", "b"] = "a",',
        "k: int,",
        "s: int | Sequence[int] = 1,",
        "d: DTypeLike | None = None,",
        "out: tuple[ArrayLike, ArrayLike] | None = None,",
        ") -> tuple[Any, Any]:",
    ):
        assert line in text
    node = ast.parse(text).body[0]
    assert isinstance(node, ast.FunctionDef)
    assert ast.get_docstring(node) == 'Say "\\ and """.'


def test_ops_of_plugins_have_no_types_here() -> None:
    @op("other::made@1(x: F[N]) -> F[N]")
    def made(x):
        """Give back."""
        return x

    assert stub([made]).count("def made(") == 0
