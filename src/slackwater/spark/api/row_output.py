"""Operators whose output is rows instead of panes: joins and deduplication, for output or as an input."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import polars as pl
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import BinaryType, BooleanType, LongType, StringType, StructField, StructType

from slackwater.errors import InvalidArgument
from slackwater.spark.api.dataflow import Dataflow, Keep
from slackwater.spark.api.stream_inputs import RowRequest, Source, StreamInputs, quoted
from slackwater.spark.runtime.operator_inputs import InputRules, UpstreamRules
from slackwater.spark.wire.clock_source import ClockSpec
from slackwater.spark.wire.pane_schema import FAILURE_FIELDS, RECORD_FIELDS
from slackwater.spark.wire.payload_reader import PayloadReader
from slackwater.spark.wire.row_codec import RowCodec
from slackwater.spark.wire.wire_columns import (
    CONTROL,
    FAILED_ROW,
    FAILURE,
    RETRACTION,
    TIME,
    WITNESS,
    time_column,
)

RETRACTION_FIELD: Final = StructField("retraction", BooleanType())
"""The column that marks rows which retract an earlier row; only if an input retracts."""
FAILURE_ELEMENT: Final = (StructField(FAILURE, StringType()), StructField(FAILED_ROW, StringType()))
"""The driving columns that describe failed rows, which are witnesses."""
FAILED_ELEMENT: Final = (StructField(WITNESS, BooleanType()), *FAILURE_ELEMENT)
"""The driving columns that carry failed rows to the next operator."""


@dataclass(frozen=True)
class RowDataflow(Dataflow):
    """An operator with its inputs whose output is rows with one or more event times."""

    @property
    @abstractmethod
    def times(self) -> Mapping[str, tuple[str, ...]]:
        """The event times of the rows by watermark key: the first of these columns that is not null."""

    @property
    @abstractmethod
    def default_key(self) -> str:
        """The watermark key that drives the next operator by default; every row has its time."""

    @property
    @abstractmethod
    def sent_keys(self) -> tuple[str, ...]:
        """The watermark keys that the buckets of the operator send."""

    @property
    @abstractmethod
    def late(self) -> Keep:
        """Whether late rows are emitted."""

    @property
    def lateness(self) -> int | None:
        """How far output rows may be behind the forwarded watermark; None for no limit."""
        return 0

    def to_df(self, *, flush: bool) -> DataFrame:
        """The output rows as a DataFrame."""
        return self.output(self.reader, RowCodec.for_schema(self.schema), flush=flush)

    @property
    def reader(self) -> PayloadReader:
        """Makes output rows from the rows of the operator."""
        return PayloadReader(self.schema)


@dataclass(frozen=True)
class OutputSource(Source):
    """The output rows of an operator as the input of another one."""

    output: RowDataflow
    key: str

    @property
    def schema(self) -> StructType:
        """The columns of the rows."""
        marks = [RETRACTION_FIELD] if self.retracts else []
        marks += FAILURE_FIELDS if self.emits_failures else ()
        return StructType([field for field in self.output.schema if field not in marks])

    @property
    def spark(self) -> SparkSession:
        """The Spark session."""
        return self.output.spark

    @property
    def session(self) -> SparkSession | None:
        """The Spark session; None in a test without Spark."""
        return self.output.sources[0].session

    @property
    def is_streaming(self) -> bool:
        """Whether the inputs of the operator are streaming."""
        return self.output.is_streaming

    @property
    def rules(self) -> InputRules:
        """The watermark of each key is the lowest of the operator's buckets."""
        return UpstreamRules(self.output.buckets, self.key, self.output.sent_keys)

    @property
    def clock(self) -> ClockSpec | None:
        """None: the operator passes the time on."""
        return None

    @property
    def retracts(self) -> bool:
        """Whether the operator retracts rows."""
        return self.output.host.spec.retracts

    @property
    def emits_failures(self) -> bool:
        """Whether the output rows contain failed ones, which go on."""
        return self.output.emits_failures

    @property
    def lateness(self) -> int | None:
        """How far rows may be behind the watermark."""
        return self.output.lateness

    @property
    def fires_early(self) -> bool:
        """Whether rows are made of early panes: the operator emits them without waiting."""
        return any(source.fires_early for source in self.output.sources)

    @property
    def keys(self) -> tuple[str, ...]:
        """The watermark keys of the rows."""
        return tuple(self.output.times)

    def by(self, key: str) -> Source:
        """The same rows, driven by another of their event times."""
        if key not in self.keys:
            raise InvalidArgument(
                "by", key, "is not a watermark key of the rows", fix=f"use one of {', '.join(self.keys)}"
            )
        return replace(self, key=key)

    def driven(self, request: RowRequest) -> tuple[DataFrame, list[Column]]:
        """The output rows, and one control row for each buffer."""
        reader, driving = self.reader(request)
        rows = self.output.emitted(flush=request.flush, path=request.path).mapInArrow(reader, reader.schema)
        return rows, [quoted(name) for name in driving]

    def reader(self, request: RowRequest) -> tuple[PayloadReader, list[str]]:
        """The decoder of the buffers that the operator emits, and the columns that drive the next one."""
        times = {TIME: self.output.times[self.key]}
        times |= {time_column(key): self.output.times[key] for key in request.keys}
        driving = [*(StructField(name, LongType()) for name in times), StructField(CONTROL, BinaryType())]
        if request.signed:
            driving.append(StructField(RETRACTION, BooleanType()))
        if self.emits_failures:
            driving += FAILED_ELEMENT
        schema = StructType([*driving, *(self.schema[name] for name in request.columns)])
        retraction = RETRACTION_FIELD.name if self.retracts else None
        prepare = partial(_elements, times=times, retraction=retraction)
        if self.emits_failures:
            prepare = partial(_elements_and_failures, times=times, retraction=retraction)
        reader = PayloadReader(schema, prepare=prepare, header_column=CONTROL)
        return reader, [field.name for field in driving]


def failure_marks(inputs: StreamInputs, *others: StreamInputs) -> list[StructField]:
    """The output columns that describe failed rows, if there can be any."""
    emitted = any(one.emits_failures for one in (inputs, *others))
    return list(FAILURE_FIELDS) if emitted else []


def check_skipped_are_counted(inputs: StreamInputs) -> None:
    """Raise if rows for which an async function failed are skipped, and no operator follows to count them."""
    if any(source.skips_failures for source in inputs.sources):
        raise InvalidArgument(
            "on_error",
            "skip",
            "leaves out rows that no operator counts, because none follows map_async",
            fix='write on_error="emit", and keep the rows in which failure is null',
        )


def record_marks(*inputs: StreamInputs, invalid: Keep) -> list[StructField]:
    """The output columns that locate invalid records, if they are emitted."""
    emitted = invalid == "emit" and any(one.has_records for one in inputs)
    return list(RECORD_FIELDS) if emitted else []


def check_marks(operator: str, marks: Sequence[StructField], fields: Sequence[StructField]) -> None:
    """Raise if rows already have a column with the name of one that an operator adds.

    >>> check_marks("join", [RETRACTION_FIELD], [StructField("Retraction", LongType())])
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: join = 'retraction': is the name of a column that the operator adds \
to its rows; rename the column before it
    """
    taken = {field.name.lower() for field in fields}
    for mark in marks:
        if mark.name in taken:
            raise InvalidArgument(
                operator,
                mark.name,
                "is the name of a column that the operator adds to its rows",
                fix="rename the column before it",
            )


def failures_as_witnesses(rows: pl.DataFrame) -> pl.DataFrame:
    """Output rows of which failed ones are witnesses, so that they only go on to the next output.

    >>> failed = failures_as_witnesses(
    ...     pl.DataFrame({"failure": ["timed out", None], "failed_row": ["{}", None]})
    ... )
    >>> failed[WITNESS].to_list()
    [True, False]
    """
    reason, row = (
        pl.col(field.name) if field.name in rows.columns else pl.lit(None, pl.String)
        for field in FAILURE_FIELDS
    )
    return rows.with_columns(
        reason.is_not_null().alias(WITNESS), reason.alias(FAILURE), row.alias(FAILED_ROW)
    )


def _elements_and_failures(
    rows: pl.DataFrame, times: Mapping[str, Sequence[str]], retraction: str | None
) -> pl.DataFrame:
    # A frame of failed rows alone has no event times.
    missing = {name for several in times.values() for name in several} - set(rows.columns)
    complete = rows.with_columns(pl.lit(None, pl.Int64).alias(name) for name in sorted(missing))
    return failures_as_witnesses(_elements(complete, times, retraction))


def _elements(rows: pl.DataFrame, times: Mapping[str, Sequence[str]], retraction: str | None) -> pl.DataFrame:
    is_retraction = pl.lit(value=False) if retraction is None else pl.col(retraction)
    chosen = [pl.coalesce(columns).alias(name) for name, columns in times.items()]
    return rows.with_columns(*chosen, is_retraction.alias(RETRACTION))
