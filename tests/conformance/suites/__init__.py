"""The suites, one module each, and the one list of those that are not built yet.

A module is registered by its name (`async` is a keyword, so its module is `async_`). What it has to
offer is written in ../README.md.
"""

from __future__ import annotations

import importlib
import importlib.util
import keyword
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tests.conformance.framework import Case, Fields

NOT_BUILT: Final[frozenset[str]] = frozenset()
"""Suites whose subject does not exist yet. Remove a name here when its module arrives."""


class UnknownSuite(LookupError):
    """A case file names a suite that is neither built nor on the list of those to come."""


@dataclass(frozen=True)
class Suite:
    """What a suite module offers: the fields of its cases, and how to run one against each subject."""

    name: str
    fields: Fields
    steps: Iterable[Fields] | None
    subjects: Mapping[str, Callable[[Case], None]]


def module_name(suite: str) -> str:
    """The module of a suite.

    >>> module_name("join"), module_name("async")
    ('tests.conformance.suites.join', 'tests.conformance.suites.async_')
    """
    return f"{__name__}.{suite}_" if keyword.iskeyword(suite) else f"{__name__}.{suite}"


def is_built(suite: str) -> bool:
    """Whether a module of that name exists.

    >>> is_built("marks"), is_built("weather")
    (True, False)
    """
    return suite.isidentifier() and importlib.util.find_spec(module_name(suite)) is not None


def load(suite: str) -> Suite:
    """The suite of that name; UnknownSuite if there is no such module.

    >>> load("weather")
    Traceback (most recent call last):
    tests.conformance.suites.UnknownSuite: suite 'weather' has no module in tests/conformance/suites
    """
    if not is_built(suite):
        raise UnknownSuite(f"suite {suite!r} has no module in tests/conformance/suites")
    module = importlib.import_module(module_name(suite))
    return Suite(
        name=suite,
        fields=module.FIELDS,
        steps=getattr(module, "STEPS", None),
        subjects=getattr(module, "SUBJECTS", None) or {"": module.run},
    )
