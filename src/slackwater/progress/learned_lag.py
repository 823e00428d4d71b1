"""A lag that is learned from the delays of events (policy `Learned`, rule G1).

The learner counts delays in a histogram and derives the lag from it. All counts are integers and the lag
depends on nothing else, so the same steps give the same lags; the saved state contains the lag in use, the
counts and the latest decisions, so a batch that is repeated after a failure uses the recorded lag.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec import field

from slackwater.progress.delays import DelayHistogram
from slackwater.progress.saved_form import Saved
from slackwater.progress.watermark_policies import Learned

_TAIL_AT_FIRST: Final = 10
"""The first decision waits until about this many events are expected beyond the coverage."""
_TAIL: Final = 100
"""About so many events beyond the coverage are counted before older counts are dropped."""
_SHARE: Final = 50
"""A new decision is made after this fraction of the counted events has been added."""
_KEPT_DECISIONS: Final = 20


class LagDecision(NamedTuple):
    """A change of a learned lag.

    >>> LagDecision(at=0, lag=5_000_000, rows=10_000).lag
    5000000
    """

    at: int
    """When it was made, on the clock that the caller passes as ``now``."""
    lag: int
    """The new lag in microseconds."""
    rows: int
    """The number of counted delays from which it was made."""


class SavedLearner(Saved):
    """The saved state of a `LagLearner`."""

    lag: int
    waiting: int
    recent: tuple[dict[int, int], int]
    older: tuple[dict[int, int], int]
    reached: list[tuple[int, int]] = field(default_factory=list)
    decisions: list[tuple[int, int, int]] = field(default_factory=list)


class LagLearner:
    """Learns the lag of a source from the delays of its events.

    Counts are kept in two generations: when the newer one is full, it replaces the older one. So the lag
    follows a source whose delays change, in both directions.

    >>> learner = LagLearner(Learned(0.9, initial=60))
    >>> learner.lag
    60
    >>> learner.count(DelayHistogram.of([0] * 95 + [2_000_000] * 5), now=7)
    >>> learner.lag, learner.decisions
    (0, (LagDecision(at=7, lag=0, rows=100),))
    """

    __slots__ = ("_decisions", "_older", "_policy", "_recent", "_waiting", "lag", "reached")

    def __init__(self, policy: Learned) -> None:
        self._policy = policy
        self.lag = policy.limited(policy.initial)
        """The lag in use, in microseconds."""
        self.reached: dict[int, int] = {}
        """The highest event time of each slot."""
        self._recent = DelayHistogram({})
        self._older = DelayHistogram({})
        self._waiting = 0
        self._decisions: tuple[LagDecision, ...] = ()

    @property
    def decisions(self) -> tuple[LagDecision, ...]:
        """The latest changes of the lag, oldest first."""
        return self._decisions

    @property
    def rows(self) -> int:
        """The number of counted delays."""
        return self._recent.rows + self._older.rows

    def reach(self, slot: int, timestamp: int) -> None:
        """Record an event time of a slot."""
        self.reached[slot] = max(timestamp, self.reached.get(slot, timestamp))

    def count(self, delays: DelayHistogram, *, now: int) -> None:
        """Count delays, and change the lag if they require it."""
        self._recent.add(delays)
        self._waiting += delays.rows
        beyond = 1 - self._policy.coverage
        if self.rows < round(_TAIL_AT_FIRST / beyond):
            # Too few for the quantile: wait at least for the longest delay so far.
            longest = max(self._recent.highest, self._older.highest)
            self._decide(max(self.lag, longest), now)
            return
        if self._waiting * _SHARE < self.rows:
            return
        self._waiting = 0
        known = DelayHistogram({})
        known.add(self._older)
        known.add(self._recent)
        self._decide(known.quantile(self._policy.coverage), now)
        if self._recent.rows >= round(_TAIL / beyond):
            self._older, self._recent = self._recent, DelayHistogram({})

    def _decide(self, lag: int, now: int) -> None:
        lag = self._policy.limited(lag)
        if lag != self.lag:
            self.lag = lag
            self._decisions = (*self._decisions, LagDecision(now, lag, self.rows))[-_KEPT_DECISIONS:]

    def save(self) -> SavedLearner:
        """The state, for `load`."""
        return SavedLearner(
            self.lag,
            self._waiting,
            (dict(self._recent.bins), self._recent.highest),
            (dict(self._older.bins), self._older.highest),
            sorted(self.reached.items()),
            [(made.at, made.lag, made.rows) for made in self._decisions],
        )

    @classmethod
    def load(cls, policy: Learned, saved: SavedLearner) -> LagLearner:
        """A learner with the state that `save` returned; the policy may have changed.

        >>> learner = LagLearner(Learned(0.9, initial=60))
        >>> LagLearner.load(Learned(0.99, initial=5), learner.save()).lag
        60
        """
        learner = cls(policy)
        learner.lag = policy.limited(saved.lag)
        learner._waiting = saved.waiting
        learner._recent = DelayHistogram(*saved.recent)
        learner._older = DelayHistogram(*saved.older)
        learner.reached = dict(saved.reached)
        learner._decisions = tuple(LagDecision(*one) for one in saved.decisions)
        return learner
