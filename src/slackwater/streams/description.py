"""What there is to say about a stream, in plain values that a table, JSON or a page can show."""

from __future__ import annotations

from functools import partial
from typing import Any

from slackwater.streams.log.catalog import SegmentState, Stream
from slackwater.streams.log.positions import Position
from slackwater.streams.settings import StreamSettings
from slackwater.streams.time import notes
from slackwater.streams.time.marks import Mark, WriterMark
from slackwater.time import format_instant


def cut(position: Position) -> dict[str, int]:
    """A cut, as JSON can have it.

    >>> cut(Position.of({0: 5}))
    {'0': 5}
    """
    return {str(identity): offset for identity, offset in position.items()}


def summary(stream: Stream) -> dict[str, Any]:
    """A stream in one line.

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     summary(streams.create("shop/bids"))
    {'name': 'shop/bids', 'segments': 1, 'events': 0, 'bytes': 0, 'watermark': None}
    """
    states = stream.segments()
    return {
        "name": stream.name,
        "segments": sum(not state.is_sealed for state in states),
        "events": sum(state.length - state.start for state in states),
        "bytes": sum(state.bytes for state in states),
        "watermark": _newest(stream),
    }


def whole(stream: Stream) -> dict[str, Any]:
    """Everything about a stream.

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     whole(streams.create("shop/bids"))["tail"]
    {'0': 0}
    """
    record = stream.refreshed()
    return {
        **summary(stream),
        "columns": ", ".join(f"{field.name} {field.type}" for field in record.columns),
        "epoch": record.epoch,
        "head": cut(record.head),
        "tail": cut(stream.tail()),
        "settings": StreamSettings.load(record.settings).save(),
        "segments": [_segment(state) for state in stream.segments()],
        "writers": writers(stream),
    }


def marks(stream: Stream) -> list[dict[str, Any]]:
    """The marks of a stream, ascending.

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     marks(streams.create("shop/bids"))
    []
    """
    return [
        {"lower": format_instant(mark.lower), "upper": format_instant(mark.upper), "cut": cut(mark.cut)}
        for mark in stream.marks()
    ]


def writers(stream: Stream) -> list[dict[str, Any]]:
    """The writers of a stream that are on record, and who of them is waited for.

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     writers(streams.create("shop/bids"))
    []
    """
    newest = stream.store.read(partial(notes.newest_mark, stream=stream.id))
    found = stream.store.read(partial(notes.writer_marks, stream=stream.id))
    return [_writer(record, None if newest is None else newest[1]) for record in found]


def _writer(record: WriterMark, newest: Mark | None) -> dict[str, Any]:
    is_behind = newest is not None and record.time <= newest.lower
    since = record.behind_since
    return {
        "writer": record.writer,
        "time": format_instant(record.time),
        "state": "closed" if record.closed else "holds the watermark back" if is_behind else "ahead",
        "behind_since": None if since is None else format_instant(since),
        "position": cut(record.position),
    }


def _segment(state: SegmentState) -> dict[str, Any]:
    low, high = state.segment.fractions
    return {
        "id": state.segment.id,
        "low": low,
        "high": high,
        "start": state.start,
        "length": state.length,
        "bytes": state.bytes,
        "sealed": state.is_sealed,
    }


def _newest(stream: Stream) -> str | None:
    newest = stream.store.read(partial(notes.newest_mark, stream=stream.id))
    return None if newest is None else format_instant(newest[1].lower)
