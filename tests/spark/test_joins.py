"""Two streams into one operator: cogroup and joins by window, and joins by time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from pyspark.sql import DataFrame, SparkSession

from slackwater import windows
from slackwater.errors import InvalidArgument
from slackwater.progress.watermark_policies import lag
from slackwater.spark.api.output_rows import Joined
from slackwater.spark.api.panes import Panes
from slackwater.spark.api.stream import Stream, stream
from slackwater.spark.wire.clock_source import Ticks
from slackwater.time import SECOND
from tests.spark.running import Batch, collector, micros, run_available, write

pytestmark = pytest.mark.spark

Rows = Sequence[tuple[str | None, int, int]]


def sides(left: DataFrame, right: DataFrame, times: Sequence[int] = ()) -> tuple[Stream, Stream]:
    clock = Ticks(tuple(times))
    one = stream(left, event_time="at", watermark=lag("2 seconds"), clock=clock)
    two = stream(right, event_time="at", watermark=lag("0 seconds"), clock=clock)
    return one, two


def frames(spark: SparkSession, folder: Path, left: Rows, right: Rows) -> tuple[DataFrame, DataFrame]:
    write(folder / "left", 0, Batch(left, 0, None))
    write(folder / "right", 0, Batch(right, 0, None))
    return spark.read.parquet(str(folder / "left")), spark.read.parquet(str(folder / "right"))


def streamed(
    spark: SparkSession, folder: Path, build: Any, batches: Sequence[tuple[Rows, Rows]]
) -> list[list[Any]]:
    """The rows of each micro-batch, and of the end."""
    for number, (left, right) in enumerate(batches):
        write(folder / "left", number, Batch(left, 0, None))
        write(folder / "right", number, Batch(right, 0, None))
    schema = spark.read.parquet(str(folder / "left")).schema
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    inputs = reader.parquet(str(folder / "left")), reader.parquet(str(folder / "right"))
    times = [number * SECOND for number in range(len(batches) + 1)]
    joined: Panes | Joined = build(*sides(*inputs, times))
    collected: dict[int, list[Any]] = {}
    run_available(joined.to_df(flush=True), folder / "checkpoint", collector(collected))
    return [collected[number] for number in sorted(collected)]


LEFT: Rows = [("a", 1, 1), ("a", 8, 2), ("b", 3, 3), ("c", 12, 4)]
RIGHT: Rows = [("a", 4, 10), ("a", 14, 20), ("b", 9, 30), ("d", 2, 40)]


def cogrouped(one: Stream, two: Stream) -> Panes:
    windowed = one.key_by("key").window(windows.Fixed(10 * SECOND))
    return windowed.cogroup(two.key_by("key"), left=["value"], right=["value", "origin"])


def shown(rows: Sequence[Any]) -> list[tuple[Any, ...]]:
    return sorted(
        (
            row["key"],
            micros(row["window"]["start"]) // SECOND,
            sorted(one["value"] for one in row["left"]),
            sorted(one["value"] for one in row["right"]),
        )
        for row in rows
    )


def test_a_cogroup_as_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    rows = cogrouped(*sides(*frames(spark, tmp_path, LEFT, RIGHT))).to_df().collect()
    assert shown(rows) == [
        ("a", 0, [1, 2], [10]),
        ("a", 10, [], [20]),
        ("b", 0, [3], [30]),
        ("c", 10, [4], []),
        ("d", 0, [], [40]),
    ]
    assert {row["pane"]["timing"] for row in rows} == {"ON_TIME"}


def test_a_cogroup_of_which_one_side_is_empty(spark: SparkSession, tmp_path: Path) -> None:
    rows = cogrouped(*sides(*frames(spark, tmp_path, LEFT, []))).to_df().collect()
    assert shown(rows) == [("a", 0, [1, 2], []), ("b", 0, [3], []), ("c", 10, [4], [])]


def test_a_cogroup_waits_for_the_slower_side(spark: SparkSession, tmp_path: Path) -> None:
    batches = [([("a", 1, 1), ("a", 30, 2)], [("a", 5, 10)]), ([("b", 31, 3)], [("b", 11, 20)])]
    first, second, end = streamed(spark, tmp_path, cogrouped, batches)
    assert shown(first) == []
    assert shown(second) == [("a", 0, [1], [10])]
    assert shown(end) == [("a", 30, [2], []), ("b", 10, [], [20]), ("b", 30, [3], [])]


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("inner", [("a", 1, 10), ("a", 2, 10), ("b", 3, 30)]),
        ("left", [("a", 1, 10), ("a", 2, 10), ("b", 3, 30), ("c", 4, None)]),
        (
            "full",
            [("a", 1, 10), ("a", 2, 10), ("a", None, 20), ("b", 3, 30), ("c", 4, None), ("d", None, 40)],
        ),
    ],
)
def test_pairs_within_a_window(
    spark: SparkSession, tmp_path: Path, how: Literal["inner", "left", "full"], expected: list[Any]
) -> None:
    one, two = sides(*frames(spark, tmp_path, LEFT, RIGHT))
    windowed = one.key_by("key").window(windows.Fixed(10 * SECOND))
    panes = windowed.cogroup(two.key_by("key"), left=["value"], right=["value"], how=how)
    assert panes.schema.names == ["key", "window", "value", "value_right", "pane"]
    rows = panes.to_df().collect()
    assert sorted(((row["key"], row["value"], row["value_right"]) for row in rows), key=repr) == sorted(
        expected, key=repr
    )


def close(how: Literal["inner", "left", "right", "full"]) -> Any:
    def build(one: Stream, two: Stream) -> Joined:
        return one.join(two, on=["key"], before="1 second", after="5 seconds", how=how)

    return build


def pairs(rows: Sequence[Any]) -> list[tuple[Any, ...]]:
    return sorted(((row["key"], row["value_left"], row["value_right"]) for row in rows), key=repr)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("inner", [("a", 1, 10)]),
        ("left", [("a", 1, 10), ("a", 2, None), ("b", 3, None), ("c", 4, None)]),
        ("right", [("a", 1, 10), ("a", None, 20), ("b", None, 30), ("d", None, 40)]),
    ],
)
def test_pairs_with_close_event_times(
    spark: SparkSession, tmp_path: Path, how: Literal["inner", "left", "right"], expected: list[Any]
) -> None:
    rows = close(how)(*sides(*frames(spark, tmp_path, LEFT, RIGHT))).to_df().collect()
    assert pairs(rows) == sorted(expected, key=repr)


def test_bounds_are_inclusive_and_outer_rows_wait_until_no_match_is_possible(
    spark: SparkSession, tmp_path: Path
) -> None:
    batches = [
        ([("a", 10, 1), ("b", 10, 2)], [("a", 9, 10), ("a", 8, 20)]),
        ([("a", 11, 3)], [("a", 15, 30), ("b", 16, 40)]),
        ([("a", 40, 4)], [("a", 40, 50)]),
    ]
    first, second, third, end = streamed(spark, tmp_path, close("left"), batches)
    assert pairs(first) == [("a", 1, 10)]
    assert pairs(second) == sorted([("a", 1, 30), ("a", 3, 30), ("b", 2, None)], key=repr)
    assert pairs(third) == [("a", 4, 50)]
    assert pairs(end) == []
    times = [(row["at_left"], row["at_right"]) for row in first]
    assert [(micros(one) // SECOND, micros(two) // SECOND) for one, two in times] == [(10, 9)]


def test_a_side_without_a_key_raises(spark: SparkSession, tmp_path: Path) -> None:
    one, two = sides(*frames(spark, tmp_path, LEFT, RIGHT))
    with pytest.raises(InvalidArgument, match="has no key"):
        one.key_by("key").window(windows.Fixed(10)).cogroup(two, left=["value"], right=["value"])


def test_sides_with_different_keys_raise(spark: SparkSession, tmp_path: Path) -> None:
    one, two = sides(*frames(spark, tmp_path, LEFT, RIGHT))
    windowed = one.key_by("key").window(windows.Fixed(10))
    with pytest.raises(InvalidArgument, match="is not the key of the left stream"):
        windowed.cogroup(two.key_by("origin"), left=["value"], right=["value"])
