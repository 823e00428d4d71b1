"""The bids of the demo: three origins that send out of order, one of which falls silent for a while.

Bids are made up, but nothing else is: they travel as files, and what becomes of them is for Spark to say.
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
_SHORTEST: Final = 400_000
_LONGEST: Final = 1_400_000
"""Between two bids of an origin."""
_SLOWEST: Final = 2 * SECOND
"""The longest that a bid is under way."""
_FORGOTTEN: Final = 60 * SECOND
"""How old the bid is that comes back from nowhere: older than any lateness that is allowed."""


class Bid(NamedTuple):
    """A bid: when it arrives, when it was made, and which file brings it."""

    arrives: int
    at: int
    origin: str
    auction: str
    price: int
    file: int = 0


@dataclass
class Feed:
    """Writes what the origins send into files, one each time it is asked to.

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
        self._chance = random.Random(11)  # noqa: S311 - prices, not secrets
        # No two are equal, so that a bid is known by its price.
        self._prices = chain(self._chance.sample(range(20, 1000), 980), count(1000))
        self._begun = 0
        self._next: dict[str, int] = {}
        self._under_way: list[Bid] = []
        self._held: list[Bid] = []
        self._silent = False
        self._files = 0
        self.arriving.mkdir(parents=True)
        (self.folder / "writing").mkdir()

    @property
    def arriving(self) -> Path:
        """Where whole files appear."""
        return self.folder / "bids"

    def earliest_held(self) -> int | None:
        """The time of the first bid that nobody has heard of; None if there is none."""
        return min((bid.at for bid in self._held), default=None)

    def begin(self, now: int) -> None:
        """The auctions are open."""
        self._begun = now
        self._next = {origin: now + self._gap() for origin in ORIGINS}

    def fall_silent(self) -> None:
        """South's link breaks: it goes on taking bids, but nobody hears of them."""
        self._silent = True

    def speak_again(self, now: int) -> None:
        """South's link is back, and brings what was held; so does a telephone that was off for long."""
        self._silent = False
        self._under_way += [bid._replace(arrives=now) for bid in self._held]
        self._under_way.append(Bid(now, self._begun - _FORGOTTEN, "east", "clock", next(self._prices)))
        self._held = []

    def send(self, now: int) -> None:
        """The bids that arrive by now, in one file."""
        for origin in self._next:
            while self._next[origin] <= now:
                at = self._next[origin]
                arrives = at + self._chance.randrange(_SLOWEST)
                bid = Bid(arrives, at, origin, self._chance.choice(AUCTIONS), next(self._prices))
                held = self._silent and origin == SILENT
                (self._held if held else self._under_way).append(bid)
                self._next[origin] += self._gap()
        arrived = sorted(bid for bid in self._under_way if bid.arrives <= now)
        self._under_way = [bid for bid in self._under_way if bid.arrives > now]
        if arrived:
            self._write([bid._replace(file=self._files) for bid in arrived])

    def _gap(self) -> int:
        return self._chance.randrange(_SHORTEST, _LONGEST)

    def _write(self, bids: list[Bid]) -> None:
        columns = [[getattr(bid, name) for bid in bids] for name in SCHEMA.names]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
        name = f"{self._files:05}.parquet"
        pq.write_table(pa.Table.from_arrays(arrays, schema=SCHEMA), self.folder / "writing" / name)
        (self.folder / "writing" / name).rename(self.arriving / name)
        self._files += 1
        self.sent += bids
