"""The recorder: what it writes, how little, and what happens if the store fails."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sql

from slackwater.errors import InvalidArgument
from slackwater.metadata import store_schema as schema
from slackwater.metadata.store import MetadataStore, open_store
from slackwater.monitoring.events import Event, RunEnded
from slackwater.monitoring.monitor import Monitor
from slackwater.monitoring.query_state import LateRow, OpenWindows, WatermarkState, WindowPanes
from slackwater.monitoring.record_tables import RecordTables, remove_old
from slackwater.monitoring.recorder import Recorder
from slackwater.monitoring.sentence import sentence
from slackwater.progress.delays import DelayHistogram
from slackwater.time import DAY, HOUR, SECOND
from tests.monitoring.reports import STARTED, batch, operator
from tests.stores import new_store

Record = Callable[..., None]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MetadataStore]:
    with open_store(new_store(tmp_path), clock=lambda: 100 * SECOND) as opened:
        yield opened


@pytest.fixture
def record(store: MetadataStore) -> Record:
    """Writes events in two transactions."""
    tables = RecordTables()

    def write(*events: Event) -> None:
        for part in (events[: len(events) // 2], events[len(events) // 2 :]):
            store.write(partial(tables.write, events=part, now=90 * SECOND))

    return write


def rows(store: MetadataStore, table: sql.Table) -> int:
    return int(store.read(lambda c: c.execute(sql.select(sql.func.count()).select_from(table)).scalar_one()))


def test_the_newest_state_of_a_query_is_read_with_its_age(store: MetadataStore, record: Record) -> None:
    late = operator(20, 5, lag=15 * SECOND, open_windows=3)
    record(STARTED, batch(1, operator(10, 4)), batch(2, late))
    (query,) = Monitor(store).queries()
    assert (query.title, query.running, query.batch, query.age) == ("orders", True, 2, 10 * SECOND)
    assert query.operators == (late,)
    assert query == Monitor(store).query("orders") == Monitor(store).query("q1")
    assert sentence(query, 100 * SECOND) == (
        "orders: watermark 00:00:05, 15 s behind; held by partition 'b' (slowest); 3 windows wait"
    )
    record(RunEnded("q1", "r1", 30 * SECOND, "ValueError: no"))
    query = Monitor(store).query("orders")
    assert (query.running, query.ended, query.error) == (False, 30 * SECOND, "ValueError: no")
    assert query.operators == (late,)
    with pytest.raises(
        InvalidArgument, match="query = 'bids': is not in the store; use one of its queries: 'orders'"
    ):
        Monitor(store).query("bids")


def test_a_restart_goes_on_with_the_same_query(store: MetadataStore, record: Record) -> None:
    record(STARTED, batch(1, operator(10, 4)), RunEnded("q1", "r1", 11, "lost"))
    again = RecordTables()  # another process
    store.write(lambda c: again.write(c, [batch(2, operator(20, 4), run="r2")], now=20 * SECOND))
    (query,) = Monitor(store).queries()
    assert (query.run, query.running, query.error, query.batch) == ("r2", True, None, 2)
    (span,) = Monitor(store).holders("orders")
    assert (span.at, span.until) == (10 * SECOND, 20 * SECOND)
    # the end of a run that was replaced changes nothing
    record(RunEnded("q1", "r1", 30, "late"))
    assert Monitor(store).query("q1").error is None


def test_any_name_of_an_origin_and_any_error_is_recorded(store: MetadataStore, record: Record) -> None:
    record(STARTED, batch(1, operator(10, 4, "partition 'a\0'")), RunEnded("q1", "r1", 11, "x\0y\ud800"))
    assert Monitor(store).query("q1").error == "x\\0y\\ud800"
    (span,) = Monitor(store).holders("q1")
    assert span.held_by == "partition 'a\\0'"


def test_a_holder_is_one_row_while_it_lasts(store: MetadataStore, record: Record) -> None:
    slow = [batch(number, operator(number, number)) for number in range(30)]
    silent = [batch(number, operator(number, 29, "partition 'c'", reason="gap")) for number in range(30, 60)]
    back = [batch(60, operator(60, 40))]
    record(*slow, *silent, *back)
    spans = Monitor(store).holders("orders")
    assert [(span.held_by, span.reason, span.at // SECOND, span.until // SECOND) for span in spans] == [
        ("partition 'b'", "slowest", 60, 60),
        ("partition 'c'", "gap", 30, 60),
        ("partition 'b'", "slowest", 0, 30),
    ]
    assert (spans[1].watermark, spans[1].reached) == (29 * SECOND, 29 * SECOND)
    assert [span.at for span in Monitor(store).holders("orders", since=45 * SECOND, until=59 * SECOND)] == [
        30 * SECOND
    ]


def test_a_watermark_that_stands_still_is_one_row(store: MetadataStore, record: Record) -> None:
    moving = [batch(number, operator(number, number)) for number in range(25)]
    standing = [batch(number, operator(number, 24)) for number in range(25, 125)]
    again = [batch(125, operator(125, 60)), batch(126, operator(126, 61))]
    record(*moving, *standing, *again)
    history = Monitor(store).watermark_history("orders")
    seen = [(s.at // SECOND, s.until // SECOND, s.watermark // SECOND, s.reached // SECOND) for s in history]
    assert seen == [(0, 10, 0, 10), (10, 20, 10, 20), (20, 30, 20, 24), (30, 124, 24, 24), (124, 126, 24, 61)]
    thin = Monitor(store).watermark_history("orders", points=3)
    assert len(thin) == 3
    assert (30 * SECOND, 124 * SECOND, 24 * SECOND, 24 * SECOND) in [
        (s.at, s.until, s.watermark, s.reached) for s in thin
    ]


def test_every_watermark_key_has_a_history(store: MetadataStore, record: Record) -> None:
    keys = (WatermarkState("ordered", 5, "slowest", "a"), WatermarkState("paid", 3, "slowest", "b"))
    record(batch(1, operator(1, 3, keys=keys)))
    assert {span.key: span.held_by for span in Monitor(store).holders("orders")} == {
        "ordered": "a",
        "paid": "b",
    }
    assert Monitor(store).watermark_history("orders", key="paid")[0].watermark == 3


def test_windows_are_counted_until_they_close(store: MetadataStore, record: Record) -> None:
    ten, twenty = OpenWindows(10, 0, keys=2), OpenWindows(20, 10, keys=1, owes_pane=True)
    record(
        batch(1, operator(1, 3, windows=(ten,)), panes=(WindowPanes(10, early=2),)),
        batch(
            2,
            operator(2, 10, windows=(ten, twenty)),
            panes=(WindowPanes(10, on_time=2), WindowPanes(5, on_time=1)),
        ),
        batch(2, operator(2, 10, windows=(ten, twenty)), panes=(WindowPanes(10, on_time=2),)),  # repeated
        batch(3, operator(3, 15, windows=(twenty,)), panes=(WindowPanes(10, late=1, retractions=1),)),
    )
    windows = Monitor(store).windows("orders")
    assert [(one.end, one.is_open) for one in windows] == [(20, True), (10, False), (5, False)]
    assert (windows[0].opened, windows[0].owes_pane, windows[0].keys) == (2 * SECOND, True, 1)
    closed = windows[1]
    assert (closed.opened, closed.closed) == (SECOND, 3 * SECOND)
    assert (closed.early, closed.on_time, closed.late, closed.retractions) == (2, 2, 1, 1)
    # windows that a bounded report leaves out are not closed
    record(batch(4, operator(4, 15, windows=(OpenWindows(15, 5),), windows_left_out=3)))
    assert [one.end for one in Monitor(store).windows("orders") if not one.is_open] == [10, 5]


def test_delays_and_late_rows_are_added_up(store: MetadataStore, record: Record) -> None:
    late = LateRow("late", window_start=0, window_end=10, lateness=7, ahead="partition 'a'")
    first = {"a": DelayHistogram.of([0, 0, 5 * SECOND]), "b": DelayHistogram.of([SECOND])}
    record(batch(1, operator(1, 3), delays=first, late_rows=(late, late)))
    record(batch(2, operator(2, 3), delays={"a": DelayHistogram.of([9 * SECOND])}, late_rows=(late,)))
    record(batch(3, operator(2 * 3600, 3), delays={"a": DelayHistogram.of([0])}))
    delays = Monitor(store).delays("orders")
    assert {origin: one.rows for origin, one in delays.items()} == {"a": 5, "b": 1}
    assert delays["a"].highest == 9 * SECOND
    assert Monitor(store).delays("orders", since=2 * HOUR)["a"].rows == 1
    assert [row.at // SECOND for row in Monitor(store).late_rows("orders")] == [2, 1, 1]
    assert Monitor(store).late_rows("orders", limit=1)[0].lateness == 7


def test_history_is_removed_by_age_and_by_rows(store: MetadataStore, record: Record) -> None:
    days = [batch(day, operator(86_400 * day, day, f"partition {day}")) for day in range(10)]
    record(*days)
    assert rows(store, schema.query_holders) == 10
    store.write(lambda c: remove_old(c, before=-1, rows=4))
    assert [span.held_by for span in Monitor(store).holders("orders")] == [
        f"partition {day}" for day in (9, 8, 7, 6)
    ]
    store.write(lambda c: remove_old(c, before=8 * DAY, rows=100))
    # the query itself was updated 90 seconds after 1970, so it is removed with everything of it
    assert [rows(store, table) for table in (schema.queries, schema.query_holders)] == [0, 0]


def test_every_table_is_written_extended_and_cleaned_on_every_database(store_url: str) -> None:
    late = LateRow("late", lateness=7)
    open_windows = (OpenWindows(10, 0, keys=2),)
    delays = {"a": DelayHistogram.of([SECOND])}
    first = batch(1, operator(1, 3, windows=open_windows), panes=(WindowPanes(10, early=2),), delays=delays)
    second = batch(2, operator(2, 4), panes=(WindowPanes(10, on_time=2),), delays=delays, late_rows=(late,))
    with open_store(store_url, clock=lambda: 100 * SECOND) as opened:
        for event in (STARTED, first, second, RunEnded("q1", "r1", 3, None)):
            # each as by another process, which reads what was written before
            opened.write(partial(RecordTables().write, events=[event], now=90 * SECOND))
        monitor = Monitor(opened)
        assert (monitor.query("orders").batch, monitor.query("orders").running) == (2, False)
        assert [(span.at, span.until) for span in monitor.holders("orders")] == [(SECOND, 2 * SECOND)]
        assert len(monitor.watermark_history("orders")) == 1
        (window,) = monitor.windows("orders")
        assert (window.early, window.on_time, window.is_open) == (2, 2, False)
        assert monitor.delays("orders")["a"].rows == 2
        assert monitor.late_rows("orders")[0].lateness == 7
        opened.write(partial(remove_old, before=91 * SECOND, rows=100))
        assert monitor.queries() == ()


def test_a_recorder_writes_in_the_background(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    with Recorder(url, pause=0) as recorder:
        recorder.record(STARTED)
        assert recorder.flush()
        recorder.record(batch(1, operator(1, 3)))
    assert recorder.lost == 0
    assert recorder.cpu_seconds > 0
    with open_store(url) as opened:
        assert Monitor(opened).query("orders").batch == 1
    recorder.record(STARTED)  # after it was closed
    assert recorder.lost == 1


def test_a_full_queue_drops_the_oldest_and_counts_them(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    new_store(tmp_path)
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with Recorder(url, capacity=5, pause=0) as recorder:
            recorder.record(STARTED)  # the thread waits for the lock with it
            while recorder._waiting:
                threading.Event().wait(0.01)
            for number in range(12):
                recorder.record(batch(number, operator(number, number)))
            assert recorder.lost == 7
            other.execute("ROLLBACK")
            assert recorder.flush()
            with open_store(url) as opened:
                query = Monitor(opened).query("orders")
    assert (query.batch, query.lost) == (11, 7)
    assert recorder.lost == 7


@pytest.mark.parametrize("trouble", ["no folder", "not a database", "no server", "removed", "replaced"])
def test_a_store_that_fails_costs_only_the_reports(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slackwater.monitoring.recorder._RETRY_SECONDS", 0.0)
    file = tmp_path / ("gone/store.db" if trouble == "no folder" else "store.db")
    if trouble in ("removed", "replaced"):
        new_store(tmp_path)
    if trouble == "not a database":
        file.write_bytes(b"no database" * 200)
    caplog.set_level(logging.WARNING)
    url = "postgresql://app@127.0.0.1:1/none" if trouble == "no server" else f"sqlite:///{file}"
    with Recorder(url, pause=0) as recorder:
        if trouble in ("removed", "replaced"):
            recorder.record(STARTED)
            assert recorder.flush()
            assert recorder.lost == 0
            file.unlink()
        if trouble == "replaced":
            open_store(f"sqlite:///{file}", create=True).close()
        for number in range(3):
            recorder.record(batch(number, operator(number, number)))
            assert recorder.flush()
        assert recorder.lost == (1 if trouble in ("removed", "replaced") else 3)
    (logged,) = caplog.records
    assert "its reports are dropped until it works again" in logged.getMessage()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"url": "mysql://x/y"}, "is neither PostgreSQL nor SQLite"),
        ({"rows": 0}, "rows = 0: must be at least 1"),
        ({"capacity": 0}, "capacity = 0: must be at least 1"),
        ({"keep": "soon"}, "keep = 'soon'"),
    ],
)
def test_invalid_arguments_raise(tmp_path: Path, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Recorder(**({"url": f"sqlite:///{tmp_path}/store.db"} | arguments))  # type: ignore[arg-type]
