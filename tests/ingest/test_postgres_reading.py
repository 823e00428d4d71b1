"""PostgreSQL source: COPY without parameters gives the same rows as the statement with parameters."""

from __future__ import annotations

import time
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from slackwater.errors import InvalidArgument
from slackwater.ingest.sources.adbc_source import DatabaseReading, RangeStatement, read_database
from slackwater.ingest.sources.sql_statements import (
    ParameterValue,
    Statement,
    bind,
    range_of_table,
    time_value,
)
from slackwater.sql.adbc import adbc_connection
from slackwater.time import DAY, HOUR, instant
from tests.spark.postgres import Server

pytestmark = pytest.mark.postgres

START = instant("2020-01-01T00:00:00Z")
ROWS = 50_000
NUMBER = "6f7b6a3e-0a4f-4a57-9c39-0a8f6b1b2c3d"
_FILL = """
CREATE TYPE mood AS ENUM ('calm', 'wild');
CREATE TYPE pair AS (a int, b text);
CREATE TYPE visit AS (a int, b inet);
CREATE TYPE sale AS (a int, b money);
CREATE DOMAIN small AS int;
CREATE DOMAIN coins AS money;
CREATE TABLE tides AS SELECT
    n AS id, to_timestamp(1577836800 + n * 60) AS at, to_timestamp(1577836800 + n * 60)::timestamp AS local,
    (to_timestamp(1577836800 + n * 60) AT TIME ZONE 'UTC')::date AS day, 'o''' || n % 1000 AS name,
    (CASE WHEN n % 2 = 0 THEN 'calm' ELSE 'wild' END)::mood AS mood, n * 0.01 AS height,
    jsonb_build_object('n', n) AS more, ARRAY[n, NULL] AS pair, make_interval(mins => n) AS lasted,
    '6f7b6a3e-0a4f-4a57-9c39-0a8f6b1b2c3d'::uuid AS number, repeat('x', 300) AS note
FROM generate_series(0, 49999) AS n;
CREATE INDEX tides_at ON tides (at);
CREATE INDEX tides_name ON tides (name);
ANALYZE tides;
"""


@pytest.fixture(scope="module")
def url(server: Server) -> str:
    made = server.create_database(f"reading_{time.monotonic_ns()}")
    with psycopg.connect(made) as connection:
        connection.execute(_FILL.encode())
    return made


def streamed(url: str, statement: Statement, place: str = "UTC") -> pa.Table:
    reading = DatabaseReading(url, "postgresql", place, place, None, (RangeStatement(statement, 0, 1),))
    schema = reading.schema()
    return pa.Table.from_batches(reading.read(reading.parts[0], schema), schema)


def bound(url: str, statement: Statement) -> pa.Table:
    with adbc_connection(url, "postgresql") as connection, connection.cursor() as cursor:
        cursor.execute(statement.text("postgresql"), list(statement.parameters) or None)
        return cursor.fetch_arrow_table()


def values(**texts: str) -> dict[str, ParameterValue]:
    times = {"low": START + DAY, "high": START + DAY + HOUR}
    return {**texts, **{name: time_value(at, "postgresql") for name, at in times.items()}}


@pytest.mark.parametrize("place", ["UTC", "Europe/Berlin"])
@pytest.mark.parametrize("column", ["at", "local", "day", "CAST(day AS text)::timestamp"])
def test_times_are_compared_as_instants_whatever_the_column_is(url: str, column: str, place: str) -> None:
    text = f"SELECT id FROM tides WHERE {column} >= {{{{low}}}} AND {column} < {{{{high}}}} ORDER BY id"  # noqa: S608 - of this test
    statement = bind(text, values())
    with psycopg.connect(url, cursor_factory=psycopg.RawCursor) as connection:
        connection.execute("SELECT set_config('TimeZone', $1, true)", [place])
        asked = connection.execute(statement.text("postgresql").encode(), statement.parameters)
        wanted = [row[0] for row in asked.fetchall()]
    assert streamed(url, statement, place)["id"].to_pylist() == wanted
    assert wanted or "day" in column


@pytest.mark.parametrize(
    "text", ["", " ", "o'1", "\\", "a\\'b", "$1", "{{low}}", "'; DROP TABLE tides; --", "ü\n☃"]
)
def test_a_text_arrives_as_it_is_however_often_it_is_used(url: str, text: str) -> None:
    statement = bind("SELECT {{a}} AS one, {{b}} || {{a}} AS two -- and no more", values(a=text, b="b"))
    assert streamed(url, statement).to_pylist() == [{"one": text, "two": f"b{text}"}]


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        ("id = CAST({{given}} AS integer)", "7"),
        ("id = ANY(CAST({{given}} AS integer[]))", "{1,2,50}"),
        ("name = ANY(string_to_array({{given}}, ','))", "o'1,o'2"),
        ("name IN ({{given}}, 'o''3')", "o'1"),
        ("mood = CAST({{given}} AS mood) AND id < 9", "wild"),
        ("number = CAST({{given}} AS uuid) AND id < 9", NUMBER),
        ("more @> CAST({{given}} AS jsonb)", '{"n": 8}'),
        ("more ? 'n' AND day = CAST({{given}} AS date)", "2020-01-02"),
        ("local = CAST({{given}} AS timestamp)", "2020-01-01 00:05:00"),
        ("id < 99 AND height BETWEEN CAST({{given}} AS numeric) AND CAST({{given}} AS numeric) + 1", "0.1"),
    ],
)
def test_a_text_becomes_what_the_query_makes_of_it(url: str, condition: str, text: str) -> None:
    columns = "id, at, local, day, name, height, more, pair, lasted, number"
    statement = bind(f"SELECT {columns} FROM tides WHERE {condition} ORDER BY id", values(given=text))  # noqa: S608 - of this test
    found, wanted = streamed(url, statement), bound(url, statement)
    assert found.num_rows > 0
    assert found.drop(["number"]).to_pydict() == wanted.drop(["number"]).to_pydict()
    assert {str(number) for number in wanted["number"].to_pylist()} == set(found["number"].to_pylist())


@pytest.mark.parametrize(
    "text", ["VALUES ({{a}})", "WITH x AS (SELECT {{a}}) TABLE x", "(SELECT {{a}}) LIMIT 1"]
)
def test_whatever_gives_rows_can_be_read(url: str, text: str) -> None:
    assert [list(row.values()) for row in streamed(url, bind(text, values(a="7"))).to_pylist()] == [["7"]]


def test_a_parameter_in_a_comment_is_nothing_and_in_a_text_is_refused(url: str) -> None:
    assert streamed(url, bind("SELECT 1 AS one -- {{a}} ", values(a="\n2"))).to_pylist() == [{"one": 1}]
    with pytest.raises(InvalidArgument, match="is in quotes"):
        streamed(url, bind("SELECT 'of {{a}} '", values(a="7")))


@pytest.mark.parametrize("end", [";", " ; \n", "; -- all;", "; /* all\nof it */ ;", " -- all"])
def test_a_query_may_end_as_people_end_it(url: str, end: str) -> None:
    statement = bind(f"SELECT id FROM tides WHERE name = {{{{a}}}} AND id < 9{end}", values(a="o'7"))  # noqa: S608 - of this test
    assert streamed(url, statement).to_pylist() == [{"id": 7}]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("CAST(12.34 AS money)", "money"),
        ("ARRAY[CAST(12.34 AS money)]", "_money"),
        ("CAST(5 AS coins)", "money"),
        ("CAST('10.0.0.1' AS inet)", "inet"),
        ("ARRAY[CAST('10.0.0.1' AS inet)]", "inet"),
        ("CAST(ROW(1, '10.0.0.1') AS visit)", "inet"),
        ("CAST(ROW(1, 12.34) AS sale)", "money"),
        ("CAST('10:00+02' AS timetz)", "timetz"),
        ("int4range(1, 5)", "int4range"),
        ("B'101'", "bit"),
        ("CAST('a b' AS tsvector)", "tsvector"),
        ("point(1, 2)", "point"),
    ],
)
def test_a_type_that_comes_as_something_else_is_refused(url: str, value: str, kind: str) -> None:
    with pytest.raises(InvalidArgument, match=rf"ms.source.query = 'x': has type {kind}, ") as refused:
        streamed(url, Statement((f"SELECT 1 AS id, {value} AS x",)))
    assert refused.value.fix == "use ms.source.query with CAST(x AS text) AS x"
    assert streamed(url, Statement((f"SELECT CAST({value} AS text) AS x",))).num_rows == 1


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("CAST('\\x00ff' AS bytea)", b"\x00\xff"),
        ("CAST(ROW(1, 'x') AS pair)", {"a": 1, "b": "x"}),
        ("CAST(5 AS small)", 5),
        ("CAST('{\"a\": 1}' AS json)", '{"a": 1}'),
        ("CAST('wild' AS mood)", "wild"),
        ("CAST('10:00' AS time)", "10:00:00.000000"),
        ("ARRAY[1.5]", ["1.5"]),
        (f"ARRAY[CAST('{NUMBER}' AS uuid)]", [NUMBER]),
    ],
)
def test_other_types_are_read_as_before(url: str, value: str, read: object) -> None:
    assert streamed(url, Statement((f"SELECT {value} AS x",))).to_pylist() == [{"x": read}]


@pytest.mark.spark
@pytest.mark.parametrize("column", ["lasted", "ARRAY[lasted] AS lasted"])
def test_an_interval_is_refused_where_spark_would_have_to_take_it(
    url: str, spark: SparkSession, column: str
) -> None:
    statement = Statement((f"SELECT {column} FROM tides",))  # noqa: S608 - of this test
    reading = DatabaseReading(url, "postgresql", "UTC", "UTC", None, (RangeStatement(statement, 0, 1),))
    with pytest.raises(InvalidArgument, match=r"'lasted': has type interval, .* CAST\(lasted AS text\)"):
        read_database(spark, reading)


def test_two_columns_of_one_name_are_refused(url: str) -> None:
    statement = Statement(("SELECT a.at, b.id AS at FROM tides AS a JOIN tides AS b USING (id)",))
    with pytest.raises(InvalidArgument, match=r"ms.source.query = 'at': is the name of two columns"):
        streamed(url, statement)


def test_a_time_column_that_is_not_there_is_told_with_those_that_are(url: str) -> None:
    statement = range_of_table("tides", "sold", START, START + DAY, "postgresql")
    part = RangeStatement(statement, START, START + DAY)
    reading = DatabaseReading(url, "postgresql", "UTC", "UTC", "sold", (part,), "tides")
    with pytest.raises(
        InvalidArgument, match=r"ms.time.column = 'sold': column not found; use one of id, at, local"
    ):
        reading.schema()


def plan(url: str, statement: Statement) -> str:
    text, settings = statement.without_parameters()
    with psycopg.connect(url) as connection:
        for number, value in enumerate(settings, 1):
            connection.execute("SELECT set_config(%s, %s, true)", (f"slackwater.p{number}", value))
        rows: list[Any] = connection.execute(f"EXPLAIN {text}".encode()).fetchall()
    return "\n".join(row[0] for row in rows)


def test_indexes_serve_and_the_server_knows_how_much_is_asked_for(url: str) -> None:
    low, high = START, START + HOUR
    some = plan(url, range_of_table("tides", "at", low, high, "postgresql"))
    assert "tides_at" in some
    assert "Seq Scan on tides" in plan(
        url, range_of_table("tides", "at", low, high + 365 * DAY, "postgresql")
    )
    assert "tides_name" in plan(url, bind("SELECT * FROM tides WHERE name = {{name}}", {"name": "o'7"}))


def test_rows_come_in_batches_and_reading_may_stop_at_any(url: str) -> None:
    statement = range_of_table("tides", None, 0, 1, "postgresql")
    reading = DatabaseReading(url, "postgresql", "UTC", "UTC", None, (RangeStatement(statement, 0, 1),))
    batches = reading.read(reading.parts[0], reading.schema())
    first = next(batches)
    assert 0 < first.nbytes < 8 << 20
    assert 0 < first.num_rows < ROWS
    batches.close()  # type: ignore[attr-defined]
    sizes = [batch.num_rows for batch in reading.read(reading.parts[0], reading.schema())]
    assert sum(sizes) == ROWS
    assert max(sizes) < ROWS


def test_an_error_after_some_rows_comes_after_them(url: str) -> None:
    statement = Statement(("SELECT id, repeat('x', 1000) AS note, 1 / (45000 - id) AS one FROM tides",))
    reading = DatabaseReading(url, "postgresql", "UTC", "UTC", None, (RangeStatement(statement, 0, 1),))
    came: list[int] = []
    with pytest.raises(OSError, match="division by zero"):
        came.extend(batch.num_rows for batch in reading.read(reading.parts[0], reading.schema()))
    assert 0 < sum(came) <= 45_000


@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamptz"])
@pytest.mark.parametrize("text", ["infinity", "-infinity"])
def test_infinity_is_no_time(url: str, kind: str, text: str) -> None:
    statement = Statement((f"SELECT 1 AS id, '{text}'::{kind} AS until",))
    with pytest.raises(InvalidArgument, match="'until': contains infinity"):
        streamed(url, statement)
    first = Statement((f"SELECT '4713-11-24 BC'::{kind} AS until, NULL::{kind} AS more",))
    assert streamed(url, first).num_rows == 1


def test_clocks_go_on_changing_after_2037(url: str) -> None:
    texts = ["2036-07-01 12:00:00", "2037-07-01 12:00:00", "2040-07-01 12:00:00", "2040-12-01 12:00:00"]
    rows = ", ".join(f"('{text}'::timestamp)" for text in [*texts, "12000-07-01 12:00:00"])
    statement = Statement((f"SELECT at FROM (VALUES {rows}, (NULL)) AS clocks (at)",))  # noqa: S608 - of this test
    part = RangeStatement(statement, START, instant("9999-01-01T00:00:00Z"))
    reading = DatabaseReading(url, "postgresql", "Europe/Berlin", "Europe/Berlin", "at", (part,))
    found = pa.Table.from_batches(reading.read(part, reading.schema()))
    assert [at.hour for at in found.column("at").to_pylist()] == [10, 10, 10, 11]
