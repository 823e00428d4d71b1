"""Queries with parameters: what is one, what is none, and where a query ends."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from slackwater.errors import InvalidArgument
from slackwater.ingest.queries import Parameter, bind
from slackwater.ingest.spark.databases import Part, Reading

GIVEN: dict[str, Parameter] = {"a": "7"}


def read(folder: Path, query: str) -> list[dict[str, object]]:
    with closing(sqlite3.connect(folder / "a.db")) as database, database:
        database.executescript("CREATE TABLE t (id TEXT); INSERT INTO t VALUES ('7'), ('x;y');")
    reading = Reading(f"{folder}/a.db", "sqlite", "UTC", "UTC", None, (Part(bind(query, GIVEN), 0, 1),))
    schema = reading.schema()
    return pa.Table.from_batches(reading.read(reading.parts[0], schema), schema).to_pylist()


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
        ("= '{{a}}'", "leave the quotes out"),
        ('= "x{{a}}"', "leave the quotes out"),
        ("= `{{a}}`", "leave the quotes out"),
        ("= $$x{{a}}$$", "leave the quotes out"),
        ("= $of$'{{a}}$of$", "leave the quotes out"),
        ("= E'it\\'s {{a}}'", "leave the quotes out"),
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
