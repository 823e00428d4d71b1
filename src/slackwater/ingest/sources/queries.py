"""Queries with bound parameters: what a unit asks a database, and nothing of it pasted into the text.

``{{name}}`` in a query becomes a parameter of the statement, so that no value can change what it says. The
two databases write parameters and compare times differently; that is decided here, once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import chain
from typing import Final

from slackwater.errors import InvalidArgument
from slackwater.ingest.axis.timezones import change_near, local_of
from slackwater.sql.identifiers import quote_identifier, quote_table
from slackwater.time import DAY, to_datetime

Parameter = str | datetime

_NAME: Final = re.compile(r"(\{\{[^{}]*\}\})")
_COMMENT: Final = r"--[^\n]*(?:\n|\Z)|/\*(?:(?!\*/).)*\*/"
_PIECE: Final = re.compile(
    rf"""
      (?P<quoted>
          \b[eE]'(?:[^'\\]|\\.|'')*'        # a text of PostgreSQL with backslashes
        | '(?:[^']|'')*'                     # a text
        | "(?:[^"]|"")*"                     # a name
        | `[^`]*`                            # a name of SQLite
        | \$(?P<tag>(?:[^\W\d]\w*)?)\$.*?\$(?P=tag)\$  # a text of PostgreSQL
      )
    | (?P<comment>{_COMMENT})
    | (?P<end>;(?=(?:[\s;]|{_COMMENT})*\Z))  # with nothing behind it
    | \{{\{{\s*(?P<name>[^{{}}]*?)\s*\}}\}}
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Statement:
    """SQL text, cut where its parameters are, and their values, which are never shown.

    >>> Statement(("SELECT ", ""), ("a",))
    Statement(pieces=('SELECT ', ''))
    """

    pieces: tuple[str, ...]
    parameters: tuple[Parameter, ...] = field(default=(), repr=False)

    def text(self, backend: str) -> str:
        """The text with its parameters as a database writes them.

        >>> Statement(("SELECT ", ", ", ""), ("a", "b")).text("postgresql")
        'SELECT $1, $2'
        """
        return self._joined(place_holder(number + 1, backend) for number in range(len(self.parameters)))

    def without_parameters(self) -> tuple[str, tuple[str, ...]]:
        """For PostgreSQL: the text without parameters, as COPY needs it, and the settings that it reads.

        A time is a constant: nothing from outside is in it, and the server knows how many rows lie behind
        it. A text is read from a setting, once, by a query of its own.

        >>> Statement(("SELECT ", ""), ("a",)).without_parameters()
        ("SELECT CAST((SELECT current_setting('slackwater.p1')) AS text)", ('a',))
        >>> Statement(("SELECT ", ""), (to_datetime(0),)).without_parameters()
        ("SELECT CAST('1970-01-01T00:00:00+00:00' AS timestamptz)", ())
        """
        places, settings = [], []
        for value in self.parameters:
            if isinstance(value, datetime):
                places.append(f"CAST('{value.isoformat()}' AS timestamptz)")
            else:
                settings.append(value)
                # the cast keeps it a value where a query in brackets would be rows, as after ANY
                places.append(f"CAST((SELECT current_setting('{setting(len(settings))}')) AS text)")
        return self._joined(places), tuple(settings)

    def _joined(self, places: Iterable[str]) -> str:
        return "".join(chain.from_iterable(zip(self.pieces, (*places, ""), strict=True)))


def setting(number: int) -> str:
    """The setting of PostgreSQL in which a text waits for the statement that reads it.

    >>> setting(1)
    'slackwater.p1'
    """
    return f"slackwater.p{number}"


def place_holder(number: int, backend: str) -> str:
    """The parameter with this number, from 1 on.

    >>> place_holder(2, "postgresql"), place_holder(2, "sqlite")
    ('$2', '?')
    """
    return f"${number}" if backend == "postgresql" else "?"


def time_value(at: int, backend: str, place: tzinfo = UTC) -> Parameter:
    """A time as a parameter: SQLite has no type for it, and compares the text that it writes itself.

    >>> from slackwater.ingest.axis.timezones import zone
    >>> time_value(0, "sqlite"), time_value(0, "sqlite", zone("Europe/Berlin"))
    ('1970-01-01 00:00:00', '1970-01-01 01:00:00')
    """
    return to_datetime(at) if backend == "postgresql" else local_of(at, place).isoformat(" ")


def widened(low: int, high: int, place: tzinfo) -> tuple[int, int]:
    """A range with as much before and behind it as clocks change there, for who looks at the rows afterwards.

    Of an hour that comes twice, a database takes the second, or compares what the clock shows; here it is
    the first. Without the rows beside the range some of them would be in no range at all.

    >>> from slackwater.ingest.axis.timezones import zone
    >>> from slackwater.time import HOUR, format_instant, instant
    >>> low = instant("2020-10-25T00:00:00Z")
    >>> [format_instant(at) for at in widened(low, low + 9 * HOUR, zone("Europe/Berlin"))]
    ['2020-10-24T23:00:00Z', '2020-10-25T09:00:00Z']
    """
    return low - change_near(low, place), high + change_near(high, place)


def bind(query: str, values: Mapping[str, Parameter]) -> Statement:
    """A query with every ``{{name}}`` as a parameter, without the semicolon at its end.

    >>> bind("SELECT * FROM t WHERE a = {{id}} AND b = {{id}};", {"id": "7"}).text("postgresql")
    'SELECT * FROM t WHERE a = $1 AND b = $2'
    >>> bind("SELECT '{{id}}'", {"id": "7"})
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: ms.source.query = "'{{id}}'": is in quotes, where it would be text; \
leave the quotes out
    """
    pieces: list[str] = []
    parameters: list[Parameter] = []
    end = 0
    for found in _PIECE.finditer(query := _without_end(query)):
        name, quoted_text = found["name"], found["quoted"]
        if quoted_text is not None and _NAME.search(quoted_text):
            reason = "is in quotes, where it would be text"
            raise InvalidArgument("ms.source.query", quoted_text, reason, fix=_unquoted(quoted_text))
        if name is None:
            continue
        if name not in values:
            fix = f"use one of {', '.join(values)}, or add it to ms.parameters"
            raise InvalidArgument("ms.source.query", name, "unknown parameter", fix=fix)
        pieces.append(query[end : found.start()])
        parameters.append(values[name])
        end = found.end()
    return Statement((*pieces, query[end:]), tuple(parameters))


def _without_end(query: str) -> str:
    return _PIECE.sub(lambda found: "" if found["end"] else found[0], query)


def _unquoted(text: str) -> str:
    """How to write a text with a parameter in it."""
    parts = [part if _NAME.match(part) else f"'{part}'" for part in _NAME.split(text[1:-1]) if part]
    return f"write {' || '.join(parts)}" if text[0] == "'" and len(parts) > 1 else "leave the quotes out"


def range_of_table(table: str, time_column: str | None, low: int, high: int, backend: str) -> Statement:
    """The rows of a table in ``[low, high)``; in SQLite a day or two more on either side.

    SQLite compares texts. Whatever way they go on after the date, the date itself compares as time does, so
    the statement asks for whole days, and an index still serves; who reads the rows looks at the times.

    >>> range_of_table("t", "at", 0, 10, "sqlite").parameters
    ('1969-12-31', '1970-01-03')
    """
    text = f"SELECT * FROM {quote_table(table)}"  # noqa: S608 - a quoted name
    if time_column is None:
        return Statement((text,))
    bounds: tuple[Parameter, Parameter] = (to_datetime(low), to_datetime(high))
    if backend == "sqlite":
        bounds = (f"{to_datetime(low - DAY):%Y-%m-%d}", f"{to_datetime(high + 2 * DAY):%Y-%m-%d}")
    at = quote_identifier(time_column)
    return Statement((f"{text} WHERE {at} >= ", f" AND {at} < ", ""), bounds)


def zone_name(place: tzinfo) -> str:
    """A timezone as Spark and Arrow name it.

    >>> from slackwater.ingest.axis.timezones import zone
    >>> zone_name(zone("Europe/Berlin")), zone_name(zone("-0530")), zone_name(zone("Z"))
    ('Europe/Berlin', '-05:30', 'UTC')
    """
    offset = place.utcoffset(None)
    if offset is None:
        return str(place)
    return "UTC" if not offset else _offset(offset)


def posix_zone(place: tzinfo) -> str:
    """The same for PostgreSQL, which reads the sign of an offset the other way round.

    >>> from slackwater.ingest.axis.timezones import zone
    >>> posix_zone(zone("+05:30"))
    '<+05:30>-05:30'
    """
    offset = place.utcoffset(None)
    return f"<{_offset(offset)}>{_offset(-offset)}" if offset else zone_name(place)


def _offset(distance: timedelta) -> str:
    hours, minutes = divmod(abs(distance) // timedelta(minutes=1), 60)
    return f"{'-' if distance < timedelta() else '+'}{hours:02}:{minutes:02}"
