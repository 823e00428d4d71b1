"""A histogram of delays: by how much rows are behind the fastest event time that their source had reached.

A row is behind the watermark if its delay is larger than the lag of the watermark policy. The bins grow by
10 %, so that a share is known for every lag with an error of at most 10 % of the lag, far into the tail. The
counts are exact and deterministic, and histograms are combined by addition: over origins, batches and hours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import msgspec

from slackwater.errors import InvalidArgument
from slackwater.time import MILLISECOND

_GROWTH: Final = 1.1
"""The ratio of the bounds of a bin."""
_LOG_GROWTH: Final = math.log(_GROWTH)
HIGHEST_BIN: Final = 300
"""The bin of all delays above about 80 years."""


class DelayHistogram(msgspec.Struct):
    """Numbers of rows by delay.

    >>> delays = DelayHistogram.of([0, -5, 2_000_000, 2_050_000, 60_000_000])
    >>> delays.rows, delays.share_within(10_000_000)
    (5, 0.8)
    >>> delays.quantile(0.8) / 1_000_000  # the upper bound of the bin: at most 10 % too high
    2.25324
    """

    bins: dict[int, int] = {}
    """The number of rows by bin: 0 for rows that are not behind or less than a millisecond."""
    highest: int = 0
    """The largest delay in microseconds."""

    @classmethod
    def of(cls, delays: Iterable[int]) -> DelayHistogram:
        """The histogram of some delays in microseconds; negative ones count as none."""
        histogram = cls()
        for delay in delays:
            histogram.count(delay)
        return histogram

    def count(self, delay: int, rows: int = 1) -> None:
        """Add rows with one delay."""
        number = _bin_of(delay)
        self.bins[number] = self.bins.get(number, 0) + rows
        self.highest = max(self.highest, delay)

    def add(self, other: DelayHistogram) -> None:
        """Add the rows of another histogram."""
        for number, rows in other.bins.items():
            self.bins[number] = self.bins.get(number, 0) + rows
        self.highest = max(self.highest, other.highest)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(self.bins.values())

    def share_within(self, delay: int) -> float:
        """The share of rows with at most this delay; 1.0 without rows."""
        rows = self.rows
        if not rows:
            return 1.0
        last = _bin_of(delay)
        return sum(count for number, count in self.bins.items() if number <= last) / rows

    def quantile(self, share: float) -> int:
        """The smallest bound that at least this share of the rows does not exceed, in microseconds.

        Raises:
            InvalidArgument: The share is not between 0 and 1.
        """
        if not 0 <= share <= 1:
            raise InvalidArgument("share", share, "is not between 0 and 1", fix="write 0.999 for 99.9 %")
        wanted, seen = share * self.rows, 0
        for number in sorted(self.bins):
            seen += self.bins[number]
            if seen >= wanted:
                return min(bound_of(number), self.highest)
        return self.highest


def _bin_of(delay: int) -> int:
    """The number of the bin of a delay.

    >>> _bin_of(0), _bin_of(1_000), _bin_of(1_050), _bin_of(2**62)
    (0, 0, 1, 300)
    """
    if delay <= MILLISECOND:
        return 0
    return min(math.ceil(math.log(delay / MILLISECOND) / _LOG_GROWTH), HIGHEST_BIN)


def bound_of(number: int) -> int:
    """The largest delay of a bin, in microseconds.

    >>> bound_of(1), _bin_of(bound_of(50)), _bin_of(bound_of(50) + 1)
    (1100, 50, 51)
    """
    return 0 if number == 0 else math.floor(MILLISECOND * _GROWTH**number)
