"""The dataflow of a windowed operator: its panes as rows, and as the input of another operator."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import polars as pl
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import BinaryType, BooleanType, LongType, StructField, StructType

from slackwater.errors import InvalidArgument
from slackwater.spark.api.dataflow import Dataflow
from slackwater.spark.api.row_output import FAILED_ELEMENT, check_marks, failures_as_witnesses
from slackwater.spark.api.stream_inputs import RowRequest, Source, quoted
from slackwater.spark.runtime.hosts import ApplyHost, Host
from slackwater.spark.runtime.operator_inputs import InputRules, UpstreamRules
from slackwater.spark.runtime.sink_progress import CompletenessClaim
from slackwater.spark.wire.clock_source import ClockSpec
from slackwater.spark.wire.pane_schema import (
    FAILED_KIND,
    FAILURE_FIELDS,
    PANE,
    PANE_KIND,
    RECORD_FIELDS,
    STRUCTURES,
    UNBOUNDED,
    WINDOW,
    pane_codec,
    pane_reader,
)
from slackwater.spark.wire.payload_reader import PayloadReader
from slackwater.spark.wire.row_codec import RowCodec, Structures, null_if
from slackwater.spark.wire.wire_columns import CONTROL, RETRACTION, TIME, WINDOW_BOUNDS
from slackwater.windows import Fixed, Global, Sessions, Sliding, Window
from slackwater.windows.spec.cogroup_spec import CogroupSpec
from slackwater.windows.spec.window_spec import WindowSpec


@dataclass(frozen=True)
class PaneDataflow(Dataflow):
    """A windowed operator with its inputs."""

    host: Host[WindowSpec | CogroupSpec]
    inherits_trigger: bool = False
    """Whether panes are emitted early because the operators before emit early panes; for `explain`."""

    @property
    def spec(self) -> WindowSpec | CogroupSpec:
        """The specification of the operator."""
        return self.host.spec

    @property
    def windows(self) -> tuple[Window, ...]:
        """The windows of the panes: the operator's own, or those of its inputs if it inherits them."""
        if not self.spec.inherits:
            return (self.spec.window,)
        return tuple(window for source in self.sources for window in source.windows)

    @property
    def retracting(self) -> PaneDataflow:
        """The same operator in retracting mode."""
        spec = replace(self.spec, mode="accumulating_and_retracting")
        return replace(self, host=replace(self.host, spec=spec))

    def to_df(self, *, flush: bool, reports: bool = False) -> DataFrame:
        """The panes as a DataFrame; with ``reports`` also the reports of the buckets, for a sink."""
        reader = pane_reader(self.schema, reports=reports)
        return self.output(reader, self.codec, flush=flush, reports=reports)

    @property
    def claim(self) -> CompletenessClaim:
        """How the completeness of the output follows from the reports of the buckets."""
        return CompletenessClaim(self.buckets, self.spec.watermark_key, self.spec.allowed_lateness)

    @property
    def flat_columns(self) -> list[Column]:
        """The panes without structs, except for the fields that distinguish rows."""
        columns: list[Column] = []
        for name in self.schema.names:
            if name == "window":
                columns += [sql.col(f"window.{field}").alias(f"window_{field}") for field in WINDOW.names]
            elif name != "pane":
                columns.append(quoted(name))
        return columns + [sql.col(f"pane.{name}") for name in self._distinguishing]

    @property
    def reader(self) -> PayloadReader:
        """Makes panes from the rows of the operator."""
        return pane_reader(self.schema)

    @property
    def flat_reader(self) -> PayloadReader:
        """The same with the columns of `flat_columns`."""
        fields: list[StructField] = []
        for field in self.schema:
            if field.name == "window":
                fields += [StructField(f"window_{bound.name}", bound.dataType) for bound in WINDOW]
            elif field.name != "pane":
                fields.append(field)
        fields += [PANE[name] for name in self._distinguishing]
        return replace(self.reader, schema=StructType(fields), structures={})

    @property
    def _distinguishing(self) -> list[str]:
        """The fields of ``pane`` without which rows could not be distinguished."""
        fields = ["retraction"] if self.spec.retracts else []
        return [*fields, "kind"] if "emit" in (self.spec.late, self.invalid) else fields

    @property
    def codec(self) -> RowCodec | None:
        """The codec for the panes; None if they have to be sent as payloads."""
        lengths = {window.size if isinstance(window, Fixed | Sliding) else None for window in self.windows}
        length = lengths.pop() if len(lengths) == 1 else None
        return pane_codec(self.schema, fires_once=self.spec.fires_once, window_length=length)

    def upsert_options(self) -> dict[str, Any]:
        """The arguments of an upsert that follow from the panes; raises if a table cannot hold them."""
        how: str = self.spec.how if isinstance(self.spec, CogroupSpec) else "agg"
        if isinstance(self.host, ApplyHost):
            how = "apply"
        if how not in ("agg", "cogroup"):
            raise InvalidArgument(
                "how",
                how,
                "produces several rows per key and window, of which a table would keep only the last",
                fix='use agg or how="cogroup", or write to_df() to another sink',
            )
        if self.is_streaming and self._leaves_merged_sessions:
            raise InvalidArgument(
                "mode",
                self.spec.mode,
                "would leave the row of a session in the table when it merges into a longer one",
                fix="call .accumulating_and_retracting() before agg, so that the old row is deleted",
            )
        return {
            "key": self.key,
            "windows": not all(isinstance(window, Global) for window in self.windows),
            "mode": self.spec.mode,
        }

    def emitting_dropped(self) -> PaneDataflow:
        """The same operator, which also emits rows that are late or invalid."""
        if isinstance(self.host, ApplyHost):
            raise InvalidArgument(
                "split", "apply", "does not emit late and invalid rows", fix="use agg, or write to_df()"
            )
        host = replace(self.host, spec=replace(self.spec, late="emit"))
        fields = [field for field in self.schema.fields if field not in (*RECORD_FIELDS, *FAILURE_FIELDS)]
        records = RECORD_FIELDS if any(source.has_records for source in self.sources) else ()
        check_marks("from_kafka", records, fields)
        failures = FAILURE_FIELDS if self.emits_failures else ()
        return replace(self, host=host, invalid="emit", schema=StructType([*fields, *records, *failures]))

    @property
    def _leaves_merged_sessions(self) -> bool:
        """Whether a session can merge after it has fired, without a retraction of its panes."""
        return self.merges_windows and not self.spec.retracts and not self.spec.fires_once

    @property
    def merges_windows(self) -> bool:
        """Whether windows of a key can merge, as sessions do."""
        return any(isinstance(window, Sessions) for window in self.windows)


_ELEMENT: Final = StructType(
    [
        StructField(TIME, LongType()),
        StructField(RETRACTION, BooleanType()),
        StructField(CONTROL, BinaryType()),
        *(StructField(name, LongType()) for name in WINDOW_BOUNDS),
    ]
)
"""The columns that drive the next operator."""


@dataclass(frozen=True)
class PaneSource(Source):
    """The panes of an operator as the input of another one, each an element at the pane's timestamp."""

    panes: PaneDataflow

    @property
    def schema(self) -> StructType:
        """The key columns and the values of the panes."""
        marks = FAILURE_FIELDS if self.emits_failures else ()
        fields = [field for field in self.panes.schema.fields if field not in marks]
        return StructType([field for field in fields if field.name not in STRUCTURES])

    @property
    def available(self) -> StructType:
        """The same, with ``window`` and ``pane``, which are decoded only if an operator uses them."""
        described = [field for field in self.panes.schema.fields if field.name in STRUCTURES]
        return StructType([*self.schema.fields, *described])

    @property
    def spark(self) -> SparkSession:
        """The Spark session."""
        return self.panes.spark

    @property
    def session(self) -> SparkSession | None:
        """The Spark session; None in a test without Spark."""
        return self.panes.sources[0].session

    @property
    def is_streaming(self) -> bool:
        """Whether the input of the upstream operator is streaming."""
        return self.panes.is_streaming

    @property
    def rules(self) -> InputRules:
        """The watermark is the lowest of the upstream operator's buckets."""
        return UpstreamRules(self.panes.buckets, self.panes.spec.watermark_key)

    @property
    def clock(self) -> ClockSpec | None:
        """None: the upstream operator passes the time on."""
        return None

    @property
    def retracts(self) -> bool:
        """Whether the upstream operator retracts panes."""
        return self.panes.spec.retracts

    @property
    def emits_failures(self) -> bool:
        """Whether the output of the upstream operator contains failed rows, which go on."""
        return self.panes.emits_failures

    @property
    def lateness(self) -> int | None:
        """The allowed lateness of the upstream operator, which its late panes and retractions stay within."""
        return self.panes.spec.allowed_lateness

    @property
    def fires_early(self) -> bool:
        """Whether the upstream operator emits early panes."""
        return self.panes.spec.fires_early

    @property
    def windows(self) -> tuple[Window, ...]:
        """The windows of the panes."""
        return self.panes.windows

    def driven(self, request: RowRequest) -> tuple[DataFrame, list[Column]]:
        """The panes as rows, and one control row for each buffer."""
        reader, driving = self.reader(request)
        rows = self.panes.emitted(flush=request.flush, path=request.path).mapInArrow(reader, reader.schema)
        return rows, [quoted(name) for name in driving]

    def reader(self, request: RowRequest) -> tuple[PayloadReader, list[str]]:
        """The decoder of the buffers that the operator emits, and the columns that drive the next one."""
        failed = FAILED_ELEMENT if self.emits_failures else ()
        asked = (self.available[name] for name in request.columns)
        schema = StructType([*_ELEMENT.fields, *failed, *asked])
        described = {name: fields for name, fields in _DESCRIBED.items() if name in request.columns}
        prepare = partial(_described_elements if described else _elements, emits_failures=self.emits_failures)
        reader = PayloadReader(schema, prepare=prepare, structures=described, header_column=CONTROL)
        driving = [TIME, CONTROL, *([RETRACTION] if request.signed else []), *(one.name for one in failed)]
        return reader, driving


def _elements(rows: pl.DataFrame, *, emits_failures: bool) -> pl.DataFrame:
    kinds = [PANE_KIND, FAILED_KIND] if emits_failures else [PANE_KIND]
    panes = rows.filter(pl.col("kind").is_in(kinds)).rename({"timestamp": TIME, "retraction": RETRACTION})
    return failures_as_witnesses(panes) if emits_failures else panes


def _described_elements(rows: pl.DataFrame, *, emits_failures: bool) -> pl.DataFrame:
    """Elements with the fields of the structs ``window`` and ``pane``.

    A retraction has the description of the pane that it takes back, so that it is processed like that pane.
    """
    bounds = [null_if(name, value).alias(f"{_FIELD}{name}") for name, value in UNBOUNDED.items()]
    flags = [
        pl.lit(value=False).alias(f"{_FIELD}retraction")
        if name == "retraction"
        else pl.col(name).alias(f"{_FIELD}{name}")
        for name in PANE.names
    ]
    return _elements(rows.with_columns(*bounds, *flags), emits_failures=emits_failures)


_FIELD: Final = "element:"
_DESCRIBED: Final[Structures] = {
    name: {field: f"{_FIELD}{column}" for field, column in fields.items()}
    for name, fields in STRUCTURES.items()
}
"""The struct columns of a pane as an element: the prepared column for each field."""
