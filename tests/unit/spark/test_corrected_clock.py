"""A clock that jumped forward and was corrected: durations go on, and no watermark goes back."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from slackwater import time as slackwater_time
from slackwater import windows
from slackwater.progress.discovery import Discover
from slackwater.progress.watermark_policies import Clock, Lag, LagThenClock
from slackwater.spark.runtime.bucket import OperatorPlan
from slackwater.spark.runtime.numbered_progress import NumberedProgress, NumberedRules
from slackwater.spark.runtime.operator_inputs import InputRules, UpstreamRules
from slackwater.spark.runtime.source_progress import SourceProgress, SourceRules
from slackwater.spark.wire.buffers import Observation, OriginChunk, Peak, Tick
from slackwater.spark.wire.clock_source import IntervalReader, is_tick
from slackwater.spark.wire.wire_columns import TIME
from slackwater.time import SECOND
from tests.support.windowed import Options
from tests.unit.spark.bucket_stages import BUCKETS, Stage, host, pane_rows, rows_frame, shipped

DAY = 86_400 * SECOND


class SystemClock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000 * SECOND
        monkeypatch.setattr(slackwater_time, "now", lambda: self.now)


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> SystemClock:
    return SystemClock(monkeypatch)


class Clocked:
    """A stage that is driven by the clock source, batch by batch, with offsets that go through JSON."""

    def __init__(self, plan: OperatorPlan) -> None:
        self.stage = Stage(plan)
        self.restart()
        self.offset: dict[str, Any] = self.reader.initialOffset()

    def restart(self) -> None:
        self.reader = IntervalReader(BUCKETS, SECOND, end=None)

    def tick(self) -> list[Any]:
        """The buffers of the next tick; empty if there is none."""
        offset = self.reader.latestOffset(self.offset, self.reader.getDefaultReadLimit())
        if offset == self.offset:
            return []
        (partition,) = self.reader.partitions(self.offset, offset)
        self.offset = offset
        tick: Tick = partition.tick  # type: ignore[attr-defined]  # a partition of the clock
        return [(bucket, tick, None) for bucket in BUCKETS]

    def batch(self, *rows: tuple[str, int]) -> list[Any]:
        frame = rows_frame([{"key": key, "ts": at, "value": 1} for key, at in rows])
        return self.stage.step([*shipped(frame), *self.tick()])


def panes(outputs: list[Any]) -> list[int]:
    return [n for output in outputs if output.rows is not None for n in output.rows["count"].to_list()]


def test_ticks_follow_a_clock_that_was_corrected(system: SystemClock) -> None:
    clocked = Clocked(OperatorPlan((SourceRules(Lag(0)),), host(Options(windows.Fixed(10)))))
    seen: list[tuple[int, int]] = []
    for at in (0, 1, DAY // SECOND, 2, 3, 3, 4):
        system.now = (1_000 + at) * SECOND
        seen += {(tick.now // SECOND - 1_000, tick.back // SECOND) for _, tick, _ in clocked.tick()}
    jump = DAY // SECOND
    assert seen == [(0, 0), (1, 0), (jump, 0), (2, jump - 2), (3, jump - 2), (4, jump - 2)]


def test_the_offset_of_a_clock_that_was_never_set_back_is_as_before(system: SystemClock) -> None:
    reader = IntervalReader(BUCKETS, SECOND, end=None)
    offset = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert list(offset) == ["buckets", "end", "now", "run", "tick"]
    system.now -= 5
    corrected = reader.latestOffset(offset, reader.getDefaultReadLimit())
    assert list(corrected) == ["buckets", "end", "now", "run", "tick", "back"]
    assert is_tick('{"buckets": [0], "end": false, "now": 5, "run": 1, "tick": 2, "back": 5}')


@pytest.mark.parametrize("restarts", [False, True])
def test_a_delay_trigger_fires_after_its_delay(system: SystemClock, restarts: bool) -> None:
    early = windows.after_processing_time("5 seconds")
    trigger = windows.after_watermark(early=early, late=windows.every(count=1))
    options = Options(windows.Fixed(100 * SECOND), trigger)
    clocked = Clocked(OperatorPlan((SourceRules(Lag(0)),), host(options)))
    clocked.batch(("a", 1))
    system.now += DAY
    assert panes(clocked.batch(("a", 2))) == [2], "the delay of the first row is over on the wrong clock"
    assert panes(clocked.batch(("a", 3))) == []
    system.now -= DAY - 2 * SECOND
    if restarts:
        clocked.restart()
    fired = []
    for _ in range(7):
        fired.append(panes(clocked.batch()))
        system.now += SECOND
    assert fired == [[], [], [], [], [], [], [3]]


@pytest.mark.parametrize("restarts", [False, True])
def test_an_origin_becomes_idle_after_its_time(system: SystemClock, restarts: bool) -> None:
    rules = SourceRules(Lag(0), idle_after=4 * SECOND, origins=("input", "other"))
    clocked = Clocked(OperatorPlan((rules,), host(Options(windows.Fixed(10)))))
    clocked.batch(("a", 50))
    system.now += DAY
    (at,) = {output.report.watermark for output in clocked.batch(("a", 51))}
    assert at is None, "a jump of the clock makes no origin idle"
    system.now -= DAY
    if restarts:
        clocked.restart()
    marks = []
    for number in range(4):
        (at,) = {output.report.watermark for output in clocked.batch(("a", 52 + number))}
        marks.append(at)
        system.now += SECOND
    assert marks == [None, None, 54, 55]


def test_a_clock_watermark_never_goes_back_and_goes_on_when_it_is_reached(system: SystemClock) -> None:
    clocked = Clocked(OperatorPlan((SourceRules(Clock(0)),), host(Options(windows.Fixed(10)))))
    clocked.batch(("a", system.now))
    marks = []
    for jump in (10, 100, -90, 50, 60):
        system.now += jump * SECOND
        (at,) = {output.report.watermark for output in clocked.batch()}
        marks.append(at // SECOND - 1_000)
    assert marks == [10, 110, 110, 110, 130]


def test_rows_with_ingestion_time_are_not_late_after_the_correction(system: SystemClock) -> None:
    rules = SourceRules(Clock(0), arrival=True)
    clocked = Clocked(OperatorPlan((rules,), host(Options(windows.Fixed(SECOND)))))
    outputs = clocked.batch(("a", 0))
    for jump in (DAY, SECOND - DAY, SECOND, SECOND):
        system.now += jump
        outputs = clocked.batch(("a", 0))
    assert sum(output.report.totals["dropped_late"] for output in outputs) == 0


def test_a_chain_follows_the_clock_of_its_first_operator(system: SystemClock) -> None:
    clocked = Clocked(OperatorPlan((SourceRules(Lag(0)),), host(Options(windows.Fixed(10)))))
    second = Stage(
        OperatorPlan((UpstreamRules(BUCKETS),), host(Options(windows.Inherited(), key=(), retractions=True)))
    )
    reported = []
    for jump in (0, DAY, 2 * SECOND - DAY, SECOND):
        system.now += jump
        outputs = second.step(shipped(pane_rows(clocked.batch(("a", 5))), key=None))
        reported.append({output.report.now for output in outputs})
    start = 1_000 * SECOND
    assert reported == [{start}, {start + DAY}, {start + 2 * SECOND}, {start + 3 * SECOND}]


def test_a_replayed_batch_makes_the_same_decisions(system: SystemClock) -> None:
    """The offset holds the time, so a batch that runs again is the same, whatever the clock says then."""
    rules = SourceRules(Lag(0), idle_after=4 * SECOND)
    clocked = Clocked(OperatorPlan((rules,), host(Options(windows.Fixed(10)))))
    clocked.batch(("a", 50))
    system.now += DAY
    clocked.batch(("a", 60))
    system.now -= DAY
    saved = dict(clocked.stage.saved)
    blobs = {bucket: dict(mine) for bucket, mine in clocked.stage.blobs.items()}
    rows = shipped(rows_frame([{"key": "a", "ts": 70, "value": 1}]))
    tick = clocked.tick()
    first = clocked.stage.step([*rows, *tick])
    clocked.stage.saved, clocked.stage.blobs = saved, blobs
    system.now += 5 * DAY
    again = clocked.stage.step([*rows, *tick])
    assert [each.state for each in again] == [each.state for each in first]


def seen(**peaks: int) -> list[Observation]:
    return [Observation(origin, [Peak(time, 1)]) for origin, time in peaks.items()]


def test_the_clock_between_events_counts_from_the_correction() -> None:
    progress = SourceProgress(SourceRules(LagThenClock(0)), now=0)
    progress.advance(seen(a=10), now=1_000)
    progress.advance([], now=1_005)
    assert progress.watermark == 15
    progress.set_back(1_000)
    progress.advance([], now=6)
    assert progress.watermark == 16


def test_a_discovery_ends_after_its_time() -> None:
    progress = SourceProgress(SourceRules(Lag(0), origins=Discover(10)), now=1_000)
    progress.advance(seen(a=10), now=1_002)
    progress.set_back(1_000)
    progress.advance(seen(a=11), now=9)
    assert progress.watermark is None
    progress.advance(seen(a=12), now=10)
    assert progress.watermark == 12


def test_an_origin_of_numbered_buffers_becomes_idle_after_its_time() -> None:
    progress = NumberedProgress(NumberedRules(idle_after=10, origins=Discover(4)), now=1_000)
    progress.advance([OriginChunk("a", 1, 1, True, 10, 0), OriginChunk("b", 1, 1, True, 5, 0)], now=1_000)
    progress.set_back(1_000)
    progress.advance([OriginChunk("a", 2, 1, True, 20, 0)], now=3)
    assert progress.watermark is None
    marks: list[int | None] = []
    for now in (4, 7, 9, 10):
        progress.advance([OriginChunk("a", now, 1, True, 10 * now, 0)], now=now)
        marks.append(progress.watermark)
    assert marks == [5, 5, 5, 20]


def test_the_time_of_rows_without_one_is_the_clock() -> None:
    rules: InputRules = SourceRules(Clock(0), arrival=True)
    stage = Stage(OperatorPlan((rules,), host(Options(windows.Fixed(10)))))
    frame = rows_frame([{"key": "a", "ts": 0, "value": 1}])
    stage.step([*shipped(frame), *[(bucket, Tick(42, 1, end=False), None) for bucket in BUCKETS]])
    outputs = stage.step([(bucket, Tick(60, 1, end=False), None) for bucket in BUCKETS])
    frames = [output.rows for output in outputs if output.rows is not None]
    assert pl.concat(frames)["window_start"].to_list() == [40]
    assert TIME not in frames[0].columns
