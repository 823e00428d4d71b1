"""Operators that compose: joins of streams with different event times, and what follows after them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from slackwater import windows
from slackwater.errors import InvalidArgument
from slackwater.progress.watermark_policies import Lag, lag
from slackwater.spark.api.output_rows import Joined
from slackwater.spark.api.panes import Panes
from slackwater.spark.api.stream import Stream, stream
from slackwater.time import END_OF_TIME, SECOND
from tests.model.join import INFINITY, JoinModel
from tests.model.windows import Row
from tests.spark import several_inputs
from tests.spark.running import Batch, Scenario, as_batch, as_stream, expected, micros, panes_of
from tests.spark.scenarios import LAG, check, following
from tests.spark.several_inputs import LAGS, Steps
from tests.support.windowed import ModelSubject, Observed, Options, blocks

pytestmark = pytest.mark.spark

ORDERS_AND_DELIVERIES: Steps = [
    {"ordered": [("a", 1, 1), ("b", 4, 2)], "delivered": [("a", 3, 10)]},
    {"ordered": [("a", 12, 3), ("c", 9, 4)], "delivered": [("a", 14, 20), ("b", 13, 30)]},
    {"ordered": [("a", 24, 5)], "delivered": [("c", 21, 40), ("c", 12, 50)]},
    {"ordered": [("d", 26, 6), ("a", 2, 7)], "delivered": [("d", 30, 60)]},
]
"""Two rows are late: delivery 50 and order 7. Orders 2 and 5 are never delivered in time."""

SUMS = Options(windows.Fixed(10 * SECOND), accumulations=("count", "sum"), key=("key",))


def deliveries_in_windows(
    ordered: Stream, delivered: Stream, *, how: Literal["left", "right"], by: str
) -> Panes:
    pairs = ordered.join(delivered, on="key", before="1 second", after="8 seconds", how=how)
    windowed = pairs.key_by("key").window(windows.Fixed(10 * SECOND), by=by)
    return windowed.agg(count=windows.count(), sum=windows.sum("ordered_value"))


def modelled(
    steps: Steps, how: Literal["left", "right"], by: str, *, bounded: bool = False
) -> list[Observed]:
    """A join followed by windows, as two models in a chain."""
    join = JoinModel(how, 1 * SECOND, 8 * SECOND)
    sums = ModelSubject(SUMS)
    side: Literal["left", "right"] = "left" if by == "ordered" else "right"
    names = {"left": "ordered", "right": "delivered"}
    known: dict[str, tuple[Any, ...]] = {}
    highest: dict[str, int] = {}
    observed: list[Observed] = []
    if bounded:
        steps = [{name: [row for step in steps for row in step[name]] for name in names.values()}]
    for number, step in enumerate([*steps, {}]):
        pairs: list[tuple[str | None, str | None]] = []
        for one, name in names.items():
            for row in step.get(name, ()):
                known[f"{name}{row}"] = row
                pairs += join.row(one, f"{name}{row}", row[1] * SECOND, (row[0],))  # type: ignore[arg-type]
                highest[name] = max(row[1], highest.get(name, row[1]))
        ends = bounded or number == len(steps)
        for one, name in names.items():
            if ends:
                pairs += join.watermark(one, INFINITY)  # type: ignore[arg-type]
            elif name in highest:
                pairs += join.watermark(one, (highest[name] - LAGS[name]) * SECOND)  # type: ignore[arg-type]
        elements: list[Row] = []
        for pair in pairs:
            mine = pair[0 if side == "left" else 1]
            if mine is None:
                continue
            order = None if pair[0] is None else known[pair[0]][2]
            elements.append({"key": known[mine][0], "ts": known[mine][1] * SECOND, "value": order})
        forwarded = join.forwarded(side)
        reached = None if forwarded is None else END_OF_TIME if forwarded == INFINITY else int(forwarded)
        observed.append(sums.step(elements, reached, number))
        if bounded:
            break
    return observed


def same(rows: Sequence[Sequence[Any]], model: Sequence[Observed]) -> None:
    assert len(rows) == len(model)
    for number, (batch, observed) in enumerate(zip(rows, model, strict=True)):
        found = sorted(((sorted(map(repr, old)), repr(new)) for old, new in blocks(panes_of(batch, SUMS))))
        plain = [replace(pane, timestamp=0) for pane in observed.panes]
        assert found == sorted(((sorted(map(repr, old)), repr(new)) for old, new in blocks(plain))), number


def build(how: Literal["left", "right"], by: str) -> Any:
    return lambda ordered, delivered: deliveries_in_windows(ordered, delivered, how=how, by=by)


@pytest.mark.parametrize(
    ("how", "by", "restart_after"),
    [
        ("left", "ordered", 2),
        pytest.param("left", "ordered", None, marks=pytest.mark.proof),
        pytest.param("left", "ordered", 1, marks=pytest.mark.proof),
        pytest.param("right", "delivered", 3, marks=pytest.mark.proof),
    ],
)
def test_windows_after_a_join_of_different_event_times(
    spark: SparkSession,
    tmp_path: Path,
    how: Literal["left", "right"],
    by: str,
    restart_after: int | None,
) -> None:
    rows = several_inputs.as_stream(spark, tmp_path, build(how, by), ORDERS_AND_DELIVERIES, restart_after)
    model = modelled(ORDERS_AND_DELIVERIES, how, by)
    same(rows, model)
    counted = sum(pane.values["count"] for step in model for pane in step.panes)
    assert counted == (6 if how == "left" else 5), "no accepted row is lost"


@pytest.mark.proof
def test_windows_after_a_join_in_one_micro_batch(spark: SparkSession, tmp_path: Path) -> None:
    names = ORDERS_AND_DELIVERIES[0]
    once: Steps = [{name: [row for step in ORDERS_AND_DELIVERIES for row in step[name]] for name in names}]
    rows = several_inputs.as_stream(spark, tmp_path, build("left", "ordered"), once)
    same(rows, modelled(once, "left", "ordered"))


def test_windows_after_a_join_as_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    rows = several_inputs.as_batch(spark, tmp_path, build("right", "delivered"), ORDERS_AND_DELIVERIES)
    same([rows], modelled(ORDERS_AND_DELIVERIES, "right", "delivered", bounded=True))


THREE: Steps = [
    {"ordered": [("a", 1, 1), ("b", 4, 2)], "delivered": [("a", 3, 10)], "returned": [("a", 5, 100)]},
    {"ordered": [("c", 20, 3)], "delivered": [("b", 6, 20), ("c", 22, 30)], "returned": [("c", 31, 200)]},
    {"ordered": [("d", 40, 4)], "delivered": [("d", 50, 40)], "returned": [("b", 33, 300), ("e", 60, 400)]},
]


def three_way(ordered: Stream, delivered: Stream, returned: Stream) -> Panes:
    first = ordered.join(delivered, on="key", before="0 seconds", after="10 seconds", how="left")
    both = first.by("ordered").join(returned, on="key", before="0 seconds", after="20 seconds", how="left")
    return (
        both.filter("ordered_value < 4")
        .with_columns(returned=sql.coalesce(sql.col("returned_value"), sql.lit(0)))
        .key_by("key")
        .window(windows.Fixed(30 * SECOND), by="ordered")
        .agg(n=windows.count(), returned=windows.sum("returned"), delivered=windows.sum("delivered_value"))
    )


def check_three(rows: Sequence[Any]) -> None:
    found = sorted((row["key"], row["n"], row["returned"], row["delivered"]) for row in rows)
    assert found == [("a", 1, 100, 10), ("b", 1, 0, 20), ("c", 1, 200, 30)]


@pytest.mark.proof
@pytest.mark.parametrize("restart_after", [None, 1, 2])
def test_a_three_way_join_by_chaining(spark: SparkSession, tmp_path: Path, restart_after: int | None) -> None:
    batches = several_inputs.as_stream(spark, tmp_path, three_way, THREE, restart_after)
    check_three([row for batch in batches for row in batch])


@pytest.mark.proof
def test_a_three_way_join_as_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    check_three(several_inputs.as_batch(spark, tmp_path, three_way, THREE))


def late_pairs(ordered: Stream, delivered: Stream) -> Joined:
    return ordered.join(delivered, on="key", before="1 second", after="8 seconds", how="left", late="emit")


@pytest.mark.proof
def test_late_rows_of_a_join_are_emitted(spark: SparkSession, tmp_path: Path) -> None:
    batches = several_inputs.as_stream(spark, tmp_path, late_pairs, ORDERS_AND_DELIVERIES)
    late = [[row for row in batch if row["kind"] == "late"] for batch in batches]
    found = [[(row["side"], row["ordered_value"], row["delivered_value"]) for row in rows] for rows in late]
    assert found == [[], [], [("right", None, 50)], [("left", 7, None)], []]
    assert sum(row["kind"] == "row" for batch in batches for row in batch) == 6


def retracted_sums(ordered: Stream, delivered: Stream) -> Panes:
    """The sum of orders per key and ten seconds, early and late, joined with deliveries, and added up."""
    sums = (
        ordered.key_by("key")
        .window(windows.Fixed(10 * SECOND))
        .trigger(windows.after_watermark(early=windows.every(count=1), late=windows.every(count=1)))
        .allowed_lateness("1 hour")
        .accumulating_and_retracting()
        .agg(total=windows.sum("ordered_value"))
    )
    pairs = sums.join(delivered, on="key", before="30 seconds", after="30 seconds", how="left")
    return (
        pairs.with_columns(both="total * 1000 + coalesce(delivered_value, 0)")
        .key_by("key")
        .window(windows.Fixed(1000 * SECOND))
        .trigger(windows.after_watermark(early=windows.every(count=1), late=windows.every(count=1)))
        .accumulating_and_retracting()
        .agg(count=windows.count(), both=windows.sum("both"))
    )


@pytest.mark.proof
@pytest.mark.parametrize("restart_after", [None, 2])
def test_a_chain_over_a_join_of_retracting_panes_folds_to_the_batch_result(
    spark: SparkSession, tmp_path: Path, restart_after: int | None
) -> None:
    steps = [
        {"ordered": [*step["ordered"]], "delivered": [row for row in step["delivered"] if row[2] != 50]}
        for step in ORDERS_AND_DELIVERIES
    ]
    batches = several_inputs.as_stream(spark, tmp_path / "stream", retracted_sums, steps, restart_after)
    folded: dict[str, tuple[int, int]] = {}
    for row in (row for batch in batches for row in batch):
        if row["pane"]["retraction"]:
            assert folded.pop(row["key"]) == (row["count"], row["both"])
        else:
            folded[row["key"]] = (row["count"], row["both"])
    rows = several_inputs.as_batch(spark, tmp_path / "batch", retracted_sums, steps)
    assert folded == {row["key"]: (row["count"], row["both"]) for row in rows}
    assert folded["a"] == (6, 2 * (8 + 3 + 5) * 1000 + 3 * (10 + 20)), "three windows, two deliveries each"


@pytest.fixture(scope="module")
def streams(spark: SparkSession) -> dict[str, Stream]:
    """Streams of batch rows: orders, late in the minute or early, and deliveries."""
    early = spark.sql("select * from values ('a', 1, 1), ('b', 2, 2) as v(key, second, value)")
    later = spark.sql("select * from values ('a', 11, 3) as v(key, second, value)")
    delivered = spark.sql("select * from values ('a', 4, 10), ('c', 5, 20) as v(key, second, value)")

    def one(df: DataFrame, name: str) -> Stream:
        timed = df.select("key", "value", sql.timestamp_seconds("second").alias(name))
        return stream(timed, event_times={name: lag("1 second")})

    return {
        "early": one(early, "ordered"),
        "later": one(later, "ordered"),
        "delivered": one(delivered, "delivered"),
    }


def test_a_side_of_a_join_can_be_a_union(streams: dict[str, Stream]) -> None:
    orders = streams["early"].union(streams["later"])
    pairs = orders.join(streams["delivered"], on="key", before="10 seconds", after="10 seconds")
    rows = pairs.to_df().collect()
    assert sorted((row["value_left"], row["value_right"]) for row in rows) == [(1, 10), (3, 10)]


def test_a_cogroup_of_different_event_times_with_a_union(streams: dict[str, Stream]) -> None:
    orders = streams["early"].union(streams["later"]).key_by("key").window(windows.fixed("20 seconds"))
    panes = orders.cogroup(streams["delivered"].key_by("key"), left=["value"], right=["value"])
    rows = panes.to_df().collect()
    found = [(row["key"], sorted(one["value"] for one in row["left"]), row["right"]) for row in rows]
    assert [(key, left, [one["value"] for one in right]) for key, left, right in sorted(found)] == [
        ("a", [1, 3], [10]),
        ("b", [2], []),
        ("c", [], [20]),
    ]
    assert panes.agg(panes=windows.count()).to_df().collect()[0]["panes"] == 3


def test_a_cogroup_without_a_key(streams: dict[str, Stream]) -> None:
    windowed = streams["early"].window(windows.fixed("20 seconds"))
    panes = windowed.cogroup(streams["delivered"], left=["value"], right=["value"], how="inner")
    found = sorted((row["value"], row["value_right"]) for row in panes.to_df().collect())
    assert found == [(1, 10), (1, 20), (2, 10), (2, 20)]


def test_further_event_times_of_a_side_go_on(spark: SparkSession, streams: dict[str, Stream]) -> None:
    df = spark.sql("select * from values ('a', 1, 9), ('b', 2, 31) as v(key, paid, shipped)")
    timed = df.select("key", *(sql.timestamp_seconds(name).alias(name) for name in ("paid", "shipped")))
    both = stream(timed, event_times={"paid": lag("1 second"), "shipped": lag("1 second")})
    pairs = both.by("shipped").join(
        streams["delivered"], on="key", before="10 seconds", after="10 seconds", how="left"
    )
    assert pairs.elements().sources[0].keys == ("shipped", "paid", "delivered")
    rows = pairs.window(windows.fixed("10 seconds"), by="paid").agg(n=windows.count()).to_df().collect()
    assert [(micros(row["window"]["start"]), row["n"]) for row in rows] == [(0, 2)]
    matched = both.join(streams["delivered"], on="key", before="10 seconds", after="10 seconds", how="semi")
    assert matched.schema.names == ["key", "paid", "shipped"]
    assert [
        row["key"]
        for row in matched.select("key", "shipped")
        .join(both, on="key", before="0 seconds", after="0 seconds")
        .to_df()
        .collect()
    ] == ["a"]


def test_every_row_of_a_full_join_has_one_of_the_two_times(streams: dict[str, Stream]) -> None:
    pairs = streams["early"].join(
        streams["delivered"], on="key", before="10 seconds", after="10 seconds", how="full"
    )
    (row,) = pairs.window(windows.fixed("20 seconds")).agg(n=windows.count()).to_df().collect()
    assert row["n"] == 3
    rows = (
        pairs.window(windows.fixed("20 seconds"), by="delivered")
        .agg(invalid="emit", n=windows.count(), ordered=windows.collect("value_left"))
        .to_df()
        .collect()
    )
    assert sorted((row["pane"]["kind"], row["n"], row["ordered"]) for row in rows) == [
        ("invalid", 1, [2]),
        ("pane", 2, [1]),
    ]


def test_joins_of_equal_keys_are_told_apart_by_their_side(spark: SparkSession) -> None:
    df = spark.sql("select timestamp_seconds(id) as at, 'a' as key, id as value from range(3)")
    one = stream(df, event_time="at", watermark=lag("1 second"))
    pairs = one.join(
        one.with_columns(other="value").select("key", "other"), on="key", before="0 seconds", after="1 second"
    )
    assert pairs.schema.names == ["key", "at", "value", "other"]
    for by, wanted in (("left.default", [2, 2, 1]), ("right.default", [1, 2, 2])):
        rows = pairs.window(windows.fixed("1 second"), by=by).agg(n=windows.count()).to_df().collect()
        assert [row["n"] for row in sorted(rows, key=lambda row: row["window"]["start"])] == wanted
    with pytest.raises(InvalidArgument, match=r"by = 'default'.*use one of left.default, right.default"):
        pairs.by("default")
    with pytest.raises(InvalidArgument, match=r"call by\('left.default', name='default'\) on the other"):
        one.union(pairs)
    counts = one.window(windows.fixed("1 second")).agg(value=windows.count())
    united = one.union(pairs.by("left.default", name="default"), counts)
    sums = united.window(windows.fixed("9 seconds")).agg(total=windows.sum("value")).to_df().collect()
    assert sums[0]["total"] == (0 + 1 + 2) + (0 + 0 + 1 + 1 + 2) + 3


# ---- filter, select, with_columns


def odd(rows: Stream) -> Stream:
    return (
        rows.key_by("key")
        .with_columns({"ten": sql.col("value") * 10}, kept="value % 2 = 1")
        .filter("kept")
        .select("key", sql.col("ten").alias("value"))
    )


def halved(batch: Batch) -> Batch:
    rows = [(key, second, 10 * value) for key, second, value in batch.rows if value % 2]
    return replace(batch, counted=rows)


FILTERED = Scenario(
    Options(windows.Fixed(10 * SECOND), allowed_lateness=5 * SECOND),
    [
        halved(batch)
        for batch in following(
            [
                [("a", 1, 1), ("a", 2, 2), ("b", 3, 3), ("a", None, 4)],
                [("a", 4, 5), ("b", 9, 6), ("b", 14, 9)],
                [("a", 48, 12)],  # it is filtered out, but moves the watermark
                [("a", 41, 11), ("b", 7, 13), ("b", 24, 15), ("a", None, 17)],
            ]
        )
    ],
    Lag(LAG * SECOND),
    through=odd,
)


def test_filtered_rows_move_the_watermark(spark: SparkSession, tmp_path: Path) -> None:
    portions = [[batch] for batch in FILTERED.batches]
    rows = as_stream(spark, FILTERED, tmp_path, portions, 2)
    check(rows, expected(FILTERED, portions), FILTERED)
    kinds = [row["pane"]["kind"] for batch in rows for row in batch]
    assert kinds.count("invalid") == 1, "a row that was filtered out is not invalid"


def test_filtered_rows_as_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    rows = as_batch(spark, FILTERED, tmp_path)
    check(rows, expected(FILTERED, [FILTERED.batches], bounded=True), FILTERED)


def test_the_rows_of_a_stream_as_a_dataframe(spark: SparkSession) -> None:
    rows = spark.sql("select timestamp_seconds(id) as at, id as n from range(6)")
    numbers = stream(rows, event_time="at", watermark=lag("1 second"))
    odd_rows = numbers.filter("n % 2 = 1").with_columns(twice="n * 2").select("twice")
    even_rows = numbers.filter("n % 2 = 0").select("n as twice", "at")
    assert sorted(row["twice"] for row in odd_rows.union(even_rows).to_df().collect()) == [0, 2, 2, 4, 6, 10]
    panes = numbers.window(windows.fixed("2 seconds")).accumulating_and_retracting().agg(n=windows.sum("n"))
    found = panes.filter("n > 4").to_df()
    assert found.columns == ["n", "retraction"]
    assert sorted(row["n"] for row in found.collect()) == [5, 9]
    with pytest.raises(InvalidArgument, match="flush = True: has no meaning"):
        odd_rows.to_df(flush=True)


def test_rows_without_an_event_time_are_emitted(spark: SparkSession) -> None:
    rows = spark.sql("select if(id < 2, timestamp_seconds(id), null) as at, 1 as key, id as n from range(3)")
    both = stream(rows, event_time="at", watermark=lag("1 second")).key_by("key")
    pairs = both.join(both.select("key", "n"), on=["key"], before="0 s", after="0 s", invalid="emit")
    found = [(row["kind"], row["side"], row["n_left"], row["n_right"]) for row in pairs.to_df().collect()]
    expected = [("row", None, 0, 0), ("row", None, 1, 1), ("invalid", "left", 2, None)]
    assert sorted(found, key=repr) == sorted([*expected, ("invalid", "right", None, 2)], key=repr)
    windowed = both.window(windows.fixed("10 seconds"))
    panes = windowed.cogroup(both, left=["n"], right=["n"], how="inner", invalid="emit").to_df().collect()
    kinds = sorted((row["pane"]["kind"], row["n"] or 0, row["n_right"] or 0) for row in panes)
    dropped = [("invalid", 0, 2), ("invalid", 2, 0)]
    assert kinds == [*dropped, ("pane", 0, 0), ("pane", 0, 1), ("pane", 1, 0), ("pane", 1, 1)]
    with pytest.raises(InvalidArgument, match='write invalid="count"'):
        pairs.key_by("key")


def test_panes_are_filtered_by_their_values_windows_and_timing(spark: SparkSession) -> None:
    df = spark.sql("select timestamp_seconds(id) as at, id % 2 as key, id as value from range(30)")
    sums = (
        stream(df, event_time="at", watermark=lag("1 second"))
        .key_by("key")
        .window(windows.fixed("10 seconds"))
        .accumulating_and_retracting()
        .agg(total=windows.sum("value"))
    )
    later = sums.filter("window.start >= timestamp_seconds(10) and pane.timing = 'ON_TIME'")
    described = later.with_columns(second=sql.unix_seconds("window.start"), index="pane.index")
    rows = described.agg(total=windows.sum("total"), start=windows.sum("second")).to_df().collect()
    assert sorted((row["total"], row["start"]) for row in rows) == [(145, 20), (245, 40)]
    assert "window" not in described.sources[0].schema.names, "it goes on only if it is named"

    async def seen(row: dict[str, Any]) -> dict[str, Any]:
        return {
            "key": row["key"],
            "second": int(row["window"]["start"].timestamp()),
            "n": row["pane"]["index"],
        }

    mapped = sums.map_async(seen, "key long, second long, n long").agg(
        seconds=windows.sum("second"), n=windows.sum("n")
    )
    assert sorted((row["seconds"], row["n"]) for row in mapped.to_df().collect()) == [
        (0, 0),
        (20, 0),
        (40, 0),
    ]


@pytest.mark.proof
def test_panes_are_joined_with_their_windows(spark: SparkSession) -> None:
    df = spark.sql("select timestamp_seconds(id) as at, id % 2 as key, id as value from range(20)")
    keyed = stream(df, event_time="at", watermark=lag("1 second")).key_by("key")
    windowed = keyed.window(windows.fixed("10 seconds"))
    sums, counts = windowed.agg(total=windows.sum("value")), windowed.agg(n=windows.count())
    pairs = sums.select("key", "total", "window").join(counts, on="key", before="0 s", after="0 s")
    assert pairs.schema.names == ["key", "total", "window", "n"]
    rows = pairs.to_df().collect()
    starts = [micros(row["window"]["start"]) // SECOND for row in rows]
    found = [(row["key"], start, row["total"], row["n"]) for row, start in zip(rows, starts, strict=True)]
    assert sorted(found) == [(0, 0, 20, 5), (0, 10, 70, 5), (1, 0, 25, 5), (1, 10, 75, 5)]


def test_invalid_expressions_raise_on_their_line(streams: dict[str, Stream]) -> None:
    one: Any = streams["early"].key_by("key")
    ranked = "row_number() over (order by value) = 1"
    hint = "without aggregates, window functions or explode"
    refused: list[tuple[Any, str]] = [
        (lambda: one.filter("value"), "filter = 'value': is of type int, not boolean; write a condition"),
        (lambda: one.filter("price > 3"), r"filter = 'price > 3'.*price.*name its columns as in F.col"),
        (lambda: one.filter("value >"), "filter = 'value >': is not an expression"),
        (lambda: one.filter(3), "filter = 3: is neither a Spark Column nor SQL text"),
        (lambda: one.filter(sql.max("value") > 3), "is not an expression over the columns"),
        (lambda: one.filter(ranked), hint),
        (lambda: one.with_columns(total="sum(value) over ()"), hint),
        (one.select, r"select = \(\): is empty"),
        (lambda: one.select("value"), "key_by = 'key': column not found; available: value"),
        (lambda: one.select("key", "key"), "select = 'key': is used twice"),
        (lambda: one.select("key", sql.explode(sql.array("value"))), hint),
        (lambda: one.select("key", sql.col("*")), "it expands to several columns"),
        (one.with_columns, "with_columns = {}: is empty"),
        (lambda: one.with_columns({"event:time": "value"}), "is a reserved name"),
        (lambda: one.with_columns(key=sql.create_map("key", "value")), "which cannot be a key"),
        (lambda: one.with_columns(total="sum(value)"), hint),
        (lambda: one.join(5, on="key", before="0 s", after="0 s"), "other = 5: is not a stream"),
        (lambda: one.union(5), "others = 5: is not a stream"),
        (
            lambda: one.union(streams["delivered"]),
            "'delivered': is the watermark key of the other stream, but this stream has ",
        ),
    ]
    for attempt, message in refused:
        with pytest.raises(InvalidArgument, match=message):
            attempt()


def test_panes_of_a_global_window_cannot_be_joined(streams: dict[str, Stream]) -> None:
    whole = streams["early"].key_by("key").window(windows.global_window()).agg(n=windows.count())
    with pytest.raises(InvalidArgument, match="cannot be joined, because their timestamp is the end of time"):
        streams["delivered"].join(whole, on="key", before="0 seconds", after="1 second")


def test_output_columns_that_differ_only_in_case_are_refused(streams: dict[str, Stream]) -> None:
    left = streams["early"].select("key", "value as X")
    right = streams["delivered"].select("key", "key as x")
    message = r"output = \['X', 'x'\]: Spark ignores case in names, so these columns are ambiguous"
    with pytest.raises(InvalidArgument, match=message):
        left.join(right, on="key", before="0 seconds", after="1 second")
    with pytest.raises(InvalidArgument, match=message):
        left.key_by("key").window(windows.fixed("10 seconds")).agg(X=windows.count(), x=windows.count())


def test_a_joined_stream_keeps_no_key(streams: dict[str, Stream]) -> None:
    pairs = streams["early"].join(streams["delivered"], on="key", before="0 seconds", after="5 seconds")
    assert isinstance(pairs, Joined)
    assert pairs.elements().key == ()
    with pytest.raises(InvalidArgument, match="rows of a DataFrame or a join are not in a window"):
        pairs.agg(n=windows.count())
    assert micros(pairs.to_df().collect()[0]["delivered"]) == 4 * SECOND
