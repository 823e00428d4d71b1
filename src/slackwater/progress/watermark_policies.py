"""Watermark policies: how the watermark of a source follows its events or the clock (rules G1 and G2).

A policy is a value; the `slackwater.progress.generator.WatermarkGenerator` that applies it holds the state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from slackwater.errors import InvalidArgument, InvalidDuration
from slackwater.time import DurationLike, InstantLike, check_int64, duration, instant


@dataclass(frozen=True, slots=True)
class _Delayed:
    lag: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "lag", not_negative(self.lag, "lag"))


class Lag(_Delayed):
    """Policy: the highest event time of a partition minus ``lag``; it never goes back (G1).

    Args:
        lag: Microseconds, not negative. `slackwater.lag` takes a duration instead.

    >>> import slackwater as sw
    >>> sw.Lag(5_000_000).lag
    5000000
    """

    __slots__ = ()


class LagThenClock(_Delayed):
    """Policy: the highest event time minus ``lag``; between events it advances with the clock (G1).

    The watermark of a partition is ``highest event time − lag + time since that event``. The clock counts at
    ticks, never in the step of an event (G2), and not while the partition is idle or the query is down.

    Args:
        lag: Microseconds, not negative. `slackwater.lag` with ``between="clock"`` takes a duration instead.

    >>> import slackwater as sw
    >>> generator = sw.WatermarkGenerator(sw.LagThenClock(5), partitions=["a"], now=100)
    >>> generator.observe("a", 90, now=100)
    (Watermark(value=85, key='default'),)
    >>> generator.tick(now=103)
    (Watermark(value=88, key='default'),)
    """

    __slots__ = ()


class LagLikeSpark(_Delayed):
    """Policy: as `Lag`, but an event counts one tick later, as in Spark's ``withWatermark``.

    Spark computes its watermark from the highest event time *before* a micro-batch, and drops a row by the
    watermark of the batch before. So the events of a batch advance the watermark at the end of the next
    batch, whether or not that one has events. Spark also rounds event times down to milliseconds.

    Args:
        lag: Microseconds, not negative. `slackwater.lag` with ``like_spark=True`` takes a duration instead.

    >>> import slackwater as sw
    >>> generator = sw.WatermarkGenerator(sw.LagLikeSpark(5_000), partitions=["a"], now=0)
    >>> generator.observe("a", 90_999, now=1), generator.tick(now=1)
    ((), ())
    >>> generator.tick(now=2)
    (Watermark(value=85000, key='default'),)
    """

    __slots__ = ()


class Clock(_Delayed):
    """Policy: the clock minus ``lag``, but never above the timestamp of the event being observed (G2).

    With a lag of zero and the clock as event time this is ingestion time.

    Args:
        lag: Microseconds, not negative. `slackwater.clock` takes a duration instead.

    >>> import slackwater as sw
    >>> sw.Clock(0).lag
    0
    """

    __slots__ = ()


class FixedDelay(_Delayed):
    """Policy: the clock minus ``lag``, independent of the events. Older events are late (G1).

    Args:
        lag: Microseconds, not negative. `slackwater.fixed_delay` takes a duration instead.

    >>> import slackwater as sw
    >>> sw.FixedDelay(20).lag
    20
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Constant:
    """Policy: always the same watermark, but never above the timestamp of the event being observed (G2).

    Args:
        value: Microseconds since the epoch. `slackwater.constant` takes a point in time instead.

    >>> import slackwater as sw
    >>> sw.Constant(42).value
    42
    """

    value: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", check_int64(self.value, "value"))


@dataclass(frozen=True, slots=True)
class Learned:
    """Policy: the highest event time of a partition minus a lag that is learned from delays (G1).

    Args:
        coverage: The share of events that should not be behind the watermark, above 0 and below 1.
        initial: The lag in microseconds until enough events were seen; longer if a delay was longer.
        at_most: The longest lag in microseconds; None: no limit. `slackwater.learned` takes durations.

    >>> import slackwater as sw
    >>> sw.Learned(0.999, initial=5_000_000).limited(7_000_000)
    7000000
    """

    coverage: float
    initial: int
    at_most: int | None = None

    def __post_init__(self) -> None:
        given: object = self.coverage
        if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given < 1:
            raise InvalidArgument(
                "coverage",
                given,
                "is not a share above 0 and below 1",
                fix="write 0.999 for 99.9 %; for a lag that never changes, write lag(…)",
            )
        object.__setattr__(self, "initial", not_negative(self.initial, "initial"))
        if self.at_most is not None:
            object.__setattr__(self, "at_most", not_negative(self.at_most, "at_most"))
            if self.at_most < self.initial:
                raise InvalidDuration(
                    "at_most",
                    self.at_most,
                    f"is shorter than initial = {self.initial}",
                    fix="pass a longer one",
                )

    def limited(self, lag: int) -> int:
        """The lag, or the longest one that is allowed.

        Args:
            lag: The learned lag, in microseconds.
        """
        return lag if self.at_most is None else min(lag, self.at_most)


WatermarkPolicy = Lag | LagThenClock | LagLikeSpark | Clock | FixedDelay | Constant | Learned
"""The rule by which a generator derives watermarks."""


def lag(
    delay: DurationLike, *, between: Literal["clock"] | None = None, like_spark: bool = False
) -> Lag | LagThenClock | LagLikeSpark:
    """Follow the highest event time at a distance of ``delay``: the usual choice.

    Args:
        delay: How far out of order events may arrive without being late.
        between: What the watermark does between events. By default it stands still, so the last windows of a
            stream that pauses stay open. With ``"clock"`` it advances with the clock from where the last
            event left it, and the last windows fire. Events that continue after a pause at the time at which
            they stopped are then late.
        like_spark: Drop the same rows as ``withWatermark`` with this delay. Spark judges a row by the
            watermark of the micro-batch before the last, so fewer rows are late, and windows fire one
            micro-batch later.

    Returns:
        The policy, for ``stream(…, watermark=lag("5 seconds"))``.

    Raises:
        InvalidDuration: The delay cannot be parsed or is negative.
        InvalidArgument: ``between`` is neither None nor ``"clock"``, or is combined with ``like_spark``.

    >>> import slackwater as sw
    >>> sw.lag("5 seconds"), sw.lag("5 seconds", between="clock"), sw.lag("5 seconds", like_spark=True)
    (Lag(lag=5000000), LagThenClock(lag=5000000), LagLikeSpark(lag=5000000))
    """
    if between not in (None, "clock"):
        raise InvalidArgument("between", between, "is not a valid choice", fix='use "clock", or omit it')
    if not isinstance(like_spark, bool):
        raise InvalidArgument("like_spark", like_spark, "is not a boolean", fix="write like_spark=True")
    if like_spark and between is not None:
        raise InvalidArgument(
            "between",
            between,
            "cannot be combined with like_spark=True: Spark's watermark stands still between events",
            fix="give one of the two",
        )
    microseconds = duration(delay, name="lag")
    if like_spark:
        return LagLikeSpark(microseconds)
    return Lag(microseconds) if between is None else LagThenClock(microseconds)


def learned(
    coverage: float = 0.999, *, initial: DurationLike = "1 minute", at_most: DurationLike | None = None
) -> Learned:
    """Follow the highest event time at a distance that is learned from how late events are.

    The lag is the shortest, up to 10 %, that the delays of ``coverage`` of the recent events do not exceed. A
    delay is the distance of an event to the highest event time that its partition had reached before; for a
    micro-batch, before the batch. The lag follows the delays in both directions. The watermark does not go
    back when the lag grows.

    The lag in use and the counted delays are part of the saved state, so a batch that is repeated after a
    failure gives the same watermark.

    Args:
        coverage: The share of events that should not be behind the watermark. Fewer than one in a million
            cannot be learned in reasonable time: the first lag is learned from ``10 / (1 - coverage)``
            events.
        initial: The lag until then. It grows at once if a longer delay is seen.
        at_most: The longest lag. Events with a longer delay are late, even if the coverage is not reached.

    Returns:
        The policy, for ``stream(…, watermark=learned(coverage=0.999))``.

    Raises:
        InvalidArgument: The coverage is not above 0 and below 1.
        InvalidDuration: A duration cannot be parsed or is negative, or ``at_most`` is shorter than
            ``initial``.

    >>> import slackwater as sw
    >>> generator = sw.WatermarkGenerator(sw.learned(0.9, initial="1 minute"), partitions=["a"], now=0)
    >>> for second in range(200):  # every event is at most two seconds behind
    ...     _ = generator.observe("a", (second - second % 3) * 1_000_000, now=second)
    >>> generator.lag / 1_000_000
    0.0
    """
    limit = None if at_most is None else duration(at_most, name="at_most")
    return Learned(coverage, duration(initial, name="initial"), limit)


def clock(delay: DurationLike = "0 seconds") -> Clock:
    """Follow the clock at a distance of ``delay``, but never make an event late by its own arrival (G2).

    Args:
        delay: The distance to the clock.

    Returns:
        The policy.

    Raises:
        InvalidDuration: The delay cannot be parsed or is negative.

    >>> import slackwater as sw
    >>> sw.clock("1 minute")
    Clock(lag=60000000)
    """
    return Clock(duration(delay, name="lag"))


def fixed_delay(delay: DurationLike) -> FixedDelay:
    """Follow the clock at a distance of ``delay``, independent of the events.

    Args:
        delay: The distance to the clock. Events that are older than this when they arrive are late.

    Returns:
        The policy.

    Raises:
        InvalidDuration: The delay cannot be parsed or is negative.

    >>> import slackwater as sw
    >>> sw.fixed_delay("20 seconds")
    FixedDelay(lag=20000000)
    """
    return FixedDelay(duration(delay, name="lag"))


def constant(value: InstantLike) -> Constant:
    """Always return the same watermark, limited by the event being observed (G2).

    Args:
        value: The watermark.

    Returns:
        The policy.

    Raises:
        InvalidInstant: The value is not a point in time with a timezone.

    >>> import slackwater as sw
    >>> sw.constant("1970-01-01T00:00:42Z")
    Constant(value=42000000)
    """
    return Constant(instant(value, name="value"))


def not_negative(value: int, name: str) -> int:
    """An argument in microseconds; raises if it is negative.

    >>> not_negative(-1, "lag")
    Traceback (most recent call last):
    slackwater.errors.InvalidDuration: lag = -1: is negative; pass zero or more
    """
    number = check_int64(value, name)
    if number < 0:
        raise InvalidDuration(name, value, "is negative", fix="pass zero or more")
    return number


@dataclass(frozen=True, slots=True)
class TableWatermark:
    """The completeness of a table as the watermark of a stream that reads it; made by `completeness`.

    Args:
        table: The address of the table.
        read: Reads up to which time the table is complete; None while that is unknown.
        lag: Microseconds by which the watermark is behind that time, not negative.

    >>> TableWatermark("delta:/data/totals", read=lambda: 5).lag
    0
    """

    table: str
    read: Callable[[], int | None]
    lag: int = 0
