"""Descriptions of a stream as plain values, for tables, JSON and web pages."""

from __future__ import annotations

from functools import partial
from typing import Any

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from slackwater.metadata import store_schema as schema
from slackwater.streams.log.catalog import Stream
from slackwater.streams.log.group_segments import GroupSegment, group_position
from slackwater.streams.log.stream_records import SegmentState, epochs_of, segment_states
from slackwater.streams.segments.positions import Position
from slackwater.streams.settings import StreamSettings
from slackwater.streams.time import mark_store
from slackwater.streams.time.marks import Mark
from slackwater.streams.time.notes import WriterMark
from slackwater.time import format_instant


def describe_cut(position: Position) -> dict[str, int]:
    """A cut with its segment ids as text, for JSON.

    >>> describe_cut(Position.of({0: 5}))
    {'0': 5}
    """
    return {str(identity): offset for identity, offset in position.items()}


def summarize_stream(stream: Stream) -> dict[str, Any]:
    """A stream in one row.

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     summarize_stream(streams.create("shop/bids"))
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


def describe_stream(stream: Stream) -> dict[str, Any]:
    """A stream with its columns, segments, settings and writers.

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     describe_stream(streams.create("shop/bids"))["tail"]
    {'0': 0}
    """
    record = stream.refreshed()
    return {
        **summarize_stream(stream),
        "columns": ", ".join(f"{field.name} {field.type}" for field in record.columns),
        "epoch": record.epoch,
        "head": describe_cut(record.head),
        "tail": describe_cut(stream.tail()),
        "settings": StreamSettings.load(record.settings).save(),
        "segments": [_segment(state) for state in stream.segments()],
        "writers": describe_writers(stream),
    }


def describe_marks(stream: Stream) -> list[dict[str, Any]]:
    """The marks of a stream, ascending.

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     describe_marks(streams.create("shop/bids"))
    []
    """
    return [
        {
            "lower": format_instant(mark.lower),
            "upper": format_instant(mark.upper),
            "cut": describe_cut(mark.cut),
        }
        for mark in stream.marks()
    ]


def describe_writers(stream: Stream) -> list[dict[str, Any]]:
    """The writers of a stream that have noted a time, and whether they hold the watermark back.

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     describe_writers(streams.create("shop/bids"))
    []
    """
    newest = stream.store.read(partial(mark_store.newest_mark, stream=stream.id))
    found = stream.store.read(partial(mark_store.writer_marks, stream=stream.id))
    return [_writer(record, None if newest is None else newest[1]) for record in found]


def describe_groups(stream: Stream) -> list[dict[str, Any]]:
    """The reader groups of a stream: their readers and position, and how many events they are behind.

    ``behind`` counts the events after the last checkpoints. ``removed`` counts those of them that retention
    or truncation has removed; such a group must be reset.

    >>> from slackwater.streams.log.catalog import Streams
    >>> from slackwater.streams.log.reader_group import ReaderGroup
    >>> with Streams.temporary() as streams:
    ...     bids = streams.create("shop/bids")
    ...     group = ReaderGroup(bids, "totals")
    ...     describe_groups(bids)
    [{'group': 'totals', 'readers': [], 'behind': 0, 'removed': 0, 'watermark': None, 'position': {'0': 0}}]
    """

    def work(connection: Connection) -> list[dict[str, Any]]:
        states, now = segment_states(connection, stream.id), stream.store.now(connection)
        groups, readers, segments = schema.groups.c, schema.group_readers.c, schema.group_segments.c
        query = sql.select(groups.name, groups.lower).where(groups.stream == stream.id).order_by(groups.name)
        found = []
        for group in connection.execute(query).all():
            alive = sql.select(readers.reader).where(
                readers.stream == stream.id, readers.group == group.name, readers.expires_at > now
            )
            entries = {
                row.segment: GroupSegment(row.offset, bool(row.finished), row.reader)
                for row in connection.execute(
                    sql.select(schema.group_segments)
                    .where(segments.stream == stream.id, segments.group == group.name)
                    .order_by(segments.segment)
                )
            }
            found.append(
                {
                    "group": group.name,
                    "readers": sorted(connection.execute(alive).scalars()),
                    **_backlog(entries, states),
                    "watermark": None if group.lower is None else format_instant(group.lower),
                    "position": describe_cut(group_position(entries, epochs_of(states))),
                }
            )
        return found

    return stream.store.read(work)


def _backlog(entries: dict[int, GroupSegment], states: list[SegmentState]) -> dict[str, int]:
    """The events after the position of a group, and how many of them were removed."""
    entered = [state.segment for state in states if state.segment.id in entries]
    behind = removed = 0
    for state in states:
        entry = entries.get(state.segment.id)
        if entry is None and not any(state.segment.succeeds(segment) for segment in entered):
            continue  # before the start of the group
        if entry is not None and entry.finished:
            continue
        offset = 0 if entry is None else entry.offset
        behind += max(0, state.length - offset)
        removed += max(0, min(state.start, state.length) - offset)
    return {"behind": behind, "removed": removed}


def _writer(record: WriterMark, newest: Mark | None) -> dict[str, Any]:
    is_behind = newest is not None and record.time <= newest.lower
    since = record.behind_since
    return {
        "writer": record.writer,
        "time": format_instant(record.time),
        "state": "closed" if record.closed else "holds the watermark back" if is_behind else "ahead",
        "behind_since": None if since is None else format_instant(since),
        "position": describe_cut(record.position),
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
    newest = stream.store.read(partial(mark_store.newest_mark, stream=stream.id))
    return None if newest is None else format_instant(newest[1].lower)
