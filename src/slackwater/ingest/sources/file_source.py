"""File source: the files of a range, by the date in their path or by modification time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta, tzinfo
from typing import Any, Final
from urllib.parse import unquote

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.types import StructType

from slackwater.errors import InvalidArgument
from slackwater.ingest.axis.timezones import instant_of
from slackwater.ingest.sources.globs import escaped, expression_of, inside, root_of
from slackwater.spark.internals import JavaError
from slackwater.time import to_datetime

_LETTERS: Final = {"y": "year", "M": "month", "d": "day", "H": "hour", "m": "minute"}
_TOKEN: Final = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")
_STEPS: Final = {
    "d": timedelta(days=1),
    "H": timedelta(hours=1),
    "m": timedelta(minutes=1),
}
_CHECKED: Final[dict[str, dict[str, str]]] = {
    # columns are matched by name: a file with other names, or in another order, is rejected
    "csv": {"header": "true", "enforceschema": "false", "mode": "FAILFAST", "escape": '"'},
    "json": {"mode": "FAILFAST"},
}
"""Default options, which ``ms.source.options`` can override: an invalid value is an error, not null."""


class DateInPath:
    """A Java date pattern that finds the date in a path.

    >>> from slackwater.ingest.axis.timezones import zone
    >>> from slackwater.time import format_instant
    >>> start, end = DateInPath("yyyy/MM/dd").range_of("in/2020/01/31/a.csv", zone("Z"))
    >>> format_instant(start), format_instant(end)
    ('2020-01-31T00:00:00Z', '2020-02-01T00:00:00Z')
    """

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._letters: list[str] = []
        expression = ""
        for token in _TOKEN.finditer(pattern):
            quoted, letter = token[1], token[2]
            if letter is None:
                expression += re.escape(token[0] if quoted is None else quoted.replace("''", "'") or "'")
            elif letter not in _LETTERS:
                fix = f"use the letters {', '.join(_LETTERS)}, and put other text in single quotes"
                reason = f"has an unsupported letter {letter!r}"
                raise InvalidArgument("ms.source.files.pattern", pattern, reason, fix=fix)
            else:
                self._letters.append(letter)
                expression += rf"(\d{{{len(token[0])}}})"
        if "y" not in self._letters:
            reason = "has no year"
            raise InvalidArgument("ms.source.files.pattern", pattern, reason, fix="write it like yyyy/MM/dd")
        self._expression = re.compile(rf"(?<!\d){expression}(?!\d)", re.ASCII)

    def range_of(self, path: str, tz: tzinfo) -> tuple[int, int] | None:
        """The range that the date in a path covers; None if the path has no such date."""
        for found in self._expression.finditer(path):
            parts = {
                _LETTERS[letter]: int(text)
                for letter, text in zip(self._letters, found.groups(), strict=True)
            }
            try:
                start = datetime(**{"month": 1, "day": 1, **parts})  # type: ignore[arg-type]  # noqa: DTZ001 - wall clock
            except ValueError:
                continue
            return instant_of(start, tz), instant_of(self._after(start), tz)
        return None

    def _after(self, start: datetime) -> datetime:
        for letter in "mHd":
            if letter in self._letters:
                return start + _STEPS[letter]
        if "M" in self._letters and start.month < 12:
            return start.replace(month=start.month + 1)
        return start.replace(year=start.year + 1, month=1)


def files_of(
    spark: SparkSession,
    path: str,
    low: int,
    high: int,
    *,
    by: str,
    pattern: str | None,
    tz: tzinfo,
    overlapping: bool,
    home: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> list[str]:
    """List the files of a path, which may contain patterns, that belong to ``[low, high)``, sorted by name.

    The date in a path belongs to the range in which it starts, or with ``overlapping``, where rows are
    filtered by their own time, to every range that it overlaps. Without a date pattern all files of the path
    belong to the range. Spark lists the files, so the path may be on any file system that it supports; names
    that begin with ``_`` or ``.`` are hidden, as in Spark. No files is not an error, unless ``home`` does not
    exist.

    >>> from slackwater.ingest.axis.timezones import zone
    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> files_of(spark, "/no/such/*", 0, 10, by="modified", pattern=None, tz=zone("Z"), overlapping=False)
    []
    """
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    for name, value in (options or {}).items():
        if name.startswith("fs."):  # the configuration of the file system
            reader = reader.option(name, str(value))
    if by == "modified":
        reader = reader.option("timeZone", "UTC").option("modifiedAfter", _wall(low - 1))
        reader = reader.option("modifiedBefore", _wall(high))
    try:
        if not (found := _listed(reader, root_of(path))):
            if found is None and home is not None and _listed(reader, home) is None:
                fix = "correct it, or create the folder if it is still empty"
                raise InvalidArgument("ms.source.path", home, "does not exist", fix=fix)
            return []
    except JavaError as error:
        reason = f"cannot be listed: {error.java_exception.getMessage()}"
        fix = "check the path, and the configuration of its file system in Spark"
        raise InvalidArgument("ms.source.path", path, reason, fix=fix) from None
    expression = expression_of(path)
    names = sorted(name for name in map(unquote, found) if expression.fullmatch(inside(name)))
    dated = None if by == "modified" or pattern is None else DateInPath(pattern)

    def belongs(name: str) -> bool:
        span = (low, low) if dated is None else dated.range_of(name, tz)
        if span is None:
            return False
        start, end = span
        return low <= start < high or (overlapping and start < high and end > low)

    return [name for name in names if belongs(name)]


def _listed(reader: DataFrameReader, path: str) -> list[str] | None:
    """The files of a path; None if the path does not exist."""
    try:
        return list(reader.load(path).inputFiles())
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return None


def _wall(at: int) -> str:
    return to_datetime(at).replace(tzinfo=None).isoformat(timespec="microseconds")


def read_files(
    spark: SparkSession, names: list[str], form: str, options: dict[str, Any], columns: StructType | None
) -> DataFrame | None:
    """Read files as a DataFrame; None without files. A value that cannot be parsed is an error, not null.

    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> read_files(spark, [], "csv", {}, None) is None
    True
    """
    if not names:
        return None
    given = {name: str(value) for name, value in options.items()}
    known = {name.lower() for name in given}
    checked = {name: text for name, text in _CHECKED.get(form, {}).items() if name not in known}
    reader = spark.read.format(form).options(**checked, **given)
    return (reader if columns is None else reader.schema(columns)).load([escaped(name) for name in names])
