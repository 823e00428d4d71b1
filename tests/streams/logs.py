"""Helpers: what is in a stream, in the order in which its segments were written."""

from __future__ import annotations

from slackwater.streams.log.catalog import Stream
from slackwater.streams.log.segment_reader import read_events
from slackwater.streams.segments.epochs import split_range


def content(stream: Stream) -> dict[int, list[bytes]]:
    """The values of each segment that has some."""
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
    """All values, segment after segment: those of one routing key are in their order."""
    return [value for segment in content(stream).values() for value in segment]


def split(stream: Stream, place: int = 0, parts: int = 2) -> None:
    """Splits the active segment at that place of the key space."""
    segment = stream.epochs().active[place]
    stream.scale([segment.id], split_range((segment.low, segment.high), parts))


def merge(stream: Stream, place: int = 0) -> None:
    """Merges the active segment at that place with its neighbour."""
    left, right = stream.epochs().active[place : place + 2]
    stream.scale([left.id, right.id], [(left.low, right.high)])
