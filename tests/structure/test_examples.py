"""Every public function and class shows itself in an example, and the example runs."""

from __future__ import annotations

import doctest
import enum
import importlib
import inspect
import pkgutil
import types
from collections.abc import Iterator

import pytest

import slackwater as sw

PROGRAMS = ("slackwater.cli", "slackwater.demo.story")
"""Modules and packages that are run, not called; the docstring of a command is its help."""


def public_modules(package: types.ModuleType) -> Iterator[types.ModuleType]:
    """The package and all its modules whose names do not begin with an underscore."""
    yield package
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        hidden = any(part.startswith("_") for part in found.name.split("."))
        is_program = f"{found.name}.".startswith(tuple(f"{program}." for program in PROGRAMS))
        if not hidden and not is_program:
            yield importlib.import_module(found.name)


def public_things(modules: Iterator[types.ModuleType]) -> dict[str, object]:
    """What a user may call: the names of an ``__all__``, and every function of a public module.

    A class that no ``__all__`` names is a part of the works, also where its name has no underscore.
    """
    things: dict[str, object] = {}
    for module in modules:
        exported = set(getattr(module, "__all__", ()))
        for name, thing in vars(module).items():
            is_function = inspect.isroutine(inspect.unwrap(thing))
            lives_here = getattr(thing, "__module__", None) == module.__name__
            if (is_function and lives_here and not name.startswith("_")) or (
                name in exported and (is_function or inspect.isclass(thing))
            ):
                things[f"{thing.__module__}.{name}"] = thing
    return things


def needs_no_example(thing: object) -> bool:
    """Errors are raised, words are compared, protocols are fulfilled: none of them is called by a user."""
    return inspect.isclass(thing) and (
        issubclass(thing, (BaseException, enum.Enum)) or getattr(thing, "_is_protocol", False)
    )


def missing(thing: object) -> str | None:
    """What the docstring lacks, or None."""
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
    return None


THINGS = public_things(public_modules(sw))


@pytest.mark.parametrize("name", sorted(THINGS))
def test_it_has_a_running_example(name: str) -> None:
    problem = missing(THINGS[name])
    assert problem is None, f"{name} {problem}"


def test_the_public_face_was_read() -> None:
    assert {"slackwater.time.duration", "slackwater.time.Range"} <= THINGS.keys()


def test_a_missing_example_is_found() -> None:
    module = types.ModuleType("bare")
    exec(  # noqa: S102 - functions must live in the module to count as its own
        "def bare(): pass\n"
        "def prose():\n    'Only words.'\n"
        "def shown():\n    '''Shown.\\n\\n    >>> 1\\n    1\\n    '''\n"
        "def skipped():\n    '''Skipped.\\n\\n    >>> 1  # doctest: +SKIP\\n    1\\n    '''\n"
        "class Trouble(Exception):\n    'Something happened.'\n"
        "class Silent(Exception): pass\n"
        "class Bare:\n    'Only words.'\n"
        "class Inner: pass\n"
        "__all__ = ['Trouble', 'Silent', 'Bare']\n"
        "def _private(): pass\n",
        vars(module),
    )
    found = {name: missing(thing) for name, thing in public_things(iter([module])).items()}
    assert found == {
        "bare.bare": "has no docstring",
        "bare.prose": "has no >>> example in its docstring",
        "bare.shown": None,
        "bare.skipped": "has an example that is skipped",
        "bare.Trouble": None,
        "bare.Silent": "has no docstring",
        "bare.Bare": "has no >>> example in its docstring",
    }
