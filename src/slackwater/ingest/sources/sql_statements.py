"""SQL statements with bound parameters for SQLite and PostgreSQL.

``{{name}}`` in a query becomes a parameter of the statement, so no value can change the statement. The two
databases differ in placeholders and in how they compare times; those differences are handled here.
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

ParameterValue = str | datetime

_NAME: Final = re.compile(r"(\{\{[^{}]*\}\})")
_COMMENT: Final = r"--[^\n]*(?:\n|\Z)|/\*(?:(?!\*/).)*\*/"
_PIECE: Final = re.compile(
    rf"""
      (?P<quoted>
          \b[eE]'(?:[^'\\]|\\.|'')*'        # a PostgreSQL string with escapes
        | '(?:[^']|'')*'                     # a string
        | "(?:[^"]|"")*"                     # an identifier
        | `[^`]*`                            # a SQLite identifier
        | \$(?P<tag>(?:[^\W\d]\w*)?)\$.*?\$(?P=tag)\$  # a dollar-quoted PostgreSQL string
      )
    | (?P<comment>{_COMMENT})
    | (?P<end>;(?=(?:[\s;]|{_COMMENT})*\Z))  # at the end of the query
    | \{{\{{\s*(?P<name>[^{{}}]*?)\s*\}}\}}
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Statement:
    """SQL text, split at its parameters, and their values, which are never shown.

    >>> Statement(("SELECT ", ""), ("a",))
    Statement(pieces=('SELECT ', ''))
    """

    pieces: tuple[str, ...]
    parameters: tuple[ParameterValue, ...] = field(default=(), repr=False)

    def text(self, backend: str) -> str:
        """The text with the placeholders of a database.

        >>> Statement(("SELECT ", ", ", ""), ("a", "b")).text("postgresql")
        'SELECT $1, $2'
        """
        return self._joined(placeholder(number + 1, backend) for number in range(len(self.parameters)))

    def without_parameters(self) -> tuple[str, tuple[str, ...]]:
        """For PostgreSQL: the text without parameters, as COPY requires, and the values of its settings.

        A time becomes a constant, which is safe to write and lets the server estimate row counts. A text is
        read from a setting by a subquery, once.

        >>> Statement(("SELECT ", ""), ("a",)).without_parameters()
        ("SELECT CAST((SELECT current_setting('slackwater.p1')) AS text)", ('a',))
        >>> Statement(("SELECT ", ""), (to_datetime(0),)).without_parameters()
        ("SELECT CAST('1970-01-01T00:00:00+00:00' AS timestamptz)", ())
        """
        values, settings = [], []
        for value in self.parameters:
            if isinstance(value, datetime):
                values.append(f"CAST('{value.isoformat()}' AS timestamptz)")
            else:
                settings.append(value)
                # the cast keeps it a scalar where a subquery would be rows, as after ANY
                values.append(f"CAST((SELECT current_setting('{setting(len(settings))}')) AS text)")
        return self._joined(values), tuple(settings)

    def _joined(self, values: Iterable[str]) -> str:
        return "".join(chain.from_iterable(zip(self.pieces, (*values, ""), strict=True)))


def setting(number: int) -> str:
    """The name of the PostgreSQL setting that holds a text parameter.

    >>> setting(1)
    'slackwater.p1'
    """
    return f"slackwater.p{number}"


def placeholder(number: int, backend: str) -> str:
    """The placeholder of a parameter; numbers start at 1.

    >>> placeholder(2, "postgresql"), placeholder(2, "sqlite")
    ('$2', '?')
    """
    return f"${number}" if backend == "postgresql" else "?"


def time_value(at: int, backend: str, tz: tzinfo = UTC) -> ParameterValue:
    """A time as a parameter value; SQLite has no time type and compares texts in its own format.

    >>> from slackwater.ingest.axis.timezones import zone
    >>> time_value(0, "sqlite"), time_value(0, "sqlite", zone("Europe/Berlin"))
    ('1970-01-01 00:00:00', '1970-01-01 01:00:00')
    """
    return to_datetime(at) if backend == "postgresql" else local_of(at, tz).isoformat(" ")


def widened(low: int, high: int, tz: tzinfo) -> tuple[int, int]:
    """Widen a range by the DST changes at its bounds; the caller filters the rows by time afterwards.

    For an ambiguous hour a database uses the second instant, or compares wall-clock times; ingestion uses the
    first. Without the rows around the range, some rows would be in no range at all.

    >>> from slackwater.ingest.axis.timezones import zone
    >>> from slackwater.time import HOUR, format_instant, instant
    >>> low = instant("2020-10-25T00:00:00Z")
    >>> [format_instant(at) for at in widened(low, low + 9 * HOUR, zone("Europe/Berlin"))]
    ['2020-10-24T23:00:00Z', '2020-10-25T09:00:00Z']
    """
    return low - change_near(low, tz), high + change_near(high, tz)


def bind(query: str, values: Mapping[str, ParameterValue]) -> Statement:
    """Turn every ``{{name}}`` of a query into a parameter, and remove a final semicolon.

    >>> bind("SELECT * FROM t WHERE a = {{id}} AND b = {{id}};", {"id": "7"}).text("postgresql")
    'SELECT * FROM t WHERE a = $1 AND b = $2'
    >>> bind("SELECT '{{id}}'", {"id": "7"})
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: ms.source.query = "'{{id}}'": is in quotes, where it would be text; \
remove the quotes
    """
    pieces: list[str] = []
    parameters: list[ParameterValue] = []
    end = 0
    for found in _PIECE.finditer(query := _without_end(query)):
        name, quoted_text = found["name"], found["quoted"]
        if quoted_text is not None and _NAME.search(quoted_text):
            reason = "is in quotes, where it would be text"
            raise InvalidArgument("ms.source.query", quoted_text, reason, fix=_unquoted(quoted_text))
        if name is None:
            continue
        if name not in values:
            # only here: executors import this module, and need no validation of job files
            from slackwater.ingest.jobfile.parameters import unknown_parameter

            raise unknown_parameter("ms.source.query", name, values)
        pieces.append(query[end : found.start()])
        parameters.append(values[name])
        end = found.end()
    return Statement((*pieces, query[end:]), tuple(parameters))


def _without_end(query: str) -> str:
    return _PIECE.sub(lambda found: "" if found["end"] else found[0], query)


def _unquoted(text: str) -> str:
    """The fix for a quoted text that contains a parameter."""
    parts = [part if _NAME.match(part) else f"'{part}'" for part in _NAME.split(text[1:-1]) if part]
    return f"write {' || '.join(parts)}" if text[0] == "'" and len(parts) > 1 else "remove the quotes"


def range_of_table(table: str, time_column: str | None, low: int, high: int, backend: str) -> Statement:
    """Select the rows of a table in ``[low, high)``; in SQLite with a day or two more on either side.

    SQLite compares texts. Their dates sort like times whatever follows the date, so the statement selects
    whole days, which can use an index; the caller filters the rows by time.

    >>> range_of_table("t", "at", 0, 10, "sqlite").parameters
    ('1969-12-31', '1970-01-03')
    """
    text = f"SELECT * FROM {quote_table(table)}"  # noqa: S608 - a quoted name
    if time_column is None:
        return Statement((text,))
    bounds: tuple[ParameterValue, ParameterValue] = (to_datetime(low), to_datetime(high))
    if backend == "sqlite":
        bounds = (f"{to_datetime(low - DAY):%Y-%m-%d}", f"{to_datetime(high + 2 * DAY):%Y-%m-%d}")
    at = quote_identifier(time_column)
    return Statement((f"{text} WHERE {at} >= ", f" AND {at} < ", ""), bounds)


def zone_name(tz: tzinfo) -> str:
    """The name of a timezone in Spark and Arrow.

    >>> from slackwater.ingest.axis.timezones import zone
    >>> zone_name(zone("Europe/Berlin")), zone_name(zone("-0530")), zone_name(zone("Z"))
    ('Europe/Berlin', '-05:30', 'UTC')
    """
    offset = tz.utcoffset(None)
    if offset is None:
        return str(tz)
    return "UTC" if not offset else _offset(offset)


def posix_zone(tz: tzinfo) -> str:
    """The name of a timezone in PostgreSQL, where the sign of a POSIX offset is inverted.

    >>> from slackwater.ingest.axis.timezones import zone
    >>> posix_zone(zone("+05:30"))
    '<+05:30>-05:30'
    """
    offset = tz.utcoffset(None)
    return f"<{_offset(offset)}>{_offset(-offset)}" if offset else zone_name(tz)


def _offset(distance: timedelta) -> str:
    hours, minutes = divmod(abs(distance) // timedelta(minutes=1), 60)
    return f"{'-' if distance < timedelta() else '+'}{hours:02}:{minutes:02}"
