"""The expected content of an upserted table, computed from the panes of the model."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sql

from slackwater.sql.database import database_url, temporary_engine
from slackwater.sql.pane_table import WINDOW_COLUMNS
from slackwater.time import instant
from tests.support.windowed import Observed

Truth = dict[tuple[Any, ...], dict[str, Any]]
"""Values by key and window: the key columns, then start and end in microseconds."""


def truth_of(observed: Iterable[Observed]) -> Truth:
    """The last result of every key and window that was not retracted."""
    truth: Truth = {}
    for step in observed:
        for pane in step.panes:
            group = (*pane.key, pane.start, pane.end)
            if pane.retraction:
                assert truth.pop(group) == pane.values, "the model retracts a pane that is not the last one"
            else:
                truth[group] = pane.values
    return truth


def table_of(url: str, name: str, key: tuple[str, ...] = ("key",)) -> Truth:
    """The content of a table; asserts that it has one row per key and window."""
    with temporary_engine(database_url(url)) as engine, engine.connect() as connection:
        table = sql.Table(name, sql.MetaData(), autoload_with=connection)
        rows = [dict(row) for row in connection.execute(sql.select(table)).mappings()]
    truth: Truth = {}
    for row in rows:
        group = (*(row.pop(column) for column in key), *(micros(row.pop(bound)) for bound in WINDOW_COLUMNS))
        assert group not in truth, f"{name} has two rows for {group}"
        truth[group] = {column: _plain(value) for column, value in row.items()}
    return truth


def _plain(value: Any) -> Any:
    """Collected values in a fixed order."""
    return (
        sorted(json.loads(value) if isinstance(value, str) else value)
        if isinstance(value, (list, str))
        else value
    )


def micros(moment: datetime) -> int:
    """Microseconds of a timestamp; SQLite tables and Spark files return UTC without a time zone."""
    return instant(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
