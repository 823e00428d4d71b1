"""Reads what recorders have written: the queries with their newest state, and the history.

Nothing here imports Spark, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from types import TracebackType
from typing import Any, Final, TypeVar

import msgspec
import sqlalchemy as sql
from sqlalchemy.engine import Connection

from slackwater.errors import InvalidArgument
from slackwater.metadata import store_schema as schema
from slackwater.metadata.store import MetadataStore, open_store
from slackwater.monitoring.query_state import (
    HolderSpan,
    LateRow,
    OperatorSnapshot,
    QueryState,
    WatermarkSpan,
    WindowSnapshot,
)
from slackwater.progress.delays import DelayHistogram
from slackwater.progress.values import DEFAULT_KEY
from slackwater.time import BEGINNING_OF_TIME, END_OF_TIME, HOUR

Result = TypeVar("Result")

_operators: Final = msgspec.json.Decoder(tuple[OperatorSnapshot, ...])
_late_row: Final = msgspec.json.Decoder(LateRow)
_delays: Final = msgspec.json.Decoder(DelayHistogram)


class Monitor:
    """The telemetry in a store; safe to use from several threads. Made by `open_monitor`.

    Times are microseconds. A query is given by its id or name; of several with one name, the one that was
    updated last.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.metadata.store import open_store
    >>> with TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/store.db", create=True) as store:
    ...     Monitor(store).queries()
    ()
    """

    def __init__(self, store: MetadataStore) -> None:
        self.store = store

    def now(self) -> int:
        """The time of the store's clock."""
        return self.store.now()

    def queries(self) -> tuple[QueryState, ...]:
        """All queries with their newest state, the one that was updated last first."""
        table = schema.queries
        order = (table.c.updated_at.desc(), table.c.id)
        return self._read(lambda connection: self._states(connection, sql.select(table).order_by(*order)))

    def query(self, query: str) -> QueryState:
        """One query with its newest state.

        Args:
            query: The name or id of the query.

        Raises:
            InvalidArgument: The store has no such query; the message lists those that it has.
        """
        return self._read(lambda connection: self._found(connection, query))

    def holders(
        self,
        query: str,
        *,
        operator: str | None = None,
        key: str | None = None,
        since: int = BEGINNING_OF_TIME,
        until: int = END_OF_TIME,
        limit: int = 1_000,
    ) -> tuple[HolderSpan, ...]:
        """What held the watermarks of a query back, and for how long; the newest first.

        Args:
            query: The id or name of the query.
            operator: Only this operator; all by default.
            key: Only this watermark key; all by default.
            since: Leave out what ended before.
            until: Leave out what began later.
            limit: The largest number of spans.
        """
        table = schema.query_holders

        def read(connection: Connection) -> tuple[HolderSpan, ...]:
            found = _chosen(table, self._found(connection, query).id, operator, key)
            found = found.where(table.c.until >= since, table.c.at <= until)
            found = found.order_by(table.c.until.desc(), table.c.at.desc(), table.c.operator, table.c.key)
            return tuple(
                HolderSpan(
                    row["operator"], row["key"], row["at"], row["until"], row["held_by"], row["reason"],
                    row["since"], row["watermark"], row["reached"],
                )
                for row in connection.execute(found.limit(limit)).mappings()
            )  # fmt: skip

        return self._read(read)

    def watermark_history(
        self,
        query: str,
        *,
        operator: str = "0",
        key: str = DEFAULT_KEY,
        since: int = BEGINNING_OF_TIME,
        until: int = END_OF_TIME,
        points: int = 500,
    ) -> tuple[WatermarkSpan, ...]:
        """The history of a watermark, oldest first, as at most ``points`` spans.

        If there are more, neighbours are combined; a span in which the watermark stood still longest in its
        neighbourhood is kept as it is.

        Args:
            query: The name or id of the query.
            operator: The operator.
            key: The watermark key.
            since: Leave out spans that end before this time, in microseconds since 1970.
            until: Leave out spans that begin after this time, in microseconds since 1970.
            points: Return at most this many spans.
        """
        table = schema.query_watermarks

        def read(connection: Connection) -> tuple[WatermarkSpan, ...]:
            found = _chosen(table, self._found(connection, query).id, operator, key)
            found = found.where(table.c.until >= since, table.c.at <= until).order_by(table.c.at)
            return tuple(
                WatermarkSpan(row["at"], row["until"], row["watermark"], row["reached"])
                for row in connection.execute(found).mappings()
            )

        return thinned(self._read(read), points)

    def windows(
        self, query: str, *, operator: str | None = None, closed: int = 100
    ) -> tuple[WindowSnapshot, ...]:
        """The open windows of a query by end, then the ``closed`` that were closed last, newest first.

        Args:
            query: The name or id of the query.
            operator: The operator; by default all of them.
            closed: Return at most this many closed windows.
        """
        table = schema.query_windows

        def read(connection: Connection) -> tuple[WindowSnapshot, ...]:
            state = self._found(connection, query)
            chosen = _chosen(table, state.id, operator)
            counted = {
                (row["operator"], row["end"]): row
                for row in connection.execute(chosen.where(table.c.closed_at.is_(None))).mappings()
            }
            open_now = [
                WindowSnapshot(
                    of.id, group.end, group.start, row["opened_at"] if row else of.now, None, group.keys,
                    group.bytes, *_counts(row), group.closes_at, group.owes_pane,
                )
                for of in state.operators
                if operator in (None, of.id)
                for group in of.windows
                for row in [counted.get((of.id, group.end))]
            ]  # fmt: skip
            newest = chosen.where(table.c.closed_at.is_not(None))
            newest = newest.order_by(table.c.closed_at.desc(), table.c.end.desc()).limit(closed)
            gone = [
                WindowSnapshot(
                    row["operator"], row["end"], row["start"], row["opened_at"], row["closed_at"],
                    row["keys"], None, *_counts(row),
                )
                for row in connection.execute(newest).mappings()
            ]  # fmt: skip
            return *sorted(open_now, key=lambda window: (window.end, window.operator)), *gone

        return self._read(read)

    def delays(
        self,
        query: str,
        *,
        operator: str | None = None,
        since: int = BEGINNING_OF_TIME,
    ) -> dict[str, DelayHistogram]:
        """The delays of rows by origin, over all hours that end after ``since``.

        Args:
            query: The name or id of the query.
            operator: The operator; by default all of them.
            since: Leave out hours that end at or before this time, in microseconds since 1970.
        """
        table = schema.query_delays

        def read(connection: Connection) -> dict[str, DelayHistogram]:
            found = _chosen(table, self._found(connection, query).id, operator)
            sums: dict[str, DelayHistogram] = {}
            found = found.where(table.c.hour > max(since - HOUR, BEGINNING_OF_TIME))
            for row in connection.execute(found).mappings():
                sums.setdefault(row["origin"], DelayHistogram()).add(_delays.decode(row["delays"]))
            return dict(sorted(sums.items()))

        return self._read(read)

    def late_rows(
        self,
        query: str,
        *,
        operator: str | None = None,
        since: int = BEGINNING_OF_TIME,
        limit: int = 100,
    ) -> tuple[LateRow, ...]:
        """The sampled rows that were dropped, the newest first.

        Args:
            query: The name or id of the query.
            operator: The operator; by default all of them.
            since: Leave out rows that were dropped before this time, in microseconds since 1970.
            limit: Return at most this many rows.
        """
        table = schema.query_late_rows

        def read(connection: Connection) -> tuple[LateRow, ...]:
            found = _chosen(table, self._found(connection, query).id, operator).where(table.c.at >= since)
            found = found.order_by(table.c.at.desc(), table.c.number).limit(limit)
            return tuple(_late_row.decode(row["row"]) for row in connection.execute(found).mappings())

        return self._read(read)

    def close(self) -> None:
        """Close the connections to the store."""
        self.store.close()

    def __enter__(self) -> Monitor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self, work: Callable[[Connection], Result]) -> Result:
        return self.store.read(work)

    def _states(self, connection: Connection, found: sql.Select[Any]) -> tuple[QueryState, ...]:
        now = self.store.now(connection)
        return tuple(_state(row, now) for row in connection.execute(found).mappings())

    def _found(self, connection: Connection, query: str) -> QueryState:
        table = schema.queries
        is_wanted = sql.or_(table.c.id == query, table.c.name == query)
        order = (table.c.running.desc(), table.c.updated_at.desc(), table.c.id)
        states = self._states(connection, sql.select(table).where(is_wanted).order_by(*order).limit(1))
        if states:
            return states[0]
        names = sql.select(sql.func.coalesce(table.c.name, table.c.id)).order_by(table.c.updated_at.desc())
        known = connection.execute(names.limit(_LISTED)).scalars().all()
        listed = ", ".join(map(repr, dict.fromkeys(known))) or "none"
        raise InvalidArgument("query", query, "is not in the store", fix=f"use one of its queries: {listed}")


_LISTED: Final = 20
"""How many queries an error message lists."""


def open_monitor(url: str) -> Monitor:
    """Open the telemetry in a store that exists; tables of an older release are upgraded.

    Args:
        url: The database URL of the store, ``env:NAME`` or ``file:PATH``.

    Returns:
        The monitor. Close it, or use it in a ``with`` block.

    Raises:
        InvalidArgument: The URL cannot be parsed, or is neither PostgreSQL nor SQLite.
        UnknownStore: There is no store at this address.
        StoreUnavailable: The database cannot be reached.
        UnknownSchemaVersion: The store was made by a newer release.

    >>> open_monitor("sqlite:////no/such/store.db")
    Traceback (most recent call last):
    slackwater.errors.UnknownStore: there is no metadata store at sqlite:////no/such/store.db; check the \
address, or create the store: open it with create=True, or run `slackwater stream create`
    """
    return Monitor(open_store(url))


def thinned(spans: Sequence[WatermarkSpan], points: int) -> tuple[WatermarkSpan, ...]:
    """At most ``points`` spans that cover the same time; standstills stay visible.

    >>> moving = [WatermarkSpan(at, at + 1, at, at + 1) for at in range(10)]
    >>> thinned([*moving, WatermarkSpan(10, 90, 10, 10)], 3)[-1]
    WatermarkSpan(at=10, until=90, watermark=10, reached=10)
    """
    if points < 1:
        raise InvalidArgument("points", points, "must be at least 1", fix="omit it for 500")
    if len(spans) <= points:
        return tuple(spans)
    # The joints with the sharpest change of speed are kept: they begin and end standstills.
    sharpness = [
        abs((after.reached - after.watermark) / max(after.until - after.at, 1)
            - (before.reached - before.watermark) / max(before.until - before.at, 1))
        * (after.until - before.at)
        for before, after in pairwise(spans)
    ]  # fmt: skip
    joints = sorted(sorted(range(len(sharpness)), key=lambda index: -sharpness[index])[: points - 1])
    first = [0, *(joint + 1 for joint in joints)]
    last = [*joints, len(spans) - 1]
    return tuple(
        WatermarkSpan(spans[a].at, spans[b].until, spans[a].watermark, spans[b].reached)
        for a, b in zip(first, last, strict=True)
    )


def _chosen(table: sql.Table, query: str, operator: str | None, key: str | None = None) -> sql.Select[Any]:
    found = sql.select(table).where(table.c.query == query)
    if operator is not None:
        found = found.where(table.c.operator == operator)
    return found if key is None else found.where(table.c.key == key)


def _counts(row: Any) -> tuple[int, int, int, int]:
    """The panes of a window by timing, and its retractions."""
    return (0, 0, 0, 0) if row is None else (row["early"], row["on_time"], row["late"], row["retractions"])


def _state(row: Any, now: int) -> QueryState:
    return QueryState(
        id=row["id"],
        name=row["name"],
        run=row["run"],
        started=row["started_at"],
        updated=row["updated_at"],
        age=max(0, now - row["updated_at"]),
        running=row["running"],
        ended=row["ended_at"],
        error=row["error"],
        batch=row["batch"],
        at=row["batch_at"],
        duration=row["duration"],
        rows=row["rows"],
        state_bytes=row["state_bytes"] or 0,
        operators=() if row["operators"] is None else _operators.decode(row["operators"]),
        lost=row["lost"],
    )
