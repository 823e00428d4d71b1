"""Recommends the lag of a watermark policy and the allowed lateness of windows from measured delays."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from slackwater.errors import InvalidArgument
from slackwater.progress.delays import DelayHistogram
from slackwater.time import format_duration


class Advice(msgspec.Struct, frozen=True):
    """A recommended lag and allowed lateness, and what they achieve for the rows that were measured.

    >>> print(Advice(5_000_000, 55_000_000, rows=1000, on_time=0.99, kept=0.999, longest=3_600_000_000))
    lag 5 s: 99.00 % of 1000 rows are on time; with an allowed lateness of 55 s 99.90 % are kept \
(the longest delay is 1 h)
    """

    lag: int
    """For ``lag(…)``, in microseconds: results wait this long for late rows."""
    allowed_lateness: int
    """For ``allowed_lateness(…)``, in microseconds: windows are kept this long after their on-time pane."""
    rows: int
    """The number of rows that were measured."""
    on_time: float
    """The share of them that is not behind the watermark with this lag."""
    kept: float
    """The share of them that is not behind the watermark by more than the allowed lateness."""
    longest: int
    """The longest delay."""

    def __str__(self) -> str:
        return (
            f"lag {format_duration(self.lag)}: {_percent(self.on_time)} of {self.rows} rows are on time; "
            f"with an allowed lateness of {format_duration(self.allowed_lateness)} {_percent(self.kept)} are "
            f"kept (the longest delay is {format_duration(self.longest)})"
        )


def advised(delays: Iterable[DelayHistogram], *, on_time: float = 0.99, kept: float = 0.999) -> Advice:
    """The shortest lag and allowed lateness that reach two shares of the rows.

    Args:
        delays: The measured delays, for example of each origin.
        on_time: The share of rows that should not be behind the watermark.
        kept: The share of rows that should not be dropped. A window accepts a row until its end plus the
            allowed lateness, so that somewhat more rows are kept.

    Raises:
        InvalidArgument: A share is not between 0 and 1, ``kept`` is smaller than ``on_time``, or no delay
            was measured.

    >>> delays = DelayHistogram.of([0] * 990 + [4_000_000] * 9 + [60_000_000])
    >>> advice = advised([delays], on_time=0.999, kept=1.0)
    >>> advice.lag <= 4_400_000, advice.lag + advice.allowed_lateness
    (True, 60000000)
    """
    if not 0 <= on_time <= kept <= 1:
        problem = f"must be between 0 and 1, and not above kept = {kept!r}"
        raise InvalidArgument("on_time", on_time, problem, fix="write on_time=0.99, kept=0.999")
    combined = DelayHistogram()
    for one in delays:
        combined.add(one)
    if not combined.rows:
        raise InvalidArgument(
            "query", "…", "has no measured delays", fix="wait for a few batches after its first watermark"
        )
    lag = combined.quantile(on_time)
    longest = max(combined.quantile(kept), lag)
    return Advice(
        lag,
        longest - lag,
        combined.rows,
        combined.share_within(lag),
        combined.share_within(longest),
        combined.highest,
    )


def _percent(share: float) -> str:
    """A share that is rounded down, so that 99.996 % does not look like all."""
    return f"{int(share * 10_000) / 100:.2f} %"
