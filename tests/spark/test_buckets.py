"""Buckets without Spark: the same plans that workers run, in one process, against the reference model.

Rows are shipped to several buckets, every bucket steps on its own, and its state goes through bytes after
every batch. What all buckets emit together must be what the model says, batch by batch.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import polars as pl
import pytest

from slackwater import windows
from slackwater.errors import CorruptState
from slackwater.progress.generator import Lag
from slackwater.spark.runtime.bucket import BucketOutput, OperatorPlan
from slackwater.spark.runtime.hosts import WindowHost
from slackwater.spark.runtime.map_side import Shipper
from slackwater.spark.runtime.operator_inputs import UpstreamRules
from slackwater.spark.runtime.source_progress import SourceRules
from slackwater.spark.wire.buffers import Header, Tick, write_header
from slackwater.spark.wire.columns import BUCKET_INDEX, CONTROL, RETRACTION, TIME
from slackwater.time import END_OF_TIME
from tests.model.windows import Pane, Row
from tests.support.windowed import ModelSubject, Observed, Options, blocks

BUCKETS = (3, 8, 11)
ACCUMULATIONS = {"count": windows.count(), "sum": windows.sum("value")}


@dataclass
class Stage:
    """An operator with its buckets."""

    plan: OperatorPlan
    saved: dict[int, bytes] = field(default_factory=dict)
    blobs: dict[int, dict[str, bytes]] = field(default_factory=lambda: {bucket: {} for bucket in BUCKETS})

    def step(self, buffers: Sequence[tuple[int, Header, bytes | None]]) -> list[BucketOutput]:
        outputs: list[BucketOutput] = []
        for bucket in BUCKETS:
            mine = [
                (write_header(header), payload) for target, header, payload in buffers if target == bucket
            ]
            output = self.plan.step(bucket, self.saved.get(bucket), self.blobs[bucket], mine)
            self.saved[bucket] = output.state
            outputs.append(output)
        return outputs


def shipped(frame: pl.DataFrame, number: int = 0, key: str | None = "key") -> list[Any]:
    """The buffers of some rows, as two tasks would make them."""
    indices = [0] * frame.height
    if key is not None:
        indices = [zlib.crc32(repr(value).encode()) % len(BUCKETS) for value in frame[key]]
    indexed = frame.with_columns(pl.Series(BUCKET_INDEX, indices, dtype=pl.Int32))
    shipper = Shipper(BUCKETS, number, (), None if CONTROL in frame.columns else "input", False, True)
    half = frame.height // 2
    parts = enumerate((indexed[:half], indexed[half:]))
    return [buffer for task, part in parts if part.height for buffer in shipper.buffers(part, task, 0)]


def ticks(now: int, run: int = 1, *, end: bool = False) -> list[Any]:
    return [(bucket, Tick(now, run, end), None) for bucket in BUCKETS]


def rows_frame(rows: Sequence[Row]) -> pl.DataFrame:
    schema = {"key": pl.String, "ts": pl.Int64, "value": pl.Int64}
    return pl.DataFrame(list(rows), schema=schema, orient="row").rename({"ts": TIME})


def emitted(outputs: Sequence[BucketOutput], key: Sequence[str]) -> list[Pane]:
    panes: list[Pane] = []
    for output in outputs:
        rows = (
            [] if output.rows is None else output.rows.filter(pl.col("kind") == "pane").iter_rows(named=True)
        )
        panes += [
            Pane(
                key=tuple(row[name] for name in key),
                start=row["window_start"],
                end=row["window_end"],
                values={name: row[name] for name in ACCUMULATIONS},
                timing=row["timing"],
                index=row["index"],
                on_time_index=row["on_time_index"],
                is_first=row["is_first"],
                is_last=row["is_last"],
                timestamp=row["timestamp"],
                retraction=row["retraction"],
            )
            for row in rows
        ]
    return panes


def canonical(panes: Sequence[Pane]) -> list[Any]:
    return sorted((sorted(map(repr, old)), repr(new)) for old, new in blocks(panes))


def host(options: Options) -> WindowHost:
    spec = windows.WindowSpec(
        window=options.window,
        trigger=options.trigger,
        accumulations=ACCUMULATIONS,
        event_time=TIME,
        key=options.key,
        mode=options.mode,  # type: ignore[arg-type]
        allowed_lateness=options.allowed_lateness,
        retractions=RETRACTION if options.retractions else None,
    )
    return WindowHost(spec)


def random_batches(random: Random, count: int = 8) -> list[list[Row]]:
    """Rows that drift forward in time, out of order, some of them far behind."""
    return [
        [
            {
                "key": random.choice(["a", "b", "c", "d", None]),
                "ts": 6 * number + random.randint(-12, 9),
                "value": random.randint(-3, 6),
            }
            for _ in range(random.randint(0, 8))
        ]
        for number in range(count)
    ]


class Follower:
    """The watermark that rows give: the highest time minus five."""

    def __init__(self) -> None:
        self.at: int | None = None

    def after(self, rows: Sequence[Row]) -> int | None:
        times = [row["ts"] - 5 for row in rows]
        self.at = max([*times, *([] if self.at is None else [self.at])], default=None)
        return self.at


TRIGGER = windows.after_watermark(early=windows.every(count=2), late=windows.every(count=1))
MODES = ("discarding", "accumulating", "accumulating_and_retracting")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "window", [windows.Fixed(10), windows.Sliding(10, 4), windows.Sessions(4), windows.Global()]
)
@pytest.mark.parametrize("seed", range(3))
def test_buckets_together_say_what_the_model_says(window: windows.Window, mode: str, seed: int) -> None:
    options = Options(window, TRIGGER, ("count", "sum"), mode=mode, allowed_lateness=8)
    stage = Stage(OperatorPlan((SourceRules(Lag(5)),), host(options)))
    model, follower = ModelSubject(options), Follower()
    for number, rows in enumerate(random_batches(Random(seed))):
        outputs = stage.step([*shipped(rows_frame(rows)), *ticks(number)])
        said = model.step(rows, follower.after(rows), number)
        assert canonical(emitted(outputs, options.key)) == canonical(said.panes)
        assert sum(output.report.totals["dropped_late"] for output in outputs) == model.model.dropped_late
        assert {output.report.watermark for output in outputs} == {follower.at}
    outputs = stage.step(ticks(100, end=True))
    assert canonical(emitted(outputs, options.key)) == canonical(model.step([], END_OF_TIME, 100).panes)
    assert [output.report.open_windows for output in outputs] == [0, 0, 0]
    assert all(not blobs for blobs in stage.blobs.values()), "an ended stream keeps nothing"


@pytest.mark.parametrize("seed", range(6))
def test_a_chain_takes_in_a_batch_what_was_emitted_in_it(seed: int) -> None:
    options = Options(
        windows.Fixed(10), TRIGGER, ("count", "sum"), mode="accumulating_and_retracting", allowed_lateness=8
    )
    totals = replace(options, window=windows.Inherited(), key=(), retractions=True)
    first = Stage(OperatorPlan((SourceRules(Lag(5)),), host(options)))
    second = Stage(OperatorPlan((UpstreamRules(BUCKETS),), host(totals)))
    one, two, follower = ModelSubject(options), ModelSubject(totals), Follower()
    batches: list[list[Row] | None] = [*random_batches(Random(seed)), None]
    for number, rows in enumerate(batches):
        sent = ticks(number, end=True) if rows is None else [*shipped(rows_frame(rows)), *ticks(number)]
        outputs = first.step(sent)
        again = second.step(shipped(pane_rows(outputs), key=None))
        said = one.step(rows or [], END_OF_TIME if rows is None else follower.after(rows), number)
        elements = [element(pane) for pane in said.panes]
        wanted = two.step(elements, said.forwarded, number)
        assert canonical(emitted(again, ())) == canonical(wanted.panes)


def element(pane: Pane) -> Row:
    return {
        "ts": pane.timestamp,
        "value": pane.values["sum"],
        "retraction": pane.retraction,
        "window_start": pane.start,
        "window_end": pane.end,
    }


def pane_rows(outputs: Sequence[BucketOutput]) -> pl.DataFrame:
    """The rows that the next operator gets: a control row of each bucket, and the panes."""
    schema = {
        TIME: pl.Int64, RETRACTION: pl.Boolean, CONTROL: pl.Binary,
        "window_start": pl.Int64, "window_end": pl.Int64, "value": pl.Int64,
    }  # fmt: skip
    frames = [pl.DataFrame({CONTROL: [write_header(output.header)]}) for output in outputs]
    frames += [
        output.rows.select(
            pl.col("timestamp").alias(TIME),
            pl.col("retraction").alias(RETRACTION),
            "window_start",
            "window_end",
            pl.col("sum").alias("value"),
        )
        for output in outputs
        if output.rows is not None
    ]
    return pl.concat([pl.DataFrame(schema=schema), *frames], how="diagonal_relaxed")


@pytest.mark.parametrize("seed", range(4))
def test_a_union_follows_the_slower_input(seed: int) -> None:
    options = Options(windows.Fixed(10), TRIGGER, ("count", "sum"), allowed_lateness=8)
    stage = Stage(OperatorPlan((SourceRules(Lag(5)), SourceRules(Lag(5))), host(options)))
    model, followers = ModelSubject(options), (Follower(), Follower())
    sides = random_batches(Random(seed)), random_batches(Random(seed + 100))
    for number, (here, there) in enumerate(zip(*sides, strict=True)):
        sent = [*shipped(rows_frame(here), 0), *shipped(rows_frame(there), 1), *ticks(number)]
        outputs = stage.step(sent)
        marks = followers[0].after(here), followers[1].after(there)
        watermark = None if None in marks else min(mark for mark in marks if mark is not None)
        said: Observed = model.step([*here, *there], watermark, number)
        assert canonical(emitted(outputs, options.key)) == canonical(said.panes)


def test_a_union_passes_over_an_input_that_has_fallen_silent() -> None:
    options = Options(windows.Fixed(10), accumulations=("count", "sum"))
    rules = SourceRules(Lag(0)), SourceRules(Lag(0), idle_after=10)
    stage = Stage(OperatorPlan(rules, host(options)))

    def row(at: int) -> pl.DataFrame:
        return rows_frame([{"key": "a", "ts": at, "value": 1}])

    def watermark(buffers: list[Any]) -> int | None:
        (at,) = {output.report.watermark for output in stage.step(buffers)}
        return at

    assert watermark([*shipped(row(50), 0), *ticks(0)]) is None, "one that never spoke is waited for"
    assert watermark([*shipped(row(7), 1), *ticks(1)]) == 7
    assert watermark([*shipped(row(60), 0), *ticks(5)]) == 7
    assert watermark([*shipped(row(70), 0), *ticks(10)]) == 7
    assert watermark([*shipped(row(80), 0), *ticks(11)]) == 80, "exactly idle_after is idle"
    assert watermark([*shipped(row(90), 0), *shipped(row(85), 1), *ticks(12)]) == 85


def test_the_report_names_the_one_that_is_waited_for() -> None:
    rules = SourceRules(Lag(0), origins=("input", "other"))
    stage = Stage(OperatorPlan((rules,), host(Options(windows.Fixed(10)))))
    outputs = stage.step([*shipped(rows_frame([{"key": "a", "ts": 5, "value": 1}])), *ticks(7)])
    for output in outputs:
        assert output.report.held_by == "partition 'other'"
        assert output.report.reason == "never spoke"
        assert output.report.watermark is None
        assert output.report.now == 7


def test_rows_without_a_time_come_out_as_they_are() -> None:
    stage = Stage(OperatorPlan((SourceRules(Lag(0)),), host(Options(windows.Fixed(10)))))
    frame = rows_frame([{"key": "a", "ts": None, "value": 4}, {"key": "b", "ts": 3, "value": 5}])
    outputs = stage.step([*shipped(frame), *ticks(0)])
    rows = [row for output in outputs if output.rows is not None for row in output.rows.rows(named=True)]
    assert [(row["key"], row["kind"], row["count"], row["sum"], row["window_start"]) for row in rows] == [
        ("a", "invalid", 1, 4, None)
    ]
    assert [output.report.totals["invalid"] for output in outputs] == [1, 1, 1]


def test_a_batch_without_a_tick_goes_on_with_the_last_time() -> None:
    stage = Stage(OperatorPlan((SourceRules(Lag(0)),), host(Options(windows.Fixed(10)))))
    stage.step(ticks(70))
    outputs = stage.step(shipped(rows_frame([{"key": "a", "ts": 5, "value": 1}])))
    assert {output.report.now for output in outputs} == {70}


def test_a_first_batch_without_a_tick_means_that_state_is_lost() -> None:
    stage = Stage(OperatorPlan((SourceRules(Lag(0)),), host(Options(windows.Fixed(10)))))
    with pytest.raises(CorruptState, match="missing"):
        stage.step(shipped(rows_frame([{"key": "a", "ts": 5, "value": 1}])))
