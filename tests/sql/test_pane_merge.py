"""Batches of panes merged into real tables without Spark: correct results, exactly once."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sql

from slackwater.errors import InvalidArgument
from slackwater.progress.completeness import Completeness
from slackwater.sql.database import database_url, temporary_engine
from slackwater.sql.pane_merge import discard_staged, merge_panes, stage_panes
from slackwater.sql.pane_table import PaneColumn, PaneTable
from slackwater.sql.pane_targets import StaleBatch
from slackwater.sql.staging_table import StagedRowsLost
from slackwater.time import to_datetime
from tests.spark.postgres import Server
from tests.sql.panes import KEY, TOTAL, Pane, Row, at_once, batch, columns_of, fold, made, rows

pytestmark = pytest.mark.postgres


# ---- the truth


def test_the_highest_index_of_a_key_and_window_stands(url: str) -> None:
    target = made(url)
    fold(
        target,
        0,
        batch(("a", 0, 5, 1, False), ("a", 0, 3, 0, False), ("a", 10, 7, 0, False), ("b", 0, 1, 0, False)),
    )
    assert rows(target) == [("a", 5), ("a", 7), ("b", 1)]


def test_a_later_batch_replaces_and_leaves_the_rest(url: str) -> None:
    target = made(url)
    fold(target, 0, batch(("a", 0, 5, 0, False), ("b", 0, 1, 0, False)))
    fold(target, 1, batch(("a", 0, 6, 1, False), ("c", 0, 2, 0, False)))
    assert rows(target) == [("a", 6), ("b", 1), ("c", 2)]


def test_a_retraction_and_its_replacement_in_one_batch(url: str) -> None:
    target = made(url)
    fold(target, 0, batch(("a", 0, 5, 0, False)))
    fold(
        target,
        1,
        batch(("a", 0, 5, 0, True), ("a", 0, 8, 1, False), ("a", 0, 8, 1, True), ("a", 0, 9, 2, False)),
    )
    assert rows(target) == [("a", 9)]


def test_a_session_that_grew_leaves_no_row_of_its_old_windows(url: str) -> None:
    target = made(url)
    fold(target, 0, batch(("a", 0, 5, 0, False), ("a", 12, 2, 0, False), ("b", 0, 1, 0, False)))
    fold(target, 1, batch(("a", 0, 5, 0, True), ("a", 12, 2, 0, True), ("a", 1, 8, 0, False)))
    assert rows(target) == [("a", 8), ("b", 1)]


def test_of_equal_indexes_the_later_row_decides(url: str) -> None:
    # a window of a key that was retracted for good may come again and count from 0
    target = made(url)
    fold(
        target,
        0,
        batch(("a", 0, 5, 0, False), ("a", 0, 5, 0, True), ("a", 0, 6, 0, False), ("b", 0, 1, 0, False)),
    )
    fold(target, 1, batch(("b", 0, 1, 0, True)))
    assert rows(target) == [("a", 6)]


def test_a_retraction_of_what_is_not_there_changes_nothing(url: str) -> None:
    target = made(url)
    fold(target, 0, batch(("b", 0, 1, 0, False)))
    fold(target, 1, batch(("a", 0, 5, 0, True)))
    assert rows(target) == [("b", 1)]


def test_null_keys_are_a_key_of_their_own(url: str) -> None:
    target = made(url, key=(PaneColumn("name", "text"), PaneColumn("shop", "text")))
    shops = pa.array([None, "x", None], pa.string())

    def shopped(panes: pa.RecordBatch) -> pa.RecordBatch:
        return panes.append_column("shop", shops[: len(panes)])

    fold(target, 0, shopped(batch((None, 0, 1, 0, False), (None, 0, 2, 0, False), ("a", 0, 3, 0, False))))
    fold(target, 1, shopped(batch((None, 0, 1, 0, True), (None, 0, 20, 1, False), ("a", 0, 30, 1, False))))
    assert rows(target, "SELECT name, shop, total FROM totals") == [("a", None, 30), (None, "x", 20)]


def test_without_windows_there_is_one_row_for_each_key(url: str) -> None:
    target = made(url, windows=False)
    fold(target, 0, batch(("a", 0, 1, 0, False), ("b", 0, 2, 0, False)))
    fold(target, 1, batch(("a", 0, 4, 1, False)))
    assert rows(target) == [("a", 4), ("b", 2)]
    assert [column["name"] for column in columns_of(target)] == ["name", "total"]


def test_an_empty_batch_is_noted(url: str) -> None:
    target = made(url)
    assert fold(target, 0)
    assert fold(target, 1, batch())
    assert rows(target, "SELECT identity, batch FROM slackwater_upserts") == [("query", 1)]


def test_any_order_of_updates_gives_what_a_dictionary_gives(url: str) -> None:
    target, source = made(url), random.Random(7)
    truth: dict[tuple[str | None, int], int] = {}
    next_index = dict[tuple[str | None, int], int]()
    for number in range(30):
        panes: list[Pane] = []
        for _ in range(source.randrange(40)):
            row_key = (source.choice(["a", "b", "ü", "", None]), source.randrange(4) * 10)
            index = next_index.get(row_key, 0)
            if row_key in truth:
                panes.append((*row_key, truth.pop(row_key), index - 1, True))
            if source.random() < 0.7:
                truth[row_key] = source.randrange(1000)
                panes.append((*row_key, truth[row_key], index, False))
                next_index[row_key] = index + 1
        cut = source.randrange(len(panes) + 1)
        fold(target, number, batch(*panes[:cut]), batch(*panes[cut:]))
        expected = sorted(((*row_key, total) for row_key, total in truth.items()), key=repr)
        assert sorted(standing(target), key=repr) == expected


def standing(target: PaneTable) -> list[Row]:
    table = target.table
    with temporary_engine(target.url) as engine, engine.connect() as connection:
        found = connection.execute(sql.select(table.c.name, table.c.window_start, table.c.total)).all()
    return [
        (name, round(start.replace(tzinfo=start.tzinfo or to_datetime(0).tzinfo).timestamp()), total)
        for name, start, total in found
    ]


# ---- deltas


@pytest.mark.parametrize(("how", "expected"), [("sum", 10), ("min", 1), ("max", 5)])
def test_deltas_are_folded_with_each_other_and_with_what_stands(url: str, how: Any, expected: int) -> None:
    target = made(url, fold={"total": how})
    fold(target, 0, batch(("a", 0, 3, 0, False), ("a", 0, 1, 1, False), ("b", 0, None, 0, False)))
    fold(
        target,
        1,
        batch(("a", 0, 5, 2, False), ("a", 0, None, 3, False), ("a", 0, 1, 4, False), ("b", 0, 4, 1, False)),
    )
    assert rows(target) == [("a", expected), ("b", 4)]


def test_a_delta_of_nothing_keeps_what_stands(url: str) -> None:
    target = made(url, fold={"total": "sum"})
    fold(target, 0, batch(("a", 0, 3, 0, False)))
    fold(target, 1, batch(("a", 0, None, 1, False)))
    assert rows(target) == [("a", 3)]


def test_deltas_that_retract_are_refused(url: str) -> None:
    target = made(url, fold={"total": "sum"})
    with pytest.raises(InvalidArgument, match="they are totals, not deltas; leave fold out"):
        fold(target, 0, batch(("a", 0, 3, 0, True)))
    assert rows(target) == []


@pytest.mark.parametrize(
    ("values", "how", "message"),
    [
        (TOTAL, {"other": "sum"}, "has no entry for column total"),
        (TOTAL, {"total": "mean"}, "is not a valid fold"),
        (TOTAL, {"total": "sum", "x": "sum"}, "is not a value column; available: total"),
        ((PaneColumn("total", "text"),), {"total": "sum"}, "cannot be applied to text"),
        ((PaneColumn("total", "json"),), {"total": "max"}, "cannot be applied to json"),
        ((PaneColumn("total", "decimal(4,2)"),), {"total": "sum"}, "in SQLite, which would round it"),
    ],
)
def test_a_fold_that_cannot_be_is_refused(values: tuple[PaneColumn, ...], how: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        PaneTable(database_url("sqlite:////nowhere/a.db"), "totals", KEY, values, fold=how)


# ---- once


def test_a_batch_given_again_changes_nothing(url: str) -> None:
    target = made(url, fold={"total": "sum"})
    assert [fold(target, 3, batch(("a", 0, 5, 0, False))) for _ in range(3)] == [True, False, False]
    assert rows(target) == [("a", 5)]


def test_batches_of_different_queries_do_not_hide_each_other(url: str) -> None:
    target = made(url, fold={"total": "sum"})
    assert fold(target, 0, batch(("a", 0, 5, 0, False)), identity="one")
    assert fold(target, 0, batch(("a", 0, 6, 0, False)), identity="other")
    assert rows(target) == [("a", 11)]


def test_two_targets_of_one_query_do_not_hide_each_other(url: str) -> None:
    target = made(url)
    other = replace(target, name="others")
    other.prepare(create=True)
    assert fold(target, 0, batch(("a", 0, 5, 0, False)))
    assert fold(other, 0, batch(("a", 0, 6, 0, False)))
    assert rows(other, "SELECT name, total FROM others") == [("a", 6)]


def test_a_batch_older_than_the_last_is_refused_loudly(url: str) -> None:
    target = made(url)
    fold(target, 5, batch(("a", 0, 5, 0, False)))
    with pytest.raises(StaleBatch, match="batch 4 of query is older than batch 5"):
        fold(target, 4, batch(("a", 0, 4, 0, False)))
    assert rows(target) == [("a", 5)]


def test_a_batch_with_the_number_of_another_is_refused(url: str) -> None:
    target = made(url)
    assert fold(target, 5, batch(("a", 0, 5, 0, False)), stated=Completeness(20, 15))
    with pytest.raises(StaleBatch, match="batch 5 of query has other results than the batch 5 that is"):
        fold(target, 5, batch(("a", 0, 4, 0, False)), stated=Completeness(30, 25))
    for same in (Completeness(20, 10), Completeness()):
        assert not fold(target, 5, batch(("a", 0, 4, 0, False)), stated=same)
    assert rows(target) == [("a", 5)]


def test_what_failed_tasks_staged_is_neither_folded_nor_kept(server: Server) -> None:
    target = made(server.create_database("failed_tasks"))
    with temporary_engine(target.url) as engine:
        with engine.begin() as connection:
            stage_panes(connection, target, [batch(("lost", 0, 1, 0, False))], "query")
        with engine.begin() as connection:
            good = stage_panes(connection, target, [batch(("a", 0, 1, 0, False))], "query")
        with engine.begin() as connection:
            assert merge_panes(connection, target, [good], "query", 0).fresh
    assert rows(target) == [("a", 1)]
    assert rows(target, f"SELECT attempt FROM {target.staging.name}") == []  # noqa: S608 - our own


def test_staged_rows_that_a_crash_took_are_missed(server: Server) -> None:
    target = made(server.create_database("crashed"))
    with temporary_engine(target.url) as engine:
        with engine.begin() as connection:
            staged = stage_panes(connection, target, [batch(("a", 0, 1, 0, False))], "query")
        with engine.begin() as connection:
            discard_staged(connection, target, "query")
        with pytest.raises(StagedRowsLost, match="0 of 1 rows"), engine.begin() as connection:
            merge_panes(connection, target, [staged], "query", 0)
    assert rows(target, "SELECT batch FROM slackwater_upserts") == []


def test_two_runs_at_once_fold_every_batch_once(url: str) -> None:
    """Both runs have every batch; a run that falls behind stops with StaleBatch, and one always completes."""
    target = made(url, fold={"total": "sum"})
    reached: list[int] = []

    def run() -> None:
        for number in range(20):
            try:
                fold(target, number, batch(*((name, 0, 1, number, False) for name in "abc")))
            except StaleBatch:
                return
        reached.append(20)

    at_once(run, run, run)
    assert reached
    assert rows(target) == [("a", 20), ("b", 20), ("c", 20)]


def test_two_queries_at_once_leave_one_row_for_each_key(url: str) -> None:
    target = made(url)

    def run(identity: str) -> None:
        for number in range(15):
            names = [*"abcdefgh", None]
            random.Random(f"{identity} {number}").shuffle(names)
            fold(
                target,
                number,
                batch(*((name, 0, number, number, False) for name in names)),
                identity=identity,
            )

    at_once(lambda: run("one"), lambda: run("other"))
    assert rows(target) == sorted([*((name, 14) for name in "abcdefgh"), (None, 14)], key=repr)


FOLDER = """
import sys
from tests.sql.panes import TOTAL, KEY, PaneTable, batch, database_url, fold
target = PaneTable(database_url(sys.argv[1]), "totals", KEY, TOTAL, fold={"total": "sum"})
print("ready", flush=True)
for number in range(int(sys.argv[2]), 10**6):
    panes = [(f"key {key}", 0, 1, number, False) for key in range(300)]
    fold(target, number, batch(*panes))
    print(number, flush=True)
"""


@pytest.mark.proof
def test_killed_anywhere_a_batch_is_whole_or_not_there(url: str) -> None:
    target, source = made(url, fold={"total": "sum"}), random.Random(11)
    reported = -1
    for _ in range(6):
        # the batch after the last reported one may have been applied: it is given again, as Spark would
        with subprocess.Popen(
            [sys.executable, "-c", FOLDER, url, str(reported + 1)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout
            output = [process.stdout.readline() for _ in range(1 + source.randrange(4))]
            time.sleep(source.uniform(0.0, 0.1))
            process.send_signal(signal.SIGKILL)
            output += process.stdout.readlines()
        assert output[0] == "ready\n"
        reported = int(output[-1]) if output[1:] else reported
        ((applied,),) = rows(target, "SELECT batch FROM slackwater_upserts") or [(-1,)]
        assert applied in (reported, reported + 1)
        totals = {total for _, total in rows(target)}
        assert totals == ({applied + 1} if applied >= 0 else set())
    assert reported > 0, "no batch was folded at all"
