"""The timeline of a stream: its segments, marks, writers and reader groups with their times, for pictures."""

from __future__ import annotations

from dataclasses import dataclass, replace

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from slackwater.metadata import store_schema as schema
from slackwater.streams.description import describe_groups
from slackwater.streams.log.catalog import Stream
from slackwater.streams.log.stream_records import SegmentState, read_record, segment_states
from slackwater.streams.segments.positions import Position
from slackwater.streams.settings import MarkSettings, StreamSettings
from slackwater.streams.time.mark_store import newest_mark, writer_marks
from slackwater.streams.time.notes import WriterMark
from slackwater.streams.time.time_windows import TimeWindow
from slackwater.time import SECOND, format_instant


@dataclass(frozen=True, slots=True)
class TimelineSegment:
    """A segment from its creation to its sealing."""

    id: int
    number: int
    low: float
    """Its key range as fractions of the key space."""
    high: float
    epoch: int
    created_at: int
    sealed_at: int | None
    events: int
    bytes: int
    predecessors: tuple[int, ...]
    """The segments that it replaced: one after a split, several after a merge."""


@dataclass(frozen=True, slots=True)
class TimelineMark:
    """A mark, and when it was made."""

    number: int
    lower: int
    upper: int
    at: int


@dataclass(frozen=True, slots=True)
class TimelineWriter:
    """A writer that has noted a time."""

    writer: str
    time: int
    state: str
    """``holds``: the next mark waits for it; ``ahead``: it does not; ``closed``."""
    behind_since: int | None
    dropped_at: int | None
    """When the mark stops waiting for it, if it notes nothing until then."""


@dataclass(frozen=True, slots=True)
class TimelineGroup:
    """A reader group and its time window."""

    group: str
    readers: tuple[str, ...]
    behind: int
    """The events that it has not read yet."""
    removed: int
    """Those of them that were removed before it read them."""
    lower: int | None
    upper: int | None


@dataclass(frozen=True, slots=True)
class StreamTimeline:
    """Everything that happened to a stream, as far as the store has it.

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary(clock=lambda: 5) as streams:
    ...     line = stream_timeline(streams.create("shop/bids", segments=2))
    >>> len(line.segments), line.marks, line.sentence
    (2, (), 'no mark yet: no writer has noted a time')
    """

    name: str
    now: int
    created_at: int
    epoch: int
    sentence: str
    """Where the newest mark is, and what the next one waits for."""
    mark: int | None
    """The lower bound of the newest mark."""
    period: int
    timeout: int
    segments: tuple[TimelineSegment, ...]
    marks: tuple[TimelineMark, ...]
    """The newest marks, ascending."""
    writers: tuple[TimelineWriter, ...]
    groups: tuple[TimelineGroup, ...]


def stream_timeline(stream: Stream, *, marks: int = 200) -> StreamTimeline:
    """The timeline of a stream.

    Args:
        stream: The stream.
        marks: Return at most this many marks, the newest ones.

    Returns:
        The timeline. Segments, marks and writers are of one transaction.
    """

    def work(connection: Connection) -> StreamTimeline:
        record, now = read_record(connection, stream.record), stream.store.now(connection)
        states = segment_states(connection, stream.id)
        settings = StreamSettings.load(record.settings).marks
        newest = newest_mark(connection, stream.id)
        mark = None if newest is None else newest[1].lower
        writers = [_writer(each, mark, settings) for each in writer_marks(connection, stream.id)]
        return StreamTimeline(
            name=stream.name,
            now=now,
            created_at=record.created_at,
            epoch=record.epoch,
            sentence=_sentence(mark, writers),
            mark=mark,
            period=settings.period,
            timeout=settings.timeout,
            segments=tuple(_segment(state, states) for state in states),
            marks=_newest_marks(connection, stream.id, record.first_mark, marks),
            writers=tuple(sorted(writers, key=lambda writer: writer.time)),
            groups=(),
        )

    return replace(stream.store.read(work), groups=_groups(stream))


def newest_marks(connection: Connection) -> dict[str, int]:
    """The lower bound of the newest mark of each stream that has one, by name.

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     streams.store.read(newest_marks)
    {}
    """
    streams, marks = schema.streams.c, schema.marks.c
    newest = (
        sql.select(streams.scope, streams.name, sql.func.max(marks.lower))
        .join_from(schema.streams, schema.marks, marks.stream == streams.id)
        .group_by(streams.scope, streams.name)
    )
    return {f"{scope}/{name}": lower for scope, name, lower in connection.execute(newest)}


def _segment(state: SegmentState, states: list[SegmentState]) -> TimelineSegment:
    segment = state.segment
    low, high = segment.fractions
    replaced = (
        other.segment.id
        for other in states
        if other.sealed_epoch == segment.epoch and other.segment.overlaps(segment)
    )
    return TimelineSegment(
        segment.id, segment.number, low, high, segment.epoch, state.created_at, state.sealed_at,
        state.length - state.start, state.bytes, tuple(replaced),
    )  # fmt: skip


def _newest_marks(connection: Connection, stream: int, first: int, limit: int) -> tuple[TimelineMark, ...]:
    columns = schema.marks.c
    query = (
        sql.select(columns.number, columns.lower, columns.upper, columns.at)
        .where(columns.stream == stream, columns.number >= first)
        .order_by(columns.number.desc())
        .limit(limit)
    )
    return tuple(TimelineMark(*row) for row in reversed(connection.execute(query).all()))


def _writer(record: WriterMark, mark: int | None, settings: MarkSettings) -> TimelineWriter:
    is_behind = mark is not None and record.time <= mark
    state = "closed" if record.closed else "holds" if is_behind else "ahead"
    waits = state == "holds" and record.behind_since is not None
    dropped = (record.behind_since or 0) + settings.timeout if waits else None
    return TimelineWriter(record.writer, record.time, state, record.behind_since, dropped)


def _sentence(mark: int | None, writers: list[TimelineWriter]) -> str:
    head = "no mark yet" if mark is None else f"mark {_shown(mark)}"
    holding = [writer for writer in writers if writer.state == "holds"]
    if not writers:
        return f"{head}: no writer has noted a time"
    if not holding:
        return f"{head}: nothing holds it back"
    worst = min(holding, key=lambda writer: writer.time)
    others = f", and {len(holding) - 1} more" if len(holding) > 1 else ""
    silent = "" if worst.behind_since is None else f", behind since {_shown(worst.behind_since)}"
    return f"{head}: held back by writer {worst.writer!r} at {_shown(worst.time)}{silent}{others}"


def _shown(at: int) -> str:
    """An instant without fractions of a second."""
    return format_instant(at // SECOND * SECOND)


def _groups(stream: Stream) -> tuple[TimelineGroup, ...]:
    described = describe_groups(stream)
    if not described:
        return ()
    groups = schema.groups.c
    query = sql.select(groups.name, groups.lower).where(groups.stream == stream.id)
    lowers = {
        row.name: row.lower for row in stream.store.read(lambda connection: connection.execute(query).all())
    }
    marks, segments = stream.marks(), stream.epochs().segments
    found = []
    for shown in described:
        position = Position.of({int(identity): offset for identity, offset in shown["position"].items()})
        window = TimeWindow(lowers.get(shown["group"])).advance(position, marks, segments)
        found.append(
            TimelineGroup(
                shown["group"], tuple(shown["readers"]), shown["behind"], shown["removed"], window.lower,
                window.upper,
            )
        )  # fmt: skip
    return tuple(found)
