"""Checks of the arguments of specifications."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import UnionType
from typing import Any, Final

from slackwater._suggestions import available
from slackwater.errors import InvalidArgument
from slackwater.time import check_int64
from slackwater.windows.accumulations.base import check_column


def check_lateness(name: str, lateness: int | None) -> None:
    """Raise unless a lateness is None or a number of microseconds that is not negative.

    >>> check_lateness("left_lateness", -1)
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: left_lateness = -1: must not be negative; use 0, or None for no limit
    """
    if lateness is not None and check_int64(lateness, name) < 0:
        raise InvalidArgument(name, lateness, "must not be negative", fix="use 0, or None for no limit")


def check_type(name: str, value: object, wanted: type | UnionType, expected: str) -> None:
    """Raise unless an argument has one of the wanted types.

    >>> check_type("on", "k", tuple, "a tuple of column names")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: on = 'k': has type str; give a tuple of column names
    """
    if not isinstance(value, wanted):
        raise InvalidArgument(name, value, f"has type {type(value).__name__}", fix=f"give {expected}")


def check_choice(name: str, value: object, allowed: Sequence[str]) -> None:
    """Raise unless an argument is one of the allowed values.

    >>> check_choice("late", "drop", ("count", "emit"))
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: late = 'drop': is not a valid value of late; use one of count, emit
    """
    if value not in allowed:
        raise InvalidArgument(
            name, value, f"is not a valid value of {name}", fix=available(value, allowed, lead="use one of ")
        )


_HOWS: Final = {
    "outer": "full",
    "fullouter": "full",
    "leftouter": "left",
    "rightouter": "right",
    "leftsemi": "semi",
    "leftanti": "anti",
}
"""Spark's other names for kinds of joins, without underscores."""


def join_kind(how: object, allowed: Sequence[str]) -> Any:
    """The kind of a join in one of the spellings that Spark accepts.

    >>> join_kind("leftOuter", ("inner", "left")), join_kind("full_outer", ("inner", "full"))
    ('left', 'full')
    >>> join_kind("cross", ("inner", "left"))
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: how = 'cross': is not a valid value of how; use one of inner, left
    """
    spelled = str(how).lower().replace("_", "")
    kind = _HOWS.get(spelled, spelled)
    if kind not in allowed:
        check_choice("how", how, allowed)
    return kind


def set_names(spec: object, name: str) -> None:
    """Store a field of column names as a tuple, also if a single name or a list was given."""
    given = getattr(spec, name)
    check_type(name, given, Sequence, f'column names, as in {name}=("auction",)')
    names = (given,) if isinstance(given, str) else tuple(given)
    for column in names:
        check_column(column, name)
    object.__setattr__(spec, name, names)


def check_distinct(argument: str, names: Sequence[str], reserved: Iterable[str], problem: str) -> None:
    """Raise if a name occurs twice, or is reserved.

    >>> check_distinct("key", ("a", "a"), (), "is used twice")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: key = 'a': is used twice
    """
    for number, name in enumerate(names):
        if name in names[:number] or name in reserved:
            raise InvalidArgument(argument, name, problem)
