"""Numbered buffers on Spark: gaps hold the watermark, and copies count once, in every way to run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from slackwater import windows
from slackwater.errors import InvalidArgument
from slackwater.progress.watermark_policies import lag
from slackwater.spark.api.stream import Stream, stream
from slackwater.spark.api.stream_options import headers, ingestion_time
from slackwater.spark.monitor.reports import why
from slackwater.spark.wire.clock_source import Ticks
from slackwater.time import SECOND
from tests.spark.running import SCHEMA, Batch, Scenario, as_batch, as_stream, expected, of_kind, write
from tests.spark.scenarios import EARLY_AND_LATE, check, invalid
from tests.support.sampling import sampled
from tests.support.windowed import Options

pytestmark = pytest.mark.spark

HEADED = pa.schema(
    [
        *SCHEMA,
        ("sequence", pa.int32()),
        ("chunk", pa.int64()),
        ("last", pa.bool_()),
        ("complete", pa.timestamp("us", "UTC")),
        ("bare", pa.bool_()),
        ("row", pa.int32()),
    ]
)
NAMED = headers(
    origin="origin", sequence="sequence", chunk="chunk", last="last", watermark="complete", empty="bare",
    row="row",
)  # fmt: skip


def chunk(
    origin: str,
    sequence: int | None,
    *rows: tuple[Any, ...],
    part: tuple[int, bool] = (1, True),
    at: int | None,
) -> list[tuple[Any, ...]]:
    """The rows (key, second, value) of a chunk, each with its header; without rows, the header alone."""
    header = origin, sequence, *part, at
    if not rows:
        return [(None, None, None, *header, True, None)]
    return [(*row, *header, False, number) for number, row in enumerate(rows, 1)]


@dataclass(frozen=True)
class Headed(Scenario):
    """A scenario whose watermarks are in the rows."""

    schema: pa.Schema = HEADED

    def stream(self, df: DataFrame, times: Sequence[int]) -> Stream:
        return stream(df, event_time="at", headers=NAMED, clock=Ticks(tuple(times)), **self.stream_options)


def batches(
    *steps: tuple[list[list[tuple[Any, ...]]], list[list[tuple[Any, ...]]], int | None],
) -> list[Batch]:
    """Batches ten seconds apart: new chunks, repeated chunks, and the watermark after them."""
    return [
        Batch(
            [row for one in (*new, *again) for row in one],
            1000 + 10 * number,
            watermark,
            [row for one in new for row in one if row[8] is False],
        )
        for number, (new, again, watermark) in enumerate(steps)
    ]


NORTH_1 = chunk("north", 1, ("a", 1, 1), ("b", 4, 2), at=5)
NORTH_2_1 = chunk("north", 2, ("a", 8, 3), part=(1, False), at=None)
NORTH_2_2 = chunk("north", 2, ("b", 13, 4), ("a", 2, 5), part=(2, True), at=20)
NORTH_3 = chunk("north", 3, ("a", 27, 6), ("c", 19, 7), at=30)
NORTH_4 = chunk("north", 4, ("a", 31, 8), ("b", None, 9), at=None)
SOUTH_1 = chunk("south", 1, ("a", 3, 10), at=3)
SOUTH_2 = chunk("south", 2, ("b", 9, 11), ("c", 11, 12), at=12)
SOUTH_3 = chunk("south", 3, at=25)
SOUTH_4 = chunk("south", 4, ("a", 6, 13), ("c", 33, 14), at=40)

GAPS = Headed(
    Options(
        windows.Fixed(10 * SECOND),
        EARLY_AND_LATE,
        mode="accumulating_and_retracting",
        allowed_lateness=20 * SECOND,
    ),
    batches(
        ([NORTH_1, SOUTH_1], [], 3),
        ([NORTH_3, SOUTH_2], [NORTH_1], 5),
        ([NORTH_2_2], [SOUTH_2], 5),
        ([NORTH_2_1, SOUTH_3], [NORTH_2_2, NORTH_3, SOUTH_1], 25),
        ([NORTH_4, SOUTH_4], [NORTH_4, NORTH_2_1, SOUTH_3], 30),
    ),
)


def test_numbered_buffers_as_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    rows = as_batch(spark, GAPS, tmp_path)
    check(rows, expected(GAPS, [GAPS.batches], bounded=True), GAPS)
    assert of_kind(rows[0], "invalid") == invalid(GAPS.batches)


@pytest.mark.parametrize("restart_after", sampled([None, 1, 3], keep=[3]))
def test_numbered_buffers_in_micro_batches(
    spark: SparkSession, tmp_path: Path, restart_after: int | None
) -> None:
    portions = [[batch] for batch in GAPS.batches]
    rows = as_stream(spark, GAPS, tmp_path, portions, restart_after)
    check(rows, expected(GAPS, portions), GAPS)
    assert of_kind([row for batch in rows for row in batch], "invalid") == invalid(GAPS.batches)


@pytest.mark.proof
def test_numbered_buffers_in_one_micro_batch(spark: SparkSession, tmp_path: Path) -> None:
    portions = [GAPS.batches]
    check(as_stream(spark, GAPS, tmp_path, portions, None), expected(GAPS, portions), GAPS)


@pytest.mark.proof
def test_an_idle_origin_is_excluded_and_a_copy_does_not_reactivate_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    def north(number: int, second: int) -> list[tuple[Any, ...]]:
        return chunk("north", number, ("a", second, number), at=second)

    south = chunk("south", 1, ("b", 2, 20), at=2)
    scenario = Headed(
        Options(windows.Fixed(10 * SECOND)),
        [
            Batch([*north(1, 11), *south], 100, 2),
            Batch(north(2, 22), 104, 2),
            Batch([*north(3, 23), *south], 108, 2, north(3, 23)),
            Batch(north(4, 34), 110, 34),
            Batch([*north(5, 45), *south], 114, 45, north(5, 45)),
            Batch([*north(6, 66), *chunk("south", 2, ("b", 46, 21), at=47)], 118, 47),
        ],
        stream_options={"origins": ["north", "south"], "idle_after": "10 seconds"},
    )
    portions = [[batch] for batch in scenario.batches]
    check(as_stream(spark, scenario, tmp_path, portions, 4), expected(scenario, portions), scenario)


def started(spark: SparkSession, folder: Path, rows: Sequence[tuple[Any, ...]], **options: Any) -> Any:
    write(folder / "in", 0, Batch(rows, 0, None), HEADED)
    schema = spark.read.parquet(str(folder / "in")).schema
    df = spark.readStream.schema(schema).parquet(str(folder / "in"))
    given = {"headers": NAMED, "clock": Ticks((1000,)), **options}
    panes = stream(df, event_time="at", **given).window(windows.fixed("10 seconds")).agg(n=windows.count())
    query = (
        panes.to_df()
        .writeStream.format("noop")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


@pytest.mark.proof
def test_the_report_names_the_gap_and_counts_copies(spark: SparkSession, tmp_path: Path) -> None:
    unheaded = chunk("north", None, ("a", 5, 1), at=None)
    query = started(spark, tmp_path, [*NORTH_1, *NORTH_1, *NORTH_3, *unheaded])
    (report,) = why(query).operators
    assert report.slowest.held_by == "origin 'north'"
    assert "gap at sequence 2 (chunks missing: all)" in report.slowest.why
    assert report.watermark == 5 * SECOND
    assert report.totals["dropped_duplicate"] == 2
    assert report.totals["invalid"] == 1, "the row without a number"


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (chunk("north", 0, ("a", 1, 1), at=None), {}, "sequence and chunk numbers must be at least 1"),
        pytest.param(
            [
                *chunk("north", 2, ("a", 1, 1), part=(1, True), at=None),
                *chunk("north", 2, part=(2, True), at=None),
            ],
            {},
            "is flagged as the last chunk, but chunk 1 was",
            marks=pytest.mark.proof,
        ),
        pytest.param(NORTH_1, {"origins": ["south"]}, "unknown origin 'north'", marks=pytest.mark.proof),
    ],
)
@pytest.mark.proof
def test_headers_that_violate_the_rules_stop_the_query(
    spark: SparkSession, tmp_path: Path, rows: list[tuple[Any, ...]], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(StreamingQueryException, match=message):
        started(spark, tmp_path, rows, **options)


def test_every_row_may_be_a_buffer(spark: SparkSession) -> None:
    df = spark.createDataFrame(
        [("a", 1), ("b", 1), ("a", 2), ("a", 1), ("b", 1)], "device string, number bigint"
    ).withColumn("at", sql.timestamp_seconds(sql.col("number")))
    chosen_headers = headers(origin="device", sequence="number", watermark="at", row=sql.lit(1))
    counted = stream(df, event_time="at", headers=chosen_headers).window(windows.global_window())
    (row,) = counted.agg(n=windows.count()).to_df().collect()
    assert row["n"] == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"headers": NAMED, "watermark": lag("1 second")}, "watermark = .*cannot be combined with headers"),
        ({"headers": NAMED, "origin": "origin"}, r"write headers\(origin=…\)"),
        ({"headers": NAMED, "max_ahead": "1 second"}, "max_ahead = .*cannot be combined with headers"),
        (
            {"headers": NAMED, "event_time": None, "event_times": {"at": lag("1 second")}},
            "headers contain one watermark",
        ),
        (
            {"headers": NAMED, "event_time": ingestion_time()},
            "is not a column, but the watermarks in headers",
        ),
        ({"headers": NAMED, "idle_after": "0 seconds"}, "must be greater than zero"),
        ({"headers": "sequence"}, "is not a Headers value"),
        ({}, r"windows would never fire; write watermark=lag"),
        (
            {"headers": headers(origin="origin", sequence="last", watermark="complete")},
            "headers.sequence = 'last': is of type boolean, not an integer",
        ),
        (
            {"headers": headers(origin="origin", sequence="sequence", watermark="chunk")},
            "headers.watermark = 'chunk': is of type bigint, not a timestamp",
        ),
        (
            {"headers": headers(origin="who", sequence="sequence", watermark="complete")},
            "headers.origin = 'who': column not found",
        ),
    ],
)
def test_invalid_headers_raise(spark: SparkSession, options: dict[str, Any], message: str) -> None:
    columns = ", ".join(f"cast(null as {kind}) as {name}" for name, kind in KINDS.items())
    with pytest.raises(InvalidArgument, match=message):
        stream(spark.sql(f"select {columns}"), **{"event_time": "at", **options})


KINDS = {
    "at": "timestamp", "complete": "timestamp", "origin": "string", "sequence": "int", "chunk": "bigint",
    "last": "boolean", "bare": "boolean", "row": "int",
}  # fmt: skip


def test_chunk_without_last_raises() -> None:
    with pytest.raises(InvalidArgument, match='add last="…"'):
        headers(origin="o", sequence="s", chunk="c", watermark="w")


def test_the_rows_of_a_buffer_may_arrive_in_several_micro_batches(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = chunk("north", 1, ("a", 1, 1), ("b", 4, 2), ("a", 3, 4), at=5)
    for number, part in enumerate((rows[:2], rows[1:])):  # the second row arrives twice
        write(tmp_path / "in", number, Batch(part, 0, None), HEADED)
    schema = spark.read.parquet(str(tmp_path / "in")).schema
    df = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    named = headers(origin="origin", sequence="sequence", watermark="complete", row="row", rows=sql.lit(3))
    clock = Ticks((1000, 1001))
    panes = stream(df, event_time="at", headers=named, clock=clock).window(windows.fixed("10 seconds"))
    found: list[Any] = []
    query = (
        panes.agg(total=windows.sum("value"))
        .to_df(flush=True)
        .writeStream.foreachBatch(lambda frame, _: found.extend(row["total"] for row in frame.collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert found == [7]
    (report,) = why(query).operators
    assert (report.totals["dropped_duplicate"], report.totals["duplicates"]) == (1, 0)
