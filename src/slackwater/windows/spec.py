"""The time-bounded join of two streams, each with a watermark of its own (rules J1 to J7).

Two rows match when their keys are equal and the right one lies at most ``before`` earlier and at
most ``after`` later than the left one. Both sides are buffered, and what bounds the buffers is the
watermark of the *other* side: a row may go once no future row can still match it. There is no
clock here and no idleness: a silent side holds the other one's rows until it speaks or ends.

This is the configuration; `slackwater.windows.engine.join_operator` folds batches into state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from slackwater.errors import InvalidArgument
from slackwater.time import DurationLike, check_int64, duration

How = Literal["inner", "left", "right", "full"]
Late = Literal["count", "emit"]

REACH: Final = 2**62
"""Times and bounds stay within ±146,000 years of 1970, so that their sums never overflow."""


@dataclass(frozen=True, kw_only=True)
class TimeBoundedJoin:
    """What to join: equal ``on`` columns and ``left − before ≤ right ≤ left + after``, both inclusive.

    Bounds are microseconds and may be negative, as long as they leave room for a match:
    ``before=-2, after=5`` wants the right row two to five later. ``how`` says which side's rows come
    out null-padded when nothing matched them. A name that both sides have, and that is no key, gets
    the side's suffix in the result.

    >>> TimeBoundedJoin(on=("auction",), before=0, after=10, how="left").after
    10
    >>> TimeBoundedJoin(on=("auction",), before=-5, after=2)
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: after = 2: ends before the range begins at 5; before + after must \
not be negative
    """

    on: tuple[str, ...]
    before: int
    after: int
    how: How = "inner"
    left_time: str = "ts"
    right_time: str = "ts"
    suffixes: tuple[str, str] = ("_left", "_right")
    late: Late = "count"

    def __post_init__(self) -> None:
        if not isinstance(self.on, tuple):
            raise InvalidArgument("on", self.on, "is not a tuple of names", fix='write on=("auction",)')
        for name in ("before", "after"):
            bound = check_int64(getattr(self, name), name)
            if not -REACH < bound < REACH:
                raise InvalidArgument(name, bound, "is longer than 146,000 years", fix="use a shorter bound")
        if self.before + self.after < 0:
            raise InvalidArgument(
                "after",
                self.after,
                f"ends before the range begins at {-self.before}",
                fix="before + after must not be negative",
            )
        for name, allowed in (("how", get_args(How)), ("late", get_args(Late))):
            if getattr(self, name) not in allowed:
                raise InvalidArgument(name, getattr(self, name), "is not known", fix=f"use one of {allowed}")
        if self.left_time in self.on or self.right_time in self.on:
            raise InvalidArgument(
                "on", self.on, "has an event time in it", fix="use before=0, after=0 for that"
            )

    def pads(self, side: Literal["left", "right"]) -> bool:
        """Whether rows of that side come out alone when nothing matched them.

        >>> TimeBoundedJoin(on=(), before=0, after=0, how="left").pads("right")
        False
        """
        return self.how in (side, "full")

    def identity(self) -> str:
        """The part of the configuration that saved state depends on.

        >>> TimeBoundedJoin(on=("k",), before=0, after=5).identity()
        "inner join on ('k',), ts - 0 <= ts <= ts + 5"
        """
        return (
            f"{self.how} join on {self.on}, "
            f"{self.left_time} - {self.before} <= {self.right_time} <= {self.left_time} + {self.after}"
        )


def time_bounded_join(
    *on: str,
    before: DurationLike,
    after: DurationLike,
    how: How = "inner",
    left_time: str = "ts",
    right_time: str = "ts",
    late: Late = "count",
) -> TimeBoundedJoin:
    """A `TimeBoundedJoin` with its bounds written as durations.

    >>> time_bounded_join("auction", before="0 seconds", after="10 seconds").after
    10000000
    """
    return TimeBoundedJoin(
        on=on,
        before=duration(before, name="before"),
        after=duration(after, name="after"),
        how=how,
        left_time=left_time,
        right_time=right_time,
        late=late,
    )
