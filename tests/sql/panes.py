"""Helpers for tests of pane merges: small batches of panes, and a table of totals."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import sqlalchemy as sql

from slackwater.progress.completeness import Completeness
from slackwater.sql.commit_owner import Committer
from slackwater.sql.database import database_url, temporary_engine
from slackwater.sql.pane_merge import UNKNOWN, merge_panes, stage_panes
from slackwater.sql.pane_table import PaneColumn, PaneTable

SECOND = 1_000_000
Row = tuple[Any, ...]
Pane = tuple[Any, int, int | None, int, bool]
"""Key, start of the window (in seconds, ten long), value, index, retraction."""

KEY = (PaneColumn("name", "text"),)
TOTAL = (PaneColumn("total", "long"),)


def made(url: str, **options: Any) -> PaneTable:
    target = PaneTable(
        database_url(url), "totals", options.pop("key", KEY), options.pop("values", TOTAL), **options
    )
    return target.prepare(create=True)


def batch(*panes: Pane) -> pa.RecordBatch:
    keys, starts, values, indexes, retractions = zip(*panes, strict=True) if panes else ((),) * 5
    moment = pa.timestamp("us", "Europe/Berlin")  # of the session; the table keeps instants
    return pa.record_batch(
        {
            "name": pa.array(keys, pa.string()),
            "window_start": pa.array([start * SECOND for start in starts], moment),
            "window_end": pa.array([(start + 10) * SECOND for start in starts], moment),
            "total": pa.array(values, pa.int64()),
            "pane_index": pa.array(indexes, pa.int64()),
            "retraction": pa.array(retractions, pa.bool_()),
        }
    )


def fold(
    target: PaneTable,
    number: int | None,
    *batches: pa.RecordBatch,
    identity: str = "query",
    committer: Committer | None = None,
    stated: Completeness = UNKNOWN,
) -> bool:
    with temporary_engine(target.url) as engine, engine.begin() as connection:
        staged = stage_panes(connection, target, batches, identity)
        return merge_panes(connection, target, [staged], identity, number, committer, stated).fresh


def rows(target: PaneTable, statement: str = "SELECT name, total FROM totals") -> list[Row]:
    with temporary_engine(target.url) as engine, engine.connect() as connection:
        return sorted((tuple(row) for row in connection.exec_driver_sql(statement)), key=repr)


def columns_of(target: PaneTable) -> list[Any]:
    with temporary_engine(target.url) as engine:
        return sql.inspect(engine).get_columns("totals")


def run_sql(url: str, statement: str) -> None:
    with temporary_engine(database_url(url)) as engine, engine.begin() as connection:
        connection.exec_driver_sql(statement)


def at_once(*runs: Callable[[], object]) -> None:
    failures: list[BaseException] = []

    def guarded(run: Callable[[], object]) -> None:
        try:
            run()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=guarded, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
