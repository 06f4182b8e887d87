"""Packages as source: what the top level of a module defines and which names each piece uses. Nothing is imported.

A module is split into *pieces*, one a top-level statement. A piece that defines names is reached through them; one that
acts (``TABLE.update(...)``) through any name it mentions. Each piece knows a digest of its code in a canonical form,
the same on every Python version, and what it uses.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import cast

from nbx_registry.errors import NbxError, UnknownName

Stamp = tuple[int, int]
"""A file's modification time (nanoseconds) and size."""

_FILE_NAME = re.compile(r"[\w-][\w./-]*\.[A-Za-z]\w{0,9}\Z")
_REFERENCE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*\Z|[A-Za-z_]\w*(\.[A-Za-z_]\w*)+\Z")


@dataclass(frozen=True, slots=True)
class Import:
    """What an import statement binds a name to."""

    module: str
    name: str | None
    """The name taken from the module; None where the module itself is bound."""


@dataclass(slots=True)
class Uses:
    """What a piece's code mentions."""

    digest: str
    """Of the code in canonical form: without comments, layout and docstrings."""
    paths: frozenset[tuple[str, ...]]
    """Names, with the attributes read from them: ``("helpers", "tile")`` for ``helpers.tile``."""
    strings: frozenset[str]
    """String constants that look like a reference or a file's name."""
    imports: Sequence[tuple[str, Import]]
    """Names that imports inside it bind."""


class Piece:
    """One top-level statement."""

    __slots__ = ("_uses", "line", "names", "node")

    def __init__(self, node: ast.stmt, names: frozenset[str]) -> None:
        self.node = node
        self.names = names
        """The names it binds at the top level."""
        self.line = node.lineno
        self._uses: Uses | None = None

    def uses(self, package: str) -> Uses:
        """Return what it mentions; ``package`` is what relative imports start from."""
        if self._uses is None:
            self._uses = _uses(self.node, package)
        return self._uses


@dataclass(eq=False)
class Module:
    """The source of one module, split."""

    name: str
    path: Path
    package: str
    """What its relative imports start from."""
    stamp: Stamp
    pieces: Sequence[Piece]
    files: dict[str, Path | None] = field(default_factory=dict[str, "Path | None"])
    """Files beside it that its strings were found to name, or not."""

    @cached_property
    def definitions(self) -> Mapping[str, Sequence[Piece]]:
        """The pieces that bind a name, in order."""
        found: dict[str, list[Piece]] = {}
        for piece in self.pieces:
            for name in piece.names:
                found.setdefault(name, []).append(piece)
        return found

    @cached_property
    def actions(self) -> Mapping[str, Sequence[Piece]]:
        """The pieces that do more than bind, by every name they may act on.

        That is what they mention and, through functions of the module that they call, any data of the module. What a
        decorator does to a definition is done to such data alone.
        """
        found: dict[str, list[Piece]] = {}
        for piece in self.pieces:
            if not self._acts(piece.node):
                continue
            mentioned = {path[0] for path in piece.uses(self.package).paths}
            names = {name for name in self._through_functions(mentioned) if self._is_data(name)}
            if not isinstance(piece.node, _DEFINITIONS):
                names |= mentioned
            for name in names:
                found.setdefault(name, []).append(piece)
        return found

    def _through_functions(self, names: set[str]) -> set[str]:
        found: set[str] = set()
        waiting = set(names)
        while waiting:
            name = waiting.pop()
            found.add(name)
            for piece in self.definitions.get(name, ()):
                if isinstance(piece.node, _DEFINITIONS):
                    waiting |= {path[0] for path in piece.uses(self.package).paths} - found
        return found

    def _is_data(self, name: str) -> bool:
        """Whether the module binds a name to something that could be changed."""
        for piece in self.definitions.get(name, ()):
            value = piece.node.value if isinstance(piece.node, (ast.Assign, ast.AnnAssign)) else None
            if not isinstance(piece.node, (*_DEFINITIONS, ast.Import, ast.ImportFrom)) and not isinstance(
                value, ast.Constant
            ):
                return True
        return False

    def _acts(self, node: ast.stmt) -> bool:
        if isinstance(node, _DEFINITIONS):
            # A decorator made in this module may enter what it decorates into a table of the module.
            return any(
                not isinstance(piece.node, (ast.Import, ast.ImportFrom))
                for decorator in node.decorator_list
                for piece in self.definitions.get(_root_name(decorator), ())
            )
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            return any(isinstance(part, (ast.Attribute, ast.Subscript)) for t in targets for part in ast.walk(t))
        if isinstance(node, ast.If) and isinstance(node.test, ast.Compare) and _root_name(node.test.left) == "__name__":
            # if __name__ == "__main__": not on import.
            return False
        return isinstance(node, _ACTING)

    @cached_property
    def stars(self) -> Sequence[tuple[Piece, str]]:
        """Modules whose names it takes all of."""
        return [
            (piece, _absolute(piece.node, self.package))
            for piece in self.pieces
            if isinstance(piece.node, ast.ImportFrom) and piece.node.names[0].name == "*"
        ]

    def index(self, piece: Piece) -> int:
        """Return a piece's place in the module."""
        return self._places[piece]

    @cached_property
    def _places(self) -> Mapping[Piece, int]:
        return {piece: index for index, piece in enumerate(self.pieces)}

    def beside(self, name: str) -> Path | None:
        """Return the file of that name in the module's folder, if there is one."""
        if name not in self.files:
            path = self.path.parent / name
            self.files[name] = path if _FILE_NAME.match(name) and path.suffix != ".py" and path.is_file() else None
        return self.files[name]


_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
# Statements that may change what others bound. A definition or a plain assignment does not.
_ACTING = (
    ast.Expr,
    ast.For,
    ast.While,
    ast.If,
    ast.Try,
    ast.With,
    ast.Delete,
    ast.Assert,
    ast.AugAssign,
    ast.Match,
)

_modules: dict[Path, Module] = {}
_roots: dict[str, tuple[tuple[str, ...], Path]] = {}


def stamp(path: Path) -> Stamp | None:
    """Return a file's stamp, or None where there is no such file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def find(name: str) -> Path | None:
    """Return the file of a module, or None. Its top-level package is looked up, never imported; the rest is paths."""
    top, _, rest = name.partition(".")
    root = _root(top)
    if root is None:
        return None
    if not rest:
        return root if root.suffix == ".py" else _init(root)
    folder = root.parent if root.suffix == ".py" else root
    if root.suffix == ".py" and root.name != "__init__.py":
        return None
    path = folder.joinpath(*rest.split("."))
    package = _init(path)
    if package is not None:
        return package
    module = path.with_name(path.name + ".py")
    return module if module.is_file() else None


def module(name: str) -> Module | None:
    """Return a module's source, split; None where there is no file for it.

    Raises
    ------
    NbxError
        If the file cannot be read or does not parse; the message names file and line.
    """
    path = find(name)
    if path is None:
        return None
    now = stamp(path)
    known = _modules.get(path)
    if known is not None and known.stamp == now and known.name == name:
        return known
    try:
        content = path.read_bytes()
        tree = ast.parse(content, str(path))
    except OSError as error:
        raise NbxError(f"{path} cannot be read: {error.strerror or error}", code="SOURCE") from error
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        raise NbxError(f"{path}:{line}: not Python: {error}", code="SOURCE") from error
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    _modules[path] = found = Module(name, path, package, now or (0, 0), list(_pieces(tree.body)))
    return found


def _root(top: str) -> Path | None:
    """Return the folder of a top-level package (or its ``__init__.py``, or a module's file)."""
    # Looking one up takes tens of microseconds, and its answer may change with the search path.
    search = tuple(sys.path)
    known = _roots.get(top)
    if known is None or known[0] != search:
        loaded = sys.modules.get(top)
        try:
            spec = getattr(loaded, "__spec__", None) or importlib.util.find_spec(top)
        except (ImportError, ValueError) as error:
            raise UnknownName(f"package {top!r} cannot be looked up: {error}") from error
        path: Path | None = None
        if spec is not None and spec.origin is not None and spec.origin.endswith(".py"):
            path = Path(spec.origin)
        elif spec is not None and spec.submodule_search_locations:
            path = Path(next(iter(spec.submodule_search_locations)))
        if path is None:
            # Not remembered: a package may be installed later.
            return None
        _roots[top] = known = (search, path)
    return known[1]


def _init(folder: Path) -> Path | None:
    path = folder / "__init__.py"
    return path if path.is_file() else None


def _pieces(nodes: Sequence[ast.stmt]) -> Iterator[Piece]:
    for node in nodes:
        if isinstance(node, _DEFINITIONS):
            yield Piece(node, frozenset((node.name,)))
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            # One piece a name: what else a line imports is no matter of this name.
            for alias in node.names:
                single = ast.Import([alias])
                if isinstance(node, ast.ImportFrom):
                    single = ast.ImportFrom(node.module, [alias], node.level)
                ast.copy_location(single, node)
                yield Piece(single, frozenset(_bound(single)))
        else:
            yield Piece(node, frozenset(_bound(node)))


def _root_name(node: ast.expr) -> str:
    while isinstance(node, (ast.Attribute, ast.Call, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _bound(node: ast.AST) -> Iterator[str]:
    """Yield the names a statement binds in its own scope."""
    waiting = [node]
    while waiting:
        item = waiting.pop()
        if isinstance(item, _DEFINITIONS):
            yield item.name
        elif isinstance(item, (ast.Import, ast.ImportFrom)):
            for alias in item.names:
                if alias.name != "*":
                    yield alias.asname or (alias.name.partition(".")[0] if isinstance(item, ast.Import) else alias.name)
        elif isinstance(item, ast.Name):
            if isinstance(item.ctx, ast.Store):
                yield item.id
        elif not isinstance(item, ast.Lambda):
            if isinstance(item, ast.ExceptHandler) and item.name:
                yield item.name
            waiting.extend(ast.iter_child_nodes(item))


def imports(node: ast.Import | ast.ImportFrom, package: str) -> Iterator[tuple[str, Import]]:
    """Yield what an import statement binds, name by name; a star binds nothing that can be told here."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.asname:
                yield alias.asname, Import(alias.name, None)
            else:
                top = alias.name.partition(".")[0]
                yield top, Import(top, None)
        return
    origin = _absolute(node, package)
    for alias in node.names:
        if alias.name != "*":
            yield alias.asname or alias.name, Import(origin, alias.name)


def _absolute(node: ast.stmt, package: str) -> str:
    assert isinstance(node, ast.ImportFrom)
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    base = ".".join(parts[: len(parts) - node.level + 1])
    return f"{base}.{node.module}" if node.module else base


def _uses(node: ast.stmt, package: str) -> Uses:
    walk = _Walk(package)
    walk.statement(node)
    text = "".join(walk.parts)
    return Uses(hashlib.sha256(text.encode()).hexdigest(), frozenset(walk.paths), frozenset(walk.strings), walk.imports)


class _Walk:
    """One pass over a statement: its canonical text, and what it mentions."""

    def __init__(self, package: str) -> None:
        self.package = package
        self.parts: list[str] = []
        self.paths: set[tuple[str, ...]] = set()
        self.strings: set[str] = set()
        self.imports: list[tuple[str, Import]] = []

    def statement(self, node: ast.AST) -> None:
        kind = type(node)
        if kind is ast.Name:
            assert isinstance(node, ast.Name)
            self.parts.append(f"n:{node.id};")
            self.paths.add((node.id,))
            return
        if kind is ast.Attribute:
            assert isinstance(node, ast.Attribute)
            self._attribute(node)
            return
        if kind is ast.Constant:
            assert isinstance(node, ast.Constant)
            value = node.value
            self.parts.append(f"c:{value!r};")
            if isinstance(value, str) and len(value) < 200 and (_REFERENCE.match(value) or _FILE_NAME.match(value)):
                self.strings.add(value)
            return
        if kind is ast.Import or kind is ast.ImportFrom:
            assert isinstance(node, (ast.Import, ast.ImportFrom))
            self.imports.extend(imports(node, self.package))
        fields = _FIELDS.get(kind)
        if fields is None:
            fields = _FIELDS[kind] = tuple(name for name in node._fields if name not in _SKIPPED)
        append = self.parts.append
        append(kind.__name__)
        append("(")
        for name in fields:
            value = getattr(node, name, None)
            if value is None or value == []:
                continue
            append(name)
            append("=")
            if isinstance(value, list):
                value = cast("list[object]", value)
                if name == "body" and isinstance(node, _DEFINITIONS) and _is_docstring(value[0]):
                    value = value[1:]
                for item in value:
                    if isinstance(item, ast.AST):
                        self.statement(item)
                    else:
                        append(f"{item!r};")
            elif isinstance(value, ast.AST):
                self.statement(value)
            else:
                append(f"{value!r};")
        append(")")

    def _attribute(self, node: ast.Attribute) -> None:
        names: list[str] = []
        inner: ast.expr = node
        while isinstance(inner, ast.Attribute):
            names.append(inner.attr)
            inner = inner.value
        self.parts.append(f"a:{'.'.join(reversed(names))}(")
        if isinstance(inner, ast.Name):
            self.parts.append(f"n:{inner.id};")
            self.paths.add((inner.id, *reversed(names)))
        else:
            self.statement(inner)
        self.parts.append(")")


# What says nothing about the result, or differs between Python versions: contexts follow from the place, `kind` is the
# u of u"", a type comment is a comment.
_SKIPPED = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
_FIELDS: dict[type, tuple[str, ...]] = {}


def _is_docstring(node: object) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
