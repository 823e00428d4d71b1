"""Sizes of values in which one part may occur many times, as by aliases and references.

A value of a few lines can stand for billions: a list of ten times the same list, ten levels deep. Its parts
are shared in memory until something walks through all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

MOST_VALUES: Final = 100_000
"""The most values in a job."""
LONGEST_TEXT: Final = 1_000_000
"""The longest text in a job, in characters."""


def expanded_size(value: object) -> int:
    """The number of values in nested lists and objects, each as often as it occurs.

    It is more than `MOST_VALUES` for a value that contains itself, or is nested too deeply to be counted.

    >>> two = [1, 2]
    >>> expanded_size([two, two, {"a": two}])
    11
    >>> two.append(two)
    >>> expanded_size(two) > MOST_VALUES
    True
    """
    try:
        return _size(value, {})
    except RecursionError:
        return MOST_VALUES + 1


def _size(value: object, known: dict[int, int]) -> int:
    if not isinstance(value, (Mapping, list)):
        return 1
    if id(value) not in known:
        known[id(value)] = MOST_VALUES + 1  # until it is known: a value that contains itself has no end
        items = value.values() if isinstance(value, Mapping) else value
        known[id(value)] = 1 + sum(_size(item, known) for item in items)
    return known[id(value)]
