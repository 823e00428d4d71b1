"""Panes of batch input in a notebook: the plan, and the first panes if Spark shows rows eagerly."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

import slackwater as sw
from slackwater.spark.api.pane_html import EAGER

pytestmark = [pytest.mark.spark, pytest.mark.proof]
ROWS = """select * from values
    (timestamp'2024-01-01 00:00:05Z', '<b>7'), (timestamp'2024-01-01 00:00:25Z', '<b>7')
    as bids(at, auction)"""


def test_panes_are_shown_if_spark_shows_rows_eagerly(spark: SparkSession) -> None:
    bids = spark.sql(ROWS)
    keyed = sw.stream(bids, event_time="at", watermark=sw.lag("5 seconds")).key_by("auction")
    panes = keyed.window(sw.fixed("10 seconds")).agg(bids=sw.count())
    lazy = panes._repr_html_()
    assert "agg(bids) (stateful)" in lazy
    assert f"spark.conf.set(&quot;{EAGER}&quot;, True)" in lazy
    spark.conf.set(EAGER, "true")
    try:
        shown = panes._repr_html_()
    finally:
        spark.conf.unset(EAGER)
    assert shown.count("<rect") == 2
    assert shown.count("ON_TIME") == 4, "in the picture and in the table"
    assert "2024-01-01 00:00:30" in shown
    assert "<b>7" not in shown
