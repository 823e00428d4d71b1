"""Rows that a table cannot store: they fail their batch with a reason, or become dead letters."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from slackwater.errors import InvalidArgument
from slackwater.sql.database import database_url
from slackwater.sql.dead_letters import RowsRejected, dead_letters, split_rejected
from slackwater.sql.letters import as_letters
from slackwater.sql.pane_table import PaneColumn, PaneTable
from slackwater.sql.row_checks import ColumnLimits, rejection_reasons
from tests.spark.postgres import Server
from tests.sql.panes import KEY, TOTAL, batch, fold, made, rows, run_sql

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def shop(server: Server) -> str:
    return server.create_database("dead_letters")


def letters(url: str) -> list[tuple[str, dict[str, Any]]]:
    found = dead_letters(url, "totals")
    return [(reason, json.loads(content)) for reason, content in found.select("reason", "content").rows()]


def moment(microseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)


# ---- what is checked before anything is loaded


@pytest.mark.parametrize(
    ("values", "limits", "reason"),
    [
        (["fine", "a\0b"], ColumnLimits(), "contains the character U+0000"),
        (['{"a":"\\\\u0000"}', '{"a":"\\u0000"}'], ColumnLimits(is_json=True), "cannot store in JSONB"),
        (['"\\\\"', '"\\\\\\u0000"'], ColumnLimits(is_json=True), "cannot store in JSONB"),
        (["äöü", "äöüß"], ColumnLimits(longest=3), "is longer than 3 characters"),
        ([1, None], ColumnLimits(nullable=False), "is null, but the column of the table is NOT NULL"),
        ([999, -1000], ColumnLimits(digits=(4, 1)), "does not fit NUMERIC(4, 1)"),
        ([-(2**15), 2**15], ColumnLimits(bits=16), "does not fit an integer of 16 bits"),
        ([99.9, 999.96], ColumnLimits(digits=(4, 1)), "does not fit NUMERIC(4, 1)"),
        ([0.1 + 0.2, 0.125], ColumnLimits(digits=(4, 2)), "would be rounded by NUMERIC(4, 2)"),
        ([Decimal("1.500"), Decimal("1.501")], ColumnLimits(digits=(4, 2)), "would be rounded"),
        ([Decimal("-1.500"), Decimal("-1.501")], ColumnLimits(digits=(4, 2)), "would be rounded"),
        (
            [Decimal("1.5" + "0" * 29), Decimal("1.5" + "0" * 28 + "1")],
            ColumnLimits(digits=(4, 2)),
            "rounded",
        ),
        ([1_500, 1_550], ColumnLimits(digits=(4, -2)), "would be rounded by NUMERIC(4, -2)"),
        ([moment(1_000), moment(1_001)], ColumnLimits(fraction=3), "column stores 3 digits of a second"),
        ([moment(-1_000_000), moment(-1)], ColumnLimits(fraction=0), "would be rounded"),
        ([math.nan, math.inf], ColumnLimits(digits=(4, 1)), "does not fit NUMERIC(4, 1)"),
    ],
)
def test_a_value_that_postgresql_rejects_is_found(
    values: list[Any], limits: ColumnLimits, reason: str
) -> None:
    reasons = rejection_reasons(pl.DataFrame({"x": values}), {"x": limits}, "postgresql")
    assert reasons is not None
    assert reasons[0] is None
    assert reasons[1].startswith("column 'x' ")
    assert reason in reasons[1]


def test_times_before_the_year_one_are_found() -> None:
    early = pl.Series("x", [0, -62_135_596_800_000_001], pl.Int64).cast(pl.Datetime("us", "UTC"))
    for backend in ("postgresql", "sqlite"):
        reasons = rejection_reasons(pl.DataFrame(early), {}, backend)
        assert reasons is not None
        assert reasons.to_list() == [None, "column 'x' is earlier than the year 1"]


def test_values_that_the_database_takes_are_not_rejected() -> None:
    frame = pl.DataFrame({"text": ["", "ü", None], "number": [math.nan, math.inf, None]})
    for backend in ("postgresql", "sqlite"):
        accepted, rejected = split_rejected(frame, {}, backend)
        assert accepted is frame
        assert rejected is None


def test_a_dead_letter_contains_the_whole_row_as_json() -> None:
    row = pl.DataFrame(
        {
            "text": ["a\0b"], "bytes": [b"\x00\xff"], "price": [Decimal("1.50")],
            "at": [datetime(2024, 1, 1, tzinfo=UTC)],
            "day": [date(2024, 1, 1)], "ratio": [math.inf], "count": [3], "none": [None],
        }
    )  # fmt: skip
    content = json.loads(as_letters(row, pl.Series(["why"]))["content"].item())
    assert content["text"] == "a\0b"
    assert content["bytes"] == "00ff"
    assert (content["price"], content["count"], content["none"], content["ratio"]) == ("1.50", 3, None, "inf")
    assert content["day"] == "2024-01-01"


# ---- panes


def test_a_zero_character_fails_the_batch_with_the_column_and_the_way_out(shop: str) -> None:
    target = made(shop)
    with pytest.raises(
        RowsRejected, match=r'table totals cannot store 1 row: column \'name\'.*on_error="emit"'
    ):
        fold(target, 0, batch(("a", 0, 5, 0, False), ("b\0", 0, 6, 0, False)))
    run_sql(shop, "DROP TABLE totals")


def test_one_bad_value_does_not_stop_the_other_rows(server: Server) -> None:
    url = server.create_database("zero_character")
    target = made(url, on_error="emit")
    panes = batch(("a", 0, 5, 0, False), ("b\0c", 0, 6, 0, False), ("d", 0, 7, 0, False))
    for _ in range(2):
        fold(target, 0, panes)
    assert rows(target) == [("a", 5), ("d", 7)]
    [(reason, content)] = letters(url)
    assert reason == "column 'name' contains the character U+0000, which PostgreSQL cannot store"
    assert (content["name"], content["total"], content["retraction"]) == ("b\0c", 6, False)
    assert rows(target, "SELECT batch, rejected FROM slackwater_upserts") == [(0, 1)]


def test_a_violated_constraint_is_found_by_bisection(url: str) -> None:
    run_sql(
        url,
        "CREATE TABLE totals (name TEXT, window_start TIMESTAMP WITH TIME ZONE, "
        "window_end TIMESTAMP WITH TIME ZONE, total BIGINT CHECK (total < 100))"
        if url.startswith("postgresql")
        else "CREATE TABLE totals (name TEXT, window_start TIMESTAMP, window_end TIMESTAMP, "
        "total BIGINT CHECK (total < 100))",
    )
    target = made(url, on_error="emit")
    fold(target, 0, batch(("k3", 0, 1, 0, False)))
    values = {f"k{number}": 100 if number in (3, 7, 8) else number for number in range(20)}
    panes = [(name, 0, value, 1, False) for name, value in values.items()]
    fold(target, 1, batch(*panes, (None, 0, 500, 1, False), (None, 10, 5, 1, False)))
    kept = [(name, value) for name, value in values.items() if value < 100]
    assert rows(target) == sorted([*kept, ("k3", 1), (None, 5)], key=repr)
    found = letters(url)
    assert sorted(str(content["name"]) for _, content in found) == ["None", "k3", "k7", "k8"]
    assert all("constraint" in reason for reason, _ in found)


def test_a_table_that_rejects_every_row_fails_instead_of_being_searched(url: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("slackwater.sql.dead_letters._MOST_SEARCHED", 5)
    made(url)
    run_sql(url, "DROP TABLE totals")
    kind = "TIMESTAMP WITH TIME ZONE" if url.startswith("postgresql") else "TIMESTAMP"
    run_sql(
        url,
        f"CREATE TABLE totals (name TEXT, window_start {kind}, window_end {kind}, "
        f"total BIGINT CHECK (total < 0))",
    )
    target = made(url, on_error="emit")
    with pytest.raises(RowsRejected, match="6 rows"):
        fold(target, 0, batch(*((f"k{number}", 0, number, 0, False) for number in range(20))))
    assert rows(target) == []
    assert dead_letters(url, "totals").is_empty()


def test_limits_of_the_existing_table_are_checked(server: Server) -> None:
    url = server.create_database("limits")
    run_sql(
        url,
        "CREATE TABLE totals (name VARCHAR(3) NOT NULL, total NUMERIC(4, 0), note JSONB, "
        "at TIMESTAMP(3) WITH TIME ZONE)",
    )
    values = (PaneColumn("total", "long"), PaneColumn("note", "json"), PaneColumn("at", "timestamp"))
    target = made(url, values=values, windows=False, on_error="emit")
    panes = pa.record_batch(
        {
            "name": ["ok", "long", None, "num", "jsn", "old", "cut"],
            "total": pa.array([1, 2, 3, 10_000, 5, 6, 7], pa.int64()),
            "note": ["{}", "{}", "{}", "{}", '{"a":"\\u0000"}', "{}", "{}"],
            "at": pa.array([0, 0, 0, 0, 0, -(2**61), 1_500], pa.timestamp("us", "UTC")),
            "pane_index": [0] * 7,
            "retraction": [False] * 7,
        }
    )
    fold(target, 0, panes)
    assert rows(target) == [("ok", Decimal(1))]
    assert [content["name"] for _, content in letters(url)] == ["long", None, "num", "jsn", "old", "cut"]


def test_not_a_number_as_a_key_is_a_dead_letter_in_sqlite(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    target = made(url, key=(PaneColumn("name", "double"),), windows=False, on_error="emit")
    panes = pa.record_batch(
        {
            "name": pa.array([None, math.nan, 1.0]), "total": [1, 2, 3], "pane_index": [0] * 3,
            "retraction": [False] * 3,
        }
    )  # fmt: skip
    fold(target, 0, panes)
    assert rows(target) == [(1.0, 3), (None, 1)]
    assert [content["name"] for _, content in letters(url)] == ["NaN"]


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(
        InvalidArgument, match="on_error = 'skip': is not a valid choice; use one of fail, emit"
    ):
        PaneTable(database_url("sqlite:////nowhere/a.db"), "totals", KEY, TOTAL, on_error="skip")  # type: ignore[arg-type]


def test_dead_letters_carry_the_time_at_which_they_were_stored(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    target = made(url, key=(PaneColumn("name", "double"),), windows=False, on_error="emit")
    fold(
        target,
        3,
        pa.record_batch({"name": [math.nan], "total": [1], "pane_index": [0], "retraction": [False]}),
    )
    [(identity, number, at)] = dead_letters(url, "totals").select("identity", "batch", "at").rows()
    assert (identity, number) == ("query", 3)
    assert abs((datetime.now(UTC).replace(tzinfo=None) - at).total_seconds()) < 600
