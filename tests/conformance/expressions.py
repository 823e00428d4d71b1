"""Windows and triggers as the cases write them, such as `AfterEach(AfterCount(2), Never)`, without `eval`.

An expression holds nothing but known names, calls of them and integers; anything else is a broken case.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from slackwater.errors import InvalidArgument
from tests.conformance.framework import BrokenCase

Known = Mapping[str, Callable[..., Any]]


def parse(text: object, known: Known) -> ast.expr:
    """The syntax tree of an expression, checked.

    >>> parse("open('secrets')", {"Fixed": dict})
    Traceback (most recent call last):
    tests.conformance.framework.BrokenCase: "open('secrets')": open is none of Fixed
    """
    try:
        tree = ast.parse(str(text), mode="eval").body
    except SyntaxError as error:
        raise BrokenCase(f"{text!r} cannot be read: {error}") from error
    _check(tree, str(text), known)
    return tree


def evaluate(text: object, known: Known) -> Any:
    """What the expression makes; a name without parentheses is called without arguments.

    >>> evaluate("pair(first=one, second=-2)", {"pair": dict, "one": lambda: 1})
    {'first': 1, 'second': -2}
    """
    return _build(parse(text, known), known)


def _check(node: ast.expr, text: str, known: Known) -> None:
    match node:
        case ast.Name(id=name) | ast.Call(func=ast.Name(id=name)) if name not in known:
            raise BrokenCase(f"{text!r}: {name} is none of {', '.join(known)}")
        case ast.Name():
            return
        case ast.Call(func=ast.Name(), args=arguments, keywords=keywords):
            for argument in (*arguments, *(keyword.value for keyword in keywords)):
                _check(argument, text, known)
        case ast.Constant(value=int()) | ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int())):
            return
        case _:
            raise BrokenCase(f"{text!r}: {ast.unparse(node)} is not a name, a call or an integer")


def _build(node: ast.expr, known: Known) -> Any:
    match node:
        case ast.Name(id=name):
            return _build(ast.Call(func=node, args=[], keywords=[]), known)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=keywords):
            values = [_build(argument, known) for argument in arguments]
            words = {str(word.arg): _build(word.value, known) for word in keywords}
            try:
                return known[name](*values, **words)
            except TypeError as error:  # too many arguments, or too few: as much a refusal as a bad one
                raise InvalidArgument(name, ast.unparse(node), str(error)) from error
        case _:
            return ast.literal_eval(node)
