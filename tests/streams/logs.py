"""Helpers: read all events of a stream, and split or merge its segments."""

from __future__ import annotations

from slackwater.streams.log.catalog import Stream
from slackwater.streams.log.segment_reader import read_events
from slackwater.streams.segments.epochs import split_range


def content(stream: Stream) -> dict[int, list[bytes]]:
    """The values of each segment that has events."""
    found = {}
    for state in stream.segments():
        values = [
            value
            for batch in read_events(stream, state.segment.id, state.start)
            for value in batch.events.column("value").to_pylist()
        ]
        if values:
            found[state.segment.id] = values
    return found


def values(stream: Stream) -> list[bytes]:
    """All values, segment by segment; values of one routing key are in order."""
    return [value for segment in content(stream).values() for value in segment]


def split(stream: Stream, index: int = 0, parts: int = 2) -> None:
    """Split the active segment with this index in the order of key ranges."""
    segment = stream.epochs().active[index]
    stream.scale([segment.id], split_range((segment.low, segment.high), parts))


def merge(stream: Stream, index: int = 0) -> None:
    """Merge the active segment with this index with its right neighbour."""
    left, right = stream.epochs().active[index : index + 2]
    stream.scale([left.id, right.id], [(left.low, right.high)])
