"""Column types of SQLite: no value is lost or changed, whatever row it is in."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from slackwater.errors import InvalidArgument
from slackwater.ingest.sources.adbc_source import DatabaseReading, RangeStatement, check_times
from slackwater.ingest.sources.sql_statements import range_of_table

MANY = 70_000
"""More than the driver looks at before it decides."""


def read(folder: Path, columns: str, rows: list[tuple[Any, ...]]) -> pa.Table:
    with closing(sqlite3.connect(folder / "a.db")) as database, database:
        database.execute(f"CREATE TABLE t ({columns})")
        database.executemany(f"INSERT INTO t VALUES ({', '.join('?' * len(rows[0]))})", rows)  # noqa: S608 - question marks
    statement = range_of_table("t", None, 0, 1, "sqlite")
    reading = DatabaseReading(
        f"{folder}/a.db", "sqlite", "UTC", "UTC", None, (RangeStatement(statement, 0, 1),), "t"
    )
    schema = reading.schema()
    shaped = pa.schema(
        [(one.name, pa.string() if pa.types.is_null(one.type) else one.type) for one in schema]
    )
    return pa.Table.from_batches(reading.read(reading.parts[0], shaped), shaped).cast(shaped)


@pytest.mark.parametrize(
    ("last", "kind", "first"),
    [
        ("late", pa.string(), "1"),
        (0.1, pa.float64(), 1.0),
        (b"\xff\x00", pa.binary(), b"1"),
        (None, pa.int64(), 1),
        (2**62, pa.int64(), 1),
    ],
)
def test_one_value_behind_many_numbers_decides(
    tmp_path: Path, last: Any, kind: pa.DataType, first: Any
) -> None:
    rows = read(tmp_path, "a INTEGER", [(1,)] * MANY + [(last,)])
    assert rows.schema.field("a").type == kind
    assert (rows.num_rows, rows["a"][0].as_py(), rows["a"][-1].as_py()) == (MANY + 1, first, last)


def test_a_fraction_beside_text_keeps_all_its_digits(tmp_path: Path) -> None:
    rows = read(tmp_path, "a", [(0.1 + 0.2,), ("x",), (7,)])
    texts = rows["a"].to_pylist()
    assert (float(texts[0]), texts[1:]) == (0.1 + 0.2, ["x", "7"])


def test_what_the_table_declares_counts_where_the_rows_say_less(tmp_path: Path) -> None:
    columns = "a REAL, b DECIMAL(9,2), c VARCHAR(9), d DATETIME, e BLOB, f BOOLEAN, g"
    rows = read(tmp_path, columns, [(None, 3, None, None, None, None, None)])
    assert [str(kind) for kind in rows.schema.types] == [
        "double", "double", "string", "string", "binary", "int64", "string",
    ]  # fmt: skip


def test_whole_numbers_that_no_fraction_holds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="mixes integers beyond 2\\^53"):
        read(tmp_path, "a NUMERIC", [(2**53 + 1,), (0.5,)])


def check(folder: Path, *times: Any) -> None:
    with closing(sqlite3.connect(folder / "a.db")) as database, database:
        database.execute("CREATE TABLE t (at)")
        database.executemany("INSERT INTO t VALUES (?)", [(at,) for at in times])
    check_times(f"{folder}/a.db", "t", "at")


@pytest.mark.parametrize(
    "other",
    [
        "2020/01/02 10:00:00",
        "02.01.2020",
        "20200102",
        "2020-1-2 10:00:00",
        "Jan 2 2020",
        "",
        7,
        0.5,
        b"2020\xff",
    ],
)
@pytest.mark.parametrize("others", [(), ("2020-01-01", None, "2020-01-03 00:00:00")], ids=["alone", "mixed"])
def test_times_that_no_range_contains_are_rejected(
    tmp_path: Path, other: Any, others: tuple[Any, ...]
) -> None:
    with pytest.raises(InvalidArgument, match=r"^ms.time.column = 'at': contains .*, not times"):
        check(tmp_path, *others, other)


@pytest.mark.parametrize(
    "times",
    [(), (None,), ("2020-01-01",), ("2020-01-01T10:00:00Z", None), ("0001-01-01", "9999-12-31 23:59")],
)
def test_times_that_begin_with_a_date_are_taken(tmp_path: Path, times: tuple[Any, ...]) -> None:
    check(tmp_path, *times)


def test_looking_into_a_file_leaves_the_locks_of_the_process(tmp_path: Path) -> None:
    """A lock belongs to the process: another SQLite library in it would release it with its own file."""
    check(tmp_path, "2020-01-02 10:00:00")
    file = f"{tmp_path}/a.db"
    part = RangeStatement(range_of_table("t", None, 0, 1, "sqlite"), 0, 1)
    with closing(sqlite3.connect(file, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        check_times(file, "t", "at")
        DatabaseReading(file, "sqlite", "UTC", "UTC", None, (part,), "t").schema()
        begin = f"import sqlite3; sqlite3.connect({file!r}, timeout=0).execute('BEGIN IMMEDIATE')"
        other = subprocess.run([sys.executable, "-c", begin], capture_output=True, text=True, check=False)
    assert "database is locked" in other.stderr
