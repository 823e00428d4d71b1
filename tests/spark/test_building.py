"""What cannot work is refused on the line that asks for it, with the name of what to change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from slackwater import windows
from slackwater.errors import InvalidArgument, InvalidDuration
from slackwater.progress.generator import lag
from slackwater.spark.buffers import bucket_ids, spark_hash
from slackwater.spark.clock import Ticks
from slackwater.spark.session import ROCKSDB, STATE_STORE, check_session, session, settings
from slackwater.spark.stream import stream

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def bids(spark: SparkSession) -> DataFrame:
    return spark.sql(
        "select timestamp'2024-01-01 00:00:05Z' as at, date'2024-01-01' as day, 7 as auction, "
        "30 as price, 'x' as `a.b`, true as window"
    )


def made(df: DataFrame, **options: Any) -> Any:
    return stream(df, **{"event_time": "at", "watermark": lag("5 seconds"), **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"event_time": "when"},
            "event_time = 'when': is not a column of the input; use one of at, day, auction",
        ),
        ({"event_time": "day"}, "event_time = 'day': is of type date, not a timestamp; give an expression"),
        ({"event_time": "price"}, "is of type int, not a timestamp"),
        ({"event_time": 5}, "is neither a column nor the name of one"),
        ({"watermark": "5 seconds"}, "is not a watermark policy; write lag"),
        ({"origin": "partition"}, "origin = 'partition': is not a column of the input"),
        ({"origins": ["a"]}, "there is no column of origins; add origin="),
        ({"origin": "auction", "origins": "a"}, r"is a single text; write \['a'\]"),
        ({"buckets": 3}, r"is not a multiple of spark.sql.shuffle.partitions \(2\)"),
        ({"buckets": 0}, "is not a multiple"),
        ({"clock": Ticks((5, 5)), "idle_after": "0 seconds"}, "idle_after = 0: must be greater than zero"),
        ({"max_ahead": "-1 seconds"}, "max_ahead = -1000000: is negative"),
    ],
)
def test_a_stream_that_cannot_be(bids: DataFrame, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        made(bids, **options)


def test_a_duration_without_a_unit_is_refused(bids: DataFrame) -> None:
    with pytest.raises(InvalidDuration, match='has no unit; write it like "10 seconds"'):
        made(bids, clock="10")


def test_times_that_go_back_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="lies before 9"):
        Ticks((9, 8))


def test_windows_and_panes_that_cannot_be(bids: DataFrame) -> None:
    keyed = made(bids).key_by("auction")
    windowed = keyed.window(windows.fixed("10 seconds"))
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: made(bids).key_by(), "is empty"),
        (lambda: made(bids).key_by("seller"), "key_by = 'seller': is not a column of the input"),
        (lambda: keyed.window("10 seconds"), "is not a window; write fixed"),
        (lambda: keyed.window(windows.Inherited()), "no window to inherit"),
        (windowed.agg, "is empty; give at least one"),
        (lambda: windowed.agg(n=5), "n = 5: is not an accumulation"),
        (lambda: windowed.agg(total=windows.sum("cost")), "total = 'cost': is not a column of the input"),
        (lambda: windowed.agg(window=windows.count()), "is used by the panes themselves"),
        (lambda: windowed.agg(auction=windows.count()), "is used twice in the panes"),
        (lambda: windowed.agg(late="keep", n=windows.count()), "late = 'keep': is not known"),
        (lambda: windowed.agg(invalid="keep", n=windows.count()), "invalid = 'keep': is not known"),
        (lambda: windowed.allowed_lateness("-1 second").agg(n=windows.count()), "must not be negative"),
        (lambda: windowed.trigger(windows.after_count(5)).agg(n=windows.count()), "allow_data_loss=True"),
        (lambda: windowed.discarding().only_updated().agg(n=windows.count()), "discarding panes hold"),
        (lambda: made(bids).window(windows.sessions("5 seconds")).agg(n=windows.count()), "name the key"),
        (lambda: windowed.agg(n=windows.count()).to_df(flush=True), "fires everything anyway; leave it out"),
    ]
    for build, message in refused:
        with pytest.raises(InvalidArgument, match=message):
            build()


def test_values_have_the_types_that_spark_would_give(bids: DataFrame) -> None:
    panes = made(bids).key_by("auction").window(windows.fixed("10 seconds")).agg(
        n=windows.count(),
        total=windows.sum("price"),
        least=windows.min("price"),
        average=windows.mean("price"),
        days=windows.collect("day"),
        last=windows.last("at"),
        text=windows.first("a.b"),
        people=windows.approx_count_distinct("a.b"),
    )  # fmt: skip
    assert panes.schema.simpleString() == (
        "struct<auction:int,window:struct<start:timestamp,end:timestamp>,n:bigint,total:bigint,least:int,"
        "average:double,days:array<date>,last:timestamp,text:string,people:bigint,pane:struct<timing:string,"
        "index:bigint,on_time_index:bigint,is_first:boolean,is_last:boolean,retraction:boolean,kind:string>>"
    )
    (row,) = panes.to_df().collect()
    assert (row["n"], row["total"], row["text"], row["people"]) == (1, 30, "x", 1)
    assert panes.to_df().schema == panes.schema


def test_a_global_window_has_no_bounds(bids: DataFrame) -> None:
    (row,) = made(bids).window(windows.global_window()).agg(n=windows.count()).to_df().collect()
    assert row["window"].asDict() == {"start": None, "end": None}


def test_the_event_time_may_be_an_expression(bids: DataFrame) -> None:
    shifted = sql.col("at") - sql.expr("interval 10 seconds")
    panes = made(bids, event_time=shifted).window(windows.fixed("10 seconds")).agg(n=windows.count())
    (row,) = panes.to_df().selectExpr("cast(window.start as long) % 60 as second").collect()
    assert row["second"] == 50


def test_a_wrong_state_store_is_named_before_a_query_starts(spark: SparkSession) -> None:
    other = spark.newSession()
    other.conf.set(STATE_STORE, "some.other.Provider")
    with pytest.raises(InvalidArgument, match=f"{STATE_STORE} = 'some.other.Provider'.*{ROCKSDB}"):
        check_session(other)


def test_settings_for_a_session_made_elsewhere_are_complete(spark: SparkSession) -> None:
    other = spark.newSession()
    for name, value in settings(partitions=2).items():
        if not name.startswith("spark.executorEnv"):
            other.conf.set(name, value)
    check_session(other)
    with pytest.raises(InvalidArgument, match="must be at least 1"):
        settings(partitions=0)


def test_our_hash_is_the_one_of_spark(spark: SparkSession) -> None:
    rows = spark.range(-50, 50).select("id", sql.hash(sql.col("id").cast("int")).alias("hash")).collect()
    assert [spark_hash(row["id"] & 0xFFFFFFFF) for row in rows] == [row["hash"] for row in rows]


def test_buckets_spread_over_partitions_as_computed(spark: SparkSession) -> None:
    ids = bucket_ids(6, 3)
    frame = spark.createDataFrame([(bucket,) for bucket in ids], "bucket int").repartition(3, "bucket")
    counts = frame.groupBy(sql.spark_partition_id()).count().collect()
    assert [row["count"] for row in counts] == [2, 2, 2]


def test_checkpoints_on_a_local_disk_start_no_other_programs(spark: SparkSession) -> None:
    assert "FileSystemBased" in str(spark.conf.get("spark.sql.streaming.checkpointFileManagerClass"))


def test_the_way_of_checkpoints_that_somebody_chose_stays(spark: SparkSession) -> None:
    name, kept = "spark.sql.streaming.checkpointFileManagerClass", "some.other.Manager"
    before = str(spark.conf.get(name))
    spark.conf.set(name, kept)
    try:
        session()
        assert spark.conf.get(name) == kept
    finally:
        spark.conf.set(name, before)
