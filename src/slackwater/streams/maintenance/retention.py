"""Retention: truncates a stream to the age and size that its settings allow.

Ages are measured by the clock of the store. The newest append is never removed, whatever the settings and the
clock, so that a mistake in either does not empty the stream.
"""

from __future__ import annotations

from collections.abc import Mapping

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from slackwater.metadata import store_schema as schema
from slackwater.streams.log.catalog import Stream
from slackwater.streams.log.stream_records import epochs_of
from slackwater.streams.segments.cut_traversal import enter_successors
from slackwater.streams.segments.epochs import Epochs
from slackwater.streams.segments.positions import Position
from slackwater.streams.settings import Retention

_appends = schema.appends.c


def apply_retention(stream: Stream, retention: Retention) -> Position:
    """Truncate a stream to its retention settings, and return its head afterwards.

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     apply_retention(streams.create("shop/bids"), Retention(age="1 second"))
    Position({0: 0})
    """
    states = stream.segments()
    since = stream.store.read(lambda connection: _kept_since(connection, stream, retention))
    if since is None:
        return stream.head()
    query = (
        sql.select(_appends.segment, sql.func.min(_appends.first_offset))
        .where(_appends.stream == stream.id, _appends.at >= since)
        .group_by(_appends.segment)
    )
    kept_from: dict[int, int] = stream.store.read(
        lambda connection: {segment: int(offset) for segment, offset in connection.execute(query)}
    )
    lengths = {state.segment.id: state.length for state in states}
    return stream.truncate(retention_cut(epochs_of(states), stream.head(), kept_from, lengths))


def retention_cut(
    epochs: Epochs, head: Position, kept_from: Mapping[int, int], lengths: Mapping[int, int]
) -> Position:
    """The cut at which a stream is truncated, at or after ``head``.

    ``kept_from`` has the first offset to keep of each segment; segments that it does not contain keep
    nothing. The successors of a sealed segment enter the cut once all segments that they replaced keep
    nothing.

    >>> from slackwater.streams.segments.epochs import Segment
    >>> epochs = Epochs([[Segment(0, 0, 0, 2**62)]]).scale([0], [(0, 2**61), (2**61, 2**62)])
    >>> left, right = (segment.id for segment in epochs.active)
    >>> lengths = {0: 20, left: 5, right: 5}
    >>> retention_cut(epochs, Position.of({0: 3}), {0: 10, left: 0, right: 0}, lengths)
    Position({0: 10})
    >>> retention_cut(epochs, Position.of({0: 3}), {left: 2}, lengths) == Position.of({left: 2, right: 5})
    True
    """
    kept = {identity: kept_from.get(identity, length) for identity, length in lengths.items()}
    cut = Position.of({identity: max(offset, kept[identity]) for identity, offset in head.items()})
    return enter_successors(epochs, cut, lengths, entered=kept)


def _kept_since(connection: Connection, stream: Stream, retention: Retention) -> int | None:
    """The time from which appends are kept; None if all are."""
    newest = connection.execute(
        sql.select(sql.func.max(_appends.at)).where(_appends.stream == stream.id)
    ).scalar()
    if newest is None:
        return None
    bounds = [] if retention.age is None else [stream.store.now(connection) - retention.age]
    if retention.size is not None:
        since = _kept_by_size(connection, stream.id, retention.size)
        bounds += [] if since is None else [since]
    return min(max(bounds), int(newest)) if bounds else None


def _kept_by_size(connection: Connection, stream: int, size: int) -> int | None:
    """The time from which the newest appends take at most ``size`` bytes; None if all appends do."""
    query = sql.select(_appends.at, _appends.size).where(_appends.stream == stream)
    left = size
    for row in connection.execute(query.order_by(_appends.at.desc())):
        left -= row.size
        if left < 0:
            return int(row.at) + 1
    return None
