"""Every export of ``slackwater.progress`` is used in the package or is part of the public API."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import slackwater as sw
from tests.structure.public_names import public_names
from tests.structure.syntax import parsed, statements

SOURCE = Path(__file__).parents[2] / "src" / "slackwater"


def definitions(module: ast.Module) -> Iterator[str]:
    """The public classes, functions and constants of a module."""
    for node in module.body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                names = [name]
            case ast.AnnAssign(target=ast.Name(id=name)):
                names = [name]
            case ast.Assign(targets=targets, value=value) if not isinstance(value, ast.Call):
                names = [target.id for target in targets if isinstance(target, ast.Name)]
            case _:
                names = []
        yield from (name for name in names if not name.startswith("_"))


def returned(module: ast.Module) -> set[str]:
    """The names in return annotations: a caller of the function uses them without importing them."""
    return {
        name.id
        for node in statements(module)
        if isinstance(node, ast.FunctionDef) and node.returns is not None
        for name in ast.walk(node.returns)
        if isinstance(name, ast.Name)
    }


def test_every_export_has_a_caller() -> None:
    trees = {
        file: tree
        for file, (text, tree) in ((file, parsed(file)) for file in SOURCE.rglob("*.py"))
        if "slackwater.progress" in text or file.parent == SOURCE / "progress"
    }
    imported: defaultdict[str | None, set[str]] = defaultdict(set)
    for file, tree in trees.items():
        for node in statements(tree):
            if isinstance(node, ast.ImportFrom) and file != SOURCE / "__init__.py":
                imported[node.module].update(alias.name for alias in node.names)
    public = public_names(sw)
    exports = {
        f"{file.stem}.{name}": name in imported[f"slackwater.progress.{file.stem}"] | returned(tree)
        for file, tree in trees.items()
        if file.parent == SOURCE / "progress"
        for name in definitions(tree)
        if name not in public
    }
    assert exports
    assert [name for name, used in exports.items() if not used] == []
