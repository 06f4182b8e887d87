"""No torch: no module of the plugin's package imports it, wherever in the code; its tests may."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from nbx_conformance.plugin_checks.subject import Subject, told
from nbx_conformance.trials.trial import Outcome

NAME = "no_torch"


def check(subject: Subject) -> Outcome | None:
    """Read every module; None for a plugin that is an object of this process."""
    package = subject.package
    if package is None:
        return None
    wrong: list[str] = []
    for path in sorted(package.rglob("*.py")) if package.is_dir() else [package]:
        if "tests" not in path.relative_to(package.parent).parts:
            wrong += _imports(path)
    return Outcome(NAME, "fail" if wrong else "pass", told(wrong))


def _imports(path: Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except (OSError, SyntaxError, ValueError) as error:
        yield f"{path} cannot be read: {error}"
        return
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and _for_types(node.test):
            # No import when the code runs.
            waiting += node.orelse
            continue
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        if any(name.partition(".")[0] == "torch" for name in names):
            yield f"{path}:{getattr(node, 'lineno', 1)} imports torch"
        waiting += ast.iter_child_nodes(node)


def _for_types(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )
