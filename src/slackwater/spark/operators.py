"""What runs an operator: its inputs as buffers, the clock, Spark's state, and the reports on the way out."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Literal

from pyspark.sql import DataFrame, SparkSession

from slackwater import time
from slackwater.errors import InvalidArgument
from slackwater.spark.bucket import OperatorPlan
from slackwater.spark.buffers import EMITTED
from slackwater.spark.clock import clock_buffers
from slackwater.spark.hosts import Host
from slackwater.spark.processor import BucketProcessor
from slackwater.spark.reports import METRIC, observed
from slackwater.spark.sources import Source
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

    def finished(self, *, flush: bool) -> DataFrame:
        """The buffers of an operator that no other operator follows."""
        if flush and not self.is_streaming:
            raise InvalidArgument(
                "flush", flush, "the input is a batch, which fires everything anyway", fix="leave it out"
            )
        # A query may hold several operators, and Spark wants a name of its own for what each reports.
        return self.emitted(flush=flush, path=f"{METRIC}_{uuid.uuid4().hex[:8]}")

    def emitted(self, *, flush: bool, path: str) -> DataFrame:
        """The buffers that the operator emits; ``path`` names it in the reports of the query."""
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
            )
            for number, (source, columns) in enumerate(zip(self.sources, self.columns, strict=True))
        ]
        plan = OperatorPlan(tuple(source.rules for source in self.sources), self.host)
        clocks = [source.clock for source in self.sources if source.clock is not None]
        if not self.is_streaming:
            plan = replace(plan, now=time.now())
        elif clocks:
            buffers.append(clock_buffers(self.spark, clocks[0], self.buckets, end=flush))
        united = reduce(lambda left, right: left.unionByName(right), buffers)
        emitted = united.groupBy("bucket").transformWithStateInPandas(
            BucketProcessor(plan), outputStructType=EMITTED, outputMode="append", timeMode="none"
        )
        return observed(emitted, self.buckets, path)

    def _needed(self, columns: Sequence[str]) -> list[str]:
        inherits = isinstance(self.host.options.get("window"), Inherited)
        return [*columns, *(("window_start", "window_end") if inherits else ())]
