"""Invalid streams, windows and sessions raise on the line that makes them; the error names the fix."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from slackwater import windows
from slackwater.errors import InvalidArgument, InvalidDuration
from slackwater.progress.watermark_policies import lag
from slackwater.spark import session as session_module
from slackwater.spark.api.stream import stream
from slackwater.spark.internals import ROCKSDB
from slackwater.spark.session import (
    CHANGELOG,
    PARTITIONS,
    STATE_STORE,
    WORKER_PYTHON,
    SlowSession,
    check_session,
    is_local_master,
    session,
    settings,
)
from slackwater.spark.wire.bucket_ids import bucket_ids, spark_hash
from slackwater.spark.wire.clock_source import Ticks
from slackwater.time import Range, duration

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def bids(spark: SparkSession) -> DataFrame:
    return spark.sql(
        "select timestamp'2024-01-01 00:00:05Z' as at, date'2024-01-01' as day, 7 as auction, "
        "30 as price, 'x' as `a.b`, true as window"
    )


def nothing(key: dict[str, Any], window: Range, rows: Any) -> list[Any]:
    return []


async def unchanged(row: dict[str, Any]) -> dict[str, Any]:
    return row


def made(df: DataFrame, **options: Any) -> Any:
    return stream(df, **{"event_time": "at", "watermark": lag("5 seconds"), **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"forget_after": "1 day", "origin": "auction", "origins": ["7"]}, "cannot be combined with a list"),
        ({"forget_after": "1 second", "idle_after": "1 minute"}, "not shorter than idle_after"),
        (
            {"event_time": "when"},
            "event_time = 'when': column not found; available: at, day, auction",
        ),
        ({"event_time": "day"}, "event_time = 'day': is of type date, not a timestamp; give an expression"),
        ({"event_time": "price"}, "is of type int, not a timestamp"),
        ({"event_time": 5}, "is neither a column nor a column name"),
        ({"watermark": "5 seconds"}, "is not a watermark policy; write watermark=lag"),
        ({"origin": "partition"}, "origin = 'partition': column not found"),
        ({"origins": ["a"]}, "is given without an origin column; add origin="),
        ({"origin": "auction", "origins": "a"}, r"is a string, not a list; write \['a'\]"),
        ({"origin": "auction", "origins": []}, r"origins = \[\]: is empty; list the origins"),
        ({"buckets": 3}, r"is not a multiple of spark.sql.shuffle.partitions \(2\)"),
        ({"buckets": 0}, "is not a multiple"),
        ({"buckets": [4, 4]}, "are not different ids"),
        ({"buckets": []}, "is not a multiple"),
        ({"buckets": "2"}, "buckets = '2': is a str; pass an integer"),
        ({"origin": "auction", "origins": [7]}, r"origins = \[7\]: must contain strings.*write \['7'\]"),
        ({"clock": Ticks((5, 5)), "idle_after": "0 seconds"}, "idle_after = 0: must be greater than zero"),
        ({"max_ahead": "-1 seconds"}, "max_ahead = -1000000: is negative"),
    ],
)
def test_invalid_streams_raise(bids: DataFrame, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        made(bids, **options)


def test_a_stream_needs_a_data_frame() -> None:
    with pytest.raises(InvalidArgument, match="df = 5: is not a DataFrame"):
        made(5)  # type: ignore[arg-type]


def test_an_ambiguous_column_name_raises_where_it_is_used(spark: SparkSession) -> None:
    twice = "select timestamp'2024-01-01 00:00:05Z' as at, 1 as k, 2 as {}, 3 as price"
    for other in ("k", "K"):
        df = spark.sql(twice.format(other))
        windowed = made(df).window(windows.fixed("10 seconds"))
        assert windowed.agg(total=windows.sum("price")).to_df().first()["total"] == 3
        invalid: list[Callable[[], object]] = [
            partial(made(df).key_by, "k"),
            partial(made, df, origin="k"),
            partial(made, df, event_time="k"),
            partial(windowed.agg, n=windows.sum("k")),
            partial(windowed.apply, nothing, "n int"),
            partial(made(df).join, made(df), on="price", before="1 second", after="1 second"),
            partial(made(df).map_async, unchanged, "price int"),
        ]
        for build in invalid:
            with pytest.raises(
                InvalidArgument, match=rf"= 'k': is ambiguous: it matches the columns k, {other}; rename"
            ):
                build()


@pytest.mark.parametrize(
    "key",
    [
        "map(1, 2)", "parse_json('1')", "interval '1' month", "'a' collate UTF8_LCASE",
        "struct(map(1, 2) as m)", "array(map(1, 2))",
    ],
)  # fmt: skip
def test_an_unsupported_key_type_raises(spark: SparkSession, key: str) -> None:
    df = spark.sql(f"select timestamp'2024-01-01 00:00:05Z' as at, {key} as k")
    with pytest.raises(InvalidArgument, match=r"key_by = 'k': is of type .*, which cannot be a key; cast it"):
        made(df).key_by("k")


@pytest.mark.parametrize(
    ("value", "accumulation"),
    [
        ("'x'", windows.sum("v")),
        ("date'2024-01-01'", windows.sum("v")),
        ("timestamp'2024-01-01'", windows.mean("v")),
        ("map(1, 2)", windows.sum("v")),
        ("array(1)", windows.max("v")),
        ("struct(1 as a)", windows.min("v")),
        ("interval '1' day", windows.stddev("v")),
        ("1", windows.any("v")),
        ("'x'", windows.approx_quantile("v", 0.5)),
    ],
)
def test_an_accumulation_of_an_unsupported_type_raises(
    spark: SparkSession, value: str, accumulation: windows.ColumnarAccumulation
) -> None:
    df = spark.sql(f"select timestamp'2024-01-01 00:00:05Z' as at, {value} as v")
    with pytest.raises(
        InvalidArgument, match=f"n = 'v': is of type .*, which {accumulation.name} does not support"
    ):
        made(df).window(windows.fixed("10 seconds")).agg(n=accumulation)


def test_a_type_without_an_arrow_equivalent_raises(spark: SparkSession) -> None:
    df = spark.sql("select timestamp'2024-01-01 00:00:05Z' as at, interval '1' month as v")
    with pytest.raises(
        InvalidArgument, match=r"columns = \['v'\]: include a type that cannot be converted to Arrow"
    ):
        made(df).window(windows.fixed("10 seconds")).agg(n=windows.count("v"))


def test_a_column_with_a_reserved_name_raises_where_it_is_used(spark: SparkSession) -> None:
    df = spark.sql("select timestamp'2024-01-01 00:00:05Z' as `event:time`, 1L as `Event:Origin`, 2L as gap")
    made_by_time = stream(df, event_time="event:time", watermark=lag("5 seconds"))
    message = "'Event:Origin': is a reserved name"
    with pytest.raises(InvalidArgument, match=message):
        made_by_time.key_by("Event:Origin")
    with pytest.raises(InvalidArgument, match=message):
        made_by_time.window(windows.fixed("10 seconds")).agg(n=windows.sum("Event:Origin"))
    with pytest.raises(InvalidArgument, match="'header:row': is a reserved name"):
        made_by_time.window(windows.fixed("10 seconds")).agg(**{"header:row": windows.sum("gap")})  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="event_times = 'event:time': is a reserved name"):
        stream(df, event_times={"event:time": lag("5 seconds")})
    counted = made_by_time.window(windows.fixed("10 seconds")).agg(n=windows.count())
    assert [row["n"] for row in counted.to_df().collect()] == [1]
    with_gap = df.withColumnRenamed("gap", "session:gap").withColumn("user", sql.lit(1))
    clicks = stream(with_gap, event_time="event:time", watermark=lag("5 seconds")).key_by("user")
    with pytest.raises(InvalidArgument, match="gap = 'session:gap': is a column of the input"):
        clicks.window(windows.sessions(sql.lit(5)))


def test_expressions_log_nothing_while_they_are_analyzed(bids: DataFrame, query_log: list[str]) -> None:
    elements = (
        stream(bids, event_time="at", watermark=lag("1 second"))
        .key_by("auction")
        .window(windows.Fixed(duration("1 second")))
    )
    panes = elements.agg(n=windows.count())
    panes.select("auction", "window.start AS begin")
    with pytest.raises(InvalidArgument, match="no_column"):
        panes.filter("no_column > 3")
    with pytest.raises(InvalidArgument, match="n >"):
        panes.filter("n > > 3")
    assert query_log == []


def test_a_duration_without_a_unit_raises(bids: DataFrame) -> None:
    with pytest.raises(InvalidDuration, match='has no unit; write it like "10 seconds"'):
        made(bids, clock="10")


def test_ticks_out_of_order_raise() -> None:
    with pytest.raises(InvalidArgument, match="is before 9"):
        Ticks((9, 8))


def test_invalid_windows_and_panes_raise(bids: DataFrame) -> None:
    keyed = made(bids).key_by("auction")
    windowed = keyed.window(windows.fixed("10 seconds"))
    invalid: list[tuple[Callable[[], object], str]] = [
        (lambda: made(bids).key_by(), "is empty"),
        (lambda: made(bids).key_by("seller"), "key_by = 'seller': column not found"),
        (lambda: keyed.window("10 seconds"), "is not a window; write window\\(fixed"),
        (lambda: keyed.window(windows.Inherited()), "cannot be inherited, because rows of a DataFrame"),
        (windowed.agg, "is empty; give at least one"),
        (lambda: windowed.agg(n=5), "n = 5: is not an accumulation"),
        (lambda: windowed.agg(total=windows.sum("cost")), "total = 'cost': column not found"),
        (lambda: windowed.agg(window=windows.count()), "is reserved for the panes"),
        (lambda: windowed.agg(Pane=windows.count()), "is reserved for the panes"),
        (lambda: windowed.agg(kind=windows.count()), "is reserved for the panes"),
        (lambda: made(bids).key_by(5), "key_by = 5: is not a column name"),
        (lambda: made(bids).union(bids), "is not a stream; create one with slackwater.stream"),
        (
            lambda: made(bids).union(made(bids, clock=Ticks((5,)))),
            "cannot be combined with the clock.*give all streams the",
        ),
        (
            lambda: windowed.cogroup(windowed.agg(n=windows.count()), left=[], right=[]),
            "right = .*has no key; call key_by",
        ),
        (lambda: windowed.agg(auction=windows.count()), "is already the name of another column of the panes"),
        (lambda: windowed.agg(late="keep", n=windows.count()), "late = 'keep': is not a valid value of late"),
        (
            lambda: windowed.agg(invalid="keep", n=windows.count()),
            "invalid = 'keep': is not a valid value of invalid",
        ),
        (lambda: windowed.allowed_lateness("-1 second").agg(n=windows.count()), "must not be negative"),
        (lambda: windowed.trigger(windows.after_count(5)).agg(n=windows.count()), "allow_data_loss=True"),
        (
            lambda: windowed.discarding().only_updated().agg(n=windows.count()),
            "cannot compare discarding panes",
        ),
        (
            lambda: made(bids).window(windows.sessions("5 seconds")).agg(n=windows.count()),
            "session windows need a key",
        ),
        (lambda: windowed.agg(n=windows.count()).to_df(flush=True), "every window fires anyway; omit it"),
    ]
    for build, message in invalid:
        with pytest.raises(InvalidArgument, match=message):
            build()


def test_windows_over_panes_inherit_the_allowed_lateness(bids: DataFrame) -> None:
    keyed = made(bids).key_by("auction")
    hour, day = (
        keyed.window(windows.fixed("10 seconds")).allowed_lateness(lateness).agg(n=windows.count())
        for lateness in ("1 hour", "1 day")
    )
    forever = keyed.window(windows.fixed("10 seconds")).allowed_lateness(None).agg(n=windows.count())
    hours = duration("1 hour")
    assert hour.agg(n=windows.sum("n")).dataflow.spec.allowed_lateness == hours
    assert hour.window(windows.fixed("1 minute")).strategy.allowed_lateness == hours
    assert hour.union(day).window(windows.Inherited()).strategy.allowed_lateness == 24 * hours
    assert hour.union(forever).window(windows.Inherited()).strategy.allowed_lateness is None
    assert hour.window(windows.Inherited()).allowed_lateness("0 seconds").strategy.allowed_lateness == 0
    both = keyed.window(windows.fixed("1 minute")).cogroup(day.key_by("auction"), left=["price"], right=["n"])
    assert both.dataflow.spec.allowed_lateness == 24 * hours


def test_each_row_may_have_its_own_session_gap(spark: SparkSession) -> None:
    rows = [("a", 5, 20), ("a", 10, 1), ("a", 20, 3), ("a", 40, 5), ("a", 50, None), ("a", 60, 0)]
    clicks = spark.createDataFrame(rows, "user string, second int, timeout int").withColumn(
        "at", sql.timestamp_seconds("second")
    )
    interval = sql.make_dt_interval(secs=sql.col("timeout"))
    for gap in (windows.sessions(sql.col("timeout")), windows.sessions(interval)):
        panes = made(clicks).key_by("user").window(gap).agg(n=windows.count(), invalid="emit")
        emitted = panes.to_df().selectExpr("pane.kind", "unix_seconds(window.end) as end", "n").collect()
        assert sorted((row["kind"], row["end"], row["n"]) for row in emitted if row["end"] is not None) == [
            ("pane", 25, 3),
            ("pane", 45, 1),
        ]
        assert sum(row["kind"] == "invalid" for row in emitted) == 2
    with pytest.raises(InvalidArgument, match=r"gap = .*is of type string; use an interval of days to sec"):
        made(clicks).key_by("user").window(windows.sessions(sql.col("user")))
    with pytest.raises(InvalidArgument, match="gap = 'timeot': column not found"):
        made(clicks).key_by("user").window(windows.sessions(column="timeot"))


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


def test_a_wrong_state_store_raises_before_a_query_starts(spark: SparkSession) -> None:
    other = spark.newSession()
    other.conf.set(STATE_STORE, "some.other.Provider")
    with pytest.raises(InvalidArgument, match=f"{STATE_STORE} = 'some.other.Provider'.*{ROCKSDB}"):
        check_session(other)


def test_slow_settings_are_named_in_a_warning(spark: SparkSession) -> None:
    other = spark.newSession()
    slow = {
        CHANGELOG: "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        PARTITIONS: "200",
    }
    for name, value in slow.items():
        other.conf.set(name, value)
    with pytest.warns(SlowSession) as warned:
        check_session(other)
    (message,) = (str(one.message) for one in warned)
    for name, value in slow.items():
        assert f"{name} = '{value}'" in message
    assert "set it to 2" in message, "as many partitions as there are cores"
    with pytest.warns(SlowSession) as warned:
        made(other.sql("select timestamp'2024-01-01 00:00:05Z' as at"))
    assert warned[0].filename == __file__, "the line that makes the stream is shown"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            '#!/bin/sh\nexec {python} -I -S "$@"',
            "starts workers that cannot import slackwater .ModuleNotFoundError",
        ),
        ("#!/bin/sh\necho 2.7", "is Python 2.7, but this process runs Python 3"),
        ("no program", "cannot be started"),
        (None, "does not exist, so no worker would start"),
    ],
)
def test_an_interpreter_that_cannot_run_workers_raises(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, message: str
) -> None:
    python = tmp_path / "python3"
    if script is not None:
        python.write_text(f"{script.format(python=sys.executable)}\n")
        python.chmod(0o755)
    # Not pythonExec of the context: an earlier test may still be starting workers in the background.
    monkeypatch.setattr(session_module, "worker_python", lambda _: str(python))
    with pytest.raises(InvalidArgument, match=f"PYSPARK_PYTHON = '{python}': {message}"):
        check_session(spark)
    monkeypatch.delenv(WORKER_PYTHON)
    with pytest.raises(InvalidArgument, match="PYSPARK_PYTHON = None: is not set, so workers start"):
        check_session(spark)


def test_another_interpreter_that_can_run_workers_is_accepted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "wrapped"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(session_module, "worker_python", lambda _: str(python))
    check_session(spark)


def test_settings_for_a_session_made_elsewhere_are_complete(spark: SparkSession) -> None:
    other = spark.newSession()
    for name, value in settings(partitions=2).items():
        if not name.startswith("spark.executorEnv"):
            other.conf.set(name, value)
    check_session(other)
    with pytest.raises(InvalidArgument, match="must be at least 1"):
        settings(partitions=0)


def test_spark_hash_equals_the_hash_of_spark(spark: SparkSession) -> None:
    rows = spark.range(-50, 50).select("id", sql.hash(sql.col("id").cast("int")).alias("hash")).collect()
    assert [spark_hash(row["id"] & 0xFFFFFFFF) for row in rows] == [row["hash"] for row in rows]


def test_buckets_spread_over_partitions_as_computed(spark: SparkSession) -> None:
    ids = bucket_ids(6)
    frame = spark.createDataFrame([(bucket,) for bucket in ids], "bucket int").repartition(3, "bucket")
    counts = frame.groupBy(sql.spark_partition_id()).count().collect()
    assert [row["count"] for row in counts] == [2, 2, 2]


def test_checkpoints_on_a_local_disk_use_the_file_system_manager(spark: SparkSession) -> None:
    assert "FileSystemBased" in str(spark.conf.get("spark.sql.streaming.checkpointFileManagerClass"))


def test_local_workers_use_unix_domain_sockets(spark: SparkSession) -> None:
    assert spark.sparkContext.getConf().get("spark.python.unix.domain.socket.enabled") == "true"


def test_other_users_cannot_reach_the_sockets_of_local_workers(spark: SparkSession) -> None:
    folder = Path(str(spark.sparkContext.getConf().get("spark.python.unix.domain.socket.dir")))
    assert spark.sparkContext.parallelize([1], 1).map(lambda n: n).collect() == [1]
    assert any(path.is_socket() for path in folder.iterdir())
    assert folder.stat().st_mode & 0o777 == 0o700
    assert folder.stat().st_uid == os.getuid()


@pytest.mark.proof
def test_the_folder_of_the_sockets_is_private_and_ends_with_the_program(tmp_path: Path) -> None:
    """Whatever the umask is, and however long the path of the temporary folder."""
    long = tmp_path / ("x" * 60)
    long.mkdir()
    code = (
        "import os; os.umask(0); from slackwater.spark.session import session\n"
        'spark = session(master="local[1]", config={"spark.ui.enabled": "false"})\n'
        "assert spark.sparkContext.parallelize([1], 1).map(lambda n: n).collect() == [1]\n"
        'folder = spark.sparkContext.getConf().get("spark.python.unix.domain.socket.dir")\n'
        "print(folder, oct(os.stat(folder).st_mode & 0o777))\n"
    )
    environment = {**os.environ, "TMPDIR": str(long)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    folder, mode = done.stdout.split()
    assert mode == "0o700"
    assert not Path(folder).exists()


@pytest.mark.parametrize(
    "name", ["PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "SPARK_CONF_DIR", "SPARK_HOME"]
)
def test_the_environment_may_name_a_cluster(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for variable in ("SPARK_HOME", "PYSPARK_GATEWAY_PORT"):  # the environment of the tests may set them
        monkeypatch.delenv(variable, raising=False)
    assert is_local_master(None)
    monkeypatch.setenv(name, "x")
    assert not is_local_master(None)
    assert is_local_master("local[*]")


@pytest.mark.proof
def test_spark_starts_with_a_long_temporary_folder(tmp_path: Path) -> None:
    """The path of a Unix domain socket is at most 108 bytes, and java.io.tmpdir may be longer."""
    folder = tmp_path / ("x" * 100)
    folder.mkdir()
    code = (
        "import sys; from slackwater.spark.session import session; from pyspark.sql import functions as F\n"
        'moved = {"spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={sys.argv[1]}"}\n'
        'spark = session(master="local[1]", config={"spark.ui.enabled": "false", **moved})\n'
        'print(spark.range(3).select(F.udf(lambda n: n + 1, "long")("id")).collect()[2][0])\n'
        "spark.stop()"
    )
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["3"], done.stderr


def test_a_configured_checkpoint_manager_is_kept(spark: SparkSession) -> None:
    name, kept = "spark.sql.streaming.checkpointFileManagerClass", "some.other.Manager"
    before = str(spark.conf.get(name))
    spark.conf.set(name, kept)
    try:
        session()
        assert spark.conf.get(name) == kept
    finally:
        spark.conf.set(name, before)
