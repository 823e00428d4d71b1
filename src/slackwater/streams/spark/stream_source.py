"""Reads a stream in Spark: a batch between two cuts, or micro-batches of a growing stream.

An offset contains the cut at which a batch ends, the number of the batch, and the watermark of the newest
mark that the cut has passed. Spark logs it before the batch runs, so a repeated batch has the same events and
the same watermark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from slackwater.spark.versions import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from slackwater.streams.log.catalog import Stream
from slackwater.streams.log.scan import Extent, parse_cut
from slackwater.streams.log.segment_reader import read_events
from slackwater.streams.segments.cut_traversal import Span, advance_cut, spans_between
from slackwater.streams.segments.cuts import check_not_before
from slackwater.streams.segments.positions import END_OF_SEGMENT, Position
from slackwater.streams.spark.format_options import FormatOptions
from slackwater.streams.spark.stream_columns import BatchHeader, arrow_schema, header_row, rows
from slackwater.streams.time import mark_store
from slackwater.streams.time.marks import Mark
from slackwater.streams.time.time_windows import newest_passed

Offset = dict[str, Any]


@dataclass
class SpanPartition(InputPartition):
    """The events of one segment that a task reads; the first task of a batch also returns the header row."""

    span: Span | None
    header: BatchHeader | None
    is_first: bool


class StreamRange(DataSourceReader):
    """Reader of ``spark.read``: the events between two cuts."""

    def __init__(self, options: FormatOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """One partition for each segment with events between the cuts."""
        stream = self._options.open()
        marks = MarkCache()
        marks.refresh(stream)
        start, end = parse_cut(stream, self._options.start), parse_cut(stream, self._options.end, "to")
        extent = Extent.of(stream)
        check_not_before(extent.epochs, end, start, "to")
        header = BatchHeader(1, marks.watermark(extent, end)) if self._options.headers else None
        # Spark makes a partition of its own if there is none, which `read` could not interpret
        return _partitions(extent, start, end, header) or [SpanPartition(None, None, is_first=True)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the events of a partition."""
        return read_partition(self._options, self._schema, partition)


class StreamSource(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of ``spark.readStream``: micro-batches of a growing stream."""

    def __init__(self, options: FormatOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._marks = MarkCache()
        self._frozen: Extent | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """The offset at which a new query starts."""
        return _offset(0, parse_cut(self._options.open(), self._options.start), None)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit of events per batch, from the option ``max_events``."""
        most = self._options.max_events
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the end of the stream; later events are read by the next run."""
        stream = self._options.open()
        self._marks.refresh(stream)
        self._frozen = Extent.of(stream)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """The offset at which the next batch ends; ``start`` if there is no event and no new watermark."""
        extent = self._frozen
        if extent is None:
            # marks first, so that the segments read afterwards include those of the marks
            stream = self._options.open()
            self._marks.refresh(stream)
            extent = Extent.of(stream)
        begin = _cut(start)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = advance_cut(extent.epochs, begin, extent.lengths, most)
        before = start.get("watermark")
        passed = self._marks.watermark(extent, end)
        watermark = before if passed is None or (before is not None and passed < before) else passed
        has_news = end != begin or (self._options.headers and watermark != before)
        return _offset(start["batch"] + 1, end, watermark) if has_news else start

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """One partition for each segment with events in the batch."""
        extent = Extent.of(self._options.open())
        header = BatchHeader(end["batch"], end.get("watermark")) if self._options.headers else None
        return [] if start == end else _partitions(extent, _cut(start), _cut(end), header)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the events of a partition."""
        return read_partition(self._options, self._schema, partition)


class MarkCache:
    """The marks of a stream, each read once; marks older than the newest passed one are dropped."""

    def __init__(self) -> None:
        self._known: dict[int, Mark] = {}
        self._seen = 0

    def refresh(self, stream: Stream) -> None:
        """Read the new marks."""
        found = stream.store.read(partial(mark_store.read_marks, stream=stream.id, after=self._seen))
        self._known |= found
        self._seen = max(found, default=self._seen)

    def watermark(self, extent: Extent, cut: Position) -> int | None:
        """The lower bound of the newest mark that a cut has passed."""
        epochs, lengths = extent.epochs, extent.lengths
        position = Position.of(
            {
                identity: END_OF_SEGMENT
                if epochs.is_sealed(identity) and offset >= lengths[identity]
                else offset
                for identity, offset in cut.items()
            }
        )
        passed = newest_passed(position, list(self._known.values()), epochs.segments)
        if passed is not None:
            self._known = {number: m for number, m in self._known.items() if m.lower >= passed.lower}
        return None if passed is None else passed.lower


def read_partition(
    options: FormatOptions, schema: StructType, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    """Read the rows of a partition from the stream's data files.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.streams.log.catalog import Streams
    >>> from slackwater.streams.spark.stream_columns import spark_schema
    >>> with TemporaryDirectory() as folder:
    ...     options = FormatOptions(f"sqlite:///{folder}/store.db", "shop/bids")
    ...     with Streams.open(options.store, create=True) as streams:
    ...         schema = spark_schema(streams.create("shop/bids").columns, headers=False)
    ...     list(read_partition(options, schema, SpanPartition(Span(0, 0, 0), None, False)))
    []
    """
    assert isinstance(partition, SpanPartition)  # noqa: S101 - Spark gives back what it was given
    target = arrow_schema(schema)
    if partition.header is not None and partition.is_first:
        yield header_row(target, partition.header)
    if partition.span is not None:
        span = partition.span
        found = read_events(options.open(), span.segment, span.start, span.end)
        yield from rows((batch.events for batch in found), target, partition.header)


def _partitions(
    extent: Extent, start: Position, end: Position, header: BatchHeader | None
) -> list[InputPartition]:
    spans: list[Span | None] = list(spans_between(extent.epochs, start, end, extent.lengths))
    if not spans and header is not None:
        spans = [None]
    return [SpanPartition(span, header, is_first=number == 0) for number, span in enumerate(spans)]


def _offset(batch: int, cut: Position, watermark: int | None) -> Offset:
    # the order of the keys matters: Spark compares offsets as text
    offset: Offset = {"batch": batch, "cut": {str(identity): end for identity, end in cut.items()}}
    return offset if watermark is None else {**offset, "watermark": watermark}


def _cut(offset: Offset) -> Position:
    return Position.of({int(identity): end for identity, end in offset["cut"].items()})
