"""Orders in a database, and jobs that copy them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
from pyspark.sql import SparkSession

from slackwater.ingest import parse_job
from slackwater.ingest.extraction import Extraction
from slackwater.ingest.runner import Report, run_job
from slackwater.metadata.store import open_store
from slackwater.time import HOUR, instant, to_datetime

START = instant("2020-01-01T00:00:00Z")
ROWS = [(number, START + number * 5 * HOUR, f"o'{number}") for number in range(15)]
"""Three days of orders, every five hours."""
AXIS = {"name": "system", "type": "datetime", "range": {"from": "2020-01-01", "to": "P0D"}}


def execute(url: str, statement: str, rows: list[tuple[Any, ...]] | None = None) -> list[tuple[Any, ...]]:
    """A statement, once or for each of some rows."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
            if rows:
                return connection.executemany(statement, rows).fetchall()
            return connection.execute(statement).fetchall()
    with psycopg.connect(url) as database, database.cursor() as cursor:
        if rows:
            cursor.executemany(statement.replace("?", "%s"), rows)
            return []
        cursor.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def orders(url: str) -> None:
    """The table of orders."""
    kind = "TEXT" if url.startswith("sqlite") else "TIMESTAMPTZ"
    execute(url, f"CREATE TABLE orders (id BIGINT, at {kind}, name TEXT)")
    add(url, ROWS)


def add(url: str, rows: list[tuple[int, int, str]]) -> None:
    """More orders."""

    def shown(at: int) -> object:
        moment = to_datetime(at)
        return str(moment.replace(tzinfo=None)) if url.startswith("sqlite") else moment

    given = [(number, shown(at), name) for number, at, name in rows]
    execute(url, "INSERT INTO orders VALUES (?, ?, ?)", given)


def from_orders(url: str, **target: Any) -> dict[str, Any]:
    """The keys of a job that reads the orders; ``target`` has its other keys, with _ for dots."""
    keys = {"ms.source.type": "sql", "ms.source.url": url, "ms.source.table": "orders"}
    return {**keys, **{f"ms.{name.replace('_', '.')}": value for name, value in target.items()}}


def run(
    spark: SparkSession,
    folder: Path,
    now: str,
    keys: dict[str, Any],
    *,
    time_column: str | None = "at",
    **options: Any,
) -> Report:
    """One run of a job whose history is in the folder."""
    times = {} if time_column is None else {"ms.time.column": time_column}
    job = parse_job({"ms.watermark": [AXIS], **times, **keys})
    with open_store(f"sqlite:///{folder}/state.db", create=True) as store:
        return run_job(job, store, Extraction(job, spark), now=instant(now), **options)
