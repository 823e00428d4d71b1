"""Writes the events of queries into the tables of the store, as few rows as possible.

A row of the history is extended as long as nothing changes: the same holder for the same reason, or a
watermark that stands still. What was written last is kept in memory, so that a batch needs no reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import msgspec
import sqlalchemy as sql
from sqlalchemy.engine import Connection

from slackwater.metadata import store_schema as schema
from slackwater.metadata.store import insert_of
from slackwater.monitoring.events import BatchFinished, Event, OperatorChanges, RunEnded, RunStarted
from slackwater.monitoring.query_state import OperatorSnapshot, WatermarkState
from slackwater.progress.delays import DelayHistogram
from slackwater.progress.values import DEFAULT_KEY
from slackwater.time import END_OF_TIME, HOUR, SECOND

RESOLUTION: Final = 10 * SECOND
"""The moves of a watermark within this time are one row."""

_Row = dict[str, Any]
_Rows = dict[tuple[Any, ...], _Row]


@dataclass
class _Query:
    """What the store contains about a query, as far as the next event needs it."""

    row: _Row
    holders: dict[tuple[str, str], _Row] = field(default_factory=dict)
    """The newest row of each operator and key; the same below."""
    watermarks: dict[tuple[str, str], _Row] = field(default_factory=dict)
    windows: dict[tuple[str, int], _Row] = field(default_factory=dict)
    """The open windows."""
    delays: dict[tuple[str, str], _Row] = field(default_factory=dict)


@dataclass
class _Changes:
    """Rows to write, by table and primary key."""

    rows: dict[str, _Rows] = field(default_factory=dict)

    def put(self, table: sql.Table, row: _Row) -> None:
        """Add a row, or replace the one with the same key."""
        key = tuple(row[column.name] for column in table.primary_key)
        self.rows.setdefault(table.name, {})[key] = row


class RecordTables:
    """Writes events in transactions of the caller.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.metadata.store import open_store
    >>> tables, started = RecordTables(), RunStarted("5f…", "1a…", "orders", 0)
    >>> names = sql.select(schema.queries.c.name)
    >>> with TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/store.db", create=True) as store:
    ...     store.write(lambda connection: tables.write(connection, [started], now=1))
    ...     store.read(lambda connection: connection.execute(names).scalar())
    'orders'
    """

    def __init__(self) -> None:
        self._queries: dict[str, _Query] = {}

    def forget(self) -> None:
        """Forget what was written, after a transaction that may have failed."""
        self._queries.clear()

    def write(self, connection: Connection, events: Sequence[Event], *, now: int, lost: int = 0) -> None:
        """Write some events; ``lost`` is the number of those that could not be written before."""
        changes = _Changes()
        for event in events:
            query = self._query(connection, event)
            if query is None:
                continue
            query.row |= {"updated_at": now, "lost": lost}
            match event:
                case RunStarted() | BatchFinished() if query.row["run"] != event.run:
                    query.row |= {
                        "run": event.run, "name": event.name, "started_at": event.at,
                        "running": True, "ended_at": None, "error": None,
                    }  # fmt: skip
            match event:
                case BatchFinished():
                    self._batch(connection, query, event, changes)
                case RunEnded() if query.row["run"] == event.run:
                    query.row |= {"running": False, "ended_at": event.at, "error": event.error}
            changes.put(schema.queries, dict(query.row))
        _write(connection, changes)
        for event in events:
            if isinstance(event, RunEnded):
                self._queries.pop(event.query, None)

    def _query(self, connection: Connection, event: Event) -> _Query | None:
        """What is known about the query of an event; None for the end of a run that was never seen."""
        known = self._queries.get(event.query)
        if known is None:
            row = _mapping(connection, schema.queries, schema.queries.c.id == event.query)
            if not row and isinstance(event, RunEnded):
                return None
            known = self._queries[event.query] = _Query(row[0]) if row else _Query(_new_query(event))
            if row:
                _load(connection, known)
        return known

    def _batch(self, connection: Connection, query: _Query, event: BatchFinished, changes: _Changes) -> None:
        is_repeated = query.row["batch"] is not None and event.number <= query.row["batch"]
        query.row |= {
            "batch": event.number, "batch_at": event.at, "duration": event.duration, "rows": event.rows,
            "state_bytes": event.state_bytes,
            "operators": msgspec.json.encode(event.operators).decode(),
        }  # fmt: skip
        for operator in event.operators:
            keys = operator.keys or (_driving(operator),)
            for key in keys:
                _hold(query, operator, key, changes)
                _move(query, operator, key, changes)
            details = event.changes.get(operator.id, OperatorChanges())
            # A batch that is repeated after a failure would be counted twice.
            details = OperatorChanges() if is_repeated else details
            _count_windows(connection, query, operator, details, changes)
            self._count_delays(connection, query, operator, details, changes)
            for number, late in enumerate(details.late_rows):
                row = msgspec.structs.replace(late, at=operator.now)
                changes.put(
                    schema.query_late_rows,
                    {
                        "query": event.query, "operator": operator.id, "at": operator.now, "number": number,
                        "row": msgspec.json.encode(row).decode(),
                    },
                )  # fmt: skip

    def _count_delays(
        self,
        connection: Connection,
        query: _Query,
        operator: OperatorSnapshot,
        details: OperatorChanges,
        changes: _Changes,
    ) -> None:
        hour = operator.now // HOUR * HOUR
        table = schema.query_delays
        for origin, delays in details.delays.items():
            known = query.delays.get((operator.id, origin))
            if known is None or known["hour"] != hour:
                known = {
                    "query": query.row["id"], "operator": operator.id, "origin": origin, "hour": hour,
                }  # fmt: skip
                same = [table.c[name] == value for name, value in known.items()]
                stored = connection.execute(sql.select(table.c.delays).where(*same)).scalar()
                known["delays"] = (
                    DelayHistogram() if stored is None else msgspec.json.decode(stored, type=DelayHistogram)
                )
                query.delays[operator.id, origin] = known
            known["delays"].add(delays)
            changes.put(table, {**known, "delays": msgspec.json.encode(known["delays"]).decode()})


def remove_old(connection: Connection, *, before: int, rows: int) -> None:
    """Remove history that is older than ``before``, and the oldest rows of tables with more than ``rows``."""
    queries = schema.queries
    connection.execute(queries.delete().where(queries.c.updated_at < before))
    for table, at in _HISTORY.items():
        connection.execute(table.delete().where(table.c[at] < before))
        newest_excess = sql.select(table.c[at]).order_by(table.c[at].desc()).offset(rows).limit(1)
        limit = connection.execute(newest_excess).scalar()
        if limit is not None:
            connection.execute(table.delete().where(table.c[at] <= limit))


_HISTORY: Final = {
    schema.query_holders: "until",
    schema.query_watermarks: "until",
    schema.query_windows: "updated_at",
    schema.query_delays: "hour",
    schema.query_late_rows: "at",
}
"""The tables that grow with time, and the column that orders them."""

_COUNTS: Final = ("early", "on_time", "late", "retractions")


def _driving(operator: OperatorSnapshot) -> WatermarkState:
    return WatermarkState(
        DEFAULT_KEY, operator.watermark, operator.reason, operator.held_by, operator.since, operator.text
    )


def _hold(query: _Query, operator: OperatorSnapshot, key: WatermarkState, changes: _Changes) -> None:
    """Extend the row of the holder, or begin one."""
    known = query.holders.get((operator.id, key.name))
    reason = "ended" if operator.ended else key.reason
    is_same = known is not None and (known["held_by"], known["reason"]) == (key.held_by, reason)
    if known is None or not is_same or operator.now < known["at"]:
        if known is not None and operator.now >= known["at"]:
            # it held until the report that names another
            known = {**known, "until": operator.now}
            changes.put(schema.query_holders, known)
        known = {
            "query": query.row["id"], "operator": operator.id, "key": key.name, "at": operator.now,
            "held_by": key.held_by, "reason": reason, "since": key.since, "watermark": key.watermark,
        }  # fmt: skip
    known = {**known, "until": operator.now, "reached": key.watermark}
    query.holders[operator.id, key.name] = known
    changes.put(schema.query_holders, known)


def _move(query: _Query, operator: OperatorSnapshot, key: WatermarkState, changes: _Changes) -> None:
    """Extend the row of the watermark while it stands still or moves for a short time, or begin one."""
    at, value = operator.now, key.watermark
    if value is None or value == END_OF_TIME:
        return
    known = query.watermarks.get((operator.id, key.name))
    row = {"query": query.row["id"], "operator": operator.id, "key": key.name}
    if known is None or at < known["at"] or value < known["reached"]:
        known = {**row, "at": at, "watermark": value}
    elif known["watermark"] == known["reached"] != value and known["until"] > known["at"]:
        # It stood still for more than one report, and moves again.
        known = {**row, "at": known["until"], "watermark": known["reached"]}
    elif known["watermark"] != known["reached"] and at - known["at"] > RESOLUTION:
        known = {**row, "at": known["until"], "watermark": known["reached"]}
    known = {**known, "until": at, "reached": value}
    query.watermarks[operator.id, key.name] = known
    changes.put(schema.query_watermarks, known)


def _count_windows(
    connection: Connection,
    query: _Query,
    operator: OperatorSnapshot,
    details: OperatorChanges,
    changes: _Changes,
) -> None:
    """Add the panes of a batch to their windows, and note which windows were opened and closed."""
    at = operator.now
    base = {"query": query.row["id"], "operator": operator.id, "keys": None, "closed_at": None}
    base |= dict.fromkeys(_COUNTS, 0)
    touched: dict[int, _Row] = {}
    open_ends = {group.end for group in operator.windows}
    last_listed = max(open_ends, default=END_OF_TIME)

    def may_be_open(end: int) -> bool:
        return end in open_ends or (operator.windows_left_out > 0 and end > last_listed)

    for group in operator.windows:
        known = query.windows.get((operator.id, group.end))
        if known is None:
            known = {**base, "end": group.end, "start": group.start, "opened_at": at}
            touched[group.end] = known
        if known["keys"] != group.keys:
            touched[group.end] = known = {**known, "keys": group.keys}
    for panes in details.panes:
        known = touched.get(panes.end) or query.windows.get((operator.id, panes.end))
        if known is None:  # opened and closed within the batch, or closed before: sessions are not listed
            known = _stored_window(connection, query.row["id"], operator.id, panes.end)
        if known is None:
            known = {**base, "end": panes.end, "start": panes.start, "opened_at": at}
        counted = {name: known[name] + getattr(panes, name) for name in _COUNTS}
        touched[panes.end] = {**known, **counted, "closed_at": None if may_be_open(panes.end) else at}
    for (of, end), known in query.windows.items():
        if of == operator.id and not may_be_open(end):
            touched[end] = {**touched.get(end, known), "closed_at": at}
    for end, row in touched.items():
        row["updated_at"] = at
        changes.put(schema.query_windows, row)
        if row["closed_at"] is None:
            query.windows[operator.id, end] = row
        else:
            query.windows.pop((operator.id, end), None)


def _stored_window(connection: Connection, query: str, operator: str, end: int) -> _Row | None:
    table = schema.query_windows
    same = (table.c.query == query, table.c.operator == operator, table.c.end == end)
    found = _mapping(connection, table, *same)
    return found[0] if found else None


def _new_query(event: RunStarted | BatchFinished | RunEnded) -> _Row:
    unknown = dict.fromkeys(
        ("name", "ended_at", "error", "batch", "batch_at", "duration", "rows", "state_bytes", "operators")
    )
    return {**unknown, "id": event.query, "run": None, "started_at": event.at, "running": True}


def _load(connection: Connection, query: _Query) -> None:
    """Read the newest rows of a query, which its next batch may extend."""
    for table, into in ((schema.query_holders, query.holders), (schema.query_watermarks, query.watermarks)):
        newest = (
            sql.select(table.c.operator, table.c.key, sql.func.max(table.c.at).label("at"))
            .where(table.c.query == query.row["id"])
            .group_by(table.c.operator, table.c.key)
            .subquery()
        )
        is_newest = sql.and_(
            table.c.operator == newest.c.operator, table.c.key == newest.c.key, table.c.at == newest.c.at
        )
        found = sql.select(table).join(newest, is_newest).where(table.c.query == query.row["id"])
        for row in connection.execute(found).mappings():
            into[row["operator"], row["key"]] = dict(row)
    table = schema.query_windows
    is_open = (table.c.query == query.row["id"], table.c.closed_at.is_(None))
    for row in connection.execute(sql.select(table).where(*is_open)).mappings():
        query.windows[row["operator"], row["end"]] = dict(row)


def _mapping(connection: Connection, table: sql.Table, *where: sql.ColumnElement[bool]) -> list[_Row]:
    return [dict(row) for row in connection.execute(sql.select(table).where(*where)).mappings()]


def _write(connection: Connection, changes: _Changes) -> None:
    """Insert or replace the rows, those of the queries first."""
    for table in (schema.queries, *_HISTORY):
        rows = list(changes.rows.get(table.name, {}).values())
        if rows:
            connection.execute(_upsert(insert_of(connection), table), rows)


@cache
def _upsert(insert: Callable[[sql.Table], Any], table: sql.Table) -> sql.Executable:
    """The statement that inserts or replaces rows; building it takes longer than executing it."""
    statement = insert(table)
    keys = [column.name for column in table.primary_key]
    replaced = {name: statement.excluded[name] for name in table.columns.keys() if name not in keys}  # noqa: SIM118 - not a dict
    return statement.on_conflict_do_update(index_elements=keys, set_=replaced)  # type: ignore[no-any-return]
