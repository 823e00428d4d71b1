"""What runs an operator: its inputs as buffers, the clock, Spark's state, and the reports on the way out."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Literal

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from slackwater import time
from slackwater.errors import InvalidArgument
from slackwater.spark.api.stream_inputs import Source
from slackwater.spark.internals import check_unlimited
from slackwater.spark.monitor.reports import METRIC, observed
from slackwater.spark.runtime.bucket import OperatorPlan
from slackwater.spark.runtime.hosts import Host
from slackwater.spark.runtime.processor import BucketProcessor
from slackwater.spark.wire.buffers import EMITTED
from slackwater.spark.wire.clock_source import Interval, clock_buffers, quickest
from slackwater.spark.wire.pane_codec import FlatRows
from slackwater.windows import Inherited

Keep = Literal["count", "emit"]


@dataclass(frozen=True)
class Operated:
    """The inputs of an operator, and the operator."""

    sources: tuple[Source, ...]
    buckets: tuple[int, ...]
    key: tuple[str, ...]
    host: Host
    columns: tuple[tuple[str, ...], ...]
    """For each source, the columns that the operator needs."""
    invalid: Keep

    @property
    def spark(self) -> SparkSession:
        """The session of the inputs."""
        return self.sources[0].spark

    @property
    def is_streaming(self) -> bool:
        """Whether rows keep coming."""
        return self.sources[0].is_streaming

    def finished(
        self,
        schema: StructType,
        read: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
        flat: FlatRows | None,
        *,
        flush: bool,
    ) -> DataFrame:
        """The rows of an operator that no other operator follows, as plain columns or read from payloads."""
        if flush and not self.is_streaming:
            raise InvalidArgument(
                "flush", flush, "the input is a batch, which fires everything anyway", fix="leave it out"
            )
        # A query may hold several operators, and Spark wants a name of its own for what each reports.
        emitted = self.emitted(flush=flush, path=f"{METRIC}_{uuid.uuid4().hex[:8]}", flat=flat)
        return emitted.mapInArrow(read, schema) if flat is None else flat.rows(emitted)

    def emitted(self, *, flush: bool, path: str, flat: FlatRows | None = None) -> DataFrame:
        """What the operator emits, as buffers or plain columns; ``path`` names it in reports."""
        buffers = [
            source.buffers(
                number,
                self.key,
                self._needed(columns),
                self.buckets,
                signed=self.host.options.get("retractions") is not None,
                emit_invalid=self.invalid == "emit",
                flush=flush,
                path=f"{path}_{number}",
                fold=self.host.fold if self.host.can_fold else None,
            )
            for number, (source, columns) in enumerate(zip(self.sources, self.columns, strict=True))
        ]
        plan = OperatorPlan(tuple(source.rules for source in self.sources), self.host)
        clocks = [source.clock for source in self.sources if source.clock is not None]
        if not self.is_streaming:
            plan = replace(plan, now=time.now())
        elif clocks:
            clock = quickest(clocks)
            if flush and isinstance(clock, Interval):  # a clock of given times knows its last batch
                for each in buffers:
                    check_unlimited(each)
            buffers.append(clock_buffers(self.spark, clock, self.buckets, end=flush))
        united = reduce(lambda left, right: left.unionByName(right), buffers)
        emitted = united.groupBy("bucket").transformWithStateInPandas(
            BucketProcessor(plan, flat),
            outputStructType=EMITTED if flat is None else flat.sent,
            outputMode="append",
            timeMode="none",
        )
        return observed(emitted, self.buckets, path)

    def _needed(self, columns: Sequence[str]) -> list[str]:
        inherits = isinstance(self.host.options.get("window"), Inherited)
        return [*columns, *(("window_start", "window_end") if inherits else ())]
