"""What the reports of buckets contain about origins, windows, panes and dropped rows, and their size."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import msgspec
import polars as pl
import pytest

from slackwater import windows
from slackwater.monitoring.origins import LISTED, MOST_ORIGINS, MOST_PACKED, OriginState, OriginSummary
from slackwater.monitoring.query_state import WindowPanes
from slackwater.progress.watermark_policies import Lag
from slackwater.spark.monitor.reports import BucketReport
from slackwater.spark.runtime.bucket import OperatorPlan
from slackwater.spark.runtime.delay_reports import LISTED_ORIGINS, observed_delays, reported_delays
from slackwater.spark.runtime.hosts import WindowHost
from slackwater.spark.runtime.keyed_progress import TimesProgress, TimesRules
from slackwater.spark.runtime.numbered_progress import NumberedProgress, NumberedRules
from slackwater.spark.runtime.source_progress import SourceProgress, SourceRules
from slackwater.spark.runtime.window_reports import LISTED_PANES, PaneCounts
from slackwater.spark.wire.buffers import Observation, OriginChunk, Peak
from slackwater.spark.wire.wire_columns import ORIGIN, TIME
from slackwater.time import BEGINNING_OF_TIME, END_OF_TIME, SECOND
from tests.support.windowed import Options
from tests.unit.spark.bucket_stages import BUCKETS, Stage, host, shipped, ticks

RULES = SourceRules(Lag(0), idle_after=60 * SECOND)


def rows(*elements: tuple[str, str, int]) -> pl.DataFrame:
    """Rows of an origin with a key and a time in seconds."""
    schema = {ORIGIN: pl.String, "key": pl.String, TIME: pl.Int64}
    times = [(origin, key, at * SECOND) for origin, key, at in elements]
    return pl.DataFrame(times, schema=schema, orient="row").with_columns(pl.lit(1).alias("value"))


def stage(options: Options, **settings: Any) -> Stage:
    return Stage(OperatorPlan((RULES,), host(options), reporter=BUCKETS[0], **settings))


def reports(of: Stage, now: int, *elements: tuple[str, str, int]) -> list[BucketReport]:
    buffers = shipped(rows(*elements)) if elements else []
    return [output.report for output in of.step([*buffers, *ticks(now * SECOND)])]


def test_one_bucket_reports_all_origins_with_their_states() -> None:
    windowed = stage(Options(windows.Fixed(10 * SECOND)))
    reports(windowed, 0, ("a", "x", 3), ("b", "y", 7))
    first, *others = reports(windowed, 8, ("a", "x", 12))
    assert first.origins.counts == {"active": 1, "silent": 1}
    assert [(one.name, one.status, one.watermark, one.since) for one in first.origins.listed] == [
        ("b", "silent", 7 * SECOND, 0),
        ("a", "active", 12 * SECOND, 8 * SECOND),
    ]
    assert {report.origins.listed for report in others} == {()}
    for now in (38, 68, 98):
        first, *_ = reports(windowed, now, ("a", "x", 12))
    assert first.origins.counts == {"active": 1, "idle": 1}


@pytest.mark.search
def test_every_one_of_ten_thousand_origins_is_in_a_report_of_bounded_size() -> None:
    progress = SourceProgress(RULES, 0)
    long_name = "p" * 10_000
    names = [f"{number:05}" for number in range(10_000)] + [long_name]
    progress.advance([Observation(name, [Peak(index, 1)]) for index, name in enumerate(names)], 0)
    summary = OriginSummary.of(progress.origins())
    assert summary.counts == {"active": 10_001}
    assert (len(summary.listed), summary.left_out) == (LISTED, 0)
    assert [one.name for one in summary.all()] == [*names[:-1], "p" * 199 + "…"]
    assert [one.name for one in summary.named(lambda name: name in ("00007", "05000"))] == ["00007"]
    assert summary.named(lambda name: name == "05000") == [summary.all()[5_000]]
    assert set(summary.all()[5_000].watermarks) == set(progress.origins()[0].watermarks)
    assert len(msgspec.json.encode(summary)) < 200_000


def test_a_packed_origin_is_the_same_when_it_is_read() -> None:
    odd = [
        OriginState("silent", "silent"),
        OriginState("gap", "gap", {"ordered": 5, "shipped": 9}, 7, "input 'left'", "gap at sequence 4"),
        OriginState("one of two", "active", {"ordered": 5, "shipped": None}, 7, "input 'left'"),
        OriginState("done", "done", {"default": END_OF_TIME}, input="input 'right'"),
        OriginState("<b>", "idle", {"default": BEGINNING_OF_TIME + 1}, since=0),
    ]
    slow = [OriginState(f"{number}", "silent", {"default": None}) for number in range(LISTED)]
    summary = OriginSummary.of([*odd, *slow])
    read = msgspec.json.decode(msgspec.json.encode(summary), type=OriginSummary)
    assert read == summary
    assert len(read.all()) == len(read.listed) + len(odd)
    assert {one.name: one for one in read.all()} == {one.name: one for one in (*odd, *slow)}


def test_a_report_has_the_slowest_and_the_fastest_of_more_origins_than_it_can_hold() -> None:
    random = Random(16)
    names = [random.randbytes(100).hex() for _ in range(6_000)]
    for count, name in ((MOST_ORIGINS + 5_000, str), (6_000, lambda index: names[index])):
        origins = [OriginState(name(at), "active", {"default": at}) for at in range(count)]
        summary = OriginSummary.of(origins)
        found = [one.watermark or 0 for one in summary.all()]
        assert len(found) <= MOST_ORIGINS
        assert len(summary.packed) <= MOST_PACKED
        assert summary.left_out == count - len(found) > 0
        assert summary.total == count
        assert (found[0], found[-1], found) == (0, count - 1, sorted(found))


def test_an_origin_has_the_watermark_of_every_key() -> None:
    keys = SourceRules(Lag(0), key="ordered"), SourceRules(Lag(5), key="shipped")
    progress = TimesProgress(TimesRules(keys, key="shipped"), now=0)
    progress.advance(
        [Observation("a", [Peak(20, 1)], "ordered"), Observation("a", [Peak(90, 1)], "shipped")], 1
    )
    (origin,) = progress.origins()
    assert (origin.name, origin.watermarks) == ("a", {"ordered": 20, "shipped": 85})


def test_a_missing_buffer_is_a_gap() -> None:
    progress = NumberedProgress(NumberedRules(origins=("a", "b")), now=0)
    progress.advance([OriginChunk("a", sequence, 1, True, 10 * sequence, 0) for sequence in (1, 3)], now=1)
    gap, silent = progress.origins()
    assert (gap.status, gap.watermark, gap.gap) == ("gap", 10, "gap at sequence 2 (chunks missing: all)")
    assert (silent.name, silent.status, silent.watermark) == ("b", "silent", None)


def test_open_windows_and_panes_are_reported_by_end() -> None:
    windowed = stage(Options(windows.Fixed(10 * SECOND), allowed_lateness=20 * SECOND))
    found = reports(windowed, 0, ("a", "x", 3), ("a", "y", 4), ("a", "x", 15))
    ends = {group.end // SECOND: group for report in found for group in report.windows}
    assert sorted(ends) == [10, 20]
    assert sum(group.keys or 0 for report in found for group in report.windows) == 3
    assert all(group.closes_at == (end + 20) * SECOND for end, group in ends.items())
    assert (ends[10].owes_pane, ends[20].owes_pane) == (False, True)
    assert (ends[20].bytes or 0) > 0
    assert sum(pane.on_time for report in found for pane in report.panes if pane.end == 10 * SECOND) == 2


def test_sessions_are_counted_and_their_panes_reported_by_end() -> None:
    windowed = stage(Options(windows.Sessions(5 * SECOND), allowed_lateness=20 * SECOND))
    found = reports(windowed, 0, ("a", "x", 3), ("a", "y", 4), ("a", "x", 15))
    assert {report.windows for report in found} == {()}
    assert sum(report.windows_left_out for report in found) > 0
    panes = [pane for report in found for pane in report.panes]
    assert {(pane.end // SECOND, pane.on_time) for pane in panes} == {(8, 1), (9, 1)}


@pytest.mark.parametrize("ends", [LISTED_PANES, LISTED_PANES + 1, 500])
def test_the_panes_of_the_latest_ends_are_counted(ends: int) -> None:
    panes = pl.DataFrame({"window_end": [10 + number % ends for number in range(1_500)]}).with_columns(
        window_start=pl.col("window_end") - 5, timing=pl.lit("ON_TIME"), retraction=pl.lit(value=False)
    )
    counts = PaneCounts()
    counts.add(panes)
    expected = [(end, panes.filter(pl.col("window_end") == end).height) for end in range(10, 10 + ends)]
    assert [(one.end, one.on_time) for one in counts.panes] == expected[-LISTED_PANES:]


def test_late_panes_and_retractions_are_counted_by_end() -> None:
    trigger = windows.after_watermark(late=windows.every(count=1))
    options = Options(
        windows.Fixed(10 * SECOND),
        trigger=trigger,
        mode="accumulating_and_retracting",
        allowed_lateness=60 * SECOND,
    )
    windowed = stage(options)
    reports(windowed, 0, ("a", "x", 3), ("a", "x", 15))
    panes = [pane for report in reports(windowed, 1, ("a", "x", 5)) for pane in report.panes]
    assert panes == [WindowPanes(10 * SECOND, 0, late=1, retractions=1)]


def test_many_windows_are_counted_and_few_are_listed() -> None:
    windowed = stage(Options(windows.Fixed(SECOND), key=()))
    elements = [("a", "x", at) for at in range(300)]
    output = windowed.step([*shipped(rows(*elements, ("b", "x", 0)), key=None), *ticks(0)])[0]
    report = output.report
    assert len(report.windows) == 50
    assert [group.end // SECOND for group in report.windows[:2]] == [1, 2]
    assert report.windows_left_out == report.open_windows - 50 == 250
    assert len(msgspec.json.encode(report)) < 10_000


@pytest.mark.parametrize("sample_late", [False, True])
@pytest.mark.parametrize("window", [windows.Fixed(10 * SECOND), windows.Sessions(5 * SECOND)])
def test_dropped_rows_are_sampled_with_their_window_and_lateness(window: Any, sample_late: bool) -> None:
    windowed = stage(Options(window), sample_late=sample_late)
    reports(windowed, 0, ("a", "x", 40))
    late = [("a", "x", second % 3) for second in range(30)]
    found = [row for report in reports(windowed, 1, *late, ("a", "x", 41)) for row in report.late_rows]
    assert 1 <= len(found) <= 10
    first = found[0]
    assert (first.kind, first.watermark, first.ahead) == ("late", 40 * SECOND, "partition 'a'")
    assert first.window_end is not None
    assert first.lateness == 40 * SECOND - first.window_end
    assert first.values == ({"key": "x"} if sample_late else None)
    if isinstance(window, windows.Fixed):  # folded before the shuffle
        assert (first.window_start, first.window_end, first.event_time) == (0, 10 * SECOND, None)
        assert sum(row.rows for row in found) == 30
    else:
        assert first.event_time is not None


def test_rows_of_windows_that_closed_early_are_sampled() -> None:
    spec = host(Options(windows.Fixed(10 * SECOND))).spec
    spec = replace(spec, trigger=windows.after_count(1), allow_data_loss=True)
    windowed = Stage(OperatorPlan((RULES,), WindowHost(spec)))
    reports(windowed, 0, ("a", "x", 3))
    (row,) = [row for report in reports(windowed, 1, ("a", "x", 4)) for row in report.late_rows]
    assert (row.kind, row.window_end, row.rows) == ("closed", 10 * SECOND, 1)


def test_delays_are_measured_from_what_the_source_had_reached_before_the_batch() -> None:
    windowed = Stage(OperatorPlan((SourceRules(Lag(5 * SECOND)),), host(Options(windows.Fixed(10 * SECOND)))))
    first = reports(windowed, 0, ("a", "x", 100), ("b", "x", 100))
    assert [report.delays for report in first] == [{}] * len(BUCKETS)  # nothing was reached before
    one, *others = reports(windowed, 1, ("a", "x", 130), ("a", "y", 98), ("a", "z", 70), ("b", "x", 101))
    assert [report.delays for report in others] == [{}, {}]
    assert {name: delays.rows for name, delays in one.delays.items()} == {"a": 3, "b": 1}
    assert one.delays["b"].highest == 0
    delays = one.delays["a"]
    shares = [delays.share_within(seconds * SECOND) for seconds in (0, 4, 40)]
    assert shares == pytest.approx([1 / 3, 2 / 3, 1])
    assert delays.highest == pytest.approx(30 * SECOND, rel=0.03)
    # with the lag of 5 seconds, one row is behind the watermark: the one that is 30 seconds behind
    assert round((1 - delays.share_within(5 * SECOND)) * 3) == 1


@pytest.mark.parametrize("origins", [2, 20, 50])
def test_origins_that_take_turns_are_sampled_alike(origins: int) -> None:
    count = 25_000
    names = pl.Series(ORIGIN, [f"{number % origins:02}" for number in range(count)])
    observed = observed_delays(pl.DataFrame({TIME: pl.int_range(count, eager=True), ORIGIN: names}), None)
    rows = {str(origin.origin): sum(origin.rows) for origin in observed}
    assert rows == pytest.approx(dict.fromkeys(rows, count / origins), rel=0.1)
    assert len(rows) == origins


def test_the_delays_of_many_rows_and_origins_are_sampled_and_bounded() -> None:
    count = 200_000
    origins = pl.Series(ORIGIN, [f"{number % 997:04}" for number in range(count)])
    frame = pl.DataFrame({TIME: pl.int_range(count, eager=True) * 1_000, ORIGIN: origins})
    observed = observed_delays(frame, None)
    assert len(observed) == LISTED_ORIGINS + 1
    assert sum(sum(origin.rows) for origin in observed) == pytest.approx(count, rel=0.01)
    found = reported_delays([(None, observed, 100_000_000), ("b", observed, 100_000_000)])
    assert len(found) == LISTED_ORIGINS + 1
    assert "(others)" in found
    total = sum(delays.rows for delays in found.values())
    behind = sum(delays.rows * (1 - delays.share_within(50 * SECOND)) for delays in found.values())
    assert behind / total == pytest.approx(0.25, abs=0.02)
    assert len(msgspec.json.encode(found)) < 60_000
