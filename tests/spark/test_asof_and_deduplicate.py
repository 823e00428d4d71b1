"""As-of joins and deduplication on Spark: as a batch, in micro-batches and over a restart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row as SparkRow
from pyspark.sql import SparkSession

from slackwater import windows
from slackwater.progress.watermark_policies import lag
from slackwater.spark.api.output_rows import Deduplicated, Joined
from slackwater.spark.api.panes import Panes
from slackwater.spark.api.stream import Stream, stream
from tests.spark.several_inputs import Steps, as_batch, as_stream

pytestmark = pytest.mark.spark

STEPS: Steps = [
    {"ordered": [("a", 10, 1), ("b", 11, 2)], "delivered": [("a", 4, 10), ("a", 9, 11)]},
    {"ordered": [("a", 9, 3), (None, 12, 4)], "delivered": [("b", 12, 12), ("a", 10, 13)]},
    {"ordered": [("a", 40, 5)], "delivered": [("a", 38, 14), ("b", 41, 15)]},
]
MATCHES = [(None, 4, None), ("a", 1, 13), ("a", 3, 11), ("a", 5, 14), ("b", 2, None)]
"""The last delivery that is not later than each order."""


def looked_up(ordered: Stream, delivered: Stream) -> Joined:
    return ordered.join_asof(delivered, on=["key"])


def values(rows: Sequence[SparkRow]) -> list[tuple[Any, ...]]:
    return sorted(
        ((row["key"], row["ordered_value"], row["delivered_value"]) for row in rows),
        key=repr,
    )


@pytest.mark.proof
def test_an_asof_join_as_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    rows = as_batch(spark, tmp_path, looked_up, STEPS)
    assert values(rows) == sorted(MATCHES, key=repr)
    assert rows[0].__fields__ == ["key", "ordered", "ordered_value", "delivered", "delivered_value"]


def test_an_asof_join_over_a_restart_emits_a_row_when_its_match_is_certain(
    spark: SparkSession, tmp_path: Path
) -> None:
    first, second, third, end = as_stream(spark, tmp_path, looked_up, STEPS, restart_after=1)
    assert values(first) == []  # the watermark of deliveries is 9
    assert values(second) == sorted([("a", 1, 13), ("a", 3, 11), ("b", 2, None), (None, 4, None)], key=repr)
    assert values(third) == [("a", 5, 14)]
    assert end == []


def windowed(ordered: Stream, delivered: Stream) -> Panes:
    found = ordered.join_asof(delivered, on=["key"], how="inner", tolerance="5 seconds")
    return found.key_by("key").window(windows.fixed("20 seconds")).agg(total=windows.sum("delivered_value"))


@pytest.mark.proof
def test_windows_after_an_asof_join_are_driven_by_the_left_time(spark: SparkSession, tmp_path: Path) -> None:
    batches = as_stream(spark, tmp_path, windowed, STEPS)
    panes = [(row["key"], row["total"]) for rows in batches for row in rows]
    assert sorted(panes) == [("a", 14), ("a", 24)]
    assert windowed(**_streams(spark)).dataflow.spec.watermark_key == "ordered"


def unique(ordered: Stream) -> Deduplicated:
    return ordered.deduplicate(on=["key"], within="5 seconds")


def counted(ordered: Stream) -> Panes:
    return unique(ordered).key_by("key").window(windows.fixed("10 seconds")).agg(n=windows.count())


REPEATED: Steps = [
    {"ordered": [("a", 10, 1), ("a", 12, 2), ("b", 11, 3)]},
    {"ordered": [("a", 14, 4), ("a", 16, 5), ("b", 17, 6)]},
    {"ordered": [("a", 40, 7), (None, 41, 8), (None, 42, 9)]},
]


def test_deduplication_remembers_rows_over_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    batches = as_stream(spark, tmp_path, unique, REPEATED, restart_after=1)
    assert [sorted(row["ordered_value"] for row in rows) for rows in batches] == [[1, 3], [5, 6], [7, 8], []]


@pytest.mark.proof
def test_windows_after_a_deduplication_equal_the_batch(spark: SparkSession, tmp_path: Path) -> None:
    def shown(rows: Sequence[SparkRow]) -> list[Any]:
        return sorted((row["key"], row["n"]) for row in rows if row["key"] is not None)

    batch = as_batch(spark, tmp_path / "batch", counted, REPEATED)
    assert shown(batch) == [("a", 1), ("a", 2), ("b", 2)]
    streamed = as_stream(spark, tmp_path / "stream", counted, REPEATED)
    assert shown([row for rows in streamed for row in rows]) == shown(batch)


REVISED: Steps = [
    {"ordered": [("a", 12, 1), ("a", 25, 2)], "delivered": [("a", 15, 10)]},
    {"ordered": [("a", 14, 4), ("b", 31, 3)], "delivered": [("a", 16, 11)]},
    {"ordered": [("a", 26, 8), ("a", 61, 5)], "delivered": [("b", 30, 12), ("a", 60, 13)]},
]
"""The second batch changes the first window of the key a in both streams, and the third one the second."""


def totals(rows: Stream, value: str) -> Panes:
    early = windows.after_watermark(early=windows.every(count=1), late=windows.every(count=1))
    windowed = rows.key_by("key").window(windows.fixed("10 seconds")).trigger(early)
    panes = windowed.allowed_lateness("1 minute").accumulating_and_retracting()
    return panes.agg(late="count", invalid="count", **{value: windows.sum(value)})


def revised(ordered: Stream, delivered: Stream) -> Joined:
    return totals(ordered, "ordered_value").join_asof(totals(delivered, "delivered_value"), on=["key"])


def first_totals(ordered: Stream) -> Deduplicated:
    return totals(ordered, "ordered_value").deduplicate(on=["key"], within="15 seconds")


def folded(batches: Sequence[Sequence[SparkRow]], *names: str) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for row in (row for rows in batches for row in rows):
        found[tuple(row[name] for name in names)] += -1 if row["retraction"] else 1
    return Counter({values: count for values, count in found.items() if count})


@pytest.mark.proof
def test_an_asof_join_of_retracting_windows_folds_to_the_batch(spark: SparkSession, tmp_path: Path) -> None:
    names = "key", "ordered_value", "delivered_value"
    batch = as_batch(spark, tmp_path / "batch", revised, REVISED)
    expected = {("a", 5, 21), ("a", 10, 21), ("a", 5, 13), ("b", 3, 12)}
    assert folded([batch], *names) == Counter(dict.fromkeys(expected, 1))
    batches = as_stream(spark, tmp_path / "stream", revised, REVISED, restart_after=1)
    assert folded(batches, *names) == folded([batch], *names)


@pytest.mark.proof
def test_a_deduplication_of_retracting_windows_folds_to_the_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    names = "key", "ordered_value"
    ordered = [{"ordered": step["ordered"]} for step in REVISED]
    batches = as_stream(spark, tmp_path, first_totals, ordered, restart_after=1)
    assert folded(batches, *names) == Counter({("a", 5): 2, ("b", 3): 1})
    assert any(row["retraction"] for rows in batches for row in rows)


def _streams(spark: SparkSession) -> dict[str, Stream]:
    schema = "key string, {0} timestamp, {0}_value bigint"
    return {
        name: stream(spark.createDataFrame([], schema.format(name)), event_times={name: lag("1 second")})
        for name in ("ordered", "delivered")
    }
