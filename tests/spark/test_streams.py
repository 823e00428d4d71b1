"""Streams read and written by Spark: every event once, across restarts, scaling and repeated batches."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from slackwater.streams.log.catalog import Stream, Streams
from slackwater.streams.log.scan import scan
from slackwater.streams.log.writer import Writer
from slackwater.streams.maintenance.mark_cycle import CycleRunner
from slackwater.streams.segments.epochs import KEY_SPACE, split_range
from slackwater.streams.spark.data_source import register
from slackwater.streams.spark.format_options import close_stores
from slackwater.streams.spark.stream_columns import EMPTY, SEQUENCE, WATERMARK
from slackwater.streams.spark.stream_event_time import read_stream
from slackwater.time import SECOND, to_datetime
from slackwater.windows import count, fixed
from tests.spark.postgres import PASSWORD, Server
from tests.spark.running import read_to_the_end

pytestmark = pytest.mark.spark

COLUMNS = pa.schema([("user", pa.string()), ("number", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])


class Shop:
    """A stream in its own store, with a manual clock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = f"sqlite:///{folder}/store.db"
        self.now = 1_000 * SECOND
        self.streams = Streams.open(self.store, create=True, clock=lambda: self.now)
        self.stream = self.streams.create("shop/bids", segments=2, columns=COLUMNS)
        self.cycles = CycleRunner(self.streams.store)

    def write(self, first: int, last: int, noted: int | None = None, writer: str = "w") -> None:
        events = [
            {"user": f"u{n % 7}", "number": n, "at": to_datetime(n * SECOND)} for n in range(first, last)
        ]
        with Writer(self.stream, writer) as output:
            output.write_many(events, keys="user")
            if noted is not None:
                output.note_time(noted * SECOND)
        self.now += 10 * SECOND
        self.cycles.run(self.stream.id)

    def reader(self, spark: SparkSession, **options: object) -> DataFrame:
        reader = spark.readStream.format("slackwater").option("store", self.store)
        for name, value in {"stream": "shop/bids", **options}.items():
            reader = reader.option(name.rstrip("_"), str(value))
        return reader.load()

    def run(self, df: DataFrame, name: str = "out") -> None:
        """Read all available events; the rows are in the folder ``name``."""
        query = (
            df.writeStream.format("parquet")
            .option("path", str(self.folder / name))
            .option("checkpointLocation", str(self.folder / f"{name}-checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)

    def offsets(self, name: str = "out") -> list[dict[str, object]]:
        folder = self.folder / f"{name}-checkpoint" / "offsets"
        logged = sorted((path for path in folder.iterdir() if path.name.isdigit()), key=lambda p: int(p.name))
        return [json.loads(path.read_text().splitlines()[-1]) for path in logged]


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Iterator[Shop]:
    register(spark)
    made = Shop(tmp_path)
    yield made
    made.streams.close()
    close_stores()


def numbers(spark: SparkSession, shop: Shop, name: str = "out") -> list[int]:
    rows = spark.read.parquet(str(shop.folder / name)).collect()
    return sorted(row.number for row in rows if row.number is not None)


def test_every_event_is_read_once_across_limits_restarts_and_scaling(spark: SparkSession, shop: Shop) -> None:
    df = shop.reader(spark, max_events=30)
    shop.write(0, 100)
    shop.run(df)
    assert numbers(spark, shop) == list(range(100))
    assert len(shop.offsets()) == 4
    shop.stream.scale([0], split_range((0, KEY_SPACE // 2), 3))
    shop.write(100, 150)
    active = [segment.id for segment in shop.stream.epochs().active]
    shop.stream.scale(active, [(0, KEY_SPACE)])
    shop.write(150, 200)
    shop.run(df)
    assert numbers(spark, shop) == list(range(200))
    last = shop.offsets()[-1]
    assert list(last) == ["batch", "cut"]
    assert last["cut"] == {str(identity): offset for identity, offset in shop.stream.tail().items()}


def test_a_batch_has_the_watermark_of_the_newest_mark_it_passed(spark: SparkSession, shop: Shop) -> None:
    df = shop.reader(spark, headers=True)
    shop.write(0, 10, noted=5)
    shop.run(df)
    shop.write(10, 20)
    shop.run(df)
    shop.write(20, 20, noted=15)
    shop.run(df)
    rows = spark.read.parquet(str(shop.folder / "out")).collect()
    noted_watermarks = {row[SEQUENCE]: row[WATERMARK].timestamp() for row in rows}
    assert noted_watermarks == {1: 5, 2: 5, 3: 15}
    assert Counter(row[SEQUENCE] for row in rows if row[EMPTY]) == {1: 1, 2: 1, 3: 1}
    assert sorted(row.number for row in rows if not row[EMPTY]) == list(range(20))
    # nothing new: no batch
    shop.run(df)
    assert [offset["batch"] for offset in shop.offsets()] == [1, 2, 3]


def test_a_repeated_batch_is_identical(spark: SparkSession, shop: Shop) -> None:
    """The offset was logged but not the commit; events that arrived since are not in this batch."""
    df = shop.reader(spark, headers=True)
    shop.write(0, 10, noted=5)
    shop.run(df)
    checkpoint = shop.folder / "out-checkpoint"
    for log in ("commits", "offsets"):
        for path in (checkpoint / log).glob("*.crc"):
            path.unlink()
        for path in (checkpoint / log).glob(".*.crc"):
            path.unlink()
    (checkpoint / "commits" / "0").unlink()
    shop.write(10, 20, noted=15)
    again = shop.folder / "again"
    writer = df.writeStream.format("parquet").option("path", str(again))
    read_to_the_end(writer.option("checkpointLocation", str(checkpoint)))
    rows = spark.read.parquet(str(again)).collect()
    first = [row for row in rows if row[SEQUENCE] == 1]
    assert sorted(row.number for row in first if not row[EMPTY]) == list(range(10))
    assert {row[WATERMARK].timestamp() for row in first} == {5}
    assert sorted(row.number for row in rows if not row[EMPTY]) == list(range(20))


def test_a_batch_reads_between_two_cuts(spark: SparkSession, shop: Shop) -> None:
    shop.write(0, 10)
    middle = shop.stream.tail().as_text()
    shop.stream.scale([0, 1], [(0, KEY_SPACE)])
    shop.write(10, 20)
    reader = spark.read.format("slackwater").option("store", shop.store).option("stream", "shop/bids")
    assert sorted(row.number for row in reader.load().collect()) == list(range(20))
    before = reader.option("to", middle).load()
    assert sorted(row.number for row in before.collect()) == list(range(10))
    assert before.schema.simpleString() == "struct<user:string,number:bigint,at:timestamp>"
    assert before.filter("number = 3").collect()[0]["at"].timestamp() == 3


def written(shop: Shop, stream: Stream) -> Counter[int]:
    batches = scan(stream, stream.head())
    return Counter(number for batch in batches for number in batch.events.column("number").to_pylist())


def test_a_query_writes_every_batch_once_also_a_repeated_one(spark: SparkSession, shop: Shop) -> None:
    target = shop.streams.create("shop/copy", segments=3, columns=COLUMNS)
    checkpoint = shop.folder / "copy-checkpoint"

    def run() -> None:
        options = {"store": shop.store, "stream": "shop/copy", "key": "number"}
        writer = shop.reader(spark).writeStream.format("slackwater").options(**options)
        read_to_the_end(writer.option("checkpointLocation", str(checkpoint)))

    shop.write(0, 30)
    run()
    shop.write(30, 60)
    run()
    assert written(shop, target) == Counter(range(60))
    # as after a crash between the commits of the sink and of Spark
    for name in ("1", ".1.crc"):
        (checkpoint / "commits" / name).unlink()
    shop.write(60, 90)
    run()
    assert written(shop, target) == Counter(range(90))
    assert len([1 for _, offset in target.tail().items() if offset]) == 3


def test_a_query_with_a_new_checkpoint_does_not_commit_as_the_writer_of_another(
    spark: SparkSession, shop: Shop
) -> None:
    target = shop.streams.create("shop/copy", columns=COLUMNS)

    def run(checkpoint: str, **options: str) -> str:
        query = (
            shop.reader(spark)
            .writeStream.format("slackwater")
            .options(store=shop.store, stream="shop/copy", writer="copy", **options)
            .option("checkpointLocation", str(shop.folder / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        return str(query.id)

    shop.write(0, 10)
    first = run("one")
    with pytest.raises(StreamingQueryException, match=f"belongs to query {first}"):
        run("two")
    assert written(shop, target) == Counter(range(10))
    run("two", takeover_from=first)
    assert written(shop, target) == Counter([*range(10), *range(10)])


@pytest.mark.proof
def test_nothing_that_spark_shows_contains_the_password_of_the_store(
    spark: SparkSession, server: Server, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store = server.create_database("shown")
    with Streams.open(store, create=True) as streams:
        stream = streams.create("shop/bids", columns=COLUMNS, data=str(tmp_path / "data"))
        with Writer(stream, "w") as output:
            output.write_many([{"user": "a", "number": 1, "at": to_datetime(SECOND)}], keys="user")
            output.note_time(5 * SECOND)
    rows = read_stream(spark, "shop/bids", store=store, event_time="at")
    panes = rows.key_by("user").window(fixed("1 second")).agg(n=count()).to_df()
    panes.explain(True)
    with pytest.raises(PySparkException) as failed:
        panes.select("no_such_column")
    with pytest.raises(PySparkException) as refused:
        spark.readStream.format("slackwater").options(store=store, stream="shop/bids").load()
    query = (
        panes.writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    query.explain(True)
    captured = capfd.readouterr()
    shown = [captured.out, captured.err, str(failed.value), str(refused.value), str(query.recentProgress)]
    shown += [path.read_text(errors="replace") for path in tmp_path.glob("checkpoint/**/*") if path.is_file()]
    assert "registered:" in captured.out
    assert "contains a password" in str(refused.value)
    for text in shown:
        assert PASSWORD not in text
        assert quote(PASSWORD) not in text
    close_stores()


def test_a_batch_job_appends_in_one_commit(spark: SparkSession, shop: Shop) -> None:
    df = spark.range(1000).selectExpr("cast(id % 7 as string) user", "id number", "timestamp_seconds(id) at")
    writer = df.write.format("slackwater").option("store", shop.store).option("stream", "shop/bids")
    writer.option("key", "user").mode("append").save()
    assert written(shop, shop.stream) == Counter(range(1000))
    broken = df.selectExpr("user", "if(number = 999, raise_error('no'), number) number", "at")
    with pytest.raises(PySparkException):
        broken.write.format("slackwater").options(store=shop.store, stream="shop/bids").mode("append").save()
    assert written(shop, shop.stream) == Counter(range(1000))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"stream": "shop/nope"}, "stream 'shop/nope' does not exist"),
        ({"stream": "shop/bids", "maxEvents": "3"}, "unknown option"),
    ],
)
def test_errors_name_the_invalid_option(
    spark: SparkSession, shop: Shop, options: dict[str, str], said: str
) -> None:
    with pytest.raises(PySparkException, match=said):
        spark.readStream.format("slackwater").option("store", shop.store).options(**options).load()
