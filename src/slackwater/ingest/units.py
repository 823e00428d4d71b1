"""Units of a job: what is extracted separately within each partition.

A unit is a set of named values, such as a customer, a file, or a site and a table. Its identity does not
depend on how it is written: as a word in a list, as an object, or as a record of a secondary input. The order
of its fields does not matter, and numbers are compared as text, as in a path or a query.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from slackwater.errors import InvalidArgument

_NOT_STORABLE: Final = re.compile(r"[\0\ud800-\udfff]")
"""Zero characters and lone surrogates, which JSON can contain."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Named values, sorted by name; ``key`` is their canonical JSON, which identifies the unit.

    >>> from slackwater.ingest import WHOLE, unit_of
    >>> unit_of({"table": "t1", "site": 7}).key
    '{"site":"7","table":"t1"}'
    >>> unit_of({}) == WHOLE
    True
    """

    values: tuple[tuple[str, str | None], ...] = field(compare=False)
    key: str

    def as_dict(self) -> dict[str, str | None]:
        """The values by name.

        >>> from slackwater.ingest import unit_of
        >>> unit_of({"id": "a"}).as_dict()
        {'id': 'a'}
        """
        return dict(self.values)

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.values)


def unit_of(values: Mapping[str, Any]) -> Unit:
    """Make the unit with these values; numbers and booleans become text.

    Args:
        values: The values of the unit by field name.

    Returns:
        The unit.

    Raises:
        InvalidArgument: A value is a list or an object, or contains the character U+0000.

    >>> from slackwater.ingest import unit_of
    >>> unit_of({"id": 1}) == unit_of({"id": "1"})
    True
    >>> str(unit_of({"id": True, "day": None}))
    'day=None, id=true'
    """
    texts = {str(name): value_text(value) for name, value in values.items()}
    key = json.dumps(texts, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return Unit(tuple(sorted(texts.items())), key)


def value_text(value: object) -> str | None:
    """Convert a value of a unit to text.

    >>> value_text(1.5), value_text(False), value_text(None)
    ('1.5', 'false', None)
    >>> value_text([1])
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: unit = [1]: is a list; use text, a number, true, false or null
    """
    if isinstance(value, str) and (character := _NOT_STORABLE.search(value)):
        fix = "remove the character, or filter such units out"
        code = f"U+{ord(character[0]):04X}"
        raise InvalidArgument(
            "unit", value, f"contains the character {code}, which paths and tables cannot store", fix=fix
        )
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, dict, tuple, set)):
        kind = "an object" if isinstance(value, dict) else "a list"
        raise InvalidArgument("unit", value, f"is {kind}", fix="use text, a number, true, false or null")
    return str(value)


def distinct(units: Iterable[Unit]) -> tuple[Unit, ...]:
    """The units without duplicates, in order of first occurrence.

    >>> [unit.key for unit in distinct([unit_of({"a": 1}), unit_of({"a": 1})])]
    ['{"a":"1"}']
    """
    return tuple(dict.fromkeys(units))


WHOLE = unit_of({})
"""The single unit of a job that lists none."""
