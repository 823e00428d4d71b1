"""Two streams joined by their times: pairs of rows, instead of panes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, StructField, StructType

from slackwater.errors import InvalidArgument
from slackwater.spark.api.dataflow import Operated
from slackwater.spark.api.stream_inputs import conformed
from slackwater.spark.runtime.hosts import JoinHost
from slackwater.spark.wire.buffers import unpack
from slackwater.spark.wire.map_side import TIME
from slackwater.spark.wire.pane_codec import FlatRows
from slackwater.spark.wire.pane_rows import empty_frame
from slackwater.windows import JoinSpec

if TYPE_CHECKING:
    from slackwater.spark.api.stream import Stream


@dataclass(frozen=True)
class Joined(Operated):
    """Pairs of rows of two streams; made by `Stream.join`.

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

    schema: StructType

    def to_df(self, *, flush: bool = False) -> DataFrame:
        """The pairs as a DataFrame; see `Panes.to_df`."""
        flat = FlatRows.of(self.schema, {})
        return self.finished(self.schema, _RowReader(self.schema), flat, flush=flush)


def joined(left: Stream, right: Stream, join: JoinSpec) -> Joined:
    """Two keyed streams joined by their times; behind `Stream.join`."""
    check_sides(left, right)
    for one in (left, right):
        for name in one.sources[0].schema.names:
            one.field("join", name)
    sides = [one.sources[0].schema for one in (left, right)]
    schemas = [{TIME: pl.Int64(), **empty_frame(side).schema} for side in sides]
    host = JoinHost({"join": join, "left": schemas[0], "right": schemas[1]})
    types: list[DataType | None] = [sides[0][name].dataType for name in join.on]
    for side in sides:
        types += [None, *(field.dataType for field in side if field.name not in join.on)]
    named = zip(host.operator.output_schema.names(), types, strict=True)
    return Joined(
        sources=left.sources + right.sources,
        buckets=left.buckets,
        key=left.key,
        host=host,
        columns=(tuple(sides[0].names), tuple(sides[1].names)),
        schema=StructType([StructField(name, kind) for name, kind in named if kind is not None]),
        invalid="count",
    )


def check_sides(left: Stream, right: Stream) -> None:
    """Refuse two streams that cannot meet in one operator.

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
        if not hasattr(one, "sources") or not hasattr(one, "field"):
            raise InvalidArgument(side, one, "is not a stream", fix='call key_by("…") on panes')
        if not one.key:
            raise InvalidArgument(side, one.key, "has no key", fix='call key_by("…") on both streams')
        if len(one.sources) > 1:
            raise InvalidArgument(side, len(one.sources), "is a union", fix="unite the DataFrames instead")
        if one.sources[0].retracts:
            raise InvalidArgument(side, one.key, "brings retractions", fix="use a mode without them")
    if left.key != right.key:
        raise InvalidArgument("other", right.key, f"is not the key {left.key}", fix="use equal keys")
    united = left.union(right)
    for name in left.key:
        united.field("key_by", name)


@dataclass(frozen=True)
class _RowReader:
    """Turns the buffers of a join into rows; for `mapInArrow`."""

    schema: StructType

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        target = to_arrow_schema(self.schema, timezone="UTC")
        for batch in batches:
            for payload in batch.column("payload"):
                if payload.is_valid:
                    yield from conformed(unpack(payload.as_py()), target)
