"""One cycle of a controller for one stream: read, judge, write if nothing came between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import sqlalchemy as sql
from sqlalchemy.engine import Connection

from slackwater.metadata import store_schema as schema
from slackwater.metadata.store import MetadataStore
from slackwater.streams.log.catalog import epochs_of, segment_states
from slackwater.streams.log.segments import Epochs
from slackwater.streams.settings import StreamSettings
from slackwater.streams.time import notes
from slackwater.streams.time.marks import Cycle, Mark, MarkSettings, WriterMark, judge_cycle
from slackwater.time import now as wall_clock


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a cycle is judged from."""

    settings: MarkSettings
    first_noted: int | None
    newest: tuple[int, Mark] | None
    writers: list[WriterMark]
    epochs: Epochs


@dataclass(slots=True)
class CycleRunner:
    """Runs cycles; remembers the segments of each stream until it is scaled.

    >>> from slackwater.streams.log.positions import Position
    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     bids = streams.create("shop/bids")
    ...     note = lambda c: notes.note(c, bids.id, "w", time=7, position=Position.of({0: 0}), at=0)
    ...     _ = streams.store.write(note)
    ...     CycleRunner(streams.store, clock=lambda: 10_000_000).run(bids.id).mark
    Mark(lower=7, upper=7, cut=Position({0: 0}))
    """

    store: MetadataStore
    clock: Callable[[], int] = wall_clock
    _epochs: dict[int, tuple[int, Epochs]] = field(default_factory=dict)

    def run(self, stream: int) -> Cycle | None:
        """What the cycle decided and wrote; None if the stream is gone, or another controller was faster."""
        at = self.clock()
        seen = self.store.read(lambda connection: self._look(connection, stream))
        if seen is None:
            self._epochs.pop(stream, None)
            return None
        cycle = judge_cycle(
            seen.writers,
            None if seen.newest is None else seen.newest[1],
            seen.epochs,
            now=at,
            first_noted=seen.first_noted,
            settings=seen.settings,
        )
        if not (cycle.mark or cycle.delete or cycle.behind or cycle.caught_up):
            return cycle
        # After a lost connection the number is taken, also if by this very call: nothing is written twice.
        written = self.store.write(
            lambda connection: notes.apply_cycle(connection, stream, seen.newest, cycle, at), repeatable=True
        )
        return cycle if written else None

    def _look(self, connection: Connection, stream: int) -> _Seen | None:
        # In this order: a mark that is appended after the first look makes ours void, and segments that
        # are created after the second are not in any position that was read.
        newest = notes.newest_mark(connection, stream)
        writers = notes.writer_marks(connection, stream)
        streams = schema.streams.c
        query = sql.select(streams.settings, streams.first_noted_at, streams.epoch)
        row = connection.execute(query.where(streams.id == stream)).one_or_none()
        if row is None:
            return None
        known = self._epochs.get(stream)
        if known is None or known[0] != row.epoch:
            known = (row.epoch, epochs_of(segment_states(connection, stream)))
            self._epochs[stream] = known
        settings = StreamSettings.load(msgspec.json.decode(row.settings)).marks
        return _Seen(settings, row.first_noted_at, newest, writers, known[1])
