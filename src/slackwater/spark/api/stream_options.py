"""The arguments of `stream`: event times, watermarks, origins and the headers of numbered buffers.

The watermark of a stream comes from a policy for its event time, from one policy for each of several event
times, or from headers in which producers send watermarks themselves. Exactly one of these is given; arguments
that do not go with it raise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import BooleanType, DataType, IntegralType, TimestampNTZType, TimestampType

from slackwater.errors import InvalidArgument
from slackwater.progress.discovery import Discover
from slackwater.progress.values import DEFAULT_KEY, Origin
from slackwater.progress.watermark_policies import Clock, Lag, LagLikeSpark, TableWatermark, WatermarkPolicy
from slackwater.spark.api.key_columns import check_free, check_named
from slackwater.spark.api.source_limits import source_limit
from slackwater.spark.api.stream_inputs import RowSource, quoted
from slackwater.spark.internals import is_remote
from slackwater.spark.runtime.keyed_progress import TimesRules
from slackwater.spark.runtime.numbered_progress import NumberedRules
from slackwater.spark.runtime.source_progress import SourceRules
from slackwater.spark.wire import numbered_chunks as chunks
from slackwater.spark.wire.clock_source import ClockSpec
from slackwater.windows.assigners import zone

ColumnLike = str | Column


@dataclass(frozen=True)
class IngestionTime:
    """Ingestion time as the event time of a stream; created by `ingestion_time`."""


def ingestion_time() -> IngestionTime:
    """Use the time at which a row arrives as its event time, for rows that have none.

    All rows of a micro-batch have the same time, and a batch that is repeated after a failure gets the time
    of the first attempt. For a batch DataFrame it is the time of the run. Without a ``watermark`` policy the
    watermark follows the clock.

    When not to use it: windows over ingestion time say when rows arrived, not when events happened. A
    backfill puts a year of events into one window.

    Returns:
        A value for the argument ``event_time`` of `stream`.

    >>> import slackwater as sw
    >>> sw.ingestion_time()
    IngestionTime()
    """
    return IngestionTime()


@dataclass(frozen=True)
class Headers:
    """The columns with the header of a row's buffer; created by `headers`."""

    origin: ColumnLike
    sequence: ColumnLike
    chunk: ColumnLike | None = None
    last: ColumnLike | None = None
    watermark: ColumnLike | None = None
    empty: ColumnLike | None = None
    row: ColumnLike | None = None
    rows: ColumnLike | None = None


def headers(
    *,
    origin: ColumnLike,
    sequence: ColumnLike,
    chunk: ColumnLike | None = None,
    last: ColumnLike | None = None,
    watermark: ColumnLike,
    empty: ColumnLike | None = None,
    row: ColumnLike | None = None,
    rows: ColumnLike | None = None,
) -> Headers:
    """Name the columns that contain the header of the numbered buffer that a row belongs to.

    All rows of a buffer have the same header. A buffer that arrives again is dropped and counted. A source
    that may divide a buffer between micro-batches needs ``rows``, the number of rows of the buffer. Without
    it a buffer is complete with the first batch that contains it: other rows of it in the next batch stop
    the query with an error, and rows in a later one are dropped and counted (``dropped_duplicate``). Within
    *one* micro-batch a copy of a buffer cannot be distinguished from its other rows, unless ``row`` numbers
    the rows of a buffer.

    Args:
        origin: The producer of the buffer.
        sequence: The sequence number of the buffer: 1, 2, 3, … without gaps for each origin.
        chunk: The number of the chunk in its sequence, 1 to n. Without ``chunk`` and ``last`` every sequence
            has one chunk.
        last: True in the chunk with the highest number.
        watermark: A timestamp, or null, that takes effect when all buffers up to this one have arrived.
        empty: True in a row that is a header without data, with which an origin reports that time has passed
            and nothing happened.
        row: The number of the row in its buffer. If every row is a buffer of its own, write ``row=lit(1)``.
        rows: The number of rows of the whole buffer (of the chunk, if there are chunks), without header rows.
            The buffer is complete when so many rows have arrived, in one micro-batch or in several. More rows
            stop the query with an error, unless ``row`` numbers them: repeated rows are dropped and counted.

    Returns:
        A value for the argument ``headers`` of `stream`.

    Raises:
        InvalidArgument: Only one of ``chunk`` and ``last`` is given.

    >>> import slackwater as sw
    >>> sw.headers(origin="device", sequence="number", watermark="complete_until").sequence
    'number'
    """
    if (chunk is None) != (last is None):
        missing, given = ("chunk", "last") if chunk is None else ("last", "chunk")
        raise InvalidArgument(
            missing, None, f"is missing, but {given} is given", fix=f'add {missing}="…", or omit {given}'
        )
    return Headers(origin, sequence, chunk, last, watermark, empty, row, rows)


class RowInput(ABC):
    """Rows that take the place of a DataFrame in `stream`; those of a test, which run in process."""

    buckets: tuple[int, ...] = (0,)

    @property
    @abstractmethod
    def options(self) -> type[StreamOptions]:
        """The class that makes a source of these rows from the arguments of `stream`."""


@dataclass(frozen=True)
class StreamOptions:
    """The arguments of `stream`, with durations in microseconds."""

    df: DataFrame
    event_time: ColumnLike | IngestionTime | None
    event_times: Mapping[str, WatermarkPolicy] | None
    watermark: WatermarkPolicy | TableWatermark | None
    headers: Headers | None
    origin: ColumnLike | None
    origins: Sequence[str] | Discover | None
    idle_after: int | None
    max_ahead: int | None
    forget_after: int | None = None
    timezone: str | None = None
    retraction: ColumnLike | None = None

    def source(self, clock: ClockSpec) -> RowSource:
        """The source that the arguments describe; raises if they are missing, invalid or contradictory."""
        if self.timezone is not None:
            zone(self.timezone)
        if isinstance(self.headers, Headers):
            return self._numbered(self.headers, clock)
        if self.headers is not None:
            raise InvalidArgument(
                "headers", self.headers, "is not a Headers value", fix="write headers=headers(origin=…, …)"
            )
        if self.event_times is not None:
            return self._several_times(self.event_times, clock)
        if self.event_time is None:
            raise InvalidArgument(
                "event_time",
                None,
                "is missing",
                fix='write event_time="at", or event_times={"at": lag("5 seconds"), …}',
            )
        if isinstance(self.event_time, IngestionTime):
            return self._ingestion_time(clock)
        if self.watermark is None:
            raise InvalidArgument(
                "watermark",
                None,
                "is missing, so windows would never fire",
                fix='write watermark=lag("5 seconds"), or headers=headers(…)',
            )
        if isinstance(self.watermark, TableWatermark):
            return self._from_table(self.watermark, self._timestamp("event_time", self.event_time), clock)
        rules = self._rules(self.watermark, DEFAULT_KEY)
        column = self._timestamp("event_time", self.event_time)
        return self._rows({DEFAULT_KEY: column}, rules, clock, origin=self._origin())

    def _from_table(self, table: TableWatermark, event_time: Column, clock: ClockSpec) -> RowSource:
        by = "the completeness of a table as watermark"
        for name, value in (
            ("origin", self.origin),
            ("origins", self.origins),
            ("idle_after", self.idle_after),
            ("max_ahead", self.max_ahead),
            ("forget_after", self.forget_after),
        ):
            self._excluded(by, name, value, "omit it: the table states one time for all of its rows")
        if self.df.isStreaming and not is_remote(self.df.sparkSession) and (limit := source_limit(self.df)):
            raise InvalidArgument(
                "watermark",
                table.table,
                f"may be ahead of the rows that a batch has read: a source is limited by {limit}",
                fix="remove the limit, so that every batch reads all available rows",
            )
        rules = SourceRules(Lag(table.lag), table=table.table)
        return replace(self._rows({DEFAULT_KEY: event_time}, rules, clock), given_table=table)

    def _several_times(self, event_times: Mapping[str, WatermarkPolicy], clock: ClockSpec) -> RowSource:
        self._excluded("event_times", "event_time", self.event_time, "give only one of the two")
        self._excluded("event_times", "watermark", self.watermark, "give each event time its own policy")
        if not event_times:
            raise InvalidArgument(
                "event_times",
                event_times,
                "is empty",
                fix='write {"order": lag("5 seconds"), "shipped": lag("1 minute")}',
            )
        for key in event_times:
            check_free("event_times", key)
        rules = tuple(self._rules(policy, key) for key, policy in event_times.items())
        columns = {key: self._timestamp("event_times", key) for key in event_times}
        return self._rows(columns, TimesRules(rules, rules[0].key), clock, origin=self._origin())

    def _ingestion_time(self, clock: ClockSpec) -> RowSource:
        self._excluded(
            "ingestion_time()", "max_ahead", self.max_ahead, "omit it: no row is ahead of the clock"
        )
        rules = self._rules(Clock(0) if self.watermark is None else self.watermark, DEFAULT_KEY, arrival=True)
        return self._rows({DEFAULT_KEY: self._no_time()}, rules, clock, origin=self._origin())

    def _numbered(self, given: Headers, clock: ClockSpec) -> RowSource:
        for name, value, fix in (
            ("watermark", self.watermark, "give only one of the two: headers contain the watermark"),
            ("event_times", self.event_times, 'write event_time="…": headers contain one watermark'),
            ("origin", self.origin, "write headers(origin=…)"),
            ("max_ahead", self.max_ahead, "omit it: the origins send the watermarks"),
            ("forget_after", self.forget_after, "omit it: sequence numbers of an origin must be remembered"),
        ):
            self._excluded("headers", name, value, fix)
        if isinstance(self.event_time, IngestionTime) or self.event_time is None:
            raise InvalidArgument(
                "event_time",
                self.event_time,
                "is not a column, but the watermarks in headers refer to event times in the rows",
                fix='name the column: event_time="at"',
            )
        event_time = self._timestamp("event_time", self.event_time)
        rules = NumberedRules(self._idle_after(), self._origins(has_origin=True))
        return self._rows({DEFAULT_KEY: event_time}, rules, clock, header=self._header_columns(given))

    def _rows(
        self,
        event_times: Mapping[str, Column],
        rules: SourceRules | TimesRules | NumberedRules,
        clock: ClockSpec,
        *,
        origin: Column | None = None,
        header: Mapping[str, Column] | None = None,
    ) -> RowSource:
        return self._source_class(
            self.df, event_times, origin, rules, clock, header=header or {}, retraction=self._retraction()
        )

    @property
    def _source_class(self) -> type[RowSource]:
        return RowSource

    def _retraction(self) -> Column | None:
        """The column that marks retractions; None if there are none."""
        if self.retraction is None:
            return None
        column = self._typed("retraction", self.retraction, BooleanType, "a boolean")
        return sql.coalesce(column, sql.lit(0).cast("boolean"))

    def _no_time(self) -> Column:
        """A placeholder for an event time, which the buckets replace: they know the clock."""
        return sql.timestamp_micros(sql.lit(0))

    def _header_columns(self, given: Headers) -> dict[str, Column]:
        integer, boolean = (IntegralType, "an integer"), (BooleanType, "a boolean")
        columns = {
            chunks.ORIGIN: _column(self.df, "headers.origin", given.origin).cast("string"),
            chunks.SEQUENCE: self._typed("headers.sequence", given.sequence, *integer).cast("bigint"),
            chunks.CHUNK: sql.lit(1).cast("bigint"),
            chunks.LAST: sql.lit(1).cast("boolean"),
            chunks.WATERMARK: sql.unix_micros(self._timestamp("headers.watermark", given.watermark)),
            chunks.EMPTY: sql.lit(0).cast("boolean"),
            chunks.FIRST_RESULT: sql.lit(1).cast("boolean"),
        }
        if given.chunk is not None and given.last is not None:
            columns[chunks.CHUNK] = self._typed("headers.chunk", given.chunk, *integer).cast("bigint")
            columns[chunks.LAST] = self._typed("headers.last", given.last, *boolean)
        if given.empty is not None:
            is_empty = self._typed("headers.empty", given.empty, *boolean)
            columns[chunks.EMPTY] = sql.coalesce(is_empty, sql.lit(0).cast("boolean"))
        if given.row is not None:
            columns[chunks.ROW] = self._typed("headers.row", given.row, *integer).cast("bigint")
        if given.rows is not None:
            columns[chunks.ANNOUNCED] = self._typed("headers.rows", given.rows, *integer).cast("bigint")
            if given.row is not None:
                columns[chunks.INPUT_ROW] = columns[chunks.ROW]
        return columns

    def _rules(
        self, policy: WatermarkPolicy | TableWatermark, key: str, *, arrival: bool = False
    ) -> SourceRules:
        given: object = policy
        if not isinstance(policy, WatermarkPolicy):
            written = f"lag({given!r})" if isinstance(given, str | timedelta) else 'lag("5 seconds")'
            several = self.event_times is not None
            raise InvalidArgument(
                f"event_times[{key!r}]" if several else "watermark",
                given,
                "is not a watermark policy",
                fix=f"write {{{key!r}: {written}}}" if several else f"write watermark={written}",
            )
        if isinstance(policy, LagLikeSpark):
            self._excluded(
                "lag(…, like_spark=True)", "origin", self.origin, "omit it: Spark has one watermark per input"
            )
        rules = SourceRules(
            policy=policy,
            idle_after=self.idle_after,
            max_ahead=self.max_ahead,
            origins=self._origins(has_origin=self.origin is not None),
            key=key,
            arrival=arrival,
            forget_after=self.forget_after,
        )
        if self.forget_after is not None and rules.declared is not None:
            raise InvalidArgument(
                "forget_after",
                self.forget_after,
                "cannot be combined with a list of origins, which are waited for",
                fix="remove origins from the list instead, or omit origins= to discover them",
            )
        rules.generator(now=0)  # raises if the rules are invalid
        return rules

    def _idle_after(self) -> int | None:
        if self.idle_after is not None and self.idle_after <= 0:
            raise InvalidArgument(
                "idle_after",
                self.idle_after,
                "must be greater than zero",
                fix="omit it if origins are never idle",
            )
        return self.idle_after

    def _origin(self) -> Column | None:
        return None if self.origin is None else _column(self.df, "origin", self.origin)

    def _origins(self, *, has_origin: bool) -> tuple[Origin, ...] | Discover | None:
        if self.origins is None:
            return None
        if not has_origin:
            raise InvalidArgument(
                "origins", self.origins, "is given without an origin column", fix='add origin="name"'
            )
        if isinstance(self.origins, Discover):
            return self.origins
        if isinstance(self.origins, str):
            raise InvalidArgument(
                "origins", self.origins, "is a string, not a list", fix=f"write [{self.origins!r}]"
            )
        if not self.origins:
            raise InvalidArgument(
                "origins", self.origins, "is empty", fix="list the origins, or omit it to discover them"
            )
        if not all(isinstance(origin, str) for origin in self.origins):
            raise InvalidArgument(
                "origins",
                self.origins,
                "must contain strings, whatever the type of the origin column",
                fix=f"write {[str(origin) for origin in self.origins]}",
            )
        return tuple(self.origins)

    def _excluded(self, by: str, name: str, value: object, fix: str) -> None:
        if value is not None:
            raise InvalidArgument(name, value, f"cannot be combined with {by}", fix=fix)

    def _timestamp(self, argument: str, value: ColumnLike | None) -> Column:
        column = _column(self.df, argument, value)
        if not isinstance(_type_of(self.df, value, column), TimestampNTZType):
            return self._typed(argument, value, TimestampType, "a timestamp", _TIMESTAMP_FIX)
        if self.timezone is None:
            raise InvalidArgument(
                argument,
                value,
                "is of type timestamp_ntz, which has no timezone",
                fix='add timezone="Europe/Berlin" (or "UTC"), the timezone in which they were written',
            )
        # The difference of two local times in UTC does not depend on the timezone of the session.
        in_utc = sql.convert_timezone(sql.lit(self.timezone), sql.lit("UTC"), column)
        since_1970 = in_utc - sql.lit("1970-01-01 00:00:00").cast("timestamp_ntz")
        return sql.timestamp_micros(sql.lit(0)) + since_1970

    def _typed(
        self,
        argument: str,
        value: ColumnLike | None,
        wanted: type[DataType],
        name: str,
        fix: str = "cast it, or give an expression",
    ) -> Column:
        column = _column(self.df, argument, value)
        kind = _type_of(self.df, value, column)
        if not isinstance(kind, wanted):
            raise InvalidArgument(argument, value, f"is of type {kind.simpleString()}, not {name}", fix=fix)
        return column


_TIMESTAMP_FIX: Final = "give an expression of type timestamp, like timestamp_millis(…) or to_timestamp(…)"


def _type_of(df: DataFrame, value: ColumnLike | None, column: Column) -> DataType:
    """The type of a column that is given by its exact name or as an expression."""
    if isinstance(value, str):
        # The schema is known already; analyzing a plan takes long in a new JVM.
        return df.schema[value].dataType
    return df.select(column).schema[0].dataType


def _column(df: DataFrame, argument: str, value: ColumnLike | None) -> Column:
    if isinstance(value, str):
        check_named(df.sparkSession, df.columns, argument, value)
        return quoted(value)
    if not isinstance(value, Column):
        raise InvalidArgument(
            argument, value, "is neither a column nor a column name", fix=f'write {argument}="name"'
        )
    return value
