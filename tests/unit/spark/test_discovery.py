"""Discovery of origins: the first watermark waits for origins that were not declared."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from slackwater import windows
from slackwater.errors import InvalidDuration
from slackwater.progress.discovery import Discover, discover
from slackwater.progress.explanation import Reason
from slackwater.progress.watermark_policies import Clock, Lag
from slackwater.spark.runtime.bucket import OperatorPlan
from slackwater.spark.runtime.keyed_progress import TimesProgress, TimesRules
from slackwater.spark.runtime.numbered_progress import NumberedProgress, NumberedRules
from slackwater.spark.runtime.source_progress import SourceProgress, SourceRules
from slackwater.spark.wire.buffers import Observation, OriginChunk, Peak, Shipment, pack
from tests.support.windowed import Options
from tests.unit.spark.bucket_stages import BUCKETS, TRIGGER, Stage, host, rows_frame, ticks

WAIT = Discover(30)


class Policies:
    """Origins with a lag of zero, under one key or as the first of two."""

    def __init__(self, *, keyed: bool, idle_after: int | None = None) -> None:
        rules = SourceRules(Lag(0), idle_after=idle_after, origins=WAIT)
        other = SourceRules(Lag(0), idle_after=idle_after, origins=WAIT, key="other")
        self._rules = TimesRules((rules, other), key="default") if keyed else rules
        self.progress = self._loaded(None)

    def _loaded(self, saved: bytes | None, now: int = 0) -> SourceProgress | TimesProgress:
        if isinstance(self._rules, TimesRules):
            return TimesProgress(self._rules, now, saved)
        return (
            SourceProgress(self._rules, now)
            if saved is None
            else SourceProgress.load(self._rules, saved, now)
        )

    def advance(self, now: int, *, restarted: bool = False, **times: int) -> None:
        seen = [Observation(origin, [Peak(time, 1)]) for origin, time in times.items()]
        self.progress.advance(seen, now, restarted=restarted)

    def watermark(self) -> int | None:
        return self.progress.watermark

    def restart(self, now: int) -> None:
        self.progress = self._loaded(self.progress.save(), now)


class Numbered:
    """Origins that number their buffers."""

    def __init__(self, idle_after: int | None = None) -> None:
        self._rules = NumberedRules(idle_after, WAIT)
        self.progress = NumberedProgress(self._rules, 0)
        self._sent: dict[str, int] = {}

    def advance(self, now: int, *, restarted: bool = False, **times: int) -> None:
        chunks = []
        for origin, time in times.items():
            self._sent[origin] = self._sent.get(origin, 0) + 1
            chunks.append(OriginChunk(origin, self._sent[origin], 1, True, time, 0))
        self.progress.advance(chunks, now, restarted=restarted)

    def watermark(self) -> int | None:
        return self.progress.watermark

    def restart(self, now: int) -> None:
        self.progress = NumberedProgress(self._rules, now, self.progress.save())


Make = Callable[..., Policies | Numbered]
SUBJECTS: Sequence[tuple[str, Make]] = [
    ("policy", lambda **options: Policies(keyed=False, **options)),
    ("keys", lambda **options: Policies(keyed=True, **options)),
    ("headers", Numbered),
]
ALL = pytest.mark.parametrize("make", [make for _, make in SUBJECTS], ids=[name for name, _ in SUBJECTS])


@ALL
def test_an_origin_first_heard_in_the_second_batch_counts_for_the_first_watermark(make: Make) -> None:
    subject = make()
    subject.advance(0, fast=1_000)
    assert subject.watermark() is None
    subject.advance(29, fast=2_000, slow=20)
    assert subject.watermark() is None
    subject.advance(30)
    assert subject.watermark() == 20, "exactly the wait has passed"


@ALL
def test_an_origin_first_heard_after_the_wait_is_not_waited_for(make: Make) -> None:
    subject = make()
    subject.advance(0, fast=1_000)
    subject.advance(30)
    assert subject.watermark() == 1_000
    subject.advance(31, slow=20)
    assert subject.watermark() == 1_000


@ALL
def test_a_restart_continues_the_wait_and_does_not_count(make: Make) -> None:
    subject = make()
    subject.advance(0, fast=1_000)
    subject.advance(20)
    subject.restart(20)
    subject.advance(5_000, restarted=True, slow=20)
    assert subject.watermark() is None
    subject.advance(5_009)
    assert subject.watermark() is None
    subject.advance(5_010)
    assert subject.watermark() == 20
    subject.restart(5_010)
    subject.advance(5_011, fast=3_000)
    assert subject.watermark() == 20


@ALL
def test_why_reports_the_discovery_and_the_source_is_not_idle(make: Make) -> None:
    subject = make(idle_after=4)
    for now in (0, 2, 4, 6, 8):
        subject.advance(now)
    assert not subject.progress.idle
    subject.advance(10, fast=5)
    for now in (12, 14, 16):
        subject.advance(now)
    why = subject.progress.why()
    assert (why.reason, why.watermark, why.since) == (Reason.DISCOVERY, None, 0)
    assert str(why) == "watermark unknown: waiting for origins to be discovered since 1970-01-01T00:00:00Z"
    assert not subject.progress.idle


def test_a_clock_policy_waits_too() -> None:
    progress = SourceProgress(SourceRules(Clock(5), origins=WAIT), now=0)
    progress.advance([Observation("a", [Peak(3, 1)])], now=10)
    progress.advance([], now=20)
    assert progress.watermark is None
    progress.advance([], now=40)
    assert progress.watermark == 35


def test_a_query_that_ran_before_without_a_wait_does_not_wait() -> None:
    before = SourceProgress(SourceRules(Lag(0)), now=0)
    before.advance([Observation("a", [Peak(10, 1)])], now=0)
    after = SourceProgress.load(SourceRules(Lag(0), origins=WAIT), before.save(), now=0)
    after.advance([Observation("a", [Peak(20, 1)])], now=1)
    assert after.watermark == 20


def test_the_wait_must_be_greater_than_zero() -> None:
    with pytest.raises(InvalidDuration, match=r'wait = 0: must be greater than zero; write discover\("30 s'):
        discover("0 seconds")


@pytest.mark.parametrize(("origins", "lost"), [(None, 20), (WAIT, 0)])
def test_rows_of_an_origin_heard_second_are_lost_only_without_discovery(
    origins: Discover | None, lost: int
) -> None:
    options = Options(windows.Fixed(10), TRIGGER, ("count",))
    stage = Stage(OperatorPlan((SourceRules(Lag(0), origins=origins),), host(options)))

    def batch(origin: str, first: int, now: int) -> int:
        frame = rows_frame([{"key": "k", "ts": first + n, "value": 1} for n in range(20)])
        header = Shipment(0, 0, 0, [Observation(origin, [Peak(first + 19, 20)])], [], 0)
        sent = [(bucket, header, pack(frame) if bucket == BUCKETS[0] else None) for bucket in BUCKETS]
        outputs = stage.step([*sent, *ticks(now)])
        return sum(output.report.totals["dropped_late"] for output in outputs)

    assert batch("fast", 1_000, 0) == 0
    assert batch("slow", 0, 10) == lost
