"""`TestStream.run` with a function: the user's pipeline in process, without Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest

import slackwater as sw
from slackwater.errors import InvalidArgument
from slackwater.spark.api.panes import Panes
from slackwater.spark.api.stream_history import StreamHistory
from slackwater.testing import T, TestStream, assert_cleaned_up, assert_rows
from slackwater.time import SECOND

BIDS = TestStream().add("""
    auction | ts[s] | price
    a       | 1     | 5
    a       | 8     | 2
    b       | 3     | 7
""")


def totals(bids: Any) -> Panes:
    return (
        sw.stream(bids, event_time="ts", watermark=sw.lag("2 seconds"))
        .key_by("auction")
        .window(sw.fixed("10 seconds"))
        .trigger(sw.after_watermark(early=sw.every(count=2), late=sw.every(count=1)))
        .allowed_lateness("20 seconds")
        .accumulating_and_retracting()
        .agg(total=sw.sum("price"), bids=sw.count("*"))
    )


def test_the_watermark_is_that_of_the_pipeline() -> None:
    stream = BIDS.add("auction | ts[s] | price \n b | 12 | 1").add("auction | ts[s] | price \n a | 2 | 4")
    run = stream.run(totals)
    assert [step.watermark for step in run.steps] == [6 * SECOND, 10 * SECOND, 10 * SECOND]
    assert_rows(
        run.panes,
        T("""
            auction | window_end[s] | total | bids | timing  | retraction
            a       | 10            | 7     | 2    | EARLY   | false
            a       | 10            | 7     | 2    | EARLY   | true
            a       | 10            | 7     | 2    | ON_TIME | false
            b       | 10            | 7     | 1    | ON_TIME | false
            a       | 10            | 7     | 2    | ON_TIME | true
            a       | 10            | 11    | 3    | LATE    | false
        """),
    )


def test_rows_have_the_columns_and_types_of_a_dataframe() -> None:
    row = BIDS.end().run(totals).rows.row(0, named=True)
    assert list(row) == ["auction", "window", "total", "bids", "pane"]
    assert row["window"]["end"] == datetime(1970, 1, 1, 0, 0, 10, tzinfo=UTC)
    assert row["pane"]["kind"] == "pane"


def test_a_scripted_watermark_and_the_end_close_windows() -> None:
    run = BIDS.advance_watermark("10 seconds").run(totals)
    assert run.steps[1].watermark == 10 * SECOND
    assert run.left.windows == 1
    ended = BIDS.end().run(totals)
    assert_cleaned_up(ended)
    assert ended.panes.filter(timing="ON_TIME").height == 2


def test_late_rows_are_counted_and_restarts_change_nothing() -> None:
    stream = BIDS.advance_watermark("40 seconds").add("auction | ts[s] | price \n a | 2 | 4").end()
    run, restarted = stream.run(totals), stream.run(totals, restart=True)
    assert run.dropped_late == restarted.dropped_late == 1
    assert_rows(run.rows, restarted.rows)


def test_steps_between_operators_run_as_sql_text() -> None:
    def pipeline(bids: Any) -> Any:
        rows = sw.stream(bids, event_time="ts", watermark=sw.lag("0 seconds"))
        doubled = rows.filter("price > 2 and auction <> 'c'").with_columns(twice="price * 2")
        sums = doubled.key_by("auction").window(sw.fixed("10 seconds")).agg(total=sw.sum("twice"))
        return sums.select("auction", "total + 1 as more")

    assert sorted(BIDS.end().run(pipeline).rows.rows()) == [("a", 11), ("b", 15)]


def test_rows_that_retract_earlier_ones() -> None:
    def best(hours: Any) -> Panes:
        rows = sw.stream(hours, event_time="ts", watermark=sw.lag("0 seconds"), retraction="taken_back")
        days = rows.key_by("shop").window(sw.fixed("10 seconds")).allowed_lateness("1 minute")
        return days.accumulating_and_retracting().agg(
            total=sw.sum("total"), best=sw.max("total"), hours=sw.count("*")
        )

    stream = (
        TestStream()
        .add("""
            shop | ts[s] | total | taken_back
            a    | 2     | 5     | false
            a    | 3     | 9     | null
            b    | 4     | 6     | false
            b    | 12    | 1     | false
        """)
        .add("""
            shop | ts[s] | total | taken_back
            a    | 3     | 9     | true
            a    | 3     | 7     | false
            b    | 4     | 6     | true
        """)
    )
    run = stream.run(best)
    assert run.dropped_late == 0
    panes = run.steps[1].panes
    assert panes is not None
    assert_rows(
        panes,
        T("""
            shop | window_end[s] | total | best | hours | retraction
            a    | 10            | 14    | 9    | 2     | true
            a    | 10            | 12    | 7    | 2     | false
            b    | 10            | 6     | 6    | 1     | true
        """),
    )
    with pytest.raises(InvalidArgument, match="retraction = 'total': is of type Int64, not a boolean"):
        stream.run(lambda rows: sw.stream(rows, event_time="ts", watermark=sw.lag("0 s"), retraction="total"))


def test_a_history_needs_spark() -> None:
    given: Any = sw.history
    with pytest.raises(InvalidArgument, match="df = 'archive': is not a DataFrame; pass a Spark DataFrame"):
        given("archive", until="2024-01-01T00:00:00Z")
    archive: Any = None
    stored = StreamHistory(archive, until="2024-01-01T00:00:00Z")
    with pytest.raises(InvalidArgument, match="is not supported by TestStream; add its rows to those of"):
        BIDS.run(lambda rows: sw.stream(rows, event_time="ts", watermark=sw.lag("0 s"), history=stored))


def test_joins_unions_deduplication_and_async_calls() -> None:
    async def rated(row: dict[str, Any]) -> dict[str, Any]:
        return {"order": row["order"], "rate": 2.0 * row["price"]}

    def pipeline(orders: Any, paid: Any) -> Any:
        policy = sw.lag("0 seconds")
        left = sw.stream(orders, event_time="ts", watermark=policy).map_async(
            rated, "order bigint, rate double"
        )
        right = sw.stream(paid, event_time="ts", watermark=policy)
        unique = right.union(right).deduplicate(on=["order"], within="1 minute")
        return left.join(unique, on=["order"], before="0 seconds", after="10 seconds", how="leftOuter")

    stream = (
        TestStream()
        .add("order | ts[s] | price \n 1 | 1 | 5 \n 2 | 2 | 6", input="orders")
        .add("order | ts[s] \n 1 | 4", side="right")
        .end()
    )
    run = stream.run(pipeline)
    assert sorted(run.rows.select("order", "rate", pl.col("ts").dt.epoch("s")).rows()) == [
        (1, 10.0, 4),
        (2, 12.0, None),
    ]
    with pytest.raises(InvalidArgument, match=r"panes = None: do not exist.*run\.rows"):
        run.panes  # noqa: B018


def test_origins_several_event_times_and_the_clock() -> None:
    def pipeline(bids: Any) -> Any:
        rows = sw.stream(
            bids, event_time="ts", watermark=sw.lag("0 seconds"), origin="device", idle_after="4 seconds"
        )
        return rows.window(sw.fixed("10 seconds")).agg(bids=sw.count())

    stream = TestStream().add("device | ts[s] \n x | 5 \n y | 30")
    assert stream.run(pipeline).steps[-1].watermark == 5 * SECOND
    for _ in range(4):
        stream = stream.add("device | ts[s] \n y | 31").advance_processing_time("2 seconds")
    assert stream.run(pipeline).steps[-1].watermark == 31 * SECOND
    moved = TestStream().add("device | ts[s] \n x | 5 \n y | 30").advance_watermark("40 seconds")
    assert moved.run(pipeline).steps[-1].watermark == 40 * SECOND

    def arrivals(bids: Any) -> Any:
        return sw.stream(bids, event_time=sw.ingestion_time()).window(sw.fixed("1 second")).agg(n=sw.count())

    run = TestStream().add("name \n x", at="3 seconds").advance_processing_time("5 seconds").run(arrivals)
    assert run.panes.select("window_start", "n").rows() == [(3 * SECOND, 1)]


def test_what_only_spark_computes_is_refused() -> None:
    from pyspark.sql import functions as F  # noqa: N812 - the usual name

    def with_column(bids: Any) -> Any:
        return sw.stream(bids, event_time="ts", watermark=sw.lag("0 seconds")).key_by(F.upper("auction"))

    def with_dataframe(bids: Any) -> Any:
        return totals(bids.where("price > 1"))

    def as_dataframe(bids: Any) -> Any:
        return totals(bids).to_df()

    def nothing(bids: Any) -> None:
        totals(bids)

    with pytest.raises(InvalidArgument, match="Spark"):
        BIDS.run(with_column)
    with pytest.raises(InvalidArgument, match="bids = 'where': is an operation of DataFrames"):
        BIDS.run(with_dataframe)
    with pytest.raises(InvalidArgument, match=r"return the panes instead of panes\.to_df\(\)"):
        BIDS.run(as_dataframe)
    with pytest.raises(InvalidArgument, match=r"nothing': returns NoneType; return the panes"):
        BIDS.run(nothing)
    with pytest.raises(InvalidArgument, match="operator = 5: is neither an operator nor a function"):
        BIDS.run(5)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        (BIDS.idle(), "idle = None: cannot be scripted for a pipeline"),
        (TestStream().add("ts \n 1", input="bid"), r"input = 'bid': is not a parameter.*Did you mean 'bids'"),
        (TestStream().add("ts \n 1", side="left"), "side = 'left': is given for a pipeline with 1 inputs"),
        (TestStream().end(), "input = 'bids': has no rows, so its columns are unknown"),
        (TestStream().add("ts \n x"), "event_time = 'ts': is of type String, which a TestStream cannot use"),
        (TestStream().add("at \n 1"), "event_time = 'ts': column not found; available: at"),
    ],
)
def test_a_script_that_does_not_fit_the_pipeline_raises(stream: TestStream, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        stream.run(totals)


def test_the_watermark_of_a_clock_cannot_be_scripted() -> None:
    def pipeline(bids: Any) -> Any:
        rows = sw.stream(bids, event_time="ts", watermark=sw.clock())
        return rows.window(sw.fixed("10 seconds")).agg(bids=sw.count())

    with pytest.raises(InvalidArgument, match=r"advance_watermark = 5: cannot set the watermark of 'bids'"):
        BIDS.advance_watermark(5).run(pipeline)


def test_the_rule_of_spark_counts_rows_and_scripted_watermarks_one_step_later() -> None:
    def pipeline(bids: Any) -> Any:
        rows = sw.stream(bids, event_time="ts", watermark=sw.lag("2 seconds", like_spark=True))
        return rows.window(sw.fixed("10 seconds")).agg(bids=sw.count())

    stream = BIDS.add("auction | ts[s] | price \n a | 40 | 1").advance_watermark("50 seconds").end()
    run = stream.run(pipeline)
    assert [step.watermark for step in run.steps[:3]] == [None, 6 * SECOND, 38 * SECOND]
    assert run.panes["bids"].to_list() == [3, 1]


@pytest.mark.parametrize("at", ["9999-12-31T23:59:59.999999", "0001-01-01T00:00:00"])
def test_a_row_without_a_calendar_window_is_invalid_and_does_not_stop_the_pipeline(at: str) -> None:
    """The years 1 and 9999 are often written for unknown times; their windows would leave these years."""
    far = pl.DataFrame({"ts": [datetime.fromisoformat(at).replace(tzinfo=UTC)], "price": [1]})
    near = far.with_columns(pl.lit(datetime(2024, 5, 17, tzinfo=UTC)).alias("ts"))

    def monthly(bids: Any) -> Panes:
        stream = sw.stream(bids, event_time="ts", watermark=sw.lag("2 seconds"), max_ahead="1 day")
        window = sw.calendar("months", timezone="America/New_York")
        return stream.window(window).agg(total=sw.sum("price"))

    run = TestStream().add(pl.concat([near, far])).add(near).end().run(monthly)
    assert run.panes["total"].to_list() == [2]
    assert run.counters["invalid"] == 1
