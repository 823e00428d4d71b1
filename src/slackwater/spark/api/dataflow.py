"""The dataflow of one operator: its inputs as buffers, the clock, the stateful operator, and its reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from slackwater import time
from slackwater.errors import InvalidArgument
from slackwater.spark.api.key_columns import check_distinct
from slackwater.spark.api.source_limits import check_unlimited, source_limit
from slackwater.spark.api.stream_inputs import RowRequest, Source, input_names
from slackwater.spark.internals import is_remote, stop_surplus_monitors
from slackwater.spark.monitor.drop_warnings import warn_of_drops
from slackwater.spark.monitor.reports import metric_name, observed
from slackwater.spark.monitor.run_end import end_signals_of
from slackwater.spark.monitor.telemetry import start_recording
from slackwater.spark.runtime.bucket import OperatorPlan
from slackwater.spark.runtime.bucket_task import BucketTask
from slackwater.spark.runtime.hosts import Host
from slackwater.spark.runtime.map_side import Shipper
from slackwater.spark.runtime.processor import BucketProcessor
from slackwater.spark.runtime.task_output import BufferOutput, RowOutput, TaskOutput
from slackwater.spark.session import samples_late
from slackwater.spark.versions import needs, prepare_batch_state
from slackwater.spark.wire.clock_source import ClockSpec, StreamEnd, Ticks, clock_buffers, common_clock
from slackwater.spark.wire.payload_reader import PayloadReader
from slackwater.spark.wire.row_codec import RowCodec
from slackwater.spark.wire.wire_columns import WINDOW_BOUNDS
from slackwater.windows.spec.operator_spec import OperatorSpec

Keep = Literal["count", "emit"]
"""Whether dropped rows are only counted, or emitted as well."""
_BUFFERS: Final = BufferOutput()


@dataclass(frozen=True)
class OperatorInput:
    """A source of an operator: which of its rows and columns it needs, and how they become buffers."""

    source: Source
    request: RowRequest
    shipper: Shipper


@dataclass(frozen=True)
class Dataflow:
    """An operator with its inputs."""

    sources: tuple[Source, ...]
    buckets: tuple[int, ...]
    key: tuple[str, ...]
    host: Host[OperatorSpec]
    columns: tuple[tuple[str, ...], ...]
    """For each source, the columns that the operator needs."""
    schema: StructType
    """The columns of the output rows."""
    invalid: Keep
    sides: tuple[int, ...] = ()
    """The index of each source's side, for a join or cogroup; otherwise empty."""
    further_keys: tuple[tuple[str, ...], ...] = ()
    """For each source, the watermark keys, in addition to the driving one, whose event times are needed."""

    def __post_init__(self) -> None:
        check_distinct(self.sources[0].session, self.schema.names)

    @property
    def spark(self) -> SparkSession:
        """The Spark session."""
        return self.sources[0].spark

    @property
    def emits_failures(self) -> bool:
        """Whether rows for which an async function failed are in the output."""
        return any(source.emits_failures for source in self.sources)

    @property
    def is_streaming(self) -> bool:
        """Whether the input is streaming."""
        return self.sources[0].is_streaming

    def output(
        self, reader: PayloadReader, codec: RowCodec | None, *, flush: bool, reports: bool = False
    ) -> DataFrame:
        """The output rows of the last operator: through the codec, or read from payloads if it is None.

        With ``reports`` there is also a row for each bucket, with its report in the column `REPORT`.
        """
        if codec is None:
            return self.last(BufferOutput(), flush=flush).mapInArrow(reader, reader.schema)
        return codec.decode(self.last(RowOutput(codec), flush=flush), reports=reports)

    def last(self, output: TaskOutput, *, flush: bool) -> DataFrame:
        """What this operator emits as the last one of a query."""
        if flush and not self.is_streaming:
            raise InvalidArgument(
                "flush",
                flush,
                "has no meaning for batch input, for which every window fires anyway",
                fix="omit it",
            )
        if self.is_streaming:
            stop_surplus_monitors(self.spark)
            start_recording(self.spark)
            warn_of_drops(self.spark)
        return self.emitted(flush=flush, path=metric_name(), output=output)

    def emitted(self, *, flush: bool, path: str, output: TaskOutput = _BUFFERS) -> DataFrame:
        """What the operator emits, as buffers or for an output; ``path`` names it in reports."""
        buffers = [
            one.source.buffers(one.request, one.shipper, self.key)
            for one in self.inputs(flush=flush, path=path, sample_late=samples_late(self.spark))
        ]
        plan = replace(self.plan, sample_late=samples_late(self.spark))
        clocks = [source.clock for source in self.sources if source.clock is not None]
        if not self.is_streaming:
            plan = replace(plan, now=time.now())
            prepare_batch_state(self.spark)
        elif clocks:
            clock = common_clock(clocks)
            end = self._end(clock, buffers) if flush else None
            tables = [source.table for source in self.sources if source.table is not None]
            seams = [source.seam for source in self.sources if source.seam is not None]
            times = clock_buffers(self.spark, clock, self.buckets, end=end, tables=tables, seams=seams)
            buffers.append(times)
        united = reduce(lambda left, right: left.unionByName(right), buffers)
        emitted = united.groupBy("bucket").transformWithStateInPandas(
            BucketProcessor(BucketTask(plan, output)),
            outputStructType=output.schema,
            outputMode="append",
            timeMode="none",
        )
        return observed(emitted, path)

    @property
    def plan(self) -> OperatorPlan:
        """What every bucket of the operator runs."""
        return OperatorPlan(
            tuple(source.rules for source in self.sources),
            self.host,
            sides=self.sides,
            names=input_names(self.sources, self.sides),
            reporter=self.buckets[0],
        )

    def inputs(self, *, flush: bool, path: str, sample_late: bool = False) -> list[OperatorInput]:
        """For each source, the rows that the operator needs and how they become buffers."""
        spec = self.host.spec
        inputs: list[OperatorInput] = []
        for number, (source, names) in enumerate(zip(self.sources, self.columns, strict=True)):
            columns = self._needed(names)
            keys = self.further_keys[number] if self.further_keys else ()
            read = dict.fromkeys((*self.key, *columns))
            asked = tuple(name for name in read if name not in source.window_columns)
            emits = self.invalid == "emit"
            request = RowRequest(
                asked, spec.takes_retractions, flush, f"{path}_{number}", tuple(keys), records=emits
            )
            shipper = source.shipper(
                number,
                columns,
                self.buckets,
                emit_invalid=emits,
                folding=self.host if spec.can_fold else None,
                keys=keys,
                gap=spec.gap_column,
                limits=spec.time_limits,
                sampled=self.key if sample_late else None,
            )
            inputs.append(OperatorInput(source, request, shipper))
        return inputs

    def _end(self, clock: ClockSpec, inputs: Sequence[DataFrame]) -> StreamEnd:
        """When the stream ends, given the rows of its inputs."""
        if isinstance(clock, Ticks):  # it has a known last batch
            return StreamEnd()
        if is_remote(self.spark):  # the clock runs on another machine than the listeners of this session
            for each in inputs:
                check_unlimited(each)
            return StreamEnd()
        limits = [limit for each in inputs if (limit := source_limit(each))]
        check_limits(limits)
        return StreamEnd(end_signals_of(self.spark).folder, limits[0] if limits else None)

    def _needed(self, columns: Sequence[str]) -> list[str]:
        gap = () if self.host.spec.gap_column is None else (self.host.spec.gap_column,)
        return [*columns, *gap, *(WINDOW_BOUNDS if self.host.spec.inherits else ())]


def check_limits(limits: Sequence[str]) -> None:
    """Raise if the end of limited sources cannot be found, which needs a part in ``availableNow``.

    >>> check_limits([])
    """
    if limits:
        needs(f"flush=True with a source that is limited by {limits[0]}", "4.2", fix="remove the limit")


def check_counted(name: str, kept: Keep) -> None:
    """Raise if dropped rows are emitted, which an operator that follows cannot process.

    >>> check_counted("late", "emit")
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: late = 'emit': is not supported if another operator follows, which \
cannot process dropped rows; write late="count"
    """
    if kept == "emit":
        raise InvalidArgument(
            name,
            kept,
            "is not supported if another operator follows, which cannot process dropped rows",
            fix=f'write {name}="count"',
        )
