"""As-of joins and deduplication on Spark: as a batch, in micro-batches and over a restart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row as SparkRow
from pyspark.sql import SparkSession

from slackwater import windows
from slackwater.errors import InvalidArgument
from slackwater.progress.watermark_policies import lag
from slackwater.spark.api.output_rows import Deduplicated, Joined
from slackwater.spark.api.panes import Panes
from slackwater.spark.api.stream import Stream, stream
from slackwater.time import SECOND
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


def test_retractions_raise(spark: SparkSession) -> None:
    streams = _streams(spark)
    panes = (
        streams["ordered"].key_by("key").window(windows.Fixed(10 * SECOND)).accumulating_and_retracting()
    ).agg(n=windows.count())
    with pytest.raises(InvalidArgument, match="retractions, which an as-of join cannot process"):
        panes.join_asof(streams["delivered"], on=["key"])
    with pytest.raises(InvalidArgument, match="cannot process retractions"):
        panes.deduplicate(on=["key"], within="1 second")


def _streams(spark: SparkSession) -> dict[str, Stream]:
    schema = "key string, {0} timestamp, {0}_value bigint"
    return {
        name: stream(spark.createDataFrame([], schema.format(name)), event_times={name: lag("1 second")})
        for name in ("ordered", "delivered")
    }
