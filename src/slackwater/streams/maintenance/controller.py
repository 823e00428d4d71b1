"""Controllers: they turn what writers note into watermarks, and keep streams in shape.

Any number of them may run, on any hosts that reach the store: as processes (``slackwater controller``) or
as a thread inside another program. They divide the streams by buckets among those that are alive, and nothing
goes wrong if two look after one stream for a while (M5, M6).
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from slackwater.errors import InvalidArgument, SlackwaterError
from slackwater.metadata.leases import Lease, Leases
from slackwater.streams.log.catalog import BUCKETS, Stream, Streams
from slackwater.streams.maintenance.bucket_shares import share
from slackwater.streams.maintenance.file_collection import collect_deleted, collect_orphans
from slackwater.streams.maintenance.housekeeping import forget, scale_by_rate
from slackwater.streams.settings import StreamSettings
from slackwater.streams.time import notes
from slackwater.streams.time.mark_cycle import CycleRunner
from slackwater.streams.time.marks import Cycle, check_writer_id
from slackwater.time import SECOND, DurationLike, duration

_logger = logging.getLogger(__name__)
_PREFIX: Final = "controller/"


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass of a controller did: its buckets, and the cycles that it ran, by stream id.

    >>> Pass((0, 1), {}).buckets
    (0, 1)
    """

    buckets: tuple[int, ...]
    cycles: dict[int, Cycle]


class Controller:
    """One controller of the streams of a store.

    `step` does what is due and returns; `run` goes on until it is told to stop; `running` does that in a
    thread of its own.

    >>> from slackwater.streams.log.catalog import Streams
    >>> with Streams.temporary() as streams:
    ...     len(Controller(streams).step().buckets)
    128
    """

    def __init__(
        self,
        streams: Streams,
        *,
        name: str | None = None,
        lease: DurationLike = "15 seconds",
        poll: DurationLike = "1 second",
        housekeeping: DurationLike = "30 seconds",
    ) -> None:
        drawn = f"controller-{uuid.uuid4().hex[:12]}"
        self.name = check_writer_id(drawn if name is None else name, "controller")
        self._streams = streams
        self._lasting = _positive(lease, "lease")
        self._poll = _positive(poll, "poll")
        self._housekeeping = _positive(housekeeping, "housekeeping")
        self._leases = Leases(streams.store, clock=streams.clock)
        self._lease: Lease | None = None
        self._cycles = CycleRunner(streams.store, streams.clock)
        self._next_cycle: dict[int, int] = {}
        self._next_housekeeping = 0
        self._stop = threading.Event()

    def step(self) -> Pass:
        """Renews the lease, runs the cycles that are due, and keeps house when it is time to."""
        buckets = self._share()
        at = self._streams.clock()
        done: dict[int, Cycle] = {}
        noted = self._streams.store.read(lambda connection: notes.noted_streams(connection, buckets))
        for stream, settings in noted.items():
            if at >= self._next_cycle.get(stream, at) and not self._stop.is_set():
                self._next_cycle[stream] = at + settings.marks.period
                with self._one_stream(stream):
                    cycle = self._cycles.run(stream)
                    done |= {} if cycle is None else {stream: cycle}
        self._next_cycle = {stream: due for stream, due in self._next_cycle.items() if stream in noted}
        if at >= self._next_housekeeping:
            self._next_housekeeping = at + self._housekeeping
            self._keep_house(buckets)
        return Pass(tuple(buckets), done)

    def run(self) -> None:
        """Steps until `stop` is called. Trouble with the store is logged, and tried again."""
        while not self._stop.is_set():
            try:
                self.step()
            except SlackwaterError:
                _logger.exception("controller %s cannot go on for now", self.name)
            self._stop.wait(self._poll / SECOND)
        self._retire()

    def stop(self) -> None:
        """Lets `run` end after what it is doing; other controllers take over at once."""
        self._stop.set()

    @contextmanager
    def running(self) -> Iterator[Controller]:
        """Runs in a thread as long as the ``with`` block does."""
        thread = threading.Thread(target=self.run, name=self.name, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.stop()
            thread.join()

    def _share(self) -> list[int]:
        renewed = None
        if self._lease is not None:
            renewed = self._leases.renew(self._lease, lasting=self._lasting)
        self._lease = renewed or self._leases.acquire(_PREFIX + self.name, self.name, lasting=self._lasting)
        alive = {lease.owner for lease in self._leases.held(_PREFIX)}
        return share(self.name, alive, BUCKETS)

    def _retire(self) -> None:
        if self._lease is not None:
            try:
                self._leases.release(self._lease)
            except SlackwaterError:
                _logger.exception("controller %s could not give back its lease; it will expire", self.name)

    def _keep_house(self, buckets: Collection[int]) -> None:
        for record in self._streams.list():
            if record.bucket in buckets and not self._stop.is_set():
                with self._one_stream(record.name):
                    stream = Stream(self._streams.store, record, clock=self._streams.clock)
                    settings = StreamSettings.load(record.settings)
                    if settings.scaling is not None:
                        scale_by_rate(stream, settings.scaling)
                    forget(stream, settings.retention)
                    collect_orphans(stream)
        with self._one_stream("(deleted)"):
            collect_deleted(self._streams, buckets)

    @contextmanager
    def _one_stream(self, stream: object) -> Iterator[None]:
        """One stream in trouble, or one whose files are out of reach, must not hold up the others."""
        try:
            yield
        except (SlackwaterError, OSError):
            _logger.exception("controller %s: stream %s", self.name, stream)


def _positive(value: DurationLike, name: str) -> int:
    length = duration(value, name=name)
    if length <= 0:
        raise InvalidArgument(name, value, "must be greater than zero", fix='write it like "10 seconds"')
    return length
