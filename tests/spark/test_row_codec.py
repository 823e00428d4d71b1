"""Output rows arrive with the same schema and values, as plain columns or as payloads."""

from __future__ import annotations

from datetime import datetime
from itertools import product

import polars as pl
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import LongType

import slackwater as sw
from slackwater.spark.wire.pane_schema import FLAGS, PANE, pane_codec, pane_schema
from slackwater.windows import ColumnarAccumulation

pytestmark = pytest.mark.spark

ROWS = """select * from values
    (timestamp'2024-01-01 00:00:05Z', timestamp'2024-01-01 03:00:00Z', true, date'2024-01-01', 'x', 1.50BD),
    (timestamp'2024-01-01 00:00:07Z', null, null, null, null, null)
    as rows(at, since, flag, day, name, price)"""


@pytest.mark.parametrize(
    ("key", "last", "is_plain", "expected"),
    [
        ("since", sw.max("at"), True, {(10_800, 5), (None, 7)}),
        ("flag", sw.max("name"), True, {(True, "x"), (None, None)}),
        ("day", sw.max("name"), True, {("2024-01-01", "x"), (None, None)}),
        ("price", sw.sum("price"), True, {("1.50", "1.50"), (None, None)}),
        ("name", sw.collect("flag"), False, {("x", "[True]"), (None, "[]")}),
    ],
    ids=["timestamps", "nulls", "dates", "decimals", "a list"],
)
def test_rows_are_equal_as_plain_columns_and_as_payloads(
    spark: SparkSession, key: str, last: ColumnarAccumulation, is_plain: bool, expected: set[object]
) -> None:
    rows = sw.stream(spark.sql(ROWS), event_time="at", watermark=sw.lag("5 seconds")).key_by(key)
    panes = rows.window(sw.fixed("10 seconds")).agg(last=last)
    assert (panes.dataflow.codec is not None) is is_plain
    df = panes.to_df()
    assert df.schema == panes.schema
    assert {(comparable(row[key]), comparable(row["last"])) for row in df.collect()} == expected


@pytest.mark.parametrize(
    ("value", "is_plain"),
    [
        ("struct(day, struct(flag, price, at AS `a.t`) AS `inn``er`, since, name)", True),
        ("if(flag, struct(day, since), null)", True),
        ("struct(if(flag, struct(day), null) AS day)", True),
        ("struct(array(day) AS days)", False),
        ("struct(map(name, day) AS days)", False),
        (f"struct({', '.join(f'day AS day{number}' for number in range(70))})", False),
    ],
    ids=["nested", "null", "a null in a struct", "with a list", "with a map", "with many fields"],
)
def test_structs_are_equal_as_plain_columns_and_as_payloads(
    spark: SparkSession, value: str, *, is_plain: bool
) -> None:
    rows = spark.sql(ROWS).where("name IS NOT NULL" if "map" in value else "true")  # a map has no null keys
    windows = sw.stream(rows, event_time="at", watermark=sw.lag("5 seconds")).key_by("name")
    panes = windows.window(sw.fixed("10 seconds")).agg(last=sw.first(sql.expr(value)))
    assert (panes.dataflow.codec is not None) is is_plain
    df = panes.to_df()
    assert df.schema == panes.schema
    expected = rows.select("name", sql.expr(value).alias("last")).collect()
    assert sorted(df.select("name", "last").collect(), key=str) == sorted(expected, key=str)


def comparable(value: object) -> object:
    """Timestamps as seconds since the start of 2024, which do not depend on the session's time zone."""
    if isinstance(value, datetime):
        return int(value.timestamp() - 1_704_067_200)
    return value if value is None or isinstance(value, bool | str) else str(value)


def test_spark_unpacks_every_combination_of_flags(spark: SparkSession) -> None:
    codec = pane_codec(pane_schema([], {"n": LongType()}), fires_once=False, window_length=None)
    assert codec is not None
    every = [
        {
            "window_start": 0,
            "window_end": 10,
            "n": n,
            "index": n,
            "on_time_index": -n,
            **dict(zip(FLAGS, values, strict=True)),
        }
        for n, values in enumerate(product(*((None, *values) for values in FLAGS.values())))
    ]
    sent = codec.encode(0, "{}", pl.DataFrame(every, infer_schema_length=None))
    sent = sent.astype(object).where(sent.notna(), None)
    decoded = codec.decode(spark.createDataFrame(sent, codec.wire_schema))
    panes = {row["n"]: row["pane"].asDict() for row in decoded.collect()}
    assert panes == {row["n"]: {name: row[name] for name in PANE.names} for row in every}


def test_derived_columns_are_not_sent(spark: SparkSession) -> None:
    """The end of a window follows from its start, and the index of a pane that fires once is 0."""
    rows = sw.stream(spark.sql(ROWS), event_time="at", watermark=sw.lag("5 seconds")).key_by("name")
    windowed = rows.window(sw.sliding("10 seconds", every="5 seconds"))
    once, often = (each.agg(n=sw.count()) for each in (windowed, windowed.allowed_lateness("1 hour")))
    assert once.dataflow.codec is not None
    names = once.dataflow.codec.wire_schema.names
    assert names == ["bucket_or_flags", "report", "column:0", "column:1", "column:3"]
    assert often.dataflow.codec is not None
    assert often.dataflow.codec.wire_schema.names == [*names, "column:5", "column:6"]
    expected = {(name, start, start + 10, 0, 0) for name in ("x", None) for start in (0, 5)}
    for panes in (once, often):
        df = panes.to_df()
        assert df.schema == panes.schema
        assert {
            (row["name"], *map(comparable, row["window"]), row["pane"]["index"], row["pane"]["on_time_index"])
            for row in df.collect()
        } == expected
