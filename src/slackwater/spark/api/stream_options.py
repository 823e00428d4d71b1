"""What a user says of a DataFrame: its event times, its watermarks, who sent the rows, in which buffers.

There are three ways to tell how far the rows are: a policy for one event time, a policy for each of
several, or headers in which the producers say it themselves. Exactly one of them is given, and what does
not go with it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import BooleanType, DataType, IntegralType, TimestampType

from slackwater.errors import InvalidArgument
from slackwater.progress.generator import Clock, WatermarkPolicy
from slackwater.progress.values import DEFAULT_KEY, Origin
from slackwater.spark.api.key_columns import check_named
from slackwater.spark.api.stream_inputs import RowSource, quoted
from slackwater.spark.runtime.keyed_progress import TimesRules
from slackwater.spark.runtime.numbered_progress import NumberedRules
from slackwater.spark.runtime.source_progress import SourceRules
from slackwater.spark.wire import numbered_chunks as chunks
from slackwater.spark.wire.clock_source import Clocking

ColumnLike = str | Column


@dataclass(frozen=True)
class IngestionTime:
    """The time at which a row arrives stands for its event time; made by `ingestion_time`."""


def ingestion_time() -> IngestionTime:
    """The event time of rows that carry none: the clock of the batch in which they arrive.

    All rows of a batch have the same time, and a batch that is repeated after a failure gets the time of
    the first attempt. For a batch DataFrame it is the time of the run. Without a ``watermark`` of its own
    the stream follows the clock.

    When not to use it: windows of such a stream say when rows came, not when things happened. A backfill
    puts a year of events into one window.

    >>> ingestion_time()
    IngestionTime()
    """
    return IngestionTime()


@dataclass(frozen=True)
class Headers:
    """Where the header of a row's buffer stands; made by `headers`."""

    origin: ColumnLike
    sequence: ColumnLike
    chunk: ColumnLike | None = None
    last: ColumnLike | None = None
    watermark: ColumnLike | None = None
    empty: ColumnLike | None = None
    row: ColumnLike | None = None


def headers(
    *,
    origin: ColumnLike,
    sequence: ColumnLike,
    chunk: ColumnLike | None = None,
    last: ColumnLike | None = None,
    watermark: ColumnLike,
    empty: ColumnLike | None = None,
    row: ColumnLike | None = None,
) -> Headers:
    """Columns (names or expressions) that say to which numbered buffer a row belongs.

    An ``origin`` numbers its buffers: ``sequence`` runs 1, 2, 3, … without gaps, ``chunk`` 1..n inside a
    sequence, and ``last`` is true in the highest; without these two every sequence is one chunk. The
    ``watermark`` is a timestamp, or null, that counts once everything up to the buffer has come. Rows of
    one buffer have the same header, and come in one micro-batch.

    Where ``empty`` is true the row is a header alone, without data: how an origin says that time has
    passed and nothing happened. A buffer that comes again is dropped and counted, whenever it comes; but
    within *one* micro-batch nobody can tell a copy from the other rows of the buffer, unless ``row``
    numbers the rows of a buffer. If every row is a buffer of its own, write ``row=lit(1)``.

    >>> headers(origin="device", sequence="number", watermark="complete_until").sequence
    'number'
    """
    if (chunk is None) != (last is None):
        missing = "chunk" if chunk is None else "last"
        raise InvalidArgument(
            missing, None, "is missing, though the other of chunk and last is given", fix=f'add {missing}="…"'
        )
    return Headers(origin, sequence, chunk, last, watermark, empty, row)


@dataclass(frozen=True)
class Reading:
    """How the rows of a DataFrame are to be read; the arguments of `stream`, in microseconds."""

    df: DataFrame
    event_time: ColumnLike | IngestionTime | None
    event_times: Mapping[str, WatermarkPolicy] | None
    watermark: WatermarkPolicy | None
    headers: Headers | None
    origin: ColumnLike | None
    origins: Sequence[str] | None
    idle_after: int | None
    max_ahead: int | None

    def source(self, clock: Clocking) -> RowSource:
        """The rows as a source, or an error that says which arguments do not go together."""
        if isinstance(self.headers, Headers):
            return self._numbered(self.headers, clock)
        if self.headers is not None:
            raise InvalidArgument(
                "headers", self.headers, "does not describe headers", fix="write headers(origin=…, …)"
            )
        if self.event_times is not None:
            return self._several(self.event_times, clock)
        if self.event_time is None:
            raise InvalidArgument(
                "event_time",
                None,
                "is missing",
                fix='write event_time="at", or event_times={"at": lag("5 seconds"), …}',
            )
        if isinstance(self.event_time, IngestionTime):
            return self._arriving(clock)
        if self.watermark is None:
            raise InvalidArgument(
                "watermark",
                None,
                "is missing: nobody knows how far the rows are",
                fix='write watermark=lag("5 seconds"), or headers=headers(…)',
            )
        rules = self._rules(self.watermark, DEFAULT_KEY)
        column = self._timestamp("event_time", self.event_time)
        return RowSource(self.df, {DEFAULT_KEY: column}, self._origin(), rules, clock)

    def _several(self, event_times: Mapping[str, WatermarkPolicy], clock: Clocking) -> RowSource:
        self._excluded("event_times", "event_time", self.event_time, "leave one of the two out")
        self._excluded("event_times", "watermark", self.watermark, "give every event time its policy")
        if not event_times:
            raise InvalidArgument(
                "event_times",
                event_times,
                "does not name an event time",
                fix='write {"order": lag("5 seconds"), "shipped": lag("1 minute")}',
            )
        columns = {key: self._timestamp("event_times", key) for key in event_times}
        rules = tuple(self._rules(policy, key) for key, policy in event_times.items())
        return RowSource(self.df, columns, self._origin(), TimesRules(rules, rules[0].key), clock)

    def _arriving(self, clock: Clocking) -> RowSource:
        self._excluded("ingestion_time()", "max_ahead", self.max_ahead, "no row lies ahead of the clock")
        rules = self._rules(Clock(0) if self.watermark is None else self.watermark, DEFAULT_KEY, arrival=True)
        # The true time is known where the clock is: in the buckets.
        unknown = {DEFAULT_KEY: sql.timestamp_micros(sql.lit(0))}
        return RowSource(self.df, unknown, self._origin(), rules, clock)

    def _numbered(self, given: Headers, clock: Clocking) -> RowSource:
        for name, value, fix in (
            ("watermark", self.watermark, "the headers tell it; leave one of the two out"),
            ("event_times", self.event_times, 'headers tell one watermark; write event_time="…"'),
            ("origin", self.origin, "write it in headers(origin=…)"),
            ("max_ahead", self.max_ahead, "the origins tell how far they are; leave it out"),
        ):
            self._excluded("headers", name, value, fix)
        if isinstance(self.event_time, IngestionTime) or self.event_time is None:
            raise InvalidArgument(
                "event_time",
                self.event_time,
                "is not in the rows, but watermarks of producers speak of the rows' own times",
                fix='name the column: event_time="at"',
            )
        event_time = self._timestamp("event_time", self.event_time)
        rules = NumberedRules(self._idle_after(), self._declared(known=True))
        return RowSource(
            self.df, {DEFAULT_KEY: event_time}, None, rules, clock, header=self._header_columns(given)
        )

    def _header_columns(self, given: Headers) -> dict[str, Column]:
        integer, truth = (IntegralType, "a whole number"), (BooleanType, "a boolean")
        columns = {
            chunks.ORIGIN: _column(self.df, "headers.origin", given.origin).cast("string"),
            chunks.SEQUENCE: self._typed("headers.sequence", given.sequence, *integer).cast("bigint"),
            chunks.CHUNK: sql.lit(1).cast("bigint"),
            chunks.LAST: sql.lit(1).cast("boolean"),
            chunks.WATERMARK: sql.unix_micros(self._timestamp("headers.watermark", given.watermark)),
            chunks.EMPTY: sql.lit(0).cast("boolean"),
        }
        if given.chunk is not None and given.last is not None:
            columns[chunks.CHUNK] = self._typed("headers.chunk", given.chunk, *integer).cast("bigint")
            columns[chunks.LAST] = self._typed("headers.last", given.last, *truth)
        if given.empty is not None:
            is_empty = self._typed("headers.empty", given.empty, *truth)
            columns[chunks.EMPTY] = sql.coalesce(is_empty, sql.lit(0).cast("boolean"))
        if given.row is not None:
            columns[chunks.ROW] = self._typed("headers.row", given.row, *integer).cast("bigint")
        return columns

    def _rules(self, policy: WatermarkPolicy, key: str, *, arrival: bool = False) -> SourceRules:
        rules = SourceRules(
            policy=policy,
            idle_after=self.idle_after,
            max_ahead=self.max_ahead,
            origins=self._declared(known=self.origin is not None),
            key=key,
            arrival=arrival,
        )
        rules.generator(now=0)  # whatever it refuses is refused here
        return rules

    def _idle_after(self) -> int | None:
        if self.idle_after is not None and self.idle_after <= 0:
            raise InvalidArgument(
                "idle_after", self.idle_after, "must be greater than zero", fix="leave it out for never"
            )
        return self.idle_after

    def _origin(self) -> Column | None:
        return None if self.origin is None else _column(self.df, "origin", self.origin)

    def _declared(self, *, known: bool) -> tuple[Origin, ...] | None:
        if self.origins is None:
            return None
        if not known:
            raise InvalidArgument(
                "origins", self.origins, "there is no column of origins", fix='add origin="name"'
            )
        if isinstance(self.origins, str):
            raise InvalidArgument(
                "origins", self.origins, "is a single text", fix=f"write [{self.origins!r}]"
            )
        if not all(isinstance(origin, str) for origin in self.origins):
            raise InvalidArgument(
                "origins",
                self.origins,
                "are not all texts, as origins are, whatever the type of their column",
                fix=f"write {[str(origin) for origin in self.origins]}",
            )
        return tuple(self.origins)

    def _excluded(self, by: str, name: str, value: object, fix: str) -> None:
        if value is not None:
            raise InvalidArgument(name, value, f"does not go with {by}", fix=fix)

    def _timestamp(self, argument: str, value: ColumnLike | None) -> Column:
        return self._typed(argument, value, TimestampType, "a timestamp", _TIMESTAMP_FIX)

    def _typed(
        self,
        argument: str,
        value: ColumnLike | None,
        wanted: type[DataType],
        name: str,
        fix: str = "cast it, or give an expression",
    ) -> Column:
        column = _column(self.df, argument, value)
        kind = self.df.select(column).schema[0].dataType
        if not isinstance(kind, wanted):
            raise InvalidArgument(argument, value, f"is of type {kind.simpleString()}, not {name}", fix=fix)
        return column


_TIMESTAMP_FIX: Final = "give an expression of type timestamp, like timestamp_millis(…) or to_timestamp(…)"


def _column(df: DataFrame, argument: str, value: ColumnLike | None) -> Column:
    if isinstance(value, str):
        check_named(df.sparkSession, df.columns, argument, value)
        return quoted(value)
    if not isinstance(value, Column):
        raise InvalidArgument(
            argument, value, "is neither a column nor the name of one", fix=f'write {argument}="name"'
        )
    return value
