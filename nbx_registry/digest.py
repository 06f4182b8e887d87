"""Digests of code: what evidence binds to. Comments, layout and docstrings do not count; what is computed does."""

from __future__ import annotations

import ast
import hashlib
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from nbx_registry import sourcetree
from nbx_registry.errors import UnknownName
from nbx_registry.sourcegraph import Graph
from nbx_registry.sourcetree import Module, Stamp


def normalise(source: str, *, block: bool = False) -> str:
    """Return Python source without comments, layout and docstrings. Raises SyntaxError where it does not parse.

    With ``block`` it is one ``if``, and what is returned is what that holds.
    """
    tree = ast.parse(source)
    if block:
        (outer,) = tree.body
        assert isinstance(outer, ast.If)
        tree.body = outer.body
    for node in _statements(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0].value if node.body and isinstance(node.body[0], ast.Expr) else None
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                node.body = node.body[1:] or [ast.Pass()]
    if re.search("[fF][rR]?[\"']", source) and any(map(_holds_strings, ast.walk(tree))):
        tree = ast.fix_missing_locations(_Spelled().visit(tree))
    return ast.unparse(tree)


def function_digest(function: Callable[..., Any]) -> str:
    """Return a digest of a function and of the functions and constants of its own package that it reaches."""
    hasher = hashlib.sha256()
    for name, text in sorted(_reachable(function).items()):
        hasher.update(f"{name}\0{text}\0".encode())
    return hasher.hexdigest()


def _reachable(function: Callable[..., Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    waiting: list[Any] = [function]
    while waiting:
        item = waiting.pop()
        item = getattr(item, "__wrapped__", item)
        if not isinstance(item, FunctionType):
            raise TypeError(f"{item!r} is no Python function; a rule of a contract must be one")
        name = f"{item.__module__}.{item.__qualname__}"
        if name in found:
            continue
        found[name] = function_source(item)
        top = item.__module__.partition(".")[0]
        for path, value in _globals_of(item, top):
            if isinstance(value, FunctionType):
                waiting.append(value)
            else:
                found[f"{name}:{path}"] = repr(value)
    return found


def _globals_of(function: FunctionType, top: str) -> Iterator[tuple[str, Any]]:
    """Yield the functions of package ``top`` and the plain constants that the function's code names."""
    names = list(_names(function.__code__))
    for name in names:
        value = function.__globals__.get(name)
        candidates: list[tuple[str, Any]] = [(name, value)]
        if isinstance(value, ModuleType) and value.__name__.partition(".")[0] == top:
            candidates = [(f"{name}.{other}", getattr(value, other, None)) for other in names]
        for path, candidate in candidates:
            unwrapped = getattr(candidate, "__wrapped__", candidate)
            if isinstance(unwrapped, FunctionType):
                if unwrapped.__module__.partition(".")[0] == top:
                    yield path, unwrapped
            elif isinstance(candidate, (bool, int, float, str)):
                yield path, candidate


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def function_source(function: FunctionType) -> str:
    """Return a function's normalised source, decorators left out; for a lambda, all those that begin on its line."""
    code = function.__code__
    found = _source_of(code.co_filename, code.co_name, code.co_firstlineno)
    if not found:
        # Typed at a prompt: there is no file to read, and no evidence can be shipped for it either.
        return repr((code.co_code, code.co_names, [c for c in code.co_consts if not isinstance(c, CodeType)]))
    return found


@lru_cache(maxsize=4096)
def _source_of(filename: str, name: str, line: int) -> str:
    lines, spans = _read(filename)
    if name == "<lambda>":
        nodes = (n for n in ast.walk(ast.parse("\n".join(lines))) if isinstance(n, ast.Lambda) and n.lineno == line)
        return "\n".join(normalise(f"({ast.unparse(node)})") for node in nodes)
    # Only those asked for, each by itself: writing all of a file anew takes long.
    return "\n".join(
        normalise("\n".join(["if 1:"] * indented + lines[start - 1 : end]), block=indented)
        for start, end, indented in spans.get((name, line), ())
    )


_Span = tuple[int, int, bool]
"""First line, decorators left out, and last; whether it is indented."""


@lru_cache(maxsize=64)
def _read(filename: str) -> tuple[list[str], dict[tuple[str, int], list[_Span]]]:
    """Return a file's lines, and where its functions stand, by name and first line; of no file, nothing."""
    path = Path(filename)
    text = path.read_text("utf-8") if path.is_file() else ""
    spans: dict[tuple[str, int], list[_Span]] = {}
    for node in _statements(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            line = node.decorator_list[0].lineno if node.decorator_list else node.lineno
            span = (node.lineno, node.end_lineno or node.lineno, node.col_offset > 0)
            spans.setdefault((node.name, line), []).append(span)
    return text.split("\n"), spans


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the node and all statements below it."""
    yield node
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, field, ()):
            yield from _statements(child)


def _holds_strings(node: ast.AST) -> bool:
    """Return whether a node is an f-string whose expressions hold strings."""
    if not isinstance(node, ast.JoinedStr):
        return False
    inner = (n for v in node.values if isinstance(v, ast.FormattedValue) for n in ast.walk(v.value))
    return any(
        isinstance(n, ast.JoinedStr) or (isinstance(n, ast.Constant) and isinstance(n.value, (str, bytes)))
        for n in inner
    )


class _Spelled(ast.NodeTransformer):
    """Spells out f-strings whose expressions hold strings: Python 3.12 writes their quotes otherwise than 3.11 does."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        """Return the f-string, or a call that names its parts."""
        self.generic_visit(node)
        if not _holds_strings(node):
            return node
        parts: list[ast.expr] = []
        for value in node.values:
            if isinstance(value, ast.FormattedValue):
                given = value.format_spec or ast.Constant(None)
                parts.append(ast.Tuple([value.value, ast.Constant(value.conversion), given], ast.Load()))
            else:
                parts.append(value)
        return ast.Call(ast.Name("__fstring__", ast.Load()), parts, [])


# Code that is not imported: kernels, by reference.

_INSIDE: Mapping[str, tuple[str, ...]] = {
    # The core's built-in plugin is its own package, with the arithmetic it shares with the contracts; the core's nouns
    # (specs, launches) are nobody's kernel code.
    "nbx_registry": ("nbx_registry.host", "nbx_registry.rounding", "nbx_registry.infer"),
}


@dataclass(frozen=True, slots=True)
class Location:
    """Where a name is bound."""

    path: Path
    line: int


def locate(reference: str) -> Location:
    """Find where ``module:name`` is bound, without importing it.

    Raises
    ------
    UnknownName
        If there is no such module or its top level binds no such name; with the nearest name.
    NbxError
        If the module does not parse.
    """
    found, name = _split(reference)
    if (pieces := found.definitions.get(name)) or (pieces := found.definitions.get("__getattr__")):
        return Location(found.path, pieces[-1].line)
    if found.stars:
        return Location(found.path, found.stars[0][0].line)
    if (submodule := sourcetree.find(f"{found.name}.{name}")) is not None:
        return Location(submodule, 1)
    raise UnknownName.of("name", name, found.definitions, f"{found.path} binds no such name ({reference!r})")


def source_digest(reference: str) -> str:
    """Return a digest of the code that ``module:function`` reaches inside its top-level package.

    Nothing is imported. What a piece of code mentions is followed by name: through the definitions, assignments and
    imports of its module, into other modules of the package, through ``module:name`` strings, and to files beside the
    module that it names (whose bytes count). Comments, layout and docstrings do not count; statements of a module's top
    level that act on something reached do. A call at run time through a name put together from parts is not seen.

    The answer is kept for the process and looked up again as long as no file it rests on has changed.

    Raises
    ------
    UnknownName
        If the module or the name does not exist.
    NbxError
        If a module does not parse.
    """
    with _lock:
        known = _known.get(reference)
        if known is None or not known.still_holds():
            known = _known[reference] = _digest(reference)
        return known.digest


class SourceDigests:
    """Digests of code for the life of one catalog: every file is looked at once, however many kernels rest on it."""

    def __init__(self) -> None:
        self._found: dict[str, str] = {}
        self._stamps: dict[Path, Stamp | None] = {}

    def of(self, reference: str) -> str:
        """Return `source_digest` of a reference, as it was when first asked for."""
        found = self._found.get(reference)
        if found is None:
            with _lock:
                known = _known.get(reference)
                if known is None or not known.still_holds(self._stamps):
                    known = _known[reference] = _digest(reference)
                found = self._found[reference] = known.digest
        return found


@dataclass(frozen=True, slots=True)
class _Known:
    """A digest, and what it rests on."""

    digest: str
    search: tuple[str, ...]
    stamps: Mapping[Path, Stamp | None]

    def still_holds(self, looked_at: dict[Path, Stamp | None] | None = None) -> bool:
        """Whether no file has changed; files in ``looked_at`` are not looked at again."""
        looked_at = {} if looked_at is None else looked_at
        if tuple(sys.path) != self.search:
            return False
        for path, stamp in self.stamps.items():
            if path not in looked_at:
                looked_at[path] = sourcetree.stamp(path)
            if looked_at[path] != stamp:
                return False
        return True


# Graphs of sources grow as they are read, and one half grown gives other digests: one thread reads at a time.
_lock = threading.Lock()
_known: dict[str, _Known] = {}
_graphs: dict[str, Graph] = {}


def _digest(reference: str) -> _Known:
    module, name = _split(reference)
    if name not in module.definitions:
        locate(reference)
    top = module.name.partition(".")[0]
    graph = _graphs.setdefault(top, Graph(_INSIDE.get(top, (top,))))
    closure = graph.closure(module, name)
    if any(sourcetree.stamp(path) != stamp for path, stamp in closure.stamps.items()):
        # A file changed since the graph was walked before: walk it anew.
        graph = _graphs[top] = Graph(_INSIDE.get(top, (top,)))
        closure = graph.closure(module, name)
    hasher = hashlib.sha256()
    for owner, piece in closure.pieces:
        hasher.update(f"{owner.name}\0{piece.uses(owner.package).digest}\0".encode())
    for path in closure.files:
        content = path.read_bytes()
        hasher.update(f"{path.name}\0{len(content)}\0".encode() + content)
    return _Known(hasher.hexdigest(), tuple(sys.path), closure.stamps)


def _split(reference: str) -> tuple[Module, str]:
    module_name, _, name = reference.partition(":")
    if not name.isidentifier() or not all(part.isidentifier() for part in module_name.split(".")):
        raise UnknownName(f"{reference!r} is no reference; write 'package.module:name'")
    found = sourcetree.module(module_name)
    if found is None:
        raise UnknownName(f"{reference!r}: there is no module {module_name!r} to read")
    return found, name
