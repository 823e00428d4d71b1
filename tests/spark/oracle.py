"""What must stand in a table when everything has been said: from the model's panes, one after the other."""

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
    """The last result of every key and window that was not taken back."""
    truth: Truth = {}
    for step in observed:
        for pane in step.panes:
            place = (*pane.key, pane.start, pane.end)
            if pane.retraction:
                assert truth.pop(place) == pane.values, "the model takes back what does not stand"
            else:
                truth[place] = pane.values
    return truth


def table_of(url: str, name: str, key: tuple[str, ...] = ("key",)) -> Truth:
    """What a table shows; two rows of one key and window are an AssertionError."""
    with temporary_engine(database_url(url)) as engine, engine.connect() as connection:
        table = sql.Table(name, sql.MetaData(), autoload_with=connection)
        rows = [dict(row) for row in connection.execute(sql.select(table)).mappings()]
    truth: Truth = {}
    for row in rows:
        place = (*(row.pop(column) for column in key), *(micros(row.pop(bound)) for bound in WINDOW_COLUMNS))
        assert place not in truth, f"{place} stands twice in {name}"
        truth[place] = {column: _plain(value) for column, value in row.items()}
    return truth


def _plain(value: Any) -> Any:
    """Collected values, whose order is nobody's business."""
    return (
        sorted(json.loads(value) if isinstance(value, str) else value)
        if isinstance(value, (list, str))
        else value
    )


def micros(moment: datetime) -> int:
    """Both a table of SQLite and a file of Spark give times in UTC without saying so."""
    return instant(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
