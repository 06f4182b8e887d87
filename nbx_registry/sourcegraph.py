"""What code reaches inside its package: the pieces of source, and the files beside them, that a name leads to.

Names are followed as Python would bind them: definitions, assignments and imports of the module, attributes of
imported modules, ``module:name`` strings. A statement of the top level that acts is reached through every name it
mentions. Where a module is used as a value, all of it is reached. The answer may hold more than what runs; it holds
less only where something is looked up by a name put together at run time.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nbx_registry import sourcetree
from nbx_registry.sourcetree import Import, Module, Piece, Stamp

Node = tuple[Module, Piece]
"""A piece of a module's source."""
_Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Closure:
    """Everything that one name reaches."""

    pieces: Sequence[Node]
    """By module name, and in a module in the order of its lines."""
    files: Sequence[Path]
    """Files that are no Python source, by path."""
    stamps: Mapping[Path, Stamp | None]
    """Every file this rests on."""


class Graph:
    """The pieces of a package, connected. Built as it is walked; good for as long as no file in it changes.

    Parameters
    ----------
    inside
        Packages and modules whose source counts; what lies outside is not followed.
    """

    def __init__(self, inside: Iterable[str]) -> None:
        self._inside = tuple(inside)
        self._modules: dict[str, Module | None] = {}
        self._edges: dict[Piece, tuple[frozenset[Node], frozenset[Path]]] = {}

    def closure(self, module: Module, name: str) -> Closure:
        """Return what ``name``, bound at the top level of ``module``, reaches."""
        waiting: set[Node] = set()
        files: set[Path] = set()
        self._name(module, (name,), waiting, set())
        found: set[Node] = set(waiting)
        while waiting:
            node = waiting.pop()
            edges = self._edges.get(node[1])
            if edges is None:
                edges = self._edges[node[1]] = self._follow(*node)
            new = edges[0] - found
            found |= new
            waiting |= new
            files |= edges[1]
        stamps: dict[Path, Stamp | None] = {file: sourcetree.stamp(file) for file in files}
        stamps.update((reached.path, reached.stamp) for reached, _ in found)
        stamps[module.path] = module.stamp
        ordered = sorted(found, key=lambda node: (node[0].name, node[0].index(node[1])))
        return Closure(ordered, sorted(files), stamps)

    def _module(self, name: str) -> Module | None:
        if name not in self._modules:
            self._modules[name] = sourcetree.module(name) if self._is_inside(name) else None
        return self._modules[name]

    def _is_inside(self, name: str) -> bool:
        return any(name == inside or name.startswith(inside + ".") for inside in self._inside)

    def _follow(self, module: Module, piece: Piece) -> tuple[frozenset[Node], frozenset[Path]]:
        """Return what one piece leads to directly."""
        nodes: set[Node] = set()
        files: set[Path] = set()
        seen: set[tuple[str, _Path]] = set()
        uses = piece.uses(module.package)
        for name in piece.names:
            nodes.update((module, action) for action in module.actions.get(name, ()))
        # Imports of the top level are followed from where their names are used; those inside a function from here.
        local: dict[str, list[Import]] = {}
        if not isinstance(piece.node, (ast.Import, ast.ImportFrom)):
            for name, target in uses.imports:
                local.setdefault(name, []).append(target)
        for path in uses.paths:
            for target in local.get(path[0], ()):
                self._import(target, path[1:], nodes, seen)
            if path[0] in module.definitions or module.stars:
                self._name(module, path, nodes, seen)
        for text in uses.strings:
            file = module.beside(text)
            if file is not None:
                files.add(file)
            else:
                name, _, attribute = text.partition(":")
                self._dotted((*name.split("."), *((attribute,) if attribute else ())), nodes, seen)
        return frozenset(nodes), frozenset(files)

    def _name(self, module: Module, path: _Path, nodes: set[Node], seen: set[tuple[str, _Path]]) -> None:
        """Add what a dotted path leads to from the top level of a module."""
        if (module.name, path) in seen:
            return
        seen.add((module.name, path))
        pieces = module.definitions.get(path[0])
        if pieces is None:
            self._undefined(module, path, nodes, seen)
            return
        for piece in pieces:
            nodes.add((module, piece))
            for name, target in piece.uses(module.package).imports:
                if name == path[0]:
                    self._import(target, path[1:], nodes, seen)

    def _undefined(self, module: Module, path: _Path, nodes: set[Node], seen: set[tuple[str, _Path]]) -> None:
        """Add what may bind a name that no statement binds: a submodule, a star, a module's ``__getattr__``."""
        for piece, star in module.stars:
            nodes.add((module, piece))
            source = self._module(star)
            if source is not None and path[0] in source.definitions:
                self._name(source, path, nodes, seen)
        if module.path.name == "__init__.py" and (submodule := self._module(f"{module.name}.{path[0]}")) is not None:
            if len(path) > 1:
                self._name(submodule, path[1:], nodes, seen)
            else:
                self._whole(submodule, nodes, seen)
        elif "__getattr__" in module.definitions:
            self._name(module, ("__getattr__",), nodes, seen)

    def _import(self, target: Import, rest: _Path, nodes: set[Node], seen: set[tuple[str, _Path]]) -> None:
        self._dotted((*target.module.split("."), *((target.name,) if target.name else ()), *rest), nodes, seen)

    def _dotted(self, path: _Path, nodes: set[Node], seen: set[tuple[str, _Path]]) -> None:
        """Add what an absolute dotted path leads to: the longest part that is a module, then a name in it."""
        for length in range(len(path), 0, -1):
            module = self._module(".".join(path[:length]))
            if module is None:
                continue
            if length < len(path):
                self._name(module, path[length:], nodes, seen)
                return
            parent = self._module(".".join(path[:-1])) if length > 1 else None
            # A package may bind the name of a submodule to something else.
            if parent is None or path[-1] not in parent.definitions or _binds_submodule(parent, path[-1]):
                self._whole(module, nodes, seen)
                return

    def _whole(self, module: Module, nodes: set[Node], seen: set[tuple[str, _Path]]) -> None:
        if (module.name, ()) in seen:
            return
        seen.add((module.name, ()))
        for piece in module.pieces:
            nodes.add((module, piece))
            for name, target in piece.uses(module.package).imports:
                if name in piece.names:
                    self._import(target, (), nodes, seen)


def _binds_submodule(package: Module, name: str) -> bool:
    """Whether a package imports its submodule under the submodule's own name."""
    own = (Import(package.name, name), Import(f"{package.name}.{name}", None))
    return any(
        bound == name and target in own
        for piece in package.definitions[name]
        for bound, target in piece.uses(package.package).imports
    )
