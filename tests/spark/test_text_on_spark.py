"""Bytes that Spark casts to text without a check: rows with them stop no query."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

import slackwater as sw

pytestmark = pytest.mark.spark

ROWS = """
    SELECT timestamp_seconds(second) AS at, cast(bytes AS string) AS name
    FROM VALUES (1, X'61'), (2, X'ff61'), (3, X'61'), (4, X'80') AS given(second, bytes)
"""


def test_rows_with_text_that_is_not_utf8_are_counted_emitted_and_leave_the_others_alone(
    spark: SparkSession,
) -> None:
    rows = sw.stream(spark.sql(ROWS), event_time="at", watermark=sw.lag("0 seconds"))
    panes = rows.key_by("name").window(sw.fixed("1 minute")).agg(invalid="emit", n=sw.count())
    found = panes.to_df().select("name", "n", "pane.kind").collect()
    assert sorted((row["name"], row["n"], row["kind"]) for row in found) == [
        ("a", 2, "pane"),
        ("\ufffd", 1, "invalid"),
        ("\ufffda", 1, "invalid"),
    ]


def test_panes_with_such_text_become_dead_letters_of_a_table(spark: SparkSession, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/names.db"
    rows = sw.stream(spark.sql(ROWS), event_time="at", watermark=sw.lag("0 seconds"))
    panes = rows.key_by("name").window(sw.fixed("2 seconds")).agg(n=sw.count()).to_df()
    renamed = panes.withColumn("name", sql.expr("if(second(window.start) = 0, name, cast(X'ff' AS string))"))
    sw.upsert_once(renamed, url, "names", key=["name"], create=True, on_error="emit")
    with closing(sqlite3.connect(tmp_path / "names.db")) as file:
        assert file.execute("SELECT name, n FROM names").fetchall() == [("a", 1)]
    (letter,) = sw.dead_letters(url, "names").to_dicts()
    assert letter["reason"] == "column 'name' contains bytes that are not UTF-8"
