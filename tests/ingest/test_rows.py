"""Rows that tasks read themselves equal those of the frame; where Spark converts values, it reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the conventional alias
from pyspark.sql.types import DataType, LongType, TimestampType

from slackwater.errors import InvalidArgument
from slackwater.ingest.sources.exact_casts import cast_exactly
from slackwater.ingest.sources.extracted_rows import RowPartitions, Rows
from slackwater.ingest.sources.spark_columns import REJECTED
from slackwater.ingest.targets.parquet_writer import write_parquet
from slackwater.ingest.targets.replacement import stage_rows
from slackwater.time import DAY

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        ("id", pa.int32()), ("way", pa.string()), ("at", pa.timestamp("us", tz="UTC")),
        ("price", pa.decimal128(9, 2)), ("pair", pa.list_(pa.int64())), ("a.b", pa.bool_()),
    ]
)  # fmt: skip


def read(number: int) -> Iterator[pa.RecordBatch]:
    columns = [[number], ["read by the task"], [DAY], ["1.50"], [[1, None]], [True]]
    arrays = [pa.array(column).cast(one.type) for column, one in zip(columns, SCHEMA, strict=True)]
    yield pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


@pytest.fixture
def rows(spark: SparkSession) -> Rows:
    parts = RowPartitions(3, SCHEMA, read)
    return Rows.of(parts.frame(spark).withColumn("way", F.lit("by Spark")), parts)


def staged_rows(rows: Rows, folder: Path) -> list[dict[str, Any]]:
    def stage(batches: Iterator[pa.RecordBatch], name: str) -> tuple[int, bytes | None]:
        first = next(batches)
        write_parquet(folder / name, first, batches)
        return 0, None

    staged = stage_rows(rows, stage, "at", "UTC")
    assert {task.highest for task in staged} == {DAY}
    tables = [pq.read_table(folder / task.name) for task in staged]
    assert sum(task.rows for task in staged) == sum(table.num_rows for table in tables)
    return sorted((row for table in tables for row in table.to_pylist()), key=lambda row: int(row["id"]))


def test_unchanged_rows_are_read_by_the_tasks_that_stage_them(rows: Rows, tmp_path: Path) -> None:
    marked = rows.marked({"site": "o'7", "none": None, "low": 0}).without(["pair"])
    wanted = {"late": pa.int16(), **dict(reversed(list(marked.columns.items())))}
    found = staged_rows(marked.fitted(wanted), tmp_path)
    assert [(row["id"], row["way"]) for row in found] == [(number, "read by the task") for number in range(3)]
    assert list(found[0]) == ["late", "low", "none", "site", "a.b", "price", "at", "way", "id"]
    assert {name: found[0][name] for name in ("late", "low", "none", "site", "a.b")} == {
        "late": None, "low": datetime(1970, 1, 1, tzinfo=UTC), "none": None, "site": "o'7", "a.b": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    "wanted", [{"id": pa.string()}, {"price": pa.decimal128(12, 2)}, {"site": pa.int64()}]
)
def test_columns_with_another_type_are_read_by_spark(
    rows: Rows, tmp_path: Path, wanted: dict[str, pa.DataType]
) -> None:
    marked = rows.marked({"site": "7"})
    found = staged_rows(marked.fitted({**marked.columns, **wanted}), tmp_path)
    assert [(str(row["id"]), row["way"]) for row in found] == [
        (str(number), "by Spark") for number in range(3)
    ]


def test_delta_encoded_numbers_round_trip_through_spark(spark: SparkSession, tmp_path: Path) -> None:
    edges = [
        0,
        1,
        -1,
        *(sign * (2**bits - 1) for bits in (7, 15, 31, 63) for sign in (1, -1)),
        -(2**63),
        None,
    ]
    kinds = {"small": 8, "short": 16, "whole": 32, "long": 64}
    fitting = {
        name: [each if each is None or -(2 ** (bits - 1)) <= each < 2 ** (bits - 1) else 7 for each in edges]
        for name, bits in kinds.items()
    }
    counted = list(range(100_000))
    arrays = {
        name: pa.array(counted_in(bits, counted) + fitting[name], f"int{bits}")
        for name, bits in kinds.items()
    }
    arrays["at"] = pa.array(
        [DAY + each for each in counted] + [None] * len(edges), pa.timestamp("us", tz="UTC")
    )
    arrays["day"] = pa.array([each % 20_000 for each in counted] + [None] * len(edges), pa.date32())
    batch = pa.record_batch(arrays)
    write_parquet(tmp_path / "a.parquet", batch.slice(0, 50_000), iter([batch.slice(50_000)]))
    with pq.ParquetFile(tmp_path / "a.parquet") as file:
        group = file.metadata.row_group(0)
        packed = {
            group.column(place).path_in_schema
            for place in range(group.num_columns)
            if "DELTA_BINARY_PACKED" in group.column(place).encodings
        }
    assert packed == {"short", "whole", "long", "at", "day"}  # few values of a byte repeat
    found = spark.read.parquet(str(tmp_path / "a.parquet")).toArrow()
    assert found.cast(batch.schema).equals(pa.Table.from_batches([batch]))


def counted_in(bits: int, numbers: list[int]) -> list[int]:
    return [number % 2 ** (bits - 1) for number in numbers]


def test_tasks_and_spark_read_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    parts = RowPartitions(3, SCHEMA, read)
    both = [Rows.of_partitions(spark, parts), Rows.of(parts.frame(spark))]
    marks: dict[str, str | int | None] = {"site": None, "way": "given", "low": 5}
    ways = [one.marked(marks) for one in both]
    found = [staged_rows(one.fitted({**one.columns, "late": pa.string()}), tmp_path) for one in ways]
    assert found[0] == found[1]
    assert found[0][0]["way"] == "given"


# ---- values that a type cannot represent

LOST = [
    ("1.9D", "bigint"), ("1.999BD", "decimal(9,2)"), ("1.999D", "decimal(9,2)"), ("1e300D", "float"),
    ("9007199254740993L", "double"), ("300", "tinyint"), ("7", "boolean"),
    ("timestamp'2020-01-01 10:00:00'", "date"), ("timestamp'2020-01-01 10:00:00.5'", "bigint"),
    ("'1.9'", "bigint"), ("'1e400'", "double"), ("'1e300'", "float"), ("'1.999'", "decimal(9,2)"),
    ("'2020-01-01 10:00:00'", "date"), ("'12:30'", "timestamp"), ("'202001'", "timestamp"),
    ("'1577836800'", "timestamp"), ("'2020-01-01 10:00:00.1234567'", "timestamp"),
    ("array(1.0D, 1.9D)", "array<bigint>"), ("struct('x' AS a)", "struct<a: int>"),
    ("map('a', '1.999')", "map<string, decimal(9,2)>"),
]  # fmt: skip
KEPT = [
    ("2.0D", "bigint"), ("1.90BD", "decimal(9,1)"), ("0.1D", "float"), ("0.25D", "decimal(9,2)"),
    ("double('inf')", "float"), ("double('nan')", "float"), ("7L", "double"), ("3", "bigint"),
    ("1.123456789012345678BD", "double"), ("timestamp'2020-01-01 00:00:00'", "date"), ("'inf'", "float"),
    ("'1.90'", "decimal(9,2)"), ("'2020-01-01'", "date"), ("'2020-01-01T10:00:00.123456000Z'", "timestamp"),
    ("CAST(NULL AS double)", "bigint"), ("CAST(NULL AS string)", "timestamp"), ("1.9D", "string"),
    ("array(1.0D, NULL)", "array<bigint>"), ("CAST(NULL AS array<double>)", "array<bigint>"),
]  # fmt: skip


def test_a_row_with_a_value_that_its_type_cannot_represent_is_rejected(spark: SparkSession) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.ansi.enabled", "true")
    cases = {f"c{number}": case for number, case in enumerate(LOST + KEPT)}
    kinds = {name: DataType.fromDDL(kind) for name, (_, kind) in cases.items()}
    values = enumerate(value for value, _ in cases.values())
    given = (f"IF(id = {number}, {value}, NULL) AS c{number}" for number, value in values)
    frame = session.range(0, len(cases), 1, 1).selectExpr(*given)  # each row has the value of one case
    found = cast_exactly(frame, kinds).select(REJECTED).collect()
    assert [row[0] is not None for row in found] == [True] * len(LOST) + [False] * len(KEPT)


def test_a_rejection_has_the_value_and_the_whole_row(spark: SparkSession) -> None:
    frame = spark.sql("SELECT 7 AS id, 1.9D AS `a.b`, timestamp_micros(5) AS at, CAST(NULL AS int) AS none")
    row = cast_exactly(frame, {"a.b": LongType()}).first()
    assert row is not None
    reason, value, content = row[REJECTED]
    assert (reason, value) == ("column 'a.b' has a value that cannot be cast to bigint without loss", "1.9")
    found = json.loads(content)
    assert (found["id"], found["a.b"], found["none"]) == (7, 1.9, None)
    assert datetime.fromisoformat(found["at"]) == datetime.fromtimestamp(5e-6, UTC)


def test_numbers_do_not_become_times(spark: SparkSession) -> None:
    with pytest.raises(InvalidArgument, match="'at': has type bigint, and a number is not a time"):
        cast_exactly(spark.sql("SELECT 7L AS at"), {"at": TimestampType()})
