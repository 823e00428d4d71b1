"""Completeness of a table or stream: up to which event time the results of a query are written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from slackwater.time import END_OF_TIME


@dataclass(frozen=True, slots=True)
class Completeness:
    """What a commit of a query states about its results.

    >>> Completeness(complete_until=20, final_until=15).final_until
    15
    """

    complete_until: int | None = None
    """The results of all windows that end at or before this time are written; None while it is unknown."""
    final_until: int | None = None
    """Late rows cannot change them any more before this time; None if they always can, or it is unknown."""

    @classmethod
    def of(cls, watermark: int | None, lateness: int | None) -> Completeness:
        """The completeness of an operator's output, from the watermark that it forwards.

        Args:
            watermark: The forwarded watermark, after all holds of the operator.
            lateness: How far panes and retractions may be behind it; None for no limit.

        >>> Completeness.of(20, 5)
        Completeness(complete_until=20, final_until=15)
        >>> Completeness.of(END_OF_TIME, None).final_until == END_OF_TIME
        True
        """
        if watermark is None:
            return cls()
        if watermark == END_OF_TIME:
            return cls(END_OF_TIME, END_OF_TIME)
        return cls(watermark, None if lateness is None else watermark - lateness)

    @classmethod
    def lowest(cls, several: Iterable[Completeness]) -> Completeness:
        """The completeness of what several queries write together: unknown if that of one is.

        >>> Completeness.lowest([Completeness(20, 15), Completeness(30, None)])
        Completeness(complete_until=20, final_until=None)
        """
        known = list(several)
        return cls(lowest([one.complete_until for one in known]), lowest([one.final_until for one in known]))

    def contradicts(self, other: Completeness) -> bool:
        """Whether this and another statement are about different results: both times are known and differ.

        ``final_until`` is not compared: it depends on the allowed lateness, which may be changed.

        >>> Completeness(20).contradicts(Completeness(30)), Completeness(20).contradicts(Completeness())
        (True, False)
        """
        known = self.complete_until is not None and other.complete_until is not None
        return known and self.complete_until != other.complete_until

    @property
    def is_known(self) -> bool:
        """Whether anything is stated."""
        return self.complete_until is not None


def lowest(times: Iterable[int | None]) -> int | None:
    """The lowest of several times; None if one of them is unknown, or there is none.

    >>> lowest([3, 5]), lowest([3, None]), lowest([])
    (3, None, None)
    """
    known = list(times)
    return None if None in known or not known else min(time for time in known if time is not None)
