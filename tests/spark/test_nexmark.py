"""Nexmark queries on Spark, in Slackwater and in Spark's own terms, return the truth."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.nexmark import spark_queries
from benchmarks.nexmark.generator import Settings, write
from benchmarks.nexmark.results import final_result
from benchmarks.nexmark.spark_engine import build, run
from benchmarks.nexmark.truth import Events, compare

pytestmark = [pytest.mark.spark, pytest.mark.proof]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three batches of events, out of order within groups."""
    folder = tmp_path_factory.mktemp("nexmark")
    write(Settings(9_000, rate=300, group=100), 3_000, folder)
    return folder


def result_of(spark: SparkSession, engine: str, query: str, data: Path, folder: Path) -> tuple[int, int]:
    """How many rows are missing and how many are wrong."""
    frame = build(spark, engine, query, data)
    updated = engine == "spark" and query in spark_queries.UPDATED
    run(frame, updated=updated, checkpoint=folder / "checkpoint", output=folder / "out")
    events = Events.read(data)
    compared = compare(query, events, final_result(engine, query, folder / "out", events))
    assert compared.wrong == 0, compared.example
    return compared.missing, compared.rows


@pytest.mark.parametrize("query", ["q4", "q5", "q7", "q16", "q19"])
def test_slackwater_returns_every_row(spark: SparkSession, query: str, data: Path, tmp_path: Path) -> None:
    missing, rows = result_of(spark, "slackwater", query, data, tmp_path)
    assert missing == 0
    assert rows > 0


@pytest.mark.parametrize("query", ["q5", "q18"])
def test_spark_returns_no_wrong_row(spark: SparkSession, query: str, data: Path, tmp_path: Path) -> None:
    missing, rows = result_of(spark, "spark", query, data, tmp_path)
    # Without a later row, the last windows of Spark never close.
    assert missing < rows
