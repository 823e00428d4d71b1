"""Mark cycles: read the records of a stream, decide, and write unless the records have changed since."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import sqlalchemy as sql
from sqlalchemy.engine import Connection

from slackwater.metadata import store_schema as schema
from slackwater.metadata.store import MetadataStore
from slackwater.streams.log.stream_records import epochs_of, segment_states
from slackwater.streams.segments.epochs import Epochs
from slackwater.streams.settings import MarkSettings, StreamSettings
from slackwater.streams.time import mark_store
from slackwater.streams.time.marks import CycleDecision, Mark, decide_cycle
from slackwater.streams.time.notes import WriterMark


@dataclass(frozen=True, slots=True)
class _CycleInput:
    """The records from which a cycle decides."""

    settings: MarkSettings
    first_noted: int | None
    newest: tuple[int, Mark] | None
    writers: list[WriterMark]
    epochs: Epochs


@dataclass(slots=True)
class CycleRunner:
    """Runs cycles; caches the segments of each stream until it is scaled.

    >>> from slackwater.streams.segments.positions import Position
    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     bids = streams.create("shop/bids")
    ...     note = lambda c: mark_store.note(c, bids.id, "w", time=7, position=Position.of({0: 0}), at=0)
    ...     _ = streams.store.write(note)
    ...     CycleRunner(streams.store).run(bids.id).mark
    Mark(lower=7, upper=7, cut=Position({0: 0}))
    """

    store: MetadataStore
    clock: Callable[[], int] | None = None
    """Returns the time of a cycle; by default the clock of the store."""
    _epochs: dict[int, tuple[int, Epochs]] = field(default_factory=dict)

    def run(self, stream: int) -> CycleDecision | None:
        """Run one cycle.

        Returns:
            What was written; None if the stream was deleted, or another controller wrote a mark first.
        """
        at = self.store.now() if self.clock is None else self.clock()
        found = self.store.read(lambda connection: self._read(connection, stream))
        if found is None:
            self._epochs.pop(stream, None)
            return None
        cycle = decide_cycle(
            found.writers,
            None if found.newest is None else found.newest[1],
            found.epochs,
            now=at,
            first_noted=found.first_noted,
            settings=found.settings,
        )
        if not (cycle.mark or cycle.delete or cycle.behind or cycle.caught_up):
            return cycle
        # repeatable: if a lost connection has committed the mark, its number exists and nothing is written
        # again
        written = self.store.write(
            lambda connection: mark_store.apply_cycle(connection, stream, found.newest, cycle, at),
            repeatable=True,
        )
        return cycle if written else None

    def _read(self, connection: Connection, stream: int) -> _CycleInput | None:
        # The order matters: a mark that is appended after the first query invalidates this cycle, and
        # segments that are created after the second are not in any position that was read.
        newest = mark_store.newest_mark(connection, stream)
        writers = mark_store.writer_marks(connection, stream)
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
        return _CycleInput(settings, row.first_noted_at, newest, writers, known[1])
