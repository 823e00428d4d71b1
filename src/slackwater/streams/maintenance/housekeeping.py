"""What a controller does for a stream besides marks: scaling by rate, and forgetting what is old."""

from __future__ import annotations

import logging
from collections.abc import Callable

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from slackwater.errors import InvalidArgument
from slackwater.metadata import store_schema as schema
from slackwater.streams.log.catalog import Stream, epochs_of
from slackwater.streams.log.positions import Position
from slackwater.streams.maintenance.retention import Retention, retention_cut
from slackwater.streams.maintenance.scaling import Scaling, ScalingPolicy, plan_scaling
from slackwater.time import SECOND

_logger = logging.getLogger(__name__)
_appends = schema.appends.c


def scale_by_rate(stream: Stream, policy: ScalingPolicy) -> list[Scaling]:
    """Splits and merges segments by the events that they took lately; what was done.

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     scale_by_rate(streams.create("shop/bids", segments=2), ScalingPolicy(rate=100))
    []
    """
    at = stream.clock()
    since = at - policy.window
    states = stream.segments()
    grown = {s.segment.id for s in states if not s.is_sealed and s.created_at <= since}
    query = (
        sql.select(_appends.segment, sql.func.sum(_appends.events))
        .where(_appends.stream == stream.id, _appends.segment.in_(grown), _appends.at > since)
        .group_by(_appends.segment)
    )
    taken: dict[int, int] = stream.store.read(
        lambda connection: {segment: int(events) for segment, events in connection.execute(query)}
    )
    rates = {segment: taken.get(segment, 0) * SECOND / policy.window for segment in grown}
    done = []
    for scaling in plan_scaling(policy, epochs_of(states).active, rates):
        try:
            stream.scale(scaling.seal, scaling.ranges)
        except InvalidArgument:
            # somebody scaled it meanwhile; the next look sees what there is then
            _logger.info("stream %s was scaled by somebody else", stream.name)
            break
        done.append(scaling)
    return done


def forget(stream: Stream, retention: Retention) -> Position:
    """Truncates a stream at what it has to keep; its head afterwards.

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     forget(streams.create("shop/bids"), Retention(age=1))
    Position({0: 0})
    """
    states = stream.segments()
    since = _kept_since(stream, retention)
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


def _kept_since(stream: Stream, retention: Retention) -> int | None:
    """From when on appends are kept; None if all are."""
    bounds = [] if retention.age is None else [stream.clock() - retention.age]
    if retention.size is not None:
        bounds += stream.store.read(_too_many(stream.id, retention.size))
    return max(bounds, default=None)


def _too_many(stream: int, size: int) -> Callable[[Connection], list[int]]:
    """The time after the append that is one too many, walking back from the newest; none if all fit."""

    def work(connection: Connection) -> list[int]:
        query = sql.select(_appends.at, _appends.size).where(_appends.stream == stream)
        left = size
        for row in connection.execute(query.order_by(_appends.at.desc())):
            left -= row.size
            if left < 0:
                return [row.at + 1]
        return []

    return work
