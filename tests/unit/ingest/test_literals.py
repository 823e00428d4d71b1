"""SQL literals: no value changes the query, and no value is changed."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.errors import InvalidArgument
from slackwater.ingest.axis.timezones import local_of, zone
from slackwater.ingest.sources.sql_literals import plain_name, range_conditions, render
from slackwater.time import DAY, instant

UTC = zone("Z")
HOSTILE = (
    "x' OR '1' = '1",
    "'); DROP TABLE orders; --",
    "''",
    "{{low}}",
    "a--b",
    "/*",
    '"',
    "$$",
    "`",
    "{ts 'x'}",
    "?",
)


@pytest.mark.parametrize("value", HOSTILE)
def test_a_hostile_value_stays_a_value(value: str) -> None:
    query = render("SELECT {{a}}, {{ a }} -- of {it}\n, 'it''s /* text'", {"a": value}, UTC)
    with closing(sqlite3.connect(":memory:")) as database:
        assert database.execute(query).fetchone() == (value, value, "it's /* text")


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc"], exclude_characters="\\")))
def test_any_other_value_comes_back(value: str) -> None:
    with closing(sqlite3.connect(":memory:")) as database:
        assert database.execute(render("SELECT {{a}}", {"a": value}, UTC)).fetchone() == (value,)


@pytest.mark.parametrize("value", ["a\\", "\\' OR 1 = 1 --", "a\0b", "a\nb", "\x1a", "\x7f", "\x85"])
def test_a_value_without_a_portable_literal_is_rejected(value: str) -> None:
    with pytest.raises(InvalidArgument, match="backslash or a control character"):
        render("SELECT {{a}}", {"a": value}, UTC)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT 'a {{a}} b'", "in quotes or in a comment"),
        ("SELECT '{{a}}'", "in quotes or in a comment"),
        ('SELECT "{{a}}"', "in quotes or in a comment"),
        ("SELECT `{{a}}`", "in quotes or in a comment"),
        ("SELECT 1 -- {{a}}", "in quotes or in a comment"),
        ("SELECT /* {{a}} */ 1", "in quotes or in a comment"),
        ("SELECT $$ {{a}} $$", "has different meanings"),
        ("SELECT $tag$ {{a}} $tag$", "has different meanings"),
        ("SELECT 'it\\'s', {{a}}", "unclosed quote or comment"),
        ("SELECT \\{{a}}", "has different meanings"),
        ("SELECT 'a, {{a}}", "unclosed quote or comment"),
        ("SELECT /* {{a}}", "unclosed quote or comment"),
        ("SELECT {{b}}", "unknown parameter"),
    ],
)
def test_a_parameter_inside_quotes_or_comments_is_rejected(query: str, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        render(query, {"a": "7"}, UTC)


@pytest.mark.parametrize("name", ["a b", 'a"', "a;", "a.b.c", "", "1a", "ä", "a\n"])
def test_a_name_that_needs_quotes_is_rejected(name: str) -> None:
    with pytest.raises(InvalidArgument, match="is not a plain SQL name"):
        plain_name(name, "ms.time.column")


@given(
    low=st.integers(instant("2020-10-24T00:00:00Z"), instant("2020-10-26T00:00:00Z")),
    length=st.integers(1, 3 * DAY),
    count=st.integers(1, 7),
)
def test_parts_of_a_range_contain_each_time_once(low: int, length: int, count: int) -> None:
    tz = zone("Europe/Berlin")  # where an hour comes twice on the 25th
    conditions = [
        condition.replace("{ts ", "").replace("}", "")
        for condition in range_conditions("at", low, low + length, count, tz)
    ]
    assert 1 <= len(conditions) <= count
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE TABLE t (at TEXT)")
        wall = [(f"2020-10-{day:02} {hour:02}:30:00.000000",) for day in range(20, 32) for hour in range(24)]
        database.executemany("INSERT INTO t VALUES (?)", wall)
        taken = [
            at
            for condition in conditions
            for (at,) in database.execute(f"SELECT at FROM t WHERE {condition}")  # noqa: S608 - from us
        ]
    assert len(set(taken)) == len(taken)
    first, last = (f"{local_of(at, tz)}" for at in (low, low + length))
    assert {at for (at,) in wall if first <= at < last} <= set(taken)
