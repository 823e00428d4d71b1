"""Statements of Python files, found without looking into expressions, which are most of a syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator


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
