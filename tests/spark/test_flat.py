"""Rows that leave an operator as plain columns, and those that cannot: the same schema, the same values."""

from __future__ import annotations

from itertools import product

import polars as pl
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType

import slackwater as sw
from slackwater.spark.wire.pane_codec import FlatRows
from slackwater.spark.wire.pane_rows import NUMBERS, PANE, STRUCTURES, UNBOUNDED, WORDS, pane_schema
from slackwater.windows import ColumnarAccumulation

pytestmark = pytest.mark.spark

ROWS = """select * from values
    (timestamp'2024-01-01 00:00:05Z', timestamp'2024-01-01 03:00:00Z', true, date'2024-01-01', 'x'),
    (timestamp'2024-01-01 00:00:07Z', null, null, null, null)
    as rows(at, since, flag, day, name)"""


@pytest.mark.parametrize(
    ("key", "last", "is_plain", "expected"),
    [
        ("since", sw.max("at"), True, {(10_800, 5), (None, 7)}),
        ("flag", sw.max("name"), True, {(True, "x"), (None, None)}),
        ("day", sw.max("name"), False, {("2024-01-01", "x"), (None, None)}),
        ("name", sw.collect("flag"), False, {("x", "[True]"), (None, "[]")}),
    ],
    ids=["times", "nulls", "a key that is a date", "a list"],
)
def test_rows_are_the_same_on_either_way(
    spark: SparkSession, key: str, last: ColumnarAccumulation, is_plain: bool, expected: set[object]
) -> None:
    rows = sw.stream(spark.sql(ROWS), event_time="at", watermark=sw.lag("5 seconds")).key_by(key)
    panes = rows.window(sw.fixed("10 seconds")).agg(last=last)
    assert (FlatRows.of(panes.schema, STRUCTURES, words=WORDS) is not None) is is_plain
    df = panes.to_df()
    assert df.schema == panes.schema
    assert {(shown(row[key]), shown(row["last"])) for row in df.collect()} == expected


def shown(value: object) -> object:
    """Times as seconds since the beginning of 2024, so that no zone of a session plays a part."""
    if hasattr(value, "timestamp"):
        return int(value.timestamp() - 1_704_067_200)
    return value if value is None or isinstance(value, bool | str) else str(value)


def test_what_panes_say_of_themselves_arrives_as_it_was_sent(spark: SparkSession) -> None:
    """The words of a pane travel as one number: every combination of them, nulls among them, comes back."""
    flat = FlatRows.of(pane_schema([], {"n": LongType()}), STRUCTURES, UNBOUNDED, WORDS)
    assert flat is not None
    every = [
        {
            "window_start": 0,
            "window_end": 10,
            "n": n,
            "index": n,
            "on_time_index": -n,
            **dict(zip(WORDS, told, strict=True)),
        }
        for n, told in enumerate(product(*((None, *words) for words in WORDS.values())))
    ]
    sent = flat.frame(0, "{}", pl.DataFrame(every, infer_schema_length=None))
    arrived = flat.rows(spark.createDataFrame(sent.astype(object).where(sent.notna(), None), flat.sent))
    told = {row["n"]: row["pane"].asDict() for row in arrived.collect()}
    assert told == {row["n"]: {name: row[name] for name in PANE.names} for row in every}


def test_what_another_column_tells_does_not_travel(spark: SparkSession) -> None:
    """Windows of one length have their ends from their starts; single panes need no number."""
    rows = sw.stream(spark.sql(ROWS), event_time="at", watermark=sw.lag("5 seconds")).key_by("name")
    windowed = rows.window(sw.sliding("10 seconds", every="5 seconds"))
    once, often = (each.agg(n=sw.count()) for each in (windowed, windowed.allowed_lateness("1 hour")))
    assert once.flat is not None
    assert once.flat.sent.names == ["bucket", "report", "column:0", "column:1", "column:3"]
    assert often.flat is not None
    assert often.flat.sent.names == [*once.flat.sent.names, "column:5", "column:6"]
    expected = {(name, start, start + 10, 0, 0) for name in ("x", None) for start in (0, 5)}
    for panes in (once, often):
        df = panes.to_df()
        assert df.schema == panes.schema
        assert {
            (row["name"], *map(shown, row["window"]), row["pane"]["index"], row["pane"]["on_time_index"])
            for row in df.collect()
        } == expected


def test_a_second_pane_where_only_one_can_be_is_an_error() -> None:
    flat = FlatRows.of(pane_schema([], {}), STRUCTURES, UNBOUNDED, {**WORDS, **NUMBERS})
    assert flat is not None
    bounds = {"window_start": [0, 0], "window_end": [1, 1]}
    assert len(flat.frame(0, "{}", pl.DataFrame({"index": [0, None], **bounds}))) == 3
    with pytest.raises(pl.exceptions.InvalidOperationError):
        flat.frame(0, "{}", pl.DataFrame({"index": [0, 1], **bounds}))


def test_a_word_that_nobody_knows_is_an_error_and_not_null() -> None:
    flat = FlatRows.of(pane_schema([], {}), STRUCTURES, UNBOUNDED, WORDS)
    assert flat is not None
    with pytest.raises(pl.exceptions.InvalidOperationError, match="NEVER"):
        flat.frame(0, "{}", pl.DataFrame({"timing": ["NEVER"], "window_start": [0], "window_end": [1]}))
