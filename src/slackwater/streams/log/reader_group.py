"""Reader groups: the segments of a stream divided among readers that come, go and die.

What a reader has read counts once it calls `Reader.checkpoint`; from there others go on if it dies. All that
a group knows is in the store, and changed under the lock of the group's record: whoever calls next expires
the silent, finishes segments, lets successors join, and takes or gives up segments until shares are even.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import sqlalchemy as sql
from sqlalchemy.engine import Connection, Row
from sqlalchemy.exc import IntegrityError

from slackwater.errors import InvalidArgument, ReaderReplaced
from slackwater.metadata import store_schema as schema
from slackwater.metadata.store import insert_of
from slackwater.streams.log.catalog import Stream, epochs_of, read_stream, segment_states
from slackwater.streams.log.cuts import check_cut, check_not_before, check_reached
from slackwater.streams.log.group_segments import Entry, advanced, position_of, readable, shares
from slackwater.streams.log.positions import Position
from slackwater.streams.log.segment_reader import EventBatch, read_events
from slackwater.streams.log.segments import Epochs
from slackwater.streams.time.marks import check_writer_id
from slackwater.streams.time.notes import marks
from slackwater.streams.time.time_windows import TimeWindow
from slackwater.time import DurationLike, duration

_POLL_SECONDS: Final = 0.05
_groups, _readers, _segments = schema.groups, schema.group_readers, schema.group_segments


class ReaderGroup:
    """A named group of readers of one stream; created when it is first used.

    It begins at ``start``, a cut, or else at the head; for a group that exists ``start`` has no effect.

    >>> from slackwater.streams.log.catalog import Streams
    >>> from slackwater.streams.log.writer import Writer
    >>> with Streams.temporary() as streams:
    ...     bids = streams.create("shop/bids")
    ...     with Writer(bids, "w") as writer:
    ...         last = writer.write_many([b"a", b"b"])
    ...     group = ReaderGroup(bids, "totals")
    ...     with group.reader("r1") as reader:
    ...         values = [value for batch in reader for value in batch.events.column("value").to_pylist()]
    ...     values, group.position()
    ([b'a', b'b'], Position({0: 2}))
    """

    def __init__(self, stream: Stream, name: str, *, start: Position | None = None) -> None:
        self.stream = stream
        self.name = check_writer_id(name, "group")
        # another process may create it at the same moment
        with suppress(IntegrityError):
            stream.store.write(lambda connection: self._create(connection, start))

    def reader(self, reader: str | None = None, *, lease: DurationLike = "10 seconds") -> Reader:
        """A reader of the group; one that is not heard of for the length of its lease is taken for dead."""
        return Reader(self, reader, lease=lease)

    def position(self) -> Position:
        """Where the whole group is, by its last checkpoints."""
        return self.stream.store.read(
            lambda connection: position_of(self.entries(connection), self.history(connection)[1])
        )

    def current_time_window(self) -> TimeWindow:
        """Where in time the group stands; its lower bound never goes back."""
        stream = self.stream

        def work(connection: Connection) -> TimeWindow:
            row = self.lock(connection)
            _, epochs = self.history(connection)
            after = 0
            if row.lower is not None:
                known = schema.marks.c
                passed = sql.select(sql.func.max(known.number)).where(
                    known.stream == stream.id, known.lower <= row.lower
                )
                after = connection.execute(passed).scalar() or 0
            first = read_stream(connection, stream).first_mark
            newer = list(marks(connection, stream.id, after=after, first=first).values())
            position = position_of(self.entries(connection), epochs)
            window = TimeWindow(row.lower).advance(position, newer, epochs.segments)
            if window.lower != row.lower:
                connection.execute(
                    _groups.update().where(*self._is(_groups, "name")).values(lower=window.lower)
                )
            return window

        return stream.store.write(work, repeatable=True)

    def reset(self, cut: Position) -> None:
        """Begins again at a cut; readers that are open must be opened again."""

        def work(connection: Connection) -> None:
            self.lock(connection)
            for table in (_readers, _segments):
                connection.execute(table.delete().where(*self._is(table)))
            self._begin(connection, cut)
            self._change(connection, lower=None)

        self.stream.store.write(work)

    def delete(self) -> None:
        """Removes the group and what it remembers; the events stay."""
        gone = _groups.delete().where(*self._is(_groups, "name"))
        self.stream.store.write(lambda connection: connection.execute(gone))

    # ---- the record of the group

    def lock(self, connection: Connection) -> Row[Any]:
        """The record of the group, which nobody else changes until the end of the transaction."""
        query = sql.select(_groups).where(*self._is(_groups, "name"))
        row = connection.execute(query.with_for_update()).one_or_none()
        if row is None:
            raise InvalidArgument("group", self.name, "was deleted", fix="create it again")
        return row

    def entries(self, connection: Connection) -> dict[int, Entry]:
        """How far the group is in each segment."""
        query = sql.select(_segments).where(*self._is(_segments)).order_by(_segments.c.segment)
        return {
            row.segment: Entry(row.offset, bool(row.finished), row.reader)
            for row in connection.execute(query)
        }

    def save(self, connection: Connection, before: Mapping[int, Entry], after: Mapping[int, Entry]) -> None:
        """Records the entries that differ."""
        insert = insert_of(connection)
        self._change(connection)
        for segment, entry in after.items():
            if before.get(segment) != entry:
                values = {"offset": entry.offset, "finished": entry.finished, "reader": entry.reader}
                row = insert(_segments).values(
                    stream=self.stream.id, group=self.name, segment=segment, **values
                )
                connection.execute(
                    row.on_conflict_do_update(index_elements=["stream", "group", "segment"], set_=values)
                )

    def _create(self, connection: Connection, start: Position | None) -> None:
        if connection.execute(sql.select(_groups.c.name).where(*self._is(_groups, "name"))).first():
            return
        values = {
            "stream": self.stream.id,
            "name": self.name,
            "created_at": self.stream.clock(),
            "version": 1,
        }
        connection.execute(_groups.insert().values(values))
        self._begin(connection, start)

    def _begin(self, connection: Connection, start: Position | None) -> None:
        head = read_stream(connection, self.stream).head
        lengths, epochs = self.history(connection)
        cut = head
        if start is not None:
            cut = check_reached(check_cut(epochs, start), lengths, "start")
            check_not_before(epochs, cut, head, "start")
        self.save(connection, {}, {segment: Entry(offset) for segment, offset in cut.items()})

    def _change(self, connection: Connection, **values: int | None) -> None:
        change = _groups.update().where(*self._is(_groups, "name"))
        connection.execute(change.values(version=_groups.c.version + 1, **values))

    def history(self, connection: Connection) -> tuple[dict[int, int], Epochs]:
        """The lengths of the stream's segments, and their history."""
        states = segment_states(connection, self.stream.id)
        return {state.segment.id: state.length for state in states}, epochs_of(states)

    def _is(self, table: sql.Table, name: str = "group") -> tuple[sql.ColumnElement[bool], ...]:
        return table.c.stream == self.stream.id, table.c[name] == self.name


class Reader:
    """One reader of a group; made by `ReaderGroup.reader`.

    Iterating over it gives what is there now, and makes checkpoints on the way. For output that must be
    exactly once, call `read`, store the result with the position, and then call `checkpoint`.
    """

    def __init__(self, group: ReaderGroup, reader: str | None, *, lease: DurationLike) -> None:
        self.group = group
        self.id = check_writer_id(reader, "reader") if reader is not None else uuid.uuid4().hex
        self._lease = duration(lease, name="lease")
        if self._lease <= 0:
            raise InvalidArgument(
                "lease", lease, "must be greater than zero", fix='write it like "10 seconds"'
            )
        self._stream = group.stream
        self._offsets: dict[int, int] = {}
        self._turn: list[int] = []
        self._session = self._stream.store.write(self._join)
        self._renewed = self._stream.clock()
        self.checkpoint()

    @property
    def position(self) -> dict[int, int]:
        """The segments that this reader reads, and the offset up to which it has read each."""
        return dict(self._offsets)

    def read(self, *, wait: float = 0.0) -> EventBatch | None:
        """The next events of one of its segments, in turn; None if there are none for ``wait`` seconds."""
        deadline = time.monotonic() + wait
        while True:
            silent = self._stream.clock() - self._renewed
            if not 0 <= silent < self._lease / 3:  # below zero: the clock was set back
                self._update(publish=False)
            for _ in range(len(self._turn)):
                segment = self._turn.pop(0)
                self._turn.append(segment)
                for batch in read_events(self._stream, segment, self._offsets[segment], at_once=1):
                    self._offsets[segment] = batch.end
                    return batch
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            time.sleep(min(left, _POLL_SECONDS))

    def checkpoint(self) -> Position:
        """Records what was read, and evens out who reads what; the position of the group then.

        Call it also when there was nothing to read: it is how segments are finished and handed over.
        """
        return self._update(publish=True)

    def current_time_window(self) -> TimeWindow:
        """Where in time the group stands."""
        return self.group.current_time_window()

    def close(self) -> None:
        """Leaves the group; others go on from the last checkpoint."""

        def work(connection: Connection) -> None:
            self.group.lock(connection)
            self._free(connection, self.id, self._session)

        self._stream.store.write(work, repeatable=True)
        self._offsets, self._turn = {}, []

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Reader:
        return self

    def __next__(self) -> EventBatch:
        batch = self.read()
        while batch is None:
            before = dict(self._offsets)
            self.checkpoint()
            batch = self.read()
            if batch is None and self._offsets == before:
                raise StopIteration
        return batch

    # ---- membership

    def _join(self, connection: Connection) -> int:
        self.group.lock(connection)
        # whoever had this id is replaced, and its segments go back to where they were checkpointed
        self._free(connection, self.id, None)
        session = uuid.uuid4().int >> 66
        connection.execute(
            _readers.insert().values(
                stream=self._stream.id, group=self.group.name, reader=self.id, session=session,
                expires_at=self._stream.clock() + self._lease,
            )
        )  # fmt: skip
        return session

    def _free(self, connection: Connection, reader: str, session: int | None) -> None:
        mine = [_readers.c.stream == self._stream.id, _readers.c.group == self.group.name]
        mine.append(_readers.c.reader == reader)
        if session is not None:
            mine.append(_readers.c.session == session)
        if connection.execute(_readers.delete().where(*mine)).rowcount or session is None:
            connection.execute(
                _segments.update()
                .where(_segments.c.stream == self._stream.id, _segments.c.group == self.group.name)
                .where(_segments.c.reader == reader)
                .values(reader=None)
            )

    def _update(self, *, publish: bool) -> Position:
        position, mine = self._stream.store.write(
            lambda connection: self._updated(connection, publish=publish), repeatable=True
        )
        self._renewed = self._stream.clock()
        for segment, offset in mine.items():
            if segment not in self._offsets:
                self._turn.append(segment)
            self._offsets.setdefault(segment, offset)
        for segment in [segment for segment in self._offsets if segment not in mine]:
            del self._offsets[segment]
            self._turn.remove(segment)
        return position

    def _updated(self, connection: Connection, *, publish: bool) -> tuple[Position, dict[int, int]]:
        group, now = self.group, self._stream.clock()
        group.lock(connection)
        alive = self._alive(connection, now)
        before = group.entries(connection)
        entries = dict(before)
        for segment, entry in before.items():
            if entry.reader is not None and entry.reader not in alive:
                entries[segment] = Entry(entry.offset, entry.finished)
        if publish:
            for segment, offset in self._offsets.items():
                entries[segment] = Entry(offset, finished=False, reader=self.id)
        lengths, epochs = group.history(connection)
        entries = advanced(entries, lengths, epochs)
        free = readable(entries, epochs)
        share = shares(alive, len(free))[self.id]
        mine = [segment for segment in free if entries[segment].reader == self.id]
        # without a checkpoint nothing is given up: what was read of it would be read again
        surplus = mine[share:] if publish else []
        unread = [segment for segment in free if entries[segment].reader is None]
        for segment in surplus:
            entries[segment] = Entry(entries[segment].offset)
        for segment in unread[: max(0, share - len(mine))]:
            entries[segment] = Entry(entries[segment].offset, reader=self.id)
        group.save(connection, before, entries)
        held = {s: entry.offset for s, entry in entries.items() if entry.reader == self.id}
        return position_of(entries, epochs), held

    def _alive(self, connection: Connection, now: int) -> set[str]:
        """The readers that are alive, this one among them; its lease is renewed, the silent are removed."""
        here = [_readers.c.stream == self._stream.id, _readers.c.group == self.group.name]
        own = [*here, _readers.c.reader == self.id, _readers.c.session == self._session]
        renewed = _readers.update().where(*own).values(expires_at=now + self._lease)
        if connection.execute(renewed).rowcount == 0:
            raise ReaderReplaced(self.group.name, self.id)
        connection.execute(_readers.delete().where(*here, _readers.c.expires_at <= now))
        return set(connection.execute(sql.select(_readers.c.reader).where(*here)).scalars())
