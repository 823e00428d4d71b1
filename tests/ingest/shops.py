"""Databases whose rows arrive late, change and disappear, and their failures: tables that are missing, reject
rows, are locked, or are slow."""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import psycopg
import yaml

from slackwater.ingest.ledger.progress_ledger import read_history
from slackwater.metadata.store import open_store
from slackwater.time import DAY, SECOND, instant, to_datetime
from tests.ingest.copying import execute

START: Final = instant("2024-01-01T00:00:00Z")
SHOPS: Final = ("north", "south")
LATE: Final = 2
"""The number of days for which a row may still arrive, change or disappear."""
BAD_DAYS: Final = 2
"""How many days in a row may end without all units. Grace does not cover them: failed re-reads are owed."""
_ROWS: Final = 12
_LOCKED_SECONDS: Final = 0.7
FAILURES: Final = ("gone", "refused", "locked")


@dataclass(frozen=True)
class Shop:
    """Orders in a database, a job that copies them into another table, and its metadata store."""

    name: str
    url: str
    store: str
    folder: Path
    changes: random.Random = field(default_factory=lambda: random.Random(7))

    @property
    def embedded(self) -> bool:
        return self.url.startswith("sqlite")

    def open(self) -> None:
        """The tables and the job file: one shop by weeks, the other one by months and shops."""
        kind = "TEXT" if self.embedded else "TIMESTAMPTZ"
        execute(self.url, f"CREATE TABLE orders (id BIGINT, at {kind}, shop TEXT, amount BIGINT)")
        execute(self.url, f"CREATE TABLE copied (id BIGINT, at {kind}, shop TEXT, amount BIGINT)")
        axis = {"name": "system", "type": "datetime", "range": {"from": "2024-01-01", "to": "P0D"}}
        keys: dict[str, Any] = {
            "ms.watermark": [axis], "ms.time.column": "at", "ms.grace.period.days": LATE + 1,
            "ms.source.type": "sql", "ms.source.url": self.url, "ms.source.partitions": 2,
            "ms.target.type": "sql", "ms.target.url": self.url, "ms.target.table": "copied",
        }  # fmt: skip
        if self.embedded:
            keys |= {"ms.source.table": "orders", "ms.work.unit.partition": "weekly"}
        else:
            unit = {"name": "shop", "type": "unit", "units": list(SHOPS)}
            query = "SELECT id, at, amount FROM orders WHERE shop = {{shop}} AND at >= {{low}}"
            keys |= {"ms.watermark": [axis, unit], "ms.source.query": query}
            keys |= {"ms.work.unit.partition": "monthly"}
        (self.folder / f"{self.name}.yaml").write_text(yaml.safe_dump(keys), encoding="utf-8")

    def trade(self, day: int) -> None:
        """The changes between two runs: orders of the day, late orders, updates and deletions."""
        rows = [self._order(1000 * day + number, day) for number in range(_ROWS)]
        late = [day - self.changes.randint(1, LATE) for _ in range(_ROWS // 3)]
        rows += [self._order(1000 * day + 500 + number, at) for number, at in enumerate(late) if at >= 0]
        execute(self.url, "INSERT INTO orders VALUES (?, ?, ?, ?)", rows)
        since = self._shown(START + (day - LATE) * DAY)
        recent = execute(self.url, f"SELECT id FROM orders WHERE at >= '{since}'")  # noqa: S608 - our own
        changed, gone = self.changes.sample(recent, 2)
        execute(self.url, f"UPDATE orders SET amount = -amount WHERE id = {changed[0]}")  # noqa: S608
        execute(self.url, f"DELETE FROM orders WHERE id = {gone[0]}")  # noqa: S608

    def _order(self, number: int, day: int) -> tuple[int, object, str, int]:
        at = START + day * DAY + self.changes.randrange(DAY // SECOND) * SECOND
        shop, amount = self.changes.choice(SHOPS), self.changes.randint(1, 999)
        return number, self._shown(at), shop, amount

    def _shown(self, at: int) -> object:
        moment = to_datetime(at)
        return str(moment.replace(tzinfo=None)) if self.embedded else moment

    # ---- what goes wrong

    @contextmanager
    def failing(self, how: str) -> Iterator[None]:
        """The databases are not as they should be."""
        begin, end = getattr(self, f"_{how}")()
        for statement in begin:
            execute(self.url, statement)
        try:
            yield
        finally:
            for statement in end:
                execute(self.url, statement)

    def _gone(self) -> tuple[list[str], list[str]]:
        """The source is renamed away."""
        return ["ALTER TABLE orders RENAME TO away"], ["ALTER TABLE away RENAME TO orders"]

    def _refused(self) -> tuple[list[str], list[str]]:
        """The target raises an error after it has accepted some rows."""
        if self.embedded:
            raises = "SELECT RAISE(ABORT, 'no more') WHERE new.id % 7 = 0"
            return [_sqlite_trigger(raises)], ["DROP TRIGGER bad"]
        raises = "IF new.id % 7 = 0 THEN RAISE 'no more'; END IF"
        return [_postgres_function(raises), _POSTGRES_TRIGGER], _POSTGRES_END

    def _slow(self) -> tuple[list[str], list[str]]:
        """The target is slow for every row."""
        if self.embedded:
            counting = "SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 150000"
            counted = f"WITH RECURSIVE n AS ({counting}) SELECT max(i) FROM n"  # noqa: S608 - our own
            return [_sqlite_trigger(counted)], ["DROP TRIGGER bad"]
        return [_postgres_function("PERFORM pg_sleep(0.02)"), _POSTGRES_TRIGGER], _POSTGRES_END

    def _locked(self) -> tuple[list[str], list[str]]:
        """Another connection locks the target for a while."""
        locked = threading.Event()
        threading.Thread(target=self._hold_a_lock, args=(locked,)).start()
        assert locked.wait(30)
        return [], []

    def _hold_a_lock(self, locked: threading.Event) -> None:
        if self.embedded:
            with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"), timeout=30)) as file:
                file.execute("BEGIN EXCLUSIVE")
                locked.set()
                time.sleep(_LOCKED_SECONDS)
        else:
            with psycopg.connect(self.url) as server:
                server.execute("LOCK TABLE copied")
                locked.set()
                time.sleep(_LOCKED_SECONDS)

    # ---- what must hold

    def check_no_row_comes_twice(self) -> None:
        """Whatever was killed, and wherever."""
        [(rows, distinct)] = execute(self.url, "SELECT count(*), count(DISTINCT id) FROM copied")
        assert rows == distinct

    def check_the_end(self, days: int) -> None:
        """The target is the source, and the state says how far everything was read."""
        columns = "SELECT id, at, shop, amount FROM"
        wanted, got = (
            self._instants(execute(self.url, f"{columns} {table}")) for table in ("orders", "copied")
        )
        assert got == wanted
        assert len(got) > days * _ROWS
        with open_store(self.store) as store:
            history = store.read(lambda connection: read_history(connection, self.name, "system"))
        assert sorted(history.rows()) == sorted(self._expected_history(days))

    def _instants(self, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        def moment(at: Any) -> int:
            return instant(f"{at}Z".replace(" ", "T")) if self.embedded else instant(at)

        return sorted((number, moment(at), *rest) for number, at, *rest in rows)

    def _expected_history(self, days: int) -> Iterator[tuple[int, str, int]]:
        end = to_datetime(START) + timedelta(days=days)
        low = to_datetime(START)
        while low < end:
            high = low + timedelta(days=7)
            if not self.embedded:
                high = (low + timedelta(days=31)).replace(day=1)
            for key in ["{}"] if self.embedded else [f'{{"shop":"{shop}"}}' for shop in SHOPS]:
                yield instant(low), key, instant(min(high, end))
            low = high


def _sqlite_trigger(does: str) -> str:
    return f"CREATE TRIGGER bad AFTER INSERT ON copied BEGIN {does}; END"


def _postgres_function(does: str) -> str:
    return f"CREATE FUNCTION bad() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {does}; RETURN new; END $$"


_POSTGRES_TRIGGER: Final = "CREATE TRIGGER bad BEFORE INSERT ON copied FOR EACH ROW EXECUTE FUNCTION bad()"
_POSTGRES_END: Final = ["DROP TRIGGER bad ON copied", "DROP FUNCTION bad"]
