"""Scripted rows in place of a DataFrame: the columns of a test's rows, and the source made from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import polars as pl
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType, TimestampType

from slackwater.errors import InvalidArgument
from slackwater.progress.values import Origin
from slackwater.progress.watermark_policies import Lag, LagLikeSpark, LagThenClock
from slackwater.spark.api.key_columns import check_named
from slackwater.spark.api.output_rows import OutputRows
from slackwater.spark.api.panes import Panes
from slackwater.spark.api.stream import Stream
from slackwater.spark.api.stream_inputs import RowRequest, RowSource
from slackwater.spark.api.stream_options import ColumnLike, Headers, RowInput, StreamOptions
from slackwater.spark.runtime.keyed_progress import TimesRules
from slackwater.spark.runtime.source_progress import SourceRules
from slackwater.spark.versions import from_arrow_type
from slackwater.spark.wire.wire_columns import ORIGIN, RETRACTION, WITNESS

_UTC: Final = pl.Datetime("us", "UTC")
_BY_EVENTS: Final = (Lag, LagThenClock, LagLikeSpark)
"""The policies whose watermark an event advances."""
_NO_COLUMN: Final = ""
"""Stands for the event time of rows that have none."""


@dataclass(frozen=True)
class ScriptedRows(RowInput):
    """The rows of one input of a test, which `slackwater.stream` accepts like a DataFrame.

    >>> ScriptedRows("bids", {"price": pl.Int64()}).select("price")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: bids = 'select': is an operation of DataFrames, and the rows of a \
TestStream are not on Spark; add the finished columns to the rows of the test, and call it outside the \
function that is tested
    """

    name: str
    """The parameter of the tested function."""
    columns: Mapping[str, pl.DataType]

    @property
    def options(self) -> type[StreamOptions]:
        """The options of streams in process."""
        return ScriptedOptions

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise InvalidArgument(
            self.name,
            name,
            "is an operation of DataFrames, and the rows of a TestStream are not on Spark",
            fix="add the finished columns to the rows of the test, and call it outside the function that is "
            "tested",
        )


@dataclass(frozen=True)
class ScriptedOptions(StreamOptions):
    """The arguments of `slackwater.stream` for scripted rows: columns are names, and nothing is computed."""

    @property
    def _source_class(self) -> type[RowSource]:
        return ScriptedSource

    def _retraction(self) -> Column | None:
        if self.retraction is None:
            return None
        column = self._named("retraction", self.retraction)
        kind = self._scripted.columns[str(column)]
        if kind != pl.Boolean:
            raise InvalidArgument(
                "retraction", self.retraction, f"is of type {kind}, not a boolean", fix="write true or false"
            )
        return column

    def _header_columns(self, given: Headers) -> dict[str, Column]:
        raise InvalidArgument(
            "headers", None, "is not supported by TestStream", fix="test numbered buffers on Spark"
        )

    def _no_time(self) -> Column:
        return cast(Column, _NO_COLUMN)

    def _origin(self) -> Column | None:
        return None if self.origin is None else self._named("origin", self.origin)

    def _timestamp(self, argument: str, value: ColumnLike | None) -> Column:
        column = self._named(argument, value)
        kind = self._scripted.columns[str(column)]
        if kind.is_integer() or kind == _UTC:
            return column
        raise InvalidArgument(
            argument,
            value,
            f"is of type {kind}, which a TestStream cannot use as an event time",
            fix="use microseconds, as a column ts[s] of a text table has, or Datetime('us', 'UTC')",
        )

    def _named(self, argument: str, value: ColumnLike | None) -> Column:
        """A column by its name, which stands for it here."""
        if not isinstance(value, str):
            raise InvalidArgument(
                argument,
                str(value),
                "is a Spark Column, which only Spark can compute",
                fix="in a TestStream, add the column to the rows of the test and name it",
            )
        check_named(None, list(self._scripted.columns), argument, value)
        return cast(Column, value)

    @property
    def _scripted(self) -> ScriptedRows:
        return cast(ScriptedRows, self.df)


@dataclass(frozen=True)
class ScriptedSource(RowSource):
    """Scripted rows with their event times; the columns that drive an operator are names."""

    @property
    def rows_of(self) -> str:
        """The name of the input whose rows these are."""
        return self._scripted.name

    @property
    def schema(self) -> StructType:
        """The columns of the rows; integers that are event times are timestamps."""
        empty = self._typed(pl.DataFrame(schema=dict(self._scripted.columns)))
        fields = empty.to_arrow(compat_level=pl.CompatLevel.oldest()).schema
        kinds = {field.name: from_arrow_type(field.type) for field in fields}
        return StructType(
            [
                StructField(name, TimestampType() if name in self._time_names else kind)
                for name, kind in kinds.items()
            ]
        )

    @property
    def spark(self) -> SparkSession:
        """There is none: what needs it raises."""
        raise InvalidArgument(
            "spark",
            None,
            f"is needed, but {self.rows_of!r} has the rows of a TestStream, which run without Spark",
            fix="return the panes instead of panes.to_df(), and use column names instead of Columns",
        )

    @property
    def session(self) -> SparkSession | None:
        """None: there is no session."""
        return None

    @property
    def is_streaming(self) -> bool:
        """True: rows arrive in micro-batches."""
        return True

    def driven(self, request: RowRequest) -> tuple[DataFrame, list[Column]]:
        """Raise: there is no DataFrame."""
        raise NotImplementedError(str(self.spark))

    def frame(
        self, rows: Iterable[pl.DataFrame], reached: int | None, origins: Iterable[Origin], *, signed: bool
    ) -> tuple[pl.DataFrame, list[str]]:
        """The rows of a micro-batch with the columns that drive an operator, and the names of these.

        ``reached`` is a watermark that the script sets: a witness for each of the origins brings it.
        """
        empty = pl.DataFrame(schema=dict(self._scripted.columns))
        frame = self._typed(pl.concat([empty, *rows], how="diagonal_relaxed").select(empty.columns))
        frame = frame.with_columns(*self._times(), pl.lit(value=False).alias(WITNESS))
        if self.origin is not None:
            name = pl.col(str(self.origin)).cast(pl.String).fill_null("null")
            frame = frame.with_columns(name.alias(ORIGIN))
        if reached is not None:
            frame = pl.concat([frame, self._witnesses(reached, origins)], how="diagonal_relaxed")
        if signed:
            marked = pl.lit(value=False) if self.retraction is None else pl.col(str(self.retraction))
            frame = frame.with_columns(marked.fill_null(value=False).alias(RETRACTION))
        names = [*(name for name in frame.columns if name not in self._scripted.columns)]
        return frame, names

    def _times(self) -> list[pl.Expr]:
        """The event times in microseconds, by the columns that operators read."""
        times: list[pl.Expr] = []
        for key, column in self.times():
            name = str(self.event_times[key])
            time = pl.lit(0, pl.Int64) if name == _NO_COLUMN else pl.col(name).dt.epoch("us")
            times.append(time.alias(column))
        return times

    def _witnesses(self, reached: int, origins: Iterable[Origin]) -> pl.DataFrame:
        """Rows that only contribute event times, with which every watermark is at ``reached``."""
        rules = self.source_rules
        several = rules.times if isinstance(rules, TimesRules) else (rules,)
        times: dict[str, int] = {}
        for one, (_, column) in zip(several, self.times(), strict=True):
            if not isinstance(one, SourceRules) or not isinstance(one.policy, _BY_EVENTS):
                raise InvalidArgument(
                    "advance_watermark",
                    reached,
                    f"cannot set the watermark of {self.rows_of!r}, whose policy does not follow events",
                    fix="use advance_processing_time, or add rows",
                )
            times[column] = reached + one.policy.lag
        named = {ORIGIN: list(origins)} if self.origin is not None else {WITNESS: [True]}
        witnesses = pl.DataFrame(named, schema_overrides={ORIGIN: pl.String})
        given = [pl.lit(at, pl.Int64).alias(name) for name, at in times.items()]
        return witnesses.with_columns(pl.lit(value=True).alias(WITNESS), *given)

    def _typed(self, frame: pl.DataFrame) -> pl.DataFrame:
        names = [name for name in self._time_names if frame.schema[name].is_integer()]
        return frame.with_columns(pl.col(name).cast(pl.Int64).cast(_UTC) for name in names)

    @property
    def _time_names(self) -> list[str]:
        return [name for name in map(str, self.event_times.values()) if name != _NO_COLUMN]

    @property
    def _scripted(self) -> ScriptedRows:
        return cast(ScriptedRows, self.df)


def built(function: Callable[..., Any], inputs: Sequence[ScriptedRows]) -> Any:
    """The pipeline that a function builds over scripted rows; raises if it needs Spark.

    Raises:
        InvalidArgument: The function uses Spark Columns without a Spark session, or returns something else
            than panes, joined or deduplicated rows or a stream.
    """
    name = getattr(function, "__qualname__", repr(function))
    try:
        result = function(*inputs)
    except (AssertionError, PySparkException) as error:
        if not _raised_by_pyspark(error):
            raise
        raise InvalidArgument(
            "pipeline",
            name,
            "uses functions of pyspark.sql, which need a Spark session",
            fix="in a TestStream use column names and SQL text, and add computed columns to the rows",
        ) from error
    if not isinstance(result, Panes | OutputRows | Stream):
        raise InvalidArgument(
            "pipeline",
            name,
            f"returns {type(result).__name__}",
            fix="return the panes, joined rows or stream, and call to_df() outside the function",
        )
    return result


def _raised_by_pyspark(error: BaseException) -> bool:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and str(trace.tb_frame.f_globals.get("__name__", "")).startswith("pyspark")
