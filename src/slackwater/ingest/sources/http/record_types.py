"""Column types inferred from all values of a unit: the narrowest type that loses nothing.

The kinds of values in a column form a set. Sets are merged by union, so pages can be processed in any order
and on any machine. The type follows from the whole set:

| seen, apart from nulls | type |
|---|---|
| nothing | string |
| true and false | boolean |
| whole numbers of 64 bits | bigint |
| whole numbers of up to 38 digits | decimal(38,0) |
| numbers, the whole ones among them within ±2⁵³ | double |
| anything else, or a mixture | string: text as it is, other values as JSON |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

Seen = dict[str, set[str]]
"""The columns in the order in which they first occurred, each with the kinds of its values."""

_EXACT_IN_DOUBLE: Final = 2**53
_LONG: Final = 2**63
_DECIMAL: Final = 10**38


def kind_of(value: Any) -> str | None:
    """The kind of a value; None for null, which has none.

    >>> [kind_of(value) for value in (True, 1, 2**60, 2**70, 10**40, 0.5, "a", [1], None)]
    ['boolean', 'small', 'long', 'decimal', 'huge', 'double', 'text', 'nested', None]
    """
    match value:
        case None:
            return None
        case bool():
            return "boolean"
        case int():
            if -_EXACT_IN_DOUBLE <= value <= _EXACT_IN_DOUBLE:
                return "small"
            if -_LONG <= value < _LONG:
                return "long"
            return "decimal" if -_DECIMAL < value < _DECIMAL else "huge"
        case float():
            return "double"
        case str():
            return "text"
        case _:
            return "nested"


def look_at(seen: Seen, records: Iterable[Mapping[str, Any]]) -> None:
    """Add the kinds of the values in records to ``seen``.

    >>> seen: Seen = {}
    >>> look_at(seen, [{"id": 1}, {"id": None, "name": "a"}])
    >>> seen
    {'id': {'small'}, 'name': {'text'}}
    """
    for record in records:
        for name, value in record.items():
            kinds = seen.setdefault(name, set())
            kind = kind_of(value)
            if kind is not None:
                kinds.add(kind)


def join(first: Seen, second: Mapping[str, Iterable[str]]) -> Seen:
    """Merge the kinds seen in two sets of records.

    >>> {name: sorted(kinds) for name, kinds in join({"a": {"small"}}, {"a": ["text"], "b": []}).items()}
    {'a': ['small', 'text'], 'b': []}
    """
    joined = {name: set(kinds) for name, kinds in first.items()}
    for name, kinds in second.items():
        joined.setdefault(name, set()).update(kinds)
    return joined


def type_of(kinds: set[str]) -> str:
    """The Spark type of a column with values of these kinds.

    >>> (
    ...     type_of({"small", "double"}),
    ...     type_of({"long", "double"}),
    ...     type_of({"small", "boolean"}),
    ...     type_of(set()),
    ... )
    ('double', 'string', 'string', 'string')
    >>> type_of({"small", "long"}), type_of({"small", "decimal"}), type_of({"huge"})
    ('bigint', 'decimal(38,0)', 'string')
    """
    if not kinds:
        return "string"
    if kinds == {"boolean"}:
        return "boolean"
    if kinds <= {"small", "long"}:
        return "bigint"
    if kinds <= {"small", "long", "decimal"}:
        return "decimal(38,0)"
    return "double" if kinds <= {"small", "double"} else "string"
