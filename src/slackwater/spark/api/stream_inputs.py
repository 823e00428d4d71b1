"""The inputs of an operator: sources of rows, and the value behind a stream.

A source provides the columns that an operator needs and those that drive it, and turns them into buffers. The
bucket of a row is Spark's own hash of the key for every kind of source, so that equal keys of several inputs
meet in one bucket.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import StructField, StructType

from slackwater._suggestions import available
from slackwater.errors import InvalidArgument
from slackwater.progress.values import Origin
from slackwater.progress.watermark_policies import Learned, TableWatermark
from slackwater.spark.api.key_columns import check_free, check_named
from slackwater.spark.runtime.keyed_progress import TimesRules
from slackwater.spark.runtime.map_side import Folding, Shipper
from slackwater.spark.runtime.numbered_progress import NumberedRules
from slackwater.spark.runtime.operator_inputs import InputRules
from slackwater.spark.runtime.source_progress import ONLY_ORIGIN, SourceRules
from slackwater.spark.wire.buffers import BUFFER
from slackwater.spark.wire.clock_source import ClockSpec, common_clock
from slackwater.spark.wire.wire_columns import (
    BUCKET_INDEX,
    INVALID_REASON,
    ORIGIN,
    RECORD_POSITION,
    RETRACTION,
    TIME,
    WINDOW_BOUNDS,
    column_alias,
    time_column,
)
from slackwater.windows import Window
from slackwater.windows.spec.operator_spec import SIDES, longest_lateness


@dataclass(frozen=True)
class RowRequest:
    """What an operator needs from a source."""

    columns: tuple[str, ...]
    """The columns that it reads."""
    signed: bool
    """Whether the driving columns include `RETRACTION`."""
    flush: bool
    """Whether the stream ends with the run."""
    path: str
    """The prefix of the names of upstream operators in reports."""
    keys: tuple[str, ...] = ()
    """The watermark keys, in addition to the driving one, whose event times stay in the rows."""
    records: bool = False
    """Whether the driving columns include the positions of records, for those that are invalid."""


class Source(ABC):
    """Rows with an event time and a watermark: an input of an operator."""

    @property
    @abstractmethod
    def schema(self) -> StructType:
        """The columns of the rows."""

    @property
    @abstractmethod
    def spark(self) -> SparkSession:
        """The Spark session."""

    @property
    def session(self) -> SparkSession | None:
        """The Spark session; None for rows that run in process, in a test."""
        return self.spark

    @property
    @abstractmethod
    def is_streaming(self) -> bool:
        """Whether the rows are a streaming DataFrame."""

    @property
    @abstractmethod
    def rules(self) -> InputRules:
        """How the watermark of the rows is made."""

    @property
    @abstractmethod
    def clock(self) -> ClockSpec | None:
        """The clock to unite with; None if an upstream operator passes the time on."""

    @property
    @abstractmethod
    def retracts(self) -> bool:
        """Whether rows may retract earlier ones."""

    @property
    def can_fold(self) -> bool:
        """Whether rows are final before the shuffle; only then can map tasks fold them."""
        return True

    def by(self, key: str) -> Source:
        """The same rows, driven by the event time of another watermark key."""
        if key != self.rules.key:
            raise InvalidArgument(
                "by", key, "is not a watermark key of the input", fix=f"use {self.rules.key!r}"
            )
        return self

    @property
    def windows(self) -> tuple[Window, ...]:
        """The windows that rows are in already; empty for rows of a DataFrame."""
        return ()

    @property
    def name(self) -> str | None:
        """The name that the user gave the stream, for reports; None if there is none."""
        return None

    @property
    def lateness(self) -> int | None:
        """How far rows may be behind the watermark: the allowed lateness of the operator that emits them.

        It is None if there is no limit, and 0 for rows of a DataFrame. An operator with at least this allowed
        lateness drops none of the late panes and retractions that it receives.
        """
        return 0

    @property
    def fires_early(self) -> bool:
        """Whether rows may be, or contain, panes of windows that are not complete yet."""
        return False

    @property
    def emits_failures(self) -> bool:
        """Whether rows for which an async function failed go to the output; see `Stream.map_async`."""
        return False

    @property
    def carries_failures(self) -> bool:
        """Whether rows for which an async function failed go to the next operator, which counts them."""
        return self.emits_failures

    @property
    def skips_failures(self) -> bool:
        """Whether rows for which an async function failed end at the next operator."""
        return False

    @property
    def table(self) -> TableWatermark | None:
        """The table whose completeness is the watermark; None if it follows from the rows."""
        return None

    @property
    def seam(self) -> str | None:
        """Where history ends and live rows begin; None if the rows have no history."""
        return None

    @property
    def has_records(self) -> bool:
        """Whether rows are records with a topic, a partition and an offset; see `from_kafka`."""
        return False

    @property
    def window_columns(self) -> tuple[str, ...]:
        """The columns with the window of a row."""
        return WINDOW_BOUNDS if self.windows else ()

    @property
    def available(self) -> StructType:
        """The columns that a user can name: those of ``schema``, and those that only go on if named."""
        return self.schema

    @abstractmethod
    def driven(self, request: RowRequest) -> tuple[DataFrame, list[Column]]:
        """Rows with at least the requested columns, and the columns that drive an operator."""

    def field(self, argument: str, name: str) -> StructField:
        """The column of this name; raises an error that names ``argument`` if there is none."""
        check_named(self.session, self.available.names, argument, name)
        check_free(argument, name)
        return self.available[name]

    def buffers(self, request: RowRequest, shipper: Shipper, key: Sequence[str]) -> DataFrame:
        """The requested rows as buffers for the buckets of an operator."""
        rows, driving = self.driven(request)
        bucket = sql.lit(0)
        if key:
            bucket = sql.pmod(sql.hash(*map(quoted, key)), sql.lit(len(shipper.buckets)))
        carried = [quoted(name).alias(column_alias(index)) for index, name in enumerate(shipper.columns)]
        chosen = rows.select(*driving, bucket.cast("int").alias(BUCKET_INDEX), *carried)
        return chosen.mapInArrow(shipper, BUFFER)

    def shipper(
        self,
        number: int,
        columns: Sequence[str],
        buckets: tuple[int, ...],
        *,
        emit_invalid: bool,
        folding: Folding | None = None,
        keys: Sequence[str] = (),
        gap: str | None = None,
        limits: tuple[int, int] | None = None,
        sampled: tuple[str, ...] | None = None,
    ) -> Shipper:
        """What turns columns into buffers for the buckets of an operator; this is its input ``number``."""
        return Shipper(
            buckets=buckets,
            input=number,
            columns=tuple(columns),
            origin=self.only_origin(),
            peaks=isinstance(self.rules, SourceRules | TimesRules) and self.rules.max_ahead is not None,
            emit_invalid=emit_invalid,
            times=self.times(),
            learned=self.learned_keys,
            kept=tuple(map(time_column, keys)),
            folding=folding if self.can_fold else None,
            gap=gap,
            limits=limits,
            sampled=sampled,
        )

    @property
    def keys(self) -> tuple[str, ...]:
        """The watermark keys of the rows, for each of which rows have an event time."""
        return (self.rules.key,)

    @property
    def learned_keys(self) -> tuple[str, ...]:
        """The watermark keys whose lag is learned."""
        match self.rules:
            case SourceRules():
                sources: tuple[SourceRules, ...] = (self.rules,)
            case TimesRules():
                sources = self.rules.times
            case _:
                sources = ()
        return tuple(one.key for one in sources if isinstance(one.policy, Learned))

    def only_origin(self) -> Origin | None:
        """The name of the single origin; None if a column contains the origin."""
        return None

    def times(self) -> tuple[tuple[str, str], ...]:
        """The watermark keys whose event times map tasks observe, and their columns."""
        return ()


@dataclass(frozen=True)
class RowSource(Source):
    """The rows of a DataFrame, with their event times by watermark key."""

    df: DataFrame
    event_times: Mapping[str, Column]
    origin: Column | None
    source_rules: SourceRules | TimesRules | NumberedRules
    source_clock: ClockSpec
    header: Mapping[str, Column] = field(default_factory=dict)
    """The columns with the header of a row's buffer, if producers number their buffers."""
    given_name: str | None = None
    record: Mapping[str, Column] = field(default_factory=dict)
    """Why a record is invalid, and its position, if rows are records."""
    given_table: TableWatermark | None = None
    retraction: Column | None = None
    """True in a row that retracts an earlier one; None if no row does."""
    given_seam: str | None = None

    @property
    def table(self) -> TableWatermark | None:
        """The table whose completeness is the watermark."""
        return self.given_table

    @property
    def seam(self) -> str | None:
        """Where history ends and live rows begin."""
        return self.given_seam

    @property
    def has_records(self) -> bool:
        """Whether rows are records with a topic, a partition and an offset."""
        return bool(self.record)

    @property
    def name(self) -> str | None:
        """The name that the user gave the stream, for reports; None if there is none."""
        return self.given_name

    @property
    def schema(self) -> StructType:
        """The columns of the DataFrame."""
        return self.df.schema

    @property
    def spark(self) -> SparkSession:
        """The session of the DataFrame."""
        return self.df.sparkSession

    @property
    def is_streaming(self) -> bool:
        """Whether the DataFrame is streaming."""
        return self.df.isStreaming

    @property
    def rules(self) -> InputRules:
        """How the watermark is made from the rows."""
        return self.source_rules

    @property
    def clock(self) -> ClockSpec | None:
        """The clock that the user chose."""
        return self.source_clock

    @property
    def retracts(self) -> bool:
        """Whether a column marks retractions."""
        return self.retraction is not None

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the event times."""
        return tuple(self.event_times)

    @property
    def can_fold(self) -> bool:
        """False if the bucket decides which rows count, or which event time they have."""
        rules = self.source_rules
        return not (isinstance(rules, NumberedRules) or (isinstance(rules, SourceRules) and rules.arrival))

    def by(self, key: str) -> Source:
        """The same rows, driven by another of their event times."""
        if key not in self.event_times:
            raise InvalidArgument(
                "by",
                key,
                "is not a watermark key of the input",
                fix=available(key, self.event_times, lead="use one of ", tail=", or add it to event_times"),
            )
        if isinstance(self.source_rules, TimesRules):
            return replace(self, source_rules=replace(self.source_rules, key=key))
        return self

    def driven(self, request: RowRequest) -> tuple[DataFrame, list[Column]]:
        """The rows with their event times, and their origin or header."""
        others = {key: column for key, column in self.times() if column != TIME}
        driving = [sql.unix_micros(self.event_times[self.rules.key]).alias(TIME)]
        if request.signed:
            none = sql.lit(0).cast("boolean")
            driving.append((none if self.retraction is None else self.retraction).alias(RETRACTION))
        driving += [sql.unix_micros(self.event_times[key]).alias(name) for key, name in others.items()]
        if self.origin is not None:
            named = sql.coalesce(self.origin.cast("string"), sql.lit("null"))
            driving.append(named.alias(ORIGIN))
        driving += [column.alias(name) for name, column in self.header.items()]
        if self.record:
            names = (INVALID_REASON, *(RECORD_POSITION if request.records else ()))
            driving += [self.record[name].alias(name) for name in names]
        return self.df, driving

    def only_origin(self) -> Origin | None:
        """The name of the single origin; None if a column contains the origin."""
        return ONLY_ORIGIN if self.origin is None else None

    def times(self) -> tuple[tuple[str, str], ...]:
        """The watermark keys and their columns; empty if producers send watermarks in headers."""
        if self.header:
            return ()
        return tuple((key, TIME if key == self.rules.key else time_column(key)) for key in self.event_times)


@dataclass(frozen=True)
class DerivedSource(Source):
    """The rows of another source with other columns; event times, origins and windows are the same."""

    inner: Source

    @property
    def session(self) -> SparkSession | None:
        """The Spark session of the input rows; None in a test without Spark."""
        return self.inner.session

    @property
    def name(self) -> str | None:
        """The name of the stream of the input rows."""
        return self.inner.name

    @property
    def spark(self) -> SparkSession:
        """The Spark session."""
        return self.inner.spark

    @property
    def is_streaming(self) -> bool:
        """Whether the input rows are streaming."""
        return self.inner.is_streaming

    @property
    def rules(self) -> InputRules:
        """How the watermark of the input rows is made."""
        return self.inner.rules

    @property
    def clock(self) -> ClockSpec | None:
        """The clock of the input rows."""
        return self.inner.clock

    @property
    def retracts(self) -> bool:
        """Whether input rows may be retracted; then the rows derived from them are retracted as well."""
        return self.inner.retracts

    @property
    def lateness(self) -> int | None:
        """How far the input rows may be behind the watermark."""
        return self.inner.lateness

    @property
    def fires_early(self) -> bool:
        """Whether the input rows may be early panes."""
        return self.inner.fires_early

    @property
    def emits_failures(self) -> bool:
        """Whether the input rows contain failed ones, which go on."""
        return self.inner.emits_failures

    @property
    def carries_failures(self) -> bool:
        """Whether failed rows of the input go to the next operator."""
        return self.inner.carries_failures

    @property
    def skips_failures(self) -> bool:
        """Whether failed rows of the input end at the next operator."""
        return self.inner.skips_failures

    @property
    def table(self) -> TableWatermark | None:
        """The table whose completeness is the watermark of the input rows."""
        return self.inner.table

    @property
    def seam(self) -> str | None:
        """Where the history of the input rows ends."""
        return self.inner.seam

    @property
    def has_records(self) -> bool:
        """Whether the input rows are records."""
        return self.inner.has_records

    @property
    def windows(self) -> tuple[Window, ...]:
        """The windows of the input rows."""
        return self.inner.windows

    @property
    def keys(self) -> tuple[str, ...]:
        """The watermark keys of the input rows."""
        return self.inner.keys

    @property
    def can_fold(self) -> bool:
        """Whether the input rows are final before the shuffle."""
        return self.inner.can_fold

    def by(self, key: str) -> Source:
        """The same rows, driven by another event time of the input rows."""
        return replace(self, inner=self.inner.by(key))

    def times(self) -> tuple[tuple[str, str], ...]:
        """The watermark keys of the input rows and their event-time columns."""
        return self.inner.times()

    def only_origin(self) -> Origin | None:
        """The single origin of the input rows; None if a column contains it."""
        return self.inner.only_origin()


@dataclass(frozen=True)
class StreamInputs:
    """One or more sources with the same buckets and, if any, the same key: the value behind a stream."""

    sources: tuple[Source, ...]
    buckets: tuple[int, ...]
    key: tuple[str, ...] = ()
    watermark_name: str | None = None
    """The name of the driving watermark key from here on, if it was renamed."""

    @property
    def watermark_key(self) -> str:
        """The key of the watermark that drives the next operator."""
        return self.sources[0].rules.key if self.watermark_name is None else self.watermark_name

    @property
    def retracts(self) -> bool:
        """Whether rows may retract earlier ones."""
        return any(source.retracts for source in self.sources)

    @property
    def lateness(self) -> int | None:
        """How far rows may be behind the watermark; see `Source.lateness`."""
        return longest_lateness(source.lateness for source in self.sources)

    @property
    def fires_early(self) -> bool:
        """Whether rows may be early panes; see `Source.fires_early`."""
        return any(source.fires_early for source in self.sources)

    @property
    def emits_failures(self) -> bool:
        """Whether rows for which an async function failed go to the output."""
        return any(source.emits_failures for source in self.sources)

    @property
    def has_records(self) -> bool:
        """Whether some rows are records with a topic, a partition and an offset."""
        return any(source.has_records for source in self.sources)

    @property
    def key_fields(self) -> list[StructField]:
        """The key columns."""
        return [self.field("key_by", name) for name in self.key]

    def field(self, argument: str, name: str) -> StructField:
        """A column that all sources have with the same type; raises an error that names ``argument``."""
        first, *rest = [source.field(argument, name) for source in self.sources]
        for other in rest:
            if other.dataType != first.dataType:
                raise InvalidArgument(
                    argument,
                    name,
                    f"has different types in the united streams: {first.dataType.simpleString()} and "
                    f"{other.dataType.simpleString()}",
                    fix="cast one of them before the union",
                )
        return first


def check_compatible(first: StreamInputs, *others: StreamInputs) -> None:
    """Raise if several streams cannot be inputs of one operator."""
    for other in others:
        if not isinstance(other, StreamInputs):
            raise InvalidArgument(
                "others", other, "is not a stream", fix="create one with slackwater.stream(df, …)"
            )
        if other.sources[0].is_streaming != first.sources[0].is_streaming:
            raise InvalidArgument(
                "others",
                other,
                "cannot be combined: one input is streaming and the other is a batch DataFrame",
                fix="combine streaming inputs with streaming ones, and batch inputs with batch ones",
            )
        if other.buckets != first.buckets:
            raise InvalidArgument(
                "others",
                len(other.buckets),
                f"is another number of buckets than {len(first.buckets)}",
                fix="give all streams the same buckets=",
            )
    sources = [source for each in (first, *others) for source in each.sources]
    if clocks := [source.clock for source in sources if source.clock is not None]:
        common_clock(clocks)  # raises if the clocks cannot be combined


def united_sources(first: StreamInputs, *others: StreamInputs) -> tuple[Source, ...]:
    """The sources of several streams; raises if they cannot be united."""
    check_compatible(first, *others)
    for other in others:
        if other.watermark_key != first.watermark_key:
            raise InvalidArgument(
                "others",
                other.watermark_key,
                f"is the watermark key of the other stream, but this stream has {first.watermark_key!r}",
                fix=f"call by({other.watermark_key!r}, name={first.watermark_key!r}) on the other stream",
            )
    return tuple(source for each in (first, *others) for source in each.sources)


def input_names(sources: Sequence[Source], sides: Sequence[int]) -> tuple[str | None, ...]:
    """What reports call the inputs of an operator: by the name of the stream, otherwise by position.

    >>> input_names((), ())
    ()
    """
    names: list[str | None] = []
    for number, source in enumerate(sources):
        if source.name is not None:
            names.append(f"input {source.name!r}")
        elif len(sources) == 1:
            names.append(None)
        elif len(sources) == len(set(sides)):
            names.append(f"the {SIDES[sides[number]]} input")
        else:
            names.append(f"input {number + 1}")
    return tuple(names)


def quoted(name: str) -> Column:
    """A column by its exact name, which may contain dots and backticks.

    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> spark.range(1).withColumnRenamed("id", "a.b").select(quoted("a.b")).columns
    ['a.b']
    """
    escaped = name.replace("`", "``")
    return sql.col(f"`{escaped}`")
