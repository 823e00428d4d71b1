"""Joins in buckets without Spark, with a union as a side and windows after them, compared with the models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any, Literal

import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from slackwater import windows
from slackwater.progress.watermark_policies import Lag
from slackwater.spark.runtime.bucket import BucketOutput, OperatorPlan
from slackwater.spark.runtime.hosts import CogroupHost, ForwardedKeys, JoinHost
from slackwater.spark.runtime.keyed_progress import TimesRules
from slackwater.spark.runtime.operator_inputs import EITHER, UpstreamProgress, UpstreamRules
from slackwater.spark.runtime.source_progress import SourceRules
from slackwater.spark.wire.buffers import NO_HEADER, pack, write_header
from slackwater.spark.wire.payload_reader import PayloadReader
from slackwater.spark.wire.wire_columns import CONTROL, RETRACTION, TIME, time_column
from slackwater.time import END_OF_TIME
from slackwater.windows.engine.pieces import PIECE_ROWS, Pieces
from tests.model.join import INFINITY, JoinModel
from tests.model.windows import Row
from tests.support.sampling import sampled
from tests.support.windowed import ModelSubject, Options
from tests.unit.spark.bucket_stages import (
    BUCKETS,
    TRIGGER,
    Follower,
    Stage,
    canonical,
    emitted,
    host,
    random_batches,
    rows_frame,
    shipped,
    ticks,
)

How = Literal["left", "right", "full"]
KEYS = ("ordered", "delivered")
SIDE = {"key": pl.String(), TIME: pl.Int64(), "value": pl.Int64()}
TIMES = {"ordered": [f"{TIME}_left"], "delivered": [f"{TIME}_right"]}
TIMES[EITHER] = TIMES["ordered"] + TIMES["delivered"]
PAIR = ("key", f"{TIME}_left", "value_left", f"{TIME}_right", "value_right")
COMPLETE = {("left", "ordered"), ("right", "delivered"), ("full", EITHER)}
"""Joins with an event time that every row has."""


def join_stage(how: How, **options: Any) -> Stage:
    spec = windows.JoinSpec(
        on=("key",), before=3, after=9, how=how, left_time=TIME, right_time=TIME, **options
    )
    join = JoinHost(spec, left=SIDE, right=SIDE, keys=(ForwardedKeys("ordered"), ForwardedKeys("delivered")))
    rules = (SourceRules(Lag(5)), SourceRules(Lag(5)), SourceRules(Lag(5)))
    return Stage(OperatorPlan(rules, join, sides=(0, 0, 1)))


def pair_rows(outputs: Sequence[BucketOutput], by: str) -> pl.DataFrame:
    """The rows that the next operator gets: a control row of each bucket, and the pairs."""
    schema = {TIME: pl.Int64, CONTROL: pl.Binary, "key": pl.String, "value": pl.Int64}
    frames = [pl.DataFrame({CONTROL: [write_header(output.header)]}) for output in outputs]
    pairs = [
        output.rows.select(
            pl.coalesce(TIMES[by]).alias(TIME),
            "key",
            (pl.col("value_left").fill_null(0) * 100 + pl.col("value_right").fill_null(0)).alias("value"),
        )
        for output in outputs
        if output.rows is not None
    ]
    return pl.concat([pl.DataFrame(schema=schema), *frames, *pairs], how="diagonal_relaxed")


class Model:
    """The join, followed by the windows over one of its times."""

    def __init__(self, how: How, by: str, options: Options) -> None:
        self.join = JoinModel(how, 3, 9)
        self.windows = ModelSubject(options)
        self.by = by
        self.rows: dict[str, Row] = {}

    def step(self, sides: dict[Any, list[Row]], marks: dict[Any, float | None], now: int) -> Any:
        pairs: list[tuple[str | None, str | None]] = []
        for side, rows in sides.items():
            for row in rows:
                name = f"{len(self.rows)}"
                self.rows[name] = row
                pairs += self.join.row(side, name, row["ts"], (row["key"],))
        for side, mark in marks.items():
            if mark is not None:
                pairs += self.join.watermark(side, mark)
        elements = [element for pair in pairs if (element := self._element(pair)) is not None]
        forwarded = {"ordered": self.join.forwarded("left"), "delivered": self.join.forwarded("right")}
        known = [mark for mark in forwarded.values() if mark is not None]
        forwarded[EITHER] = min(known) if len(known) == len(KEYS) else None
        mark = forwarded[self.by]
        reached = None if mark is None else END_OF_TIME if mark == INFINITY else int(mark)
        return self.windows.step(elements, reached, now)

    def _element(self, pair: tuple[str | None, str | None]) -> Row | None:
        left, right = (None if name is None else self.rows[name] for name in pair)
        timed = {"ordered": left, "delivered": right, EITHER: left or right}[self.by]
        if timed is None:
            return None
        values = [0 if row is None else row["value"] for row in (left, right)]
        return {"key": timed["key"], "ts": timed["ts"], "value": 100 * values[0] + values[1]}


@pytest.mark.parametrize(
    ("how", "by"),
    sampled([*sorted(COMPLETE), ("full", "ordered"), ("left", "delivered")], keep=[("full", "ordered")]),
)
@pytest.mark.parametrize("seed", sampled(range(2), keep=[0]))
def test_windows_after_a_join_equal_the_models(how: How, by: str, seed: int) -> None:
    options = Options(windows.Fixed(10), TRIGGER, ("count", "sum"))
    first = join_stage(how)
    second = Stage(OperatorPlan((UpstreamRules(BUCKETS, by, KEYS),), host(options, watermark_key=by)))
    model = Model(how, by, options)
    inputs = [random_batches(Random(seed + 50 * number)) for number in range(3)]
    followers = [Follower() for _ in inputs]
    invalid = 0
    for number in range(len(inputs[0]) + 1):
        ends = number == len(inputs[0])
        rows: list[list[Row]] = [[] if ends else batches[number] for batches in inputs]
        sent = [buffer for index, batch in enumerate(rows) for buffer in shipped(rows_frame(batch), index)]
        outputs = first.step([*sent, *ticks(number, end=ends)])
        pairs = pair_rows(outputs, by)
        again = second.step(shipped(pairs))
        marks = [follower.after(batch) for follower, batch in zip(followers, rows, strict=True)]
        one, two, three = [INFINITY] * 3 if ends else marks
        left = None if one is None or two is None else min(one, two)
        both = {"left": rows[0] + rows[1], "right": rows[2]}
        wanted = model.step(both, {"left": left, "right": three}, number)
        assert canonical(emitted(again, options.key)) == canonical(wanted.panes)
        dropped = sum(output.report.totals["dropped_late"] for output in again)
        assert dropped == 0, "no row is late after a join"
        invalid += pairs[TIME].null_count() - len(BUCKETS)
        assert again[0].report.totals["invalid"] == invalid, "rows without the chosen time are counted"
    assert (invalid == 0) == ((how, by) in COMPLETE)
    assert all(not blobs for blobs in first.blobs.values())


@pytest.mark.parametrize("how", ["cogroup", "full"])
def test_late_rows_of_a_cogroup_are_emitted(how: Literal["cogroup", "full"]) -> None:
    spec = windows.CogroupSpec(
        window=windows.Fixed(10), key=("key",), left=("value",), right=("value",), how=how, late="emit",
        left_time=TIME, right_time=TIME,
    )  # fmt: skip
    plan = OperatorPlan((SourceRules(Lag(0)), SourceRules(Lag(0))), CogroupHost(spec), sides=(0, 1))
    stage = Stage(plan)
    steps = [
        ([("a", 1, 1), ("a", 30, 2)], [("a", 2, 3), ("a", 40, 4)]),
        ([("a", 3, 5), ("a", 35, 6)], []),
        ([], [("a", 4, 7), ("b", 45, 8)]),
    ]
    found: list[Row] = []
    for number, sides in enumerate(steps):
        sent: list[Any] = []
        for index, rows in enumerate(sides):
            frame = rows_frame([{"key": key, "ts": at, "value": value} for key, at, value in rows])
            sent += shipped(frame, index)
        for output in stage.step([*sent, *ticks(number)]):
            found += [] if output.rows is None else output.rows.filter(kind="late").rows(named=True)
    assert [(row["key"], row["window_start"], row["timestamp"]) for row in found] == [
        ("a", 0, 3),
        ("a", 0, 4),
    ]
    if how == "cogroup":
        assert [(row["left"], row["right"]) for row in found] == [([{"value": 5}], []), ([], [{"value": 7}])]
    else:
        assert [(row["value"], row["value_right"]) for row in found] == [(5, None), (None, 7)]


def test_late_rows_of_a_join_are_emitted_with_their_side() -> None:
    stage = join_stage("left", late="emit")
    early: list[Row] = [{"key": "a", "ts": 5, "value": 1}, {"key": "a", "ts": 60, "value": 2}]
    sent = [buffer for index in range(3) for buffer in shipped(rows_frame(early), index)]
    kinds = [row["kind"] for output in stage.step([*sent, *ticks(0)]) for row in found(output)]
    assert set(kinds) == {"row"}
    late = rows_frame([{"key": "a", "ts": 3, "value": 9}])
    outputs = stage.step([*shipped(late, 1), *shipped(late, 2), *ticks(1)])
    rows = [row for output in outputs for row in found(output)]
    columns = ("kind", "side", "key", "value_left", "value_right", f"{TIME}_left")
    assert [tuple(row[name] for name in columns) for row in rows] == [
        ("late", "left", "a", 9, None, 3),
        ("late", "right", "a", None, 9, None),
    ]


def found(output: BucketOutput) -> list[Row]:
    return [] if output.rows is None else output.rows.rows(named=True)


def test_further_keys_of_a_side_are_forwarded_behind_the_rows_that_the_join_holds() -> None:
    """Orders have a time of payment as well; an order that waits for a delivery holds that key back."""
    paid = time_column("paid")
    spec = windows.JoinSpec(
        on=("key",), before=0, after=10, left_time=TIME, right_time=TIME, left_keys=(("paid", paid),)
    )
    keys = ForwardedKeys("ordered", (("paid", "paid"),)), ForwardedKeys("delivered")
    host_of_join = JoinHost(spec, left={**SIDE, paid: pl.Int64()}, right=SIDE, keys=keys)
    several = TimesRules((SourceRules(Lag(0), key="ordered"), SourceRules(Lag(0), key="paid")), "ordered")
    plan = OperatorPlan((several, SourceRules(Lag(0), key="delivered")), host_of_join, sides=(0, 1))
    stage = Stage(plan)
    times = (("ordered", TIME), ("paid", paid))

    downstream = UpstreamProgress(UpstreamRules(BUCKETS, "ordered", ("ordered", "paid", "delivered")))

    def reached(number: int, orders: list[Row], deliveries: list[Row], *, end: bool = False) -> list[Any]:
        left = pl.DataFrame(orders, schema={**SIDE, paid: pl.Int64()}, orient="row")
        sent = shipped(left, 0, times=times, kept=(paid,)) if orders else []
        right = pl.DataFrame(deliveries, schema=SIDE, orient="row")
        sent += shipped(right, 1, times=(("delivered", TIME),)) if deliveries else []
        downstream.advance([output.header for output in stage.step([*sent, *ticks(number, end=end)])])
        return list(downstream.watermarks.values())

    first = [{"key": "a", TIME: 5, "value": 1, paid: 7}, {"key": "a", TIME: 20, "value": 2, paid: None}]
    assert reached(0, first, []) == [None, 7, None]
    later = [{"key": "a", TIME: 30, "value": 3, paid: 50}]
    marks = reached(1, later, [{"key": "a", TIME: 12, "value": 4}])
    assert marks == [2, 7, 12], "the order that was paid at 7 is still in the buffer"
    assert reached(2, [], [{"key": "a", TIME: 35, "value": 5}]) == [25, 50, 30]
    assert reached(3, [], [], end=True) == [END_OF_TIME] * 3


@pytest.mark.parametrize(("idle", "is_idle"), [("hold", False), ("proceed", True)])
def test_a_join_forwards_idle_only_if_it_holds_no_row(idle: str, is_idle: bool) -> None:
    spec = windows.JoinSpec(
        on=("key",),
        before=-1,
        after=9,
        left_time=TIME,
        right_time=TIME,
        idle=idle,  # type: ignore[arg-type]
    )
    keys = ForwardedKeys("ordered"), ForwardedKeys("delivered")
    rules = (SourceRules(Lag(0), idle_after=10), SourceRules(Lag(0), idle_after=10))
    stage = Stage(OperatorPlan(rules, JoinHost(spec, left=SIDE, right=SIDE, keys=keys), sides=(0, 1)))
    order, delivery = ([{"key": "a", "ts": at, "value": 1}] for at in (20, 60))
    stage.step([*shipped(rows_frame(order), 0), *shipped(rows_frame(order), 1), *ticks(0)])
    busy = [stage.step([*shipped(rows_frame(delivery), 1), *ticks(now)]) for now in (4, 8, 12, 16)]
    assert [output.header.idle for output in busy[-1]] == [False] * 3, "one side is active"
    quiet = [stage.step(ticks(now)) for now in (20, 24, 28)]
    assert all(output.header.idle for output in quiet[-1]) == is_idle


def retracting_join(how: How) -> Stage:
    spec = windows.JoinSpec(
        on=("key",), before=8, after=12, how=how, left_time=TIME, right_time=TIME,
        left_retractions=RETRACTION, left_lateness=30,
    )  # fmt: skip
    keys = ForwardedKeys("ordered"), ForwardedKeys("delivered")
    join = JoinHost(spec, left={**SIDE, RETRACTION: pl.Boolean()}, right=SIDE, keys=keys)
    return Stage(OperatorPlan((UpstreamRules(BUCKETS), SourceRules(Lag(20))), join, sides=(0, 1)))


def keyed_panes(outputs: Sequence[BucketOutput]) -> pl.DataFrame:
    schema = {TIME: pl.Int64, RETRACTION: pl.Boolean, CONTROL: pl.Binary, "key": pl.String, "value": pl.Int64}
    frames = [pl.DataFrame({CONTROL: [write_header(output.header)]}) for output in outputs]
    panes = [
        output.rows.select(
            "key", TIME=pl.col("timestamp"), RETRACTION=pl.col("retraction"), value=pl.col("sum")
        ).rename({"TIME": TIME, "RETRACTION": RETRACTION})
        for output in outputs
        if output.rows is not None
    ]
    return pl.concat([pl.DataFrame(schema=schema), *frames, *panes], how="diagonal_relaxed")


def folded_pairs(batches: Sequence[tuple[list[Row], list[Row]]], how: How) -> Counter[tuple[Any, ...]]:
    """Sums per key and window, joined with the rows of the other side: the results minus the retractions."""
    options = Options(
        windows.Fixed(10), TRIGGER, ("count", "sum"), mode="accumulating_and_retracting", allowed_lateness=30
    )
    sums, join = Stage(OperatorPlan((SourceRules(Lag(5)),), host(options))), retracting_join(how)
    folded: Counter[tuple[Any, ...]] = Counter()
    for number, (left, right) in enumerate([*batches, ([], [])]):
        clock = ticks(number, end=number == len(batches))
        panes = sums.step([*shipped(rows_frame(left)), *clock])
        outputs = join.step([*shipped(keyed_panes(panes), 0), *shipped(rows_frame(right), 1), *clock])
        for row in (row for output in outputs for row in found(output)):
            pair = tuple(row[name] for name in PAIR)
            folded[pair] += -1 if row["retraction"] else 1
        assert not any(output.report.totals["dropped_late"] for output in outputs)
    return folded


PAIRS = [("left", 0), ("right", 1), ("full", 2)]


@pytest.mark.parametrize(("how", "seed"), sampled(PAIRS, keep=PAIRS, check=PAIRS[-1:]))
def test_pairs_of_retracting_panes_fold_to_the_result_of_one_batch(how: How, seed: int) -> None:
    inputs = random_batches(Random(seed)), random_batches(Random(seed + 70))
    folded = folded_pairs(list(zip(*inputs, strict=True)), how)
    rows = [[row for batch in batches for row in batch] for batches in inputs]
    once = folded_pairs([(rows[0], rows[1])], how)
    assert +folded == +once
    assert not -folded, "nothing is retracted that was not emitted"
    assert sum(folded.values()) > 0


def test_the_pairs_of_a_frequent_key_leave_a_bucket_in_pieces_with_one_header() -> None:
    times = {"key": pl.String(), TIME: pl.Int64()}
    spec = windows.JoinSpec(on=("key",), before=0, after=0, left_time=TIME, right_time=TIME)
    keys = (ForwardedKeys("left"), ForwardedKeys("right"))
    plan = OperatorPlan(
        (SourceRules(Lag(0)), SourceRules(Lag(0))), JoinHost(spec, left=times, right=times, keys=keys),
        sides=(0, 1),
    )  # fmt: skip
    rows = pl.DataFrame({"key": ["hot"] * 400, TIME: [5] * 400}, schema=times)
    sent = [buffer for side in (0, 1) for buffer in [*shipped(rows, side), *ticks(1)]]
    bucket = next(target for target, _, payload in sent if payload is not None)
    mine = [(write_header(header), payload) for target, header, payload in sent if target == bucket]
    emitted = Pieces(plan.pieces(bucket, None, {}, mine))
    pieces = list(emitted)
    assert emitted.result.rows is not None
    heights = [piece.height for piece in [*pieces, emitted.result.rows]]
    assert heights == [PIECE_ROWS, 400 * 400 - PIECE_ROWS]

    schema = StructType([StructField("key", StringType()), StructField(CONTROL, BinaryType())])
    headers = [NO_HEADER] * len(pieces) + [write_header(emitted.result.header)]
    payloads = [pack(piece.select("key")) for piece in [*pieces, emitted.result.rows]]
    batch = pa.record_batch({"header": headers, "payload": payloads})
    read = pa.Table.from_batches(PayloadReader(schema, header_column=CONTROL)([batch]))
    assert read.num_rows == 400 * 400 + 1
    assert read[CONTROL].drop_null().to_pylist() == [write_header(emitted.result.header)]
