"""Every public name that a user calls has an example in its docstring, and the example shows the feature.

That the examples run is checked elsewhere: pytest collects all of them (``--doctest-modules``).
"""

from __future__ import annotations

import ast
import doctest
import enum
import inspect
import re
import types
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import pytest

import slackwater as sw
from tests.structure.public_names import DOCUMENTED_PACKAGES, public_names
from tests.structure.syntax import parsed, statements

SOURCE = Path(__file__).parents[2] / "src" / "slackwater"

INTROSPECTION: Final = {"callable", "getattr", "hasattr", "isinstance", "issubclass", "type"}
"""Functions whose result shows nothing of what a name is for."""


def called_by_users(packages: Iterable[types.ModuleType]) -> dict[str, object]:
    """The functions and classes in the ``__all__`` of packages, by module and name."""
    found: dict[str, object] = {}
    for package in packages:
        for name in public_names(package):
            thing = getattr(package, name)
            if inspect.isclass(thing) or inspect.isroutine(inspect.unwrap(thing)):
                found[f"{thing.__module__}.{name}"] = thing
    return found


def needs_no_example(thing: object) -> bool:
    """Whether users catch, compare or implement it instead of calling it: errors, enums, protocols."""
    return inspect.isclass(thing) and (
        issubclass(thing, (BaseException, enum.Enum)) or getattr(thing, "_is_protocol", False)
    )


def shows_something(example: doctest.Example) -> bool:
    """Whether an example uses something, instead of printing ``f.__module__`` or the like."""
    for node in ast.walk(ast.parse(example.source)):
        match node:
            case ast.Call(func=ast.Name(id=name)):
                if name not in INTROSPECTION:
                    return True
            case ast.Attribute(attr=name):
                if not name.startswith("__"):
                    return True
            case ast.Call() | ast.BinOp() | ast.Subscript() | ast.FunctionDef() | ast.ClassDef():
                return True
    return False


def problem_of(thing: object) -> str | None:
    """What the docstring lacks; None if it lacks nothing."""
    text = thing.__doc__
    if not text:
        return "has no docstring"
    if needs_no_example(thing):
        return None
    examples = doctest.DocTestParser().get_examples(text)
    if not examples:
        return "has no >>> example in its docstring"
    if any(doctest.SKIP in example.options for example in examples):
        return "has an example that is skipped"
    if not any(shows_something(example) for example in examples):
        return "has an example that does not use it"
    return None


def docstrings(file: Path) -> Iterator[tuple[int, str]]:
    """The line and the text of every docstring in a file that has examples."""
    text, module = parsed(file)
    for node in (module, *statements(module)) if ">>>" in text else ():
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            docstring = ast.get_docstring(node)
            if docstring:
                yield getattr(node, "lineno", 1), docstring


THINGS = called_by_users(DOCUMENTED_PACKAGES)


@pytest.mark.parametrize("name", sorted(THINGS))
def test_a_public_name_has_an_example(name: str) -> None:
    problem = problem_of(THINGS[name])
    assert problem is None, f"{name} {problem}"


def public_methods(owner: type) -> Iterator[tuple[str, types.FunctionType]]:
    """The public methods of a class that it does not take over from a base class, and their functions.

    A method that overrides another has the parameters of that one.
    """
    for name, attribute in vars(owner).items():
        function = inspect.unwrap(getattr(attribute, "__func__", attribute))
        overrides = any(name in vars(base) for base in owner.__mro__[1:])
        if inspect.isfunction(function) and not name.startswith("_") and not overrides:
            yield f"{owner.__qualname__}.{name}", function


def functions_of(things: dict[str, object]) -> dict[str, types.FunctionType]:
    """The functions among the public names, and the methods of the classes and of their bases."""
    found = {name: thing for name, thing in things.items() if inspect.isfunction(thing)}
    classes = [thing for thing in things.values() if inspect.isclass(thing)]
    for owner in {
        base for each in classes for base in each.__mro__ if base.__module__.startswith("slackwater")
    }:
        found |= {f"{owner.__module__}.{name}": function for name, function in public_methods(owner)}
    return found


def unlisted_parameters(function: types.FunctionType) -> list[str]:
    """The parameters that the docstring does not list."""
    return [
        parameter
        for parameter in inspect.signature(function).parameters
        if parameter not in {"self", "cls"}
        and not re.search(rf"^ +(\w+, )*\**{parameter}(, \w+)*:", function.__doc__ or "", re.MULTILINE)
    ]


def test_public_functions_and_methods_list_their_parameters() -> None:
    functions = functions_of(THINGS)
    unlisted = [
        f"{name}({parameter})" for name, one in functions.items() for parameter in unlisted_parameters(one)
    ]
    assert {"slackwater.spark.api.stream.stream", "slackwater.time.Range.overlaps"} <= functions.keys()
    assert sorted(unlisted) == []


def imports_past_the_front(source: str) -> bool:
    """Whether an example imports a public name from its module instead of writing ``sw.name``."""
    return any(
        isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith("slackwater")
        and all(name.name in public_names(sw) for name in node.names)
        for node in ast.walk(ast.parse(source))
    )


@pytest.mark.parametrize("name", sorted(public_names(sw)))
def test_an_example_of_the_reference_imports_the_package_as_sw(name: str) -> None:
    examples = doctest.DocTestParser().get_examples(getattr(sw, name).__doc__ or "")
    assert [one.source for one in examples if imports_past_the_front(one.source)] == []


def test_no_docstring_has_only_examples_that_show_nothing() -> None:
    found = [
        f"{file.relative_to(SOURCE)}:{line}"
        for file in sorted(SOURCE.rglob("*.py"))
        for line, text in docstrings(file)
        if (examples := doctest.DocTestParser().get_examples(text))
        and not any(shows_something(example) for example in examples)
    ]
    assert found == []


def test_the_public_names_were_found() -> None:
    some = {"slackwater.time.duration", "slackwater.time.Range", "slackwater.spark.api.stream.stream"}
    assert some <= THINGS.keys()


NO_EXAMPLE = "has no >>> example in its docstring"
VACUOUS = "has an example that does not use it"


@pytest.mark.parametrize(
    ("definition", "docstring", "problem"),
    [
        ("def thing():", None, "has no docstring"),
        ("def thing():", "Only words.", NO_EXAMPLE),
        ("def thing():", ">>> thing()", None),
        ("def thing():", ">>> thing()  # doctest: +SKIP", "has an example that is skipped"),
        ("def thing():", ">>> thing.__module__\n'bare'", VACUOUS),
        ("def thing():", ">>> callable(thing)\nTrue", VACUOUS),
        ("class thing(Exception):", "Raised, not called.", None),
        ("class thing(Exception):", None, "has no docstring"),
        ("class thing:", "Only words.", NO_EXAMPLE),
    ],
)
def test_a_missing_example_is_reported(definition: str, docstring: str | None, problem: str | None) -> None:
    module = types.ModuleType("bare")
    source = f"{definition} {docstring!r}\n__all__ = ['thing']"
    exec(source, vars(module))  # noqa: S102 - the module must own the function
    assert problem_of(called_by_users([module])["bare.thing"]) == problem
