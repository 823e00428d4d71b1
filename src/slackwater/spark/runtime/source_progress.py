"""The watermark of a source in one bucket, made from the event times that map tasks observed and the clock.

The rules are those of `slackwater.progress`; this module adds what micro-batches need. A batch contains the
observations of many origins, so all of them are applied before an origin is found idle. The time between two
batches may be caused by the query itself: a batch counts for at most half of ``idle_after``, so that a slow
batch never makes an origin idle, and the time of a restart does not count at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, cast

from slackwater.errors import UnknownSource
from slackwater.monitoring.origins import OriginColumns, OriginState, OriginStatus
from slackwater.monitoring.query_state import PolicyLag
from slackwater.progress.delays import DelayHistogram
from slackwater.progress.discovery import Discover
from slackwater.progress.explanation import Explanation, OriginProgress, Reason
from slackwater.progress.generator import WatermarkGenerator
from slackwater.progress.values import DEFAULT_KEY, Origin
from slackwater.progress.watermark_policies import Constant, Learned, WatermarkPolicy
from slackwater.spark.runtime.delay_reports import learned_delays
from slackwater.spark.wire.buffers import Observation, Peak
from slackwater.time import END_OF_TIME, SECOND

NO_TABLES: Final[Mapping[str, int]] = MappingProxyType({})
ONLY_ORIGIN: Final = "input"
"""The name of the single origin of a source without an origin column."""
SILENT_AFTER: Final = 5 * SECOND
"""An active origin that has sent nothing for this long is reported as silent."""
LONGEST_NAME: Final = 200
"""Longer names of origins are cut in reports."""


def processing_pause(before: int, now: int, idle_after: int | None, *, restarted: bool) -> int:
    """The part of the time between two batches that does not count towards ``idle_after``.

    >>> processing_pause(100, 109, 10, restarted=False), processing_pause(100, 109, 10, restarted=True)
    (4, 9)
    """
    if restarted:
        return max(0, now - before)
    return 0 if idle_after is None else max(0, now - before - idle_after // 2)


def origin_states(origins: Iterable[OriginProgress], key: str, now: int) -> list[OriginState]:
    """The states of origins for reports; there may be thousands of them in every batch.

    >>> (origin,) = origin_states([OriginProgress("a", 5, "active", heard=0)], "default", now=5_000_000)
    >>> origin.status
    'silent'
    """
    return [
        OriginState(
            shown_name(name), shown_status(status, watermark, heard, gap, now), {key: watermark}, heard,
            gap=None if gap is None else str(gap),
        )
        for name, watermark, status, heard, gap in origins
    ]  # fmt: skip


def shown_name(name: Origin) -> str:
    """The name of an origin, cut if it is long."""
    text = str(name)
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1]}…"


def shown_status(
    status: str, watermark: int | None, heard: int | None, gap: object, now: int
) -> OriginStatus:
    """The state of an origin for reports: one that is active may be silent, or have a gap."""
    if status != "active":
        return cast(OriginStatus, status)
    if gap is not None:
        return "gap"
    if watermark is None or (heard is not None and now - heard >= SILENT_AFTER):
        return "silent"
    return "active"


@dataclass(frozen=True, slots=True)
class SourceRules:
    """How the watermark of a source is made.

    ``origins`` are the declared ones; `Discover` or None discovers them, with or without a wait.

    With ``arrival`` rows have no event time of their own; it is the clock of the batch in which they arrive.
    A discovered origin that is silent for ``forget_after`` is removed from the state.

    >>> from slackwater.progress.watermark_policies import lag
    >>> SourceRules(lag("5 seconds")).idle_after is None
    True
    """

    policy: WatermarkPolicy
    idle_after: int | None = None
    max_ahead: int | None = None
    origins: tuple[Origin, ...] | Discover | None = None
    key: str = DEFAULT_KEY
    arrival: bool = False
    forget_after: int | None = None
    table: str | None = None
    """The table whose completeness is the event time that the source has reached, instead of its rows."""

    @property
    def declared(self) -> tuple[Origin, ...] | None:
        """The declared origins; None if they are discovered."""
        return None if isinstance(self.origins, Discover) else self.origins

    def generator(self, now: int) -> WatermarkGenerator:
        """A new watermark generator."""
        return WatermarkGenerator(
            self.policy,
            partitions=self.declared,
            now=now,
            discover=self.origins.wait if isinstance(self.origins, Discover) else None,
            idle_after=self.idle_after,
            max_ahead=self.max_ahead,
            forget_after=self.forget_after,
            key=self.key,
        )


class SourceProgress:
    """The watermark of one source.

    >>> from slackwater.progress.watermark_policies import Lag
    >>> from slackwater.spark.wire.buffers import Peak
    >>> progress = SourceProgress(SourceRules(Lag(5), idle_after=10), now=0)
    >>> _ = progress.advance([Observation("a", [Peak(20, 1)]), Observation("b", [Peak(30, 1)])], now=0)
    >>> progress.watermark
    15
    >>> for now in (4, 8, 12):
    ...     _ = progress.advance([Observation("b", [Peak(40, 1)])], now=now)
    >>> progress.watermark, progress.why().held_by
    (35, "partition 'b'")
    """

    def __init__(self, rules: SourceRules, now: int) -> None:
        self._rules = rules
        self._generator = rules.generator(now)
        self._now = now

    @property
    def watermark(self) -> int | None:
        """The current watermark; None before the first."""
        return self._generator.current

    @property
    def watermarks(self) -> dict[str, int | None]:
        """The current watermark by its key."""
        return {self._rules.key: self.watermark}

    @property
    def idle(self) -> bool:
        """Whether every origin is idle; an origin that has never sent anything is waited for."""
        why = self._generator.why()
        return why.held_by is None and why.reason is Reason.IDLE

    def advance(
        self,
        observations: Sequence[Observation],
        now: int,
        *,
        restarted: bool = False,
        tables: Mapping[str, int] = NO_TABLES,
    ) -> int:
        """Apply a batch; return the number of its rows that were too far in the future to count.

        ``tables`` are the times up to which tables are complete.
        """
        if self._rules.table is not None:
            complete = tables.get(self._rules.table)
            observations = [] if complete is None else [Observation(self._rules.table, [Peak(complete, 0)])]
        ahead = 0
        peaks: dict[Origin, int] = {}
        for observation in observations:
            skipped, time = (0, now) if self._rules.arrival else self._admissible(observation, now)
            ahead += skipped
            if time is not None:
                peaks[observation.origin] = max(time, peaks.get(observation.origin, time))
        # An origin whose rows have no time, or only times too far in the future, is not idle either.
        active = {observation.origin for observation in observations}
        if pause := processing_pause(self._now, now, self._rules.idle_after, restarted=restarted):
            self._now += pause
            self._generator.resume(now=self._now)
        known = set(self._generator.partitions)
        declared = self._rules.declared
        if declared is not None and (others := active - known):
            raise UnknownSource(
                f"origin {min(others, key=str)!r}",
                declared,
                fix="add it to origins=, or omit origins= to discover origins as they appear",
            )
        for origin in sorted(active - known, key=str) if declared is None else ():
            self._generator.add(origin, now=self._now)
        self._learn(observations, now)
        # All active origins are marked before any is found idle, and idle ones become active again before
        # the watermark follows a faster one alone.
        for origin in sorted(active, key=str):
            self._generator.hear(origin, now=now)
        for origin, time in sorted(peaks.items(), key=lambda peak: (peak[1], str(peak[0]))):
            self._generator.observe(origin, time, now=now, learns=False)
        self._generator.tick(now=now)
        self._now = now
        return ahead

    def _learn(self, observations: Sequence[Observation], now: int) -> None:
        """Count the delays of a batch for a lag that is learned, once for all origins.

        The rows of an origin are left out in a batch in which its latest time is too far in the future.
        """
        delays = DelayHistogram({})
        for observation in observations:
            reached = self._generator.reached(observation.origin)
            if reached is not None and observation.bins and not self._admissible(observation, now)[0]:
                delays.add(learned_delays(observation, reached))
        if delays.bins:
            self._generator.learn(delays, now=now)

    @property
    def lags(self) -> tuple[PolicyLag, ...]:
        """The lag of the policy, if it has one."""
        policy = self._rules.policy
        if self._rules.arrival or isinstance(policy, Constant):
            return ()
        decisions = self._generator.decisions
        since = decisions[-1].at if decisions else None
        coverage = policy.coverage if isinstance(policy, Learned) else None
        return (PolicyLag(self._rules.key, self._generator.lag, coverage, since),)

    def set_back(self, by: int) -> None:
        """Follow a clock that was set back."""
        self._generator.set_back(by)
        self._now -= by

    def why(self, key: str | None = None) -> Explanation:
        """Which origin holds the watermark back, since when, and why."""
        return self._generator.why()

    def origins(self) -> list[OriginState]:
        """The progress of every origin."""
        return origin_states(self._generator.origins(), self._rules.key, self._now)

    def origin_columns(self) -> OriginColumns:
        """The same as columns, for many origins."""
        names, watermarks, statuses, heard = self._generator.origin_columns()
        now = self._now
        shown = [
            shown_status(status, at, last, None, now)
            for status, at, last in zip(statuses, watermarks, heard, strict=True)
        ]
        return OriginColumns(self._rules.key, list(map(shown_name, names)), shown, watermarks, heard)

    def save(self) -> bytes:
        """The saved state."""
        return self._generator.save()

    @classmethod
    def load(cls, rules: SourceRules, saved: bytes, now: int) -> SourceProgress:
        """Restore what `save` returned at the time ``now``; the rules may have changed.

        >>> from slackwater.progress.watermark_policies import Lag
        >>> progress = SourceProgress(SourceRules(Lag(5)), now=0)
        >>> SourceProgress.load(SourceRules(Lag(7)), progress.save(), now=0).watermark is None
        True
        """
        progress = cls(rules, now)
        generator = progress._generator = rules.generator(now).load(saved)
        declared = rules.origins if isinstance(rules.origins, tuple) else generator.partitions
        for origin in generator.partitions:
            if origin not in declared:
                generator.remove(origin, now=now)
        return progress

    def _admissible(self, observation: Observation, now: int) -> tuple[int, int | None]:
        """The number of rows too far in the future, and the highest time that is not."""
        if self._rules.max_ahead is None:
            return 0, observation.peaks[0].time if observation.peaks else None
        limit = min(now + self._rules.max_ahead, END_OF_TIME)
        skipped = 0
        for peak in observation.peaks:
            if peak.time <= limit:
                return skipped, peak.time
            skipped += peak.rows
        return skipped, None
