"""Ways of writing a pipeline that users of PySpark are used to."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

import slackwater as sw
from slackwater.errors import InvalidArgument
from slackwater.spark.api.stream import Stream

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def bids(spark: SparkSession) -> DataFrame:
    return spark.sql(
        "select timestamp_seconds(id) as at, id % 2 as auction, if(id = 3, 'B', 'a') as site, id as price "
        "from range(5)"
    )


@pytest.fixture(scope="module")
def stream(bids: DataFrame) -> Stream:
    return sw.stream(bids, event_time="at", watermark=sw.lag("5 seconds"))


def test_a_key_may_be_a_list_of_columns_and_expressions(stream: Stream) -> None:
    assert stream.key_by(["auction", "site"]).key == ("auction", "site")
    assert stream.key_by(F.col("auction"), "site").key == ("auction", "site")
    keyed = stream.key_by([F.lower("site").alias("lower"), F.col("auction")])
    panes = keyed.window(sw.tumbling("1 minute")).agg(bids=sw.count("*"))
    rows = panes.to_df(flat=True).select("lower", "auction", "bids").collect()
    assert sorted(map(tuple, rows)) == [("a", 0, 3), ("a", 1, 1), ("b", 1, 1)]


def test_accumulations_compute_expressions_and_panes_are_flat(stream: Stream) -> None:
    doubled = F.col("price") * 2
    panes = stream.window(sw.tumbling("1 minute")).agg(
        plain=sw.sum(F.col("price")),
        doubled=sw.sum(doubled),
        highest=sw.max(doubled),
        literal=sw.max(F.lit("price")),
        best=sw.max_by("site", by=-F.abs(F.col("price") - 3)),
        average=sw.avg("price"),
    )
    frame = panes.to_df(flat=True)
    start = datetime(1970, 1, 1, tzinfo=UTC)
    assert frame.columns == [
        "window_start",
        "window_end",
        "plain",
        "doubled",
        "highest",
        "literal",
        "best",
        "average",
    ]
    [row] = frame.withColumns({name: F.unix_seconds(name) for name in frame.columns[:2]}).collect()
    assert tuple(row) == (start.timestamp(), 60, 10, 20, 8, "price", "B", 2.0)


def test_flat_panes_keep_the_columns_that_tell_rows_apart(stream: Stream) -> None:
    windowed = stream.window(sw.fixed("1 minute")).accumulating_and_retracting()
    frame = windowed.agg(late="emit", bids=sw.count()).to_df(flat=True)
    assert frame.columns == ["window_start", "window_end", "bids", "retraction", "kind"]


def test_an_expression_that_is_invalid_or_takes_a_name_is_rejected(stream: Stream) -> None:
    with pytest.raises(InvalidArgument, match=r"key_by = .*has the name of another column, 'site'.*alias"):
        stream.key_by(F.lower("site").alias("site"))
    with pytest.raises(InvalidArgument, match=r"agg = .*prize.*is not an expression over the columns"):
        stream.window(sw.fixed("1 minute")).agg(total=sw.sum(F.col("prize") * 2))
    with pytest.raises(InvalidArgument, match=r"total = 'prize': .* Did you mean 'price'\?"):
        stream.window(sw.fixed("1 minute")).agg(total=sw.sum("prize"))


def test_local_event_times_need_a_timezone(spark: SparkSession) -> None:
    times = "timestamp_ntz'2024-03-30 23:30:00', timestamp_ntz'2024-03-31 12:30:00'"
    local = spark.sql(f"select explode(array({times})) as at")
    with pytest.raises(InvalidArgument, match=r"event_time = 'at': is of type timestamp_ntz.*timezone=\"Eur"):
        sw.stream(local, event_time="at", watermark=sw.lag("5 seconds"))
    with pytest.raises(InvalidArgument, match="timezone = 'Berlin': is not a known timezone"):
        sw.stream(local, event_time="at", watermark=sw.lag("5 seconds"), timezone="Berlin")
    stream = sw.stream(local, event_time="at", watermark=sw.lag("5 seconds"), timezone="Europe/Berlin")
    days = stream.window(sw.calendar("days", timezone="Europe/Berlin")).agg(first=sw.min("at"))
    hours = [F.unix_seconds(f"window_{bound}") / 3600 for bound in ("start", "end")]
    rows = days.to_df(flat=True).select("first", *hours).orderBy("first").collect()
    begin = datetime(2024, 3, 29, 23, tzinfo=UTC).timestamp() / 3600
    assert [tuple(row)[1:] for row in rows] == [(begin, begin + 24), (begin + 24, begin + 47)]


def test_no_technical_column_reaches_the_user(stream: Stream, bids: DataFrame) -> None:
    def rows_of_pane(key: dict[str, int], window: sw.Range, rows: pl.DataFrame) -> list[dict[str, str]]:
        return [{"columns": ",".join(rows.columns)}]

    sessions = stream.key_by("auction").window(sw.sessions(F.col("price") + 1))
    [columns] = {row.columns for row in sessions.apply(rows_of_pane, "columns string").to_df().collect()}
    assert columns == "at,site,price"
    other = sw.stream(bids, event_time="at", watermark=sw.lag("5 seconds"))
    panes = stream.key_by("auction").window(sw.fixed("1 minute")).agg(bids=sw.count())
    emitted: Any = {"late": "emit", "invalid": "emit"}
    outputs = [
        stream.union(other).to_df(),
        panes.filter("bids > 1").to_df(),
        panes.window(sw.fixed("1 hour")).agg(bids=sw.sum("bids")).to_df(),
        stream.key_by("auction")
        .window(sw.fixed("1 minute"))
        .agg(n=sw.sum(F.col("price") * 2), **emitted)
        .to_df(),
        stream.join(other, on="auction", before="0 seconds", after="1 second", **emitted).to_df(),
        stream.join_asof(other, on="auction", **emitted).to_df(),
        stream.deduplicate(on="auction", within="1 second", late="emit").to_df(),
        stream.key_by((F.col("price") % 2).alias("odd")).select("odd").to_df(),
    ]
    for frame in outputs:
        assert not [name for name in frame.columns if ":" in name]
        assert len({name.lower() for name in frame.columns}) == len(frame.columns)


@pytest.mark.parametrize(
    ("how", "kept"),
    [("leftOuter", 5), ("LEFT_OUTER", 5), ("fullouter", 5), ("leftsemi", 5), ("left_anti", 0), ("inner", 5)],
)
def test_kinds_of_joins_are_spelled_as_in_spark(stream: Stream, bids: DataFrame, how: str, kept: int) -> None:
    other = sw.stream(bids, event_time="at", watermark=sw.lag("5 seconds"))
    pairs = stream.join(other, on=["auction", "price"], before="0 seconds", after="0 seconds", how=how)
    assert "at_left" in pairs.schema.names or how in ("leftsemi", "left_anti")
    if how in ("LEFT_OUTER", "left_anti"):  # the others differ in their names only
        assert pairs.to_df().count() == kept
