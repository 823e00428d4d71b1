"""Queries with bound parameters: what is a parameter, what is not, and where a query ends."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from slackwater.errors import InvalidArgument
from slackwater.ingest.axis.timezones import instant_of, local_of, zone
from slackwater.ingest.sources.adbc_source import DatabaseReading, RangeStatement
from slackwater.ingest.sources.sql_statements import ParameterValue, bind, widened
from slackwater.time import HOUR

GIVEN: dict[str, ParameterValue] = {"a": "7"}


def read(folder: Path, query: str) -> list[dict[str, object]]:
    with closing(sqlite3.connect(folder / "a.db")) as database, database:
        database.executescript("CREATE TABLE t (id TEXT); INSERT INTO t VALUES ('7'), ('x;y');")
    reading = DatabaseReading(
        f"{folder}/a.db", "sqlite", "UTC", "UTC", None, (RangeStatement(bind(query, GIVEN), 0, 1),)
    )
    schema = reading.schema()
    rows: list[dict[str, object]] = pa.Table.from_batches(
        reading.read(reading.parts[0], schema), schema
    ).to_pylist()
    return rows


@pytest.mark.parametrize(
    "end", ["", ";", " ; \n", ";;", "; -- all;", "; /* all\nof; it */ ;", " -- all", " -- {{a}}"]
)
def test_a_query_may_end_as_people_end_it(tmp_path: Path, end: str) -> None:
    assert read(tmp_path, f"SELECT id FROM t WHERE id = {{{{a}}}}{end}") == [{"id": "7"}]  # noqa: S608 - of this test


@pytest.mark.parametrize("text", ["'x;y'", "'x;y' -- it's {{a}}", "'x;y' /* it's {{b}} */ AND id <> {{a}}"])
def test_what_is_in_a_text_or_in_a_comment_stays(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, f"SELECT id FROM t WHERE id = {text}") == [{"id": "x;y"}]  # noqa: S608 - of this test


def test_a_semicolon_before_something_else_is_left_to_the_database() -> None:
    assert bind("SELECT 1; SELECT 2", {}).text("sqlite") == "SELECT 1; SELECT 2"


@pytest.mark.parametrize(
    ("query", "fix"),
    [
        ("LIKE '%{{a}}%'", "write '%' || {{a}} || '%'"),
        ("= 'of {{a}}'", "write 'of ' || {{a}}"),
        ("= '{{ a }}{{b}}'", "write {{ a }} || {{b}}"),
        ("= 'it''s {{a}}'", "write 'it''s ' || {{a}}"),
        ("= '{{a}}'", "remove the quotes"),
        ('= "x{{a}}"', "remove the quotes"),
        ("= `{{a}}`", "remove the quotes"),
        ("= $$x{{a}}$$", "remove the quotes"),
        ("= $of$'{{a}}$of$", "remove the quotes"),
        ("= E'it\\'s {{a}}'", "remove the quotes"),
    ],
)
def test_a_parameter_in_quotes_is_refused_with_what_to_write(query: str, fix: str) -> None:
    with pytest.raises(InvalidArgument, match="is in quotes, where it would be text") as refused:
        bind(f"SELECT * FROM t WHERE id {query}", GIVEN)  # noqa: S608 - of this test
    assert refused.value.fix == fix


@pytest.mark.parametrize(
    "text", ["'it''s'", "E'it\\'s'", '"it\'s"', "$$it's$$", "$1$2$", "/* it's */ 1", "1 -- it's\n"]
)
def test_a_parameter_behind_quotes_is_one(text: str) -> None:
    assert bind(f"SELECT {text}, {{{{a}}}}", GIVEN).parameters == ("7",)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id, id FROM t",
        "SELECT a.id, b.id FROM t AS a, t AS b",
        "SELECT id, 1 AS ID FROM t",
        "SELECT *, * FROM t",
    ],
)
def test_two_columns_of_one_name_are_refused(tmp_path: Path, query: str) -> None:
    with pytest.raises(
        InvalidArgument, match=r"(?i)ms.source.query = 'id': is the name of two columns; .* AS a_id"
    ):
        read(tmp_path, query)


def test_a_column_may_be_called_as_sqlite_calls_the_second_of_one_name(tmp_path: Path) -> None:
    row = {"x:1": 1, "x:2": 2}
    assert read(tmp_path, "SELECT 1 AS 'x:1', 2 AS 'x:2'") == [row]


@pytest.mark.parametrize(
    ("name", "day"),
    [
        ("Europe/Berlin", "2020-10-25"),
        ("Europe/Berlin", "2020-03-29"),
        ("Australia/Lord_Howe", "2020-04-05"),
        ("Australia/Lord_Howe", "2020-10-04"),
        ("Asia/Beirut", "2020-03-29"),
        ("Pacific/Apia", "2011-12-30"),  # the day that was left out
        ("Europe/Berlin", "2020-01-01"),
    ],
)
@pytest.mark.parametrize("length", [HOUR // 4, HOUR, 24 * HOUR])
def test_a_widened_range_has_all_rows_however_a_database_reads_clocks(
    name: str, day: str, length: int
) -> None:
    tz = zone(name)
    wall = [datetime.fromisoformat(day) + timedelta(minutes=15 * number) for number in range(-192, 288)]
    options = {"ambiguous": "earliest", "nonexistent": "latest"}
    local = pa.array(wall, pa.timestamp("us"))
    ours = pc.cast(pc.assume_timezone(local, name, **options), pa.int64()).to_pylist()
    # PostgreSQL takes the second of two, and moves on what is left out
    second = [at.replace(tzinfo=tz, fold=1).timestamp() for at in wall]
    first = [at.replace(tzinfo=tz, fold=0).timestamp() for at in wall]
    theirs = [int(max(pair) * 1_000_000) for pair in zip(first, second, strict=True)]
    for low in range(instant_of(wall[0], tz), instant_of(wall[-1], tz), HOUR // 4):
        begin, end = widened(low, low + length, tz)
        shown = local_of(begin, tz), local_of(end, tz)
        for clock, at, other in zip(wall, ours, theirs, strict=True):
            if low <= at < low + length:
                assert begin <= other < end
                assert shown[0] <= clock < shown[1]
