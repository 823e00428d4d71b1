"""Rows per second from PostgreSQL: with ADBC, as jobs read it, and with Spark's JDBC reader.

Two things are timed: rows that Spark reads and discards, and a unit of a job that is written to Parquet
files, as `slackwater ingest` runs it. Each is timed with one connection, the default of both readers, and
with one per processor. Both readers read the same range in the same parts, on the same session, and must
give the same rows before anything is timed. The CPU time of the Spark processes is reported too, because in
production the server usually runs on another machine. Without the PostgreSQL JDBC driver
(`scripts/jdbc.sh`) there is no comparison.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
from pyspark.sql import DataFrame, SparkSession

from benchmarks.processes import cpu_of_spark
from benchmarks.report import Report, record
from slackwater.ingest import WHOLE, WorkUnit, parse_job
from slackwater.ingest.extraction import Extraction
from slackwater.ingest.sources.adbc_source import DatabaseReading, RangeStatement, read_database
from slackwater.ingest.sources.jdbc_source import jdbc_reading, read_jdbc
from slackwater.ingest.sources.sql_statements import range_of_table
from slackwater.ingest.targets.replacement import Written
from slackwater.spark.session import session
from slackwater.sql.adbc import adbc_address
from slackwater.sql.database import database_url
from slackwater.time import SECOND, instant
from tests.spark.postgres import PASSWORD, Server, running_server

ROWS = int(os.environ.get("BENCH_ROWS", "5_000_000"))
CONNECTIONS = {1: "one connection", 2: "two connections"}
RUNS = 3
AIM = 2.0
READ, UNIT = "read into Spark", "a unit of a job into Parquet"
START = instant("2024-01-01T00:00:00Z")
END = START + ROWS * SECOND
_FILL = """
CREATE TABLE orders AS SELECT
    n AS id, to_timestamp(1704067200 + n) AS sold, 'customer-' || n % 100000 AS customer,
    n * 0.25::float8 AS amount, n % 7 = 0 AS paid, 'goods of order ' || n || ', to be sent tomorrow' AS note
FROM generate_series(0, {rows} - 1) AS n;
CREATE INDEX ON orders (sold);
ANALYZE orders;
"""


def _by_adbc(spark: SparkSession, url: str, count: int) -> DataFrame:
    cuts = [START + (END - START) * number // count for number in range(count + 1)]
    parts = tuple(
        RangeStatement(range_of_table("orders", "sold", low, high, "postgresql"), low, high)
        for low, high in pairwise(cuts)
    )
    address = adbc_address(database_url(url))
    return read_database(spark, DatabaseReading(address, "postgresql", "UTC", "UTC", "sold", parts)).frame


def _by_jdbc(spark: SparkSession, server: Server, count: int) -> DataFrame:
    keys = {
        "ms.source.url": f"jdbc:postgresql://127.0.0.1:{server.port}/bench", "ms.source.table": "orders",
        "ms.source.jdbc.user": "tester", "ms.source.jdbc.password": PASSWORD, "ms.time.column": "sold",
        "ms.source.jdbc.driver": "org.postgresql.Driver", "ms.source.partitions": count,
    }  # fmt: skip
    return read_jdbc(spark, jdbc_reading(parse_job(keys), WorkUnit(START, END, WHOLE, START), START))


def _unit(spark: SparkSession, url: str, folder: Path, count: int) -> Callable[[], None]:
    """A unit of a job from PostgreSQL into Parquet files."""
    keys = {
        "ms.source.type": "sql", "ms.source.url": url, "ms.source.table": "orders", "ms.time.column": "sold",
        "ms.source.partitions": count, "ms.target.type": "parquet", "ms.target.path": str(folder),
    }  # fmt: skip
    extraction = Extraction(parse_job(keys), spark)
    return lambda: _all_rows(extraction(WorkUnit(START, END, WHOLE, START), _approve))


def _approve(amount: Written, number: int | None = None) -> None:
    _all_rows(amount)


def _all_rows(amount: Written) -> None:
    assert amount.rows == ROWS, amount


@dataclass(frozen=True, order=True, slots=True)
class Cost:
    """What it took to read all rows."""

    seconds: float
    cpu: float
    """Seconds of a processor, of the processes of Spark alone."""


def _best(work: Callable[[], None]) -> Cost:
    costs = []
    for _ in range(RUNS):
        began, cpu = time.perf_counter(), cpu_of_spark()
        work()
        costs.append(Cost(time.perf_counter() - began, cpu_of_spark() - cpu))
    record([cost.seconds for cost in costs])
    return min(costs)


def _check(frames: list[DataFrame]) -> None:
    sums = [
        frame.selectExpr("count(*)", "sum(cast(xxhash64(*) AS decimal(38, 0)))").collect() for frame in frames
    ]
    assert sums[0] == sums[1], sums
    assert sums[0][0][0] == ROWS


def _measure(
    spark: SparkSession, server: Server, url: str, folder: Path, count: int
) -> dict[str, tuple[Cost, Cost]]:
    """The costs by ADBC and by JDBC with so many connections, for what is done with the rows."""

    def read(frame: DataFrame) -> None:
        frame.write.format("noop").mode("overwrite").save()

    def into_parquet() -> None:
        _by_jdbc(spark, server, count).write.mode("overwrite").parquet(str(folder / "jdbc"))

    unit = _unit(spark, url, folder / "adbc", count)
    unit()
    into_parquet()
    _check([_by_adbc(spark, url, count), _by_jdbc(spark, server, count)])
    _check([spark.read.parquet(str(path)) for path in (folder / "adbc" / "rows", folder / "jdbc")])
    return {
        f"{READ}, {CONNECTIONS[count]}": (
            _best(lambda: read(_by_adbc(spark, url, count))),
            _best(lambda: read(_by_jdbc(spark, server, count))),
        ),
        f"{UNIT}, {CONNECTIONS[count]}": (_best(unit), _best(into_parquet)),
    }


def run(report: Report) -> None:
    """One section."""
    driver = os.environ.get("POSTGRES_JDBC", "")
    section = report.section(
        "Extraction from PostgreSQL",
        f"{ROWS:,} rows of six columns, a server and Spark (`local[2]`) on the same machine; rows per "
        f"second of wall time, best of {RUNS}. Both readers gave the same rows; JDBC writes with "
        "`write.parquet`. "
        "One connection is the default of both; two use both processors, which the server needs as well. "
        "CPU is "
        "that of the JVM and its workers, without the "
        "server.",
        [
            "",
            "ADBC, rows/s",
            "Spark's JDBC reader, rows/s",
            "ratio",
            "ADBC, rows per CPU second",
            "JDBC, rows per CPU second",
            "ratio",
        ],
    )
    if not Path(driver).is_file():
        section.verdict("no PostgreSQL JDBC driver: nothing to compare with")
        report.show(section)
        return
    spark = session(
        "slackwater benchmarks",
        master="local[2]",
        partitions=2,
        config={"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.jars": driver},
    )
    spark.sparkContext.setLogLevel("ERROR")
    try:
        with running_server() as server, TemporaryDirectory() as folder:
            url = server.create_database("bench")
            with psycopg.connect(url) as connection:
                connection.execute(_FILL.format(rows=ROWS).encode())
            measured = {
                what: costs
                for count in CONNECTIONS
                for what, costs in _measure(spark, server, url, Path(folder), count).items()
            }
    finally:
        spark.stop()
    for what, (adbc, jdbc) in measured.items():
        ratio, less = jdbc.seconds / adbc.seconds, jdbc.cpu / adbc.cpu
        rates = [round(ROWS / value) for value in (adbc.seconds, jdbc.seconds, adbc.cpu, jdbc.cpu)]
        section.row(what, *rates[:2], f"{ratio:.1f}", *rates[2:], f"{less:.1f}")
        met = "met" if ratio >= AIM else "MISSED"
        section.verdict(
            f"{what}: {ratio:.1f} times as fast as JDBC (aim: {AIM:.0f} times): {met}; "
            f"{less:.1f} times the rows for the same CPU"
        )
    report.show(section)
