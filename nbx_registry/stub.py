"""The stub file ``ops.pyi``, written from the contracts: names, types and documentation of ops for editors."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from itertools import product
from typing import Any

from nbx_registry import dtypes
from nbx_registry.errors import NbxError
from nbx_registry.op import Op
from nbx_registry.param import REQUIRED, Attribute, Param
from nbx_registry.signature import Operand
from nbx_registry.spec import TensorSpec, weak_spec

_HEAD = '''\
"""The ops as functions, for editors and type checkers. Written from the contracts: nbx ops --stub."""

# Namespaces of plugins are attributes too.
# pyright: reportIncompleteStub=none

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from nbx_registry.registry import Registry
from nbx_registry.typing import ArrayLike, DTypeLike, Require

class Namespace:
    """Ops of a registry as attributes; a plugin's namespace is an attribute of its own."""

    def __init__(self, registry: Callable[[], Registry], prefix: str = "") -> None: ...
    def __getattr__(self, name: str) -> Any: ...
    def __dir__(self) -> Iterable[str]: ...

namespace: Namespace
'''
_TAIL = """\
def __getattr__(name: str) -> Namespace: ...
"""

_ATTRIBUTES = {"int": "int", "float": "float", "bool": "bool", "str": "str", "dtype": "DTypeLike"}
_SCALARS: tuple[tuple[str, Any], ...] = (("complex", 1j), ("float", 1.5), ("int", 1), ("bool", True))
"""Python's numbers, each type taking those after it, as type checkers have it."""


def stub(ops: Iterable[Op]) -> str:
    """Return the text of ``ops.pyi`` for the core's ops among these; those of namespaces have no types."""
    functions = [function(op) for op in sorted(ops, key=lambda op: op.name) if not op.namespace]
    return "\n".join([_HEAD, *functions, _TAIL])


def function(op: Op) -> str:
    """Return an op as a function of the stub: parameters with types and defaults, keywords of every call, docstring."""
    lines = [f"def {op.name}("]
    lines += [f"    {_tensor(op, param)}," for param in op.tensors]
    lines.append("    *,")
    lines += [f"    {_attribute(op, attribute)}," for attribute in op.attributes]
    count = len(op.outputs)
    out = "ArrayLike" if count == 1 else f"tuple[{', '.join(['ArrayLike'] * count)}]"
    lines.append(f"    out: {f'{out} | None' if count else 'None'} = None,")
    lines += ["    device: str | None = None,", "    kernel: str | None = None,", "    require: Require | None = None,"]
    result = ("None", "Any")[count] if count < 2 else f"tuple[{', '.join(['Any'] * count)}]"
    lines.append(f") -> {result}:")
    doc = inspect.cleandoc(op.doc).replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    text = f'"""{doc}' + ('\n"""' if "\n" in doc else '"""')
    lines += [f"    {line}" if line else "" for line in text.split("\n")]
    return "\n".join(lines) + "\n"


def _tensor(op: Op, param: Param) -> str:
    kind = "Sequence[ArrayLike]" if param.is_list else "ArrayLike"
    scalar = _scalar(op, param)
    kind += f" | {scalar}" if scalar else ""
    return f"{param.name}: {kind} | None = None" if param.optional else f"{param.name}: {kind}"


def _scalar(op: Op, param: Param) -> str | None:
    """Return the widest type of Python scalar that the contract takes for a parameter beside some array; None: none.

    The contract is asked, since its rules may refuse what its schema allows.
    """
    if not (param.broadcast and op.schema.scalars) or param.is_list:
        return None
    attributes = {a.name: 1 for a in op.attributes if a.default is REQUIRED}
    for (name, value), dtype in product(_SCALARS, ("complex64", "float32", "int32", "bool")):
        tensors = [weak_spec(value) if other is param else _beside(other, dtype) for other in op.tensors]
        try:
            op.signature(tensors, attributes)
        except NbxError:
            continue
        return name
    return None


def _beside(param: Param, dtype: str) -> Operand:
    if param.optional:
        return None
    own = param.dtype if param.letter is None else "bool" if param.dtype.startswith("B") else dtype
    return TensorSpec(dtypes.get(own), (2, 2))


def _attribute(op: Op, attribute: Attribute) -> str:
    kinds = [_ATTRIBUTES.get(kind, "int | Sequence[int]") for kind in attribute.kinds]
    if attribute.type == "str":
        choices = _choices(op, attribute.name)
        kinds = [f"Literal[{', '.join(map(_quoted, choices))}]"] if choices else kinds
    text = f"{attribute.name}: {' | '.join(kinds)}{' | None' if attribute.nullable else ''}"
    return text if attribute.default is REQUIRED else f"{text} = {_quoted(attribute.default)}"


def _choices(op: Op, name: str) -> list[str]:
    """Return the strings that a constraint ``name in ('a', 'b')`` leaves to an attribute; none where nothing does."""
    for clause in (clause for rule in op.require for clause in rule.clauses()):
        node = clause.node
        if node.kind == "compare" and node.value == ("in",) and node.children[0].value == name:
            return [item.value for item in node.children[1].children if isinstance(item.value, str)]
    return []


def _quoted(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)
