"""Syntax trees of Python files, each parsed once, and their statements without the expressions in them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path


@cache
def parsed(file: Path) -> tuple[str, ast.Module]:
    """The text and the syntax tree of a file, which several tests share."""
    text = file.read_text(encoding="utf-8")
    return text, ast.parse(text, str(file))


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """The statements in a module, class, function or block, with those that they contain.

    >>> [type(each).__name__ for each in statements(ast.parse("if a:\\n  import b\\nelse:\\n  c()"))]
    ['If', 'Import', 'Expr']
    """
    for field in ("body", "handlers", "cases", "orelse", "finalbody"):
        blocks = getattr(node, field, None)
        for each in blocks if isinstance(blocks, list) else []:
            if isinstance(each, ast.stmt):
                yield each
            yield from statements(each)
