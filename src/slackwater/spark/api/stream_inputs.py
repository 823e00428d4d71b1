"""Where the rows of an operator come from: a DataFrame, or the panes of an operator before it.

Both become rows with the columns that an operator needs and those that drive it, and then buffers. The
place of a row among the buckets is Spark's own hash of the key, whatever the rows come from, so that
equal keys of several inputs meet.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import polars as pl
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, BooleanType, LongType, StructField, StructType

from slackwater.errors import InvalidArgument
from slackwater.progress.values import Origin
from slackwater.spark.api.key_columns import check_named
from slackwater.spark.runtime.keyed_progress import TimesRules
from slackwater.spark.runtime.numbered_progress import NumberedRules
from slackwater.spark.runtime.operator_inputs import InputRules, UpstreamRules
from slackwater.spark.runtime.source_progress import SourceRules
from slackwater.spark.wire.buffers import BUFFER, unpack
from slackwater.spark.wire.clock_source import Clocking
from slackwater.spark.wire.map_side import CONTROL, ORIGIN, PLACE, TIME, Fold, Shipper, numbered
from slackwater.windows import Window

if TYPE_CHECKING:
    from slackwater.spark.api.stream import Panes

RETRACTION: Final = "event:retraction"
ONLY_ORIGIN: Final = "input"
"""The name of the one origin of a stream that has no column for it."""


class Source(ABC):
    """Rows with an event time, and what tells their watermark."""

    @property
    @abstractmethod
    def schema(self) -> StructType:
        """The columns that a user may name."""

    @property
    @abstractmethod
    def spark(self) -> SparkSession:
        """The session of the rows."""

    @property
    @abstractmethod
    def is_streaming(self) -> bool:
        """Whether rows keep coming."""

    @property
    @abstractmethod
    def rules(self) -> InputRules:
        """How an operator knows how far these rows are."""

    @property
    @abstractmethod
    def clock(self) -> Clocking | None:
        """The clock to unite with; None where the time comes along with the rows."""

    @property
    @abstractmethod
    def retracts(self) -> bool:
        """Whether rows may take others back."""

    @property
    def settled(self) -> bool:
        """Whether all about a row is known before the shuffle: only then may rows be folded there."""
        return True

    def by(self, key: str) -> Source:
        """The same rows, with the event time of this watermark key as the one that drives an operator."""
        if key != self.rules.key:
            raise InvalidArgument(
                "by", key, "is not a watermark key of the input", fix=f"use {self.rules.key!r}"
            )
        return self

    @property
    def windows(self) -> tuple[Window, ...]:
        """The windows that rows are in already; none where they are in none yet."""
        return ()

    @property
    def window_columns(self) -> tuple[str, ...]:
        """The columns that say in which window a row is."""
        return _WINDOW if self.windows else ()

    @abstractmethod
    def driven(self, *, signed: bool, flush: bool, path: str) -> tuple[DataFrame, list[Column]]:
        """The rows, and the columns that drive an operator; if ``signed``, also which rows take back."""

    def field(self, argument: str, name: str) -> StructField:
        """The column of this name, or an error that lists those there are."""
        check_named(self.spark, self.schema.names, argument, name)
        return self.schema[name]

    def buffers(
        self,
        number: int,
        key: Sequence[str],
        columns: Sequence[str],
        buckets: tuple[int, ...],
        *,
        signed: bool,
        emit_invalid: bool,
        flush: bool,
        path: str,
        fold: Fold | None = None,
    ) -> DataFrame:
        """The rows as buffers for the buckets of an operator, of which this is an input."""
        rows, driving = self.driven(signed=signed, flush=flush, path=path)
        bucket = sql.lit(0)
        if key:
            bucket = sql.pmod(sql.hash(*map(quoted, key)), sql.lit(len(buckets)))
        carried = [quoted(name).alias(numbered(place)) for place, name in enumerate(columns)]
        chosen = rows.select(*driving, bucket.cast("int").alias(PLACE), *carried)
        shipper = Shipper(
            buckets=buckets,
            input=number,
            columns=tuple(columns),
            origin=self.only_origin(),
            peaks=isinstance(self.rules, SourceRules | TimesRules) and self.rules.max_ahead is not None,
            emit_invalid=emit_invalid,
            times=self.times(),
            fold=fold if self.settled else None,
        )
        return chosen.mapInArrow(shipper, BUFFER)

    def only_origin(self) -> Origin | None:
        """The name of the one origin of these rows; None where a column names it."""
        return None

    def times(self) -> tuple[tuple[str, str], ...]:
        """The columns that tell an event time, by the watermark key of each."""
        return ()


@dataclass(frozen=True)
class RowSource(Source):
    """The rows of a DataFrame, with their event times by watermark key."""

    df: DataFrame
    event_times: Mapping[str, Column]
    origin: Column | None
    source_rules: SourceRules | TimesRules | NumberedRules
    source_clock: Clocking
    header: Mapping[str, Column] = field(default_factory=dict)
    """The columns of the header of the buffer that a row belongs to, where producers number them."""

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
        """Watermarks from the rows."""
        return self.source_rules

    @property
    def clock(self) -> Clocking | None:
        """The clock that was asked for."""
        return self.source_clock

    @property
    def retracts(self) -> bool:
        """Rows of a DataFrame are what they are."""
        return False

    @property
    def settled(self) -> bool:
        """Not if a bucket has to tell which rows count, or what time it is."""
        rules = self.source_rules
        return not (isinstance(rules, NumberedRules) or (isinstance(rules, SourceRules) and rules.arrival))

    def by(self, key: str) -> Source:
        """The same rows, driven by another of their event times."""
        if key not in self.event_times:
            raise InvalidArgument(
                "by",
                key,
                "is not a watermark key of the input",
                fix=f"use one of {', '.join(self.event_times)}, or add it to event_times",
            )
        if isinstance(self.source_rules, TimesRules):
            return replace(self, source_rules=replace(self.source_rules, key=key))
        return self

    def driven(self, *, signed: bool, flush: bool, path: str) -> tuple[DataFrame, list[Column]]:
        """The rows with their times, and their origin or header."""
        columns = {key: column for key, column in self.times() if column != TIME}
        driving = [sql.unix_micros(self.event_times[self.rules.key]).alias(TIME)]
        if signed:
            driving.append(sql.lit(0).cast("boolean").alias(RETRACTION))
        driving += [sql.unix_micros(self.event_times[key]).alias(name) for key, name in columns.items()]
        if self.origin is not None:
            named = sql.coalesce(self.origin.cast("string"), sql.lit("null"))
            driving.append(named.alias(ORIGIN))
        driving += [column.alias(name) for name, column in self.header.items()]
        return self.df, driving

    def only_origin(self) -> Origin | None:
        """The one there is if no column names it."""
        return ONLY_ORIGIN if self.origin is None else None

    def times(self) -> tuple[tuple[str, str], ...]:
        """One for each event time; none where producers tell how far they are."""
        if self.header:
            return ()
        return tuple(
            (key, TIME if key == self.rules.key else f"{TIME}:{place}")
            for place, key in enumerate(self.event_times)
        )


@dataclass(frozen=True)
class PaneSource(Source):
    """The panes of an operator, each an element at its timestamp."""

    panes: Panes

    @property
    def schema(self) -> StructType:
        """The key columns and the values of the panes."""
        hidden = ("window", "pane")
        return StructType([field for field in self.panes.schema.fields if field.name not in hidden])

    @property
    def spark(self) -> SparkSession:
        """The session of the rows at the beginning."""
        return self.panes.spark

    @property
    def is_streaming(self) -> bool:
        """Whether panes keep coming."""
        return self.panes.is_streaming

    @property
    def rules(self) -> InputRules:
        """Watermarks from the buckets of the operator."""
        return UpstreamRules(self.panes.buckets, self.panes.watermark_key)

    @property
    def clock(self) -> Clocking | None:
        """The operator passes the time on."""
        return None

    @property
    def retracts(self) -> bool:
        """Whether the operator takes panes back."""
        return self.panes.retracts

    @property
    def windows(self) -> tuple[Window, ...]:
        """Those of the operator."""
        return self.panes.windows

    def driven(self, *, signed: bool, flush: bool, path: str) -> tuple[DataFrame, list[Column]]:
        """The panes as rows, and a row for the header of every buffer."""
        schema = StructType([*_DRIVING.fields, *self.schema.fields])
        rows = self.panes.emitted(flush=flush, path=path).mapInArrow(_PaneRows(schema), schema)
        return rows, [quoted(name) for name in (TIME, CONTROL, *([RETRACTION] if signed else []))]


_WINDOW: Final = ("window_start", "window_end")
_DRIVING: Final = StructType(
    [
        StructField(TIME, LongType()),
        StructField(RETRACTION, BooleanType()),
        StructField(CONTROL, BinaryType()),
        *(StructField(name, LongType()) for name in _WINDOW),
    ]
)


@dataclass(frozen=True)
class _PaneRows:
    """Turns the buffers of an operator into the rows of the next one; for `mapInArrow`."""

    schema: StructType

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        target = to_arrow_schema(self.schema, timezone="UTC")
        for batch in batches:
            headers = batch.column("header")
            yield from conformed(pl.DataFrame({CONTROL: headers.to_pylist()}), target)
            for payload in batch.column("payload"):
                if payload.is_valid:
                    panes = unpack(payload.as_py()).filter(pl.col("kind") == "pane")
                    named = panes.rename({"timestamp": TIME, "retraction": RETRACTION})
                    yield from conformed(named, target)


def conformed(frame: pl.DataFrame, target: pa.Schema) -> list[pa.RecordBatch]:
    """The frame with exactly these columns; what it does not have is null.

    >>> conformed(pl.DataFrame({"a": [1], "b": [2]}), pa.schema([("b", pa.int64()), ("c", pa.string())]))[
    ...     0
    ... ].to_pylist()
    [{'b': 2, 'c': None}]
    """
    table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    columns = [
        table.column(field.name).cast(field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in target
    ]
    batches: list[pa.RecordBatch] = pa.Table.from_arrays(columns, schema=target).to_batches()
    return batches


def quoted(name: str) -> Column:
    """A column by its whole name, whatever characters are in it.

    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> spark.range(1).withColumnRenamed("id", "a.b").select(quoted("a.b")).columns
    ['a.b']
    """
    escaped = name.replace("`", "``")
    return sql.col(f"`{escaped}`")
