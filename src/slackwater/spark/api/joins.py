"""Time-bounded joins of two streams, whose output is pairs of rows instead of panes."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl
from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, StructField, StructType

from slackwater.errors import InvalidArgument
from slackwater.spark.api.dataflow import Dataflow
from slackwater.spark.api.stream_inputs import StreamInputs, united_sources
from slackwater.spark.runtime.hosts import JoinHost
from slackwater.spark.wire.columns import TIME
from slackwater.spark.wire.pane_schema import empty_frame
from slackwater.spark.wire.payload_reader import PayloadReader
from slackwater.spark.wire.row_codec import RowCodec
from slackwater.windows import JoinSpec


@dataclass(frozen=True)
class Joined:
    """Pairs of rows of two streams; created by `Stream.join`.

    >>> from slackwater.progress.generator import lag
    >>> from slackwater.spark.session import session
    >>> from slackwater.spark.api.stream import stream
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> bids = spark.sql("select timestamp'2024-01-01 00:00:05Z' as at, 7 as auction, 30 as price")
    >>> ends = spark.sql("select timestamp'2024-01-01 00:00:09Z' as at, 7 as auction")
    >>> left, right = (stream(df, event_time="at", watermark=lag("5 seconds")) for df in (bids, ends))
    >>> left.join(right, on=("auction",), before="0 seconds", after="10 seconds").schema.names
    ['auction', 'at_left', 'price', 'at_right']
    """

    dataflow: Dataflow

    @property
    def schema(self) -> StructType:
        """The columns of the pairs: the key, then those of the left side, then those of the right side."""
        return self.dataflow.schema

    def to_df(self, *, flush: bool = False) -> DataFrame:
        """The pairs as a DataFrame, streaming if the input is.

        Args:
            flush: End the stream with the run; see `Panes.to_df`.

        Raises:
            InvalidArgument: ``flush`` is given for batch input.
        """
        codec = RowCodec.for_schema(self.schema)
        return self.dataflow.output(PayloadReader(self.schema), codec, flush=flush)


def joined(left: StreamInputs, right: StreamInputs, join: JoinSpec) -> Joined:
    """Join two keyed streams by their event times; the implementation of `Stream.join`."""
    check_sides(left, right)
    for name, one in (("left", left), ("right", right)):
        if one.retracts:
            raise InvalidArgument(
                name,
                one.key,
                "contains retractions, which a time-bounded join cannot process",
                fix="use cogroup, or the mode accumulating() or discarding() upstream",
            )
        for name in one.sources[0].schema.names:
            one.field("join", name)
    sides = [one.sources[0].schema for one in (left, right)]
    schemas = [{TIME: pl.Int64(), **empty_frame(side).schema} for side in sides]
    host = JoinHost(join, left=schemas[0], right=schemas[1])
    types: list[DataType | None] = [sides[0][name].dataType for name in join.on]
    for side in sides:
        types += [None, *(field.dataType for field in side if field.name not in join.on)]
    named = zip(host.operator.output_schema.names(), types, strict=True)
    dataflow = Dataflow(
        sources=left.sources + right.sources,
        buckets=left.buckets,
        key=left.key,
        host=host,
        columns=(tuple(sides[0].names), tuple(sides[1].names)),
        schema=StructType([StructField(name, kind) for name, kind in named if kind is not None]),
        invalid="count",
    )
    return Joined(dataflow)


def check_sides(left: StreamInputs, right: StreamInputs) -> None:
    """Raise if two streams cannot be the sides of one join or cogroup.

    >>> from slackwater.progress.generator import lag
    >>> from slackwater.spark.session import session
    >>> from slackwater.spark.api.stream import stream
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> bids = spark.sql("select timestamp'2024-01-01 00:00:05Z' as at, 7 as auction")
    >>> one = stream(bids, event_time="at", watermark=lag("5 seconds"))
    >>> check_sides(one, one)
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: left = (): has no key; call key_by("…") on both streams
    """
    for side, one in (("left", left), ("right", right)):
        if not isinstance(one, StreamInputs):
            raise InvalidArgument(side, one, "is not a stream", fix='call key_by("…") on the panes first')
        if not one.key:
            raise InvalidArgument(side, one.key, "has no key", fix='call key_by("…") on both streams')
        if len(one.sources) > 1:
            raise InvalidArgument(
                side, len(one.sources), "is a union of several streams", fix="unite the DataFrames instead"
            )
    if left.key != right.key:
        raise InvalidArgument(
            "other", right.key, f"is not the key of the left stream, {left.key}", fix="use equal keys"
        )
    both = StreamInputs(united_sources(left, right), left.buckets)
    for name in left.key:
        both.field("key_by", name)
