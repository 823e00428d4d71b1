"""The bids of the demo: three origins that send out of order, one of which goes silent for a while.

The bids are generated; everything else is real. They are written as Parquet files, which Spark reads.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.time import SECOND

ORIGINS: Final = ("north", "south", "east")
SILENT: Final = "south"
AUCTIONS: Final = ("lamp", "chair", "clock")
SCHEMA: Final = pa.schema(
    [
        ("at", pa.timestamp("us", "UTC")),
        ("origin", pa.string()),
        ("auction", pa.string()),
        ("price", pa.int64()),
        ("file", pa.int64()),
    ]
)
_MIN_GAP: Final = 400_000
_MAX_GAP: Final = 1_400_000
"""Microseconds between two bids of one origin."""
_MAX_DELAY: Final = 2 * SECOND
"""The longest delay between a bid and its arrival."""
_TOO_LATE: Final = 60 * SECOND
"""The age of the one bid that arrives too late: more than the allowed lateness."""


class Bid(NamedTuple):
    """A bid: when it arrives, when it was made, and the number of the file that contains it."""

    arrives: int
    at: int
    origin: str
    auction: str
    price: int
    file: int = 0


@dataclass
class Feed:
    """Writes the bids that have arrived into files, one file per call of `send`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     feed = Feed(Path(folder))
    ...     feed.begin(now=0)
    ...     for second in range(1, 8):
    ...         feed.send(second * SECOND)
    ...     len(feed.sent) > 10, {bid.origin for bid in feed.sent} == set(ORIGINS)
    (True, True)
    """

    folder: Path
    sent: list[Bid] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(11)  # noqa: S311 - prices, not secrets
        # All prices differ, so that a price identifies a bid.
        self._prices = chain(self._random.sample(range(20, 1000), 980), count(1000))
        self._started = 0
        self._next: dict[str, int] = {}
        self._in_transit: list[Bid] = []
        self._held: list[Bid] = []
        self._silent = False
        self._files = 0
        self.arriving.mkdir(parents=True)
        (self.folder / "writing").mkdir()

    @property
    def arriving(self) -> Path:
        """The folder in which complete files appear."""
        return self.folder / "bids"

    def earliest_held(self) -> int | None:
        """The time of the earliest bid that the silent origin holds; None if it holds none."""
        return min((bid.at for bid in self._held), default=None)

    def begin(self, now: int) -> None:
        """Start the auctions."""
        self._started = now
        self._next = {origin: now + self._gap() for origin in ORIGINS}

    def silence(self) -> None:
        """Disconnect South: it still takes bids, but holds them."""
        self._silent = True

    def resume(self, now: int) -> None:
        """Reconnect South, which sends the bids it held; also send one bid that is far too late."""
        self._silent = False
        self._in_transit += [bid._replace(arrives=now) for bid in self._held]
        self._in_transit.append(Bid(now, self._started - _TOO_LATE, "east", "clock", next(self._prices)))
        self._held = []

    def send(self, now: int) -> None:
        """Write the bids that have arrived by now into one file."""
        for origin in self._next:
            while self._next[origin] <= now:
                at = self._next[origin]
                arrives = at + self._random.randrange(_MAX_DELAY)
                bid = Bid(arrives, at, origin, self._random.choice(AUCTIONS), next(self._prices))
                held = self._silent and origin == SILENT
                (self._held if held else self._in_transit).append(bid)
                self._next[origin] += self._gap()
        arrived = sorted(bid for bid in self._in_transit if bid.arrives <= now)
        self._in_transit = [bid for bid in self._in_transit if bid.arrives > now]
        if arrived:
            self._write([bid._replace(file=self._files) for bid in arrived])

    def _gap(self) -> int:
        return self._random.randrange(_MIN_GAP, _MAX_GAP)

    def _write(self, bids: list[Bid]) -> None:
        columns = [[getattr(bid, name) for bid in bids] for name in SCHEMA.names]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
        name = f"{self._files:05}.parquet"
        pq.write_table(pa.Table.from_arrays(arrays, schema=SCHEMA), self.folder / "writing" / name)
        (self.folder / "writing" / name).rename(self.arriving / name)
        self._files += 1
        self.sent += bids
