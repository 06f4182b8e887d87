"""Digests of code: what evidence binds to. Comments, layout and docstrings do not count; what is computed does."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any


def normalise(source: str) -> str:
    """Return Python source without comments, layout and docstrings. Raises SyntaxError where it does not parse."""
    return _unparse(ast.parse(source))


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
    nodes = _functions_of(code.co_filename).get((code.co_name, code.co_firstlineno))
    if not nodes:
        # Typed at a prompt: there is no file to read, and no evidence can be shipped for it either.
        return repr((code.co_code, code.co_names, [c for c in code.co_consts if not isinstance(c, CodeType)]))
    return "\n".join(nodes)


@lru_cache(maxsize=64)
def _functions_of(filename: str) -> dict[tuple[str, int], list[str]]:
    path = Path(filename)
    if not path.is_file():
        return {}
    found: dict[tuple[str, int], list[str]] = {}
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Lambda):
            found.setdefault(("<lambda>", node.lineno), []).append(ast.unparse(node))
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            line = node.decorator_list[0].lineno if node.decorator_list else node.lineno
            node.decorator_list = []
            found.setdefault((node.name, line), []).append(_unparse(ast.Module([node], [])))
    return found


def _unparse(tree: ast.Module) -> str:
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        body = node.body
        first = body[0].value if body and isinstance(body[0], ast.Expr) else None
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            node.body = body[1:] or [ast.Pass()]
    return ast.unparse(tree)
