"""Pipelines that run in this process, one micro-batch after the other.

The pieces are those that Spark runs in its workers: the map side (`Shipper`), the step of a bucket
(`OperatorPlan`) with its state as bytes, and the decoders of what it emits. There is one bucket.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl
import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from slackwater.errors import InvalidArgument
from slackwater.progress.values import Origin
from slackwater.spark.api.dataflow import Dataflow, OperatorInput
from slackwater.spark.api.expression_sources import FilteredSource, ProjectedSource
from slackwater.spark.api.map_async import AsyncSource
from slackwater.spark.api.output_rows import OutputRows
from slackwater.spark.api.pane_output import PaneDataflow, PaneSource
from slackwater.spark.api.panes import Panes
from slackwater.spark.api.row_output import (
    RETRACTION_FIELD,
    OutputSource,
    check_skipped_are_counted,
    failure_marks,
)
from slackwater.spark.api.stream import Stream
from slackwater.spark.api.stream_inputs import DerivedSource, RowRequest, Source
from slackwater.spark.api.text_expressions import TextExpression
from slackwater.spark.in_process.scripted_rows import ScriptedSource
from slackwater.spark.monitor.reports import BucketReport
from slackwater.spark.runtime.bucket import OperatorPlan
from slackwater.spark.runtime.source_progress import SourceRules
from slackwater.spark.versions import from_arrow_type, output_arrow_schema
from slackwater.spark.wire.buffers import Tick, pack, unpack, write_header
from slackwater.spark.wire.pane_schema import pane_reader
from slackwater.spark.wire.payload_reader import PayloadReader
from slackwater.spark.wire.wire_columns import (
    BUCKET_INDEX,
    CONTROL,
    FAILED_ROW,
    FAILURE,
    ORIGIN,
    RETRACTION,
    WITNESS,
    column_alias,
)


@dataclass(frozen=True)
class MicroBatch:
    """What arrives in one step of a test."""

    rows: Mapping[str, Sequence[pl.DataFrame]]
    """By the name of the input."""
    watermarks: Mapping[str, int]
    """The watermarks that the script sets, by the name of the input."""
    now: int
    run: int
    """The number of the start of the query: it changes if the query is restarted."""
    end: bool
    """Whether the input ends."""


@dataclass(frozen=True)
class BatchOutput:
    """What a pipeline emits in one step."""

    rows: pl.DataFrame
    """The rows as `to_df` returns them on Spark."""
    panes: pl.DataFrame | None
    """The panes with plain columns and times in microseconds; None if the rows are not panes."""
    reports: tuple[BucketReport, ...]
    """The report of each operator; the last one is that of the last operator."""
    blobs: int
    """The number of blobs in the state of all operators."""


@dataclass
class _Stage:
    """An operator with its state."""

    dataflow: Dataflow
    plan: OperatorPlan
    inputs: list[OperatorInput]
    saved: bytes | None = None
    blobs: dict[str, bytes] = field(default_factory=dict)
    emitted: pa.RecordBatch = field(default_factory=lambda: _emitted([], []))
    report: BucketReport | None = None


@dataclass
class PipelineExecution:
    """A pipeline over scripted rows, with the state of its operators.

    >>> from slackwater.progress.watermark_policies import lag
    >>> from slackwater.spark.api.stream import stream
    >>> from slackwater.spark.in_process.scripted_rows import ScriptedRows
    >>> from slackwater.windows import count, fixed
    >>> rows = ScriptedRows("bids", {"ts": pl.Int64()})
    >>> bids = stream(rows, event_time="ts", watermark=lag("0 seconds"))
    >>> execution = PipelineExecution(bids.window(fixed("1 second")).agg(bids=count()))
    >>> batch = MicroBatch({"bids": [pl.DataFrame({"ts": [5, 7]})]}, {}, now=0, run=1, end=True)
    >>> execution.step(batch).panes["bids"].to_list()
    [2]
    """

    last: Panes | OutputRows | Stream
    stages: list[_Stage] = field(default_factory=list)
    origins: dict[str, set[Origin]] = field(default_factory=dict)
    """The origins that each input has sent."""

    def __post_init__(self) -> None:
        if isinstance(self.last, Panes | OutputRows):
            self._add(self.last.dataflow)
        else:
            check_skipped_are_counted(self.last)
            for source in self.last.sources:
                self._add_before(source)

    def step(self, batch: MicroBatch) -> BatchOutput:
        """Run a micro-batch."""
        for stage in self.stages:
            self._step(stage, batch)
        reports = tuple(stage.report for stage in self.stages if stage.report is not None)
        blobs = sum(len(stage.blobs) for stage in self.stages)
        if isinstance(self.last, Stream):
            return BatchOutput(self._stream_rows(self.last, batch), None, reports, blobs)
        emitted = self.stages[-1].emitted
        dataflow = self.last.dataflow
        reader, panes = PayloadReader(dataflow.schema), None
        if isinstance(dataflow, PaneDataflow):
            reader, panes = pane_reader(dataflow.schema), _payload(emitted)
        return BatchOutput(_decoded(reader, emitted), panes, reports, blobs)

    # ---- operators

    def _add(self, dataflow: Dataflow) -> None:
        if any(stage.dataflow is dataflow for stage in self.stages):
            return
        for source in dataflow.sources:
            self._add_before(source)
        self.stages.append(_Stage(dataflow, dataflow.plan, dataflow.inputs(flush=False, path="test")))

    def _add_before(self, source: Source) -> None:
        match source:
            case DerivedSource():
                self._add_before(source.inner)
            case PaneSource():
                self._add(source.panes)
            case OutputSource():
                self._add(source.output)
            case ScriptedSource():
                pass
            case _:
                raise InvalidArgument(
                    "pipeline",
                    type(source).__name__,
                    "reads a DataFrame, but all inputs of a TestStream are scripted",
                    fix="make every DataFrame a parameter of the function that is tested",
                )

    def _step(self, stage: _Stage, batch: MicroBatch) -> None:
        buffers: list[tuple[bytes, bytes | None]] = []
        for one in stage.inputs:
            frame, driving = self._rows(one.source, one.request, batch)
            if frame.height:
                index = pl.lit(0, pl.Int32).alias(BUCKET_INDEX)
                chosen = frame.select(*driving, index, *one.shipper.columns)
                shipped = one.shipper.buffers(chosen, 0, 0)
                buffers += [(write_header(header), payload) for _, header, payload in shipped]
        if any(source.clock is not None for source in stage.dataflow.sources):
            buffers.append((write_header(Tick(batch.now, batch.run, batch.end)), None))
        (bucket,) = stage.dataflow.buckets
        output = stage.plan.step(bucket, stage.saved, stage.blobs, buffers)
        stage.saved, stage.report = output.state, output.report
        payload = None if output.rows is None else pack(output.rows)
        stage.emitted = _emitted([write_header(output.header)], [payload])

    # ---- rows

    def _rows(self, source: Source, request: RowRequest, batch: MicroBatch) -> tuple[pl.DataFrame, list[str]]:
        """The requested rows of a source, and the names of the columns that drive an operator."""
        match source:
            case ScriptedSource():
                return self._scripted(source, request, batch)
            case PaneSource():
                return self._emitted(source.panes, source.reader(request))
            case OutputSource():
                return self._emitted(source.output, source.reader(request))
            case FilteredSource():
                return self._filtered(source, request, batch)
            case ProjectedSource():
                return self._projected(source, request, batch)
            case AsyncSource():
                return self._mapped(source, request, batch)
            case _:
                raise NotImplementedError(f"{type(source).__name__} does not run in process")

    def _scripted(
        self, source: ScriptedSource, request: RowRequest, batch: MicroBatch
    ) -> tuple[pl.DataFrame, list[str]]:
        known = self.origins.setdefault(source.rows_of, set())
        if source.origin is not None:
            rules = source.source_rules
            declared = rules.declared if isinstance(rules, SourceRules) else None
            known.update(declared or ())
        reached = batch.watermarks.get(source.rows_of)
        rows = batch.rows.get(source.rows_of, ())
        frame, driving = source.frame(rows, reached, sorted(known, key=str), signed=request.signed)
        if ORIGIN in driving:
            known.update(frame[ORIGIN].drop_nulls())
        return frame, driving

    def _emitted(
        self, dataflow: Dataflow, reading: tuple[PayloadReader, list[str]]
    ) -> tuple[pl.DataFrame, list[str]]:
        reader, driving = reading
        (stage,) = (stage for stage in self.stages if stage.dataflow is dataflow)
        return _decoded(reader, stage.emitted), driving

    def _filtered(
        self, source: FilteredSource, request: RowRequest, batch: MicroBatch
    ) -> tuple[pl.DataFrame, list[str]]:
        needed = tuple(dict.fromkeys((*request.columns, *source.inputs)))
        frame, driving = self._rows(source.inner, replace(request, columns=needed), batch)
        dropped = ~_polars(source.condition).fill_null(value=False)
        if WITNESS in driving:
            dropped = pl.col(WITNESS) | dropped
        return frame.with_columns(dropped.alias(WITNESS)), list(dict.fromkeys((*driving, WITNESS)))

    def _projected(
        self, source: ProjectedSource, request: RowRequest, batch: MicroBatch
    ) -> tuple[pl.DataFrame, list[str]]:
        needed, inputs = source.needed(request.columns)
        frame, driving = self._rows(source.inner, replace(request, columns=inputs), batch)
        passed = [*driving, *source.inner.window_columns]
        return frame.select(*passed, *(_polars(one.column).alias(one.field.name) for one in needed)), driving

    def _mapped(
        self, source: AsyncSource, request: RowRequest, batch: MicroBatch
    ) -> tuple[pl.DataFrame, list[str]]:
        names = source.inner.available.names
        frame, driving = self._rows(source.inner, replace(request, columns=tuple(names)), batch)
        passed = [*driving, *source.inner.window_columns]
        renamed = [pl.col(name).alias(column_alias(index)) for index, name in enumerate(names)]
        chosen = frame.select(*passed, *renamed).to_arrow(compat_level=pl.CompatLevel.oldest())
        kinds = [StructField(name, from_arrow_type(chosen.schema.field(name).type)) for name in passed]
        mapper, driven = source.mapper(kinds)
        return _frame(mapper(chosen.to_batches()), mapper.output), driven

    def _stream_rows(self, stream: Stream, batch: MicroBatch) -> pl.DataFrame:
        """The rows of a stream that no operator follows."""
        names = tuple(stream.sources[0].schema.names)
        frames: list[pl.DataFrame] = []
        for number, source in enumerate(stream.sources):
            request = RowRequest(names, stream.retracts, flush=False, path=f"test_{number}")
            frame, driving = self._rows(source, request, batch)
            if CONTROL in driving:
                frame = frame.filter(pl.col(CONTROL).is_null())
            if WITNESS in driving:
                failed = pl.col(FAILED_ROW).is_not_null() if FAILED_ROW in driving else pl.lit(value=False)
                frame = frame.filter(~pl.col(WITNESS) | failed)
            marks = [pl.col(RETRACTION).alias(RETRACTION_FIELD.name)] if stream.retracts else []
            marks += [
                (pl.col(name) if name in driving else pl.lit(None, pl.String)).alias(field.name)
                for name, field in zip((FAILURE, FAILED_ROW), failure_marks(stream), strict=False)
            ]
            frames.append(frame.select(*names, *marks))
        return pl.concat(frames, how="diagonal_relaxed")


def _polars(column: Any) -> pl.Expr:
    """The expression of a step, which is text: a Column was rejected when the step was added."""
    if not isinstance(column, TextExpression):
        raise TypeError(f"{column} is computed by Spark, not in process")
    return column.column


def _emitted(headers: list[bytes], payloads: list[bytes | None]) -> pa.RecordBatch:
    arrays = [pa.array(headers, pa.binary()), pa.array(payloads, pa.binary())]
    return pa.RecordBatch.from_arrays(arrays, names=["header", "payload"])


def _decoded(reader: PayloadReader, emitted: pa.RecordBatch) -> pl.DataFrame:
    return _frame(reader([emitted]), reader.schema)


def _frame(batches: Iterator[pa.RecordBatch], schema: StructType) -> pl.DataFrame:
    target = output_arrow_schema(schema)
    return pl.DataFrame(pa.Table.from_batches(list(batches), schema=target))


def _payload(emitted: pa.RecordBatch) -> pl.DataFrame:
    (payload,) = emitted.column("payload").to_pylist()
    return pl.DataFrame() if payload is None else unpack(payload)
