"""`complete_until` and `slackwater wait`: what the commits of a table state."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from slackwater.cli.app import app
from slackwater.errors import InvalidArgument, InvalidDuration
from slackwater.progress.completeness import Completeness
from slackwater.sql.commit_owner import BATCH_JOB, Committer
from slackwater.sql.database import database_url, temporary_engine
from slackwater.sql.pane_merge import merge_panes, stage_panes
from slackwater.sql.pane_table import PaneColumn, PaneTable
from slackwater.streams.log.catalog import Streams
from slackwater.streams.maintenance.mark_cycle import CycleRunner
from slackwater.streams.segments.positions import Position
from slackwater.streams.time import mark_store
from slackwater.table_progress.completeness_reader import TableUnreadable, complete_until
from slackwater.table_progress.waiting import wait_until
from slackwater.tables.lake_ledger import BatchCommit
from slackwater.time import END_OF_TIME, instant
from tests.tables.lakes import COLUMNS, changes, lake

DAY = instant("2024-01-02T00:00:00Z")


def upserted(url: str, identity: str, batch: int, stated: Completeness, query: str | None = None) -> None:
    """Commit an empty batch to the table ``totals``."""
    target = PaneTable(
        database_url(url), "totals", (PaneColumn("key", "long"),), (PaneColumn("n", "long"),), windows=False
    )
    target = target.prepare(create=True)
    with temporary_engine(target.url) as engine, engine.begin() as connection:
        staged = [stage_panes(connection, target, [], identity)]
        committer = Committer(query or identity)
        merge_panes(connection, target, staged, identity, batch, committer, stated)


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/totals.db"


def test_a_table_that_does_not_exist_states_nothing(tmp_path: Path) -> None:
    folders = (f"{kind}:{tmp_path}/b" for kind in ("delta", "parquet", "json", "csv"))
    for address in (*folders, f"parquet:{tmp_path.as_uri()}/b", f"sqlite:///{tmp_path}/c.db#totals"):
        assert complete_until(address) is None, address
    assert not (tmp_path / "c.db").exists()


def test_a_database_table_states_the_earliest_time_of_its_queries(database: str) -> None:
    upserted(database, "one", 0, Completeness(50, 40))
    assert complete_until(f"{database}#totals") == 50
    upserted(database, "two", 0, Completeness(30, None))
    assert complete_until(f"{database}#totals") == 30
    assert complete_until(f"{database}#totals", final=True) is None
    assert complete_until(f"{database}#totals", identity="one", final=True) == 40
    assert complete_until(f"{database}#totals", identity="three") is None
    assert complete_until(f"{database}#others") is None
    upserted(database, "two", 1, Completeness())  # a query that does not know its watermark
    assert complete_until(f"{database}#totals") is None


def test_a_batch_job_holds_nothing_back(database: str) -> None:
    upserted(database, "backfill", 0, Completeness(), query=BATCH_JOB)
    assert complete_until(f"{database}#totals") is None
    upserted(database, "one", 0, Completeness(50, 40))
    assert complete_until(f"{database}#totals") == 50


def test_a_ledger_of_an_earlier_release_states_nothing(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with temporary_engine(database_url(database)) as engine, engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE TABLE slackwater_upserts (target TEXT, identity TEXT, batch BIGINT)"
        )
        connection.exec_driver_sql("INSERT INTO slackwater_upserts VALUES ('totals', 'one', 3)")
    assert complete_until(f"{database}#totals") is None
    monkeypatch.setenv("SHOP", database)
    upserted(database, "two", 0, Completeness(7, 7))
    assert complete_until("env:SHOP#totals") is None
    assert complete_until("env:SHOP#totals", identity="two") == 7


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_a_table_of_files_states_the_time_of_its_newest_commit(kind: str, tmp_path: Path) -> None:
    table = lake(kind, tmp_path)
    table.prepare(COLUMNS, create=True)
    assert complete_until(table.name) is None
    for number, until in enumerate((50, END_OF_TIME)):
        batch = BatchCommit("one", number, Committer("one"), Completeness(until, until))
        table.merge(COLUMNS, changes(), batch)
        assert complete_until(table.name) == until


def test_a_batch_job_holds_nothing_back_in_a_table_of_files(tmp_path: Path) -> None:
    table = lake("parquet", tmp_path)
    table.prepare(COLUMNS, create=True)
    table.merge(COLUMNS, changes(), BatchCommit("replaced", 5, Committer(BATCH_JOB), Completeness()))
    assert complete_until(table.name) is None
    table.merge(COLUMNS, changes(), BatchCommit("one", 0, Committer("one"), Completeness(50, 40)))
    assert complete_until(table.name) == 50


def test_a_stream_states_its_newest_mark(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    with Streams.open(url, create=True) as streams:
        bids = streams.create("shop/bids", columns=pa.schema([("n", pa.int64())]))
        assert complete_until("stream:shop/bids", store=url) is None
        streams.store.write(
            lambda connection: mark_store.note(
                connection, bids.id, "w", time=7, position=Position.of({0: 0}), at=0
            )
        )
        CycleRunner(streams.store).run(bids.id)
    assert complete_until("stream:shop/bids", store=url) == 7
    assert complete_until("stream:shop/none", store=url) is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"table": "totals"},
            "table = 'totals': is not the address of a table; write DATABASE_URL#TABLE, ",
        ),
        ({"table": "sqlite:///a.db"}, "is not the address of a table"),
        ({"table": "postgresql://app:secret@db/shop"}, "table = 'postgresql://…@db/shop': is not the addre"),
        (
            {"table": "parquet:hdfs://host/totals"},
            "'parquet:hdfs://host/totals': is not a folder",
        ),
        ({"table": "json:"}, "table = 'json:': is not a folder"),
        ({"table": "json:s3://key:secret@lake/a"}, "table = 'json:s3://…@lake/a': is not a folder; write "),
        (
            {"table": "stream:shop/bids"},
            "store = None: is required for a stream; pass store=, or set ",
        ),
        ({"table": "stream:shop/bids", "identity": "x"}, "identity = 'x': has no meaning for a stream"),
    ],
)
def test_invalid_addresses(arguments: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLACKWATER_STORE", raising=False)
    with pytest.raises(InvalidArgument) as raised:
        complete_until(**arguments)  # type: ignore[arg-type]
    assert message in str(raised.value)


@pytest.mark.search
def test_a_wait_ends_when_the_time_is_reached(database: str) -> None:
    upserted(database, "one", 0, Completeness(DAY - 1, None))
    later = threading.Timer(0.3, upserted, (database, "one", 1, Completeness(DAY, None)))
    later.start()
    seen: list[int | None] = []
    result = wait_until(
        f"{database}#totals", DAY, every="20 milliseconds", timeout="1 minute", observe=seen.append
    )
    later.join()
    assert result.reached
    assert (seen[0], seen[-1]) == (DAY - 1, DAY)
    with pytest.raises(InvalidArgument, match="every = '0 seconds': must be greater than zero"):
        wait_until(f"{database}#totals", DAY, every="0 seconds")


def test_a_wait_goes_on_while_the_table_cannot_be_read(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int | Exception] = [DAY - 1, TableUnreadable("totals", "connection refused"), DAY]

    def look(table: str, **_: object) -> int:
        found = looks.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr("slackwater.table_progress.waiting.complete_until", look)
    assert wait_until(f"{database}#totals", DAY, every="1 millisecond").reached
    looks[:] = [TableUnreadable("totals", "connection refused")]
    with pytest.raises(TableUnreadable):
        wait_until(f"{database}#totals", DAY, every="1 millisecond")
    with pytest.raises(InvalidDuration, match="timeout = -5000000: is negative"):
        wait_until(f"{database}#totals", DAY, timeout="-5 seconds")


def test_no_message_contains_a_password(tmp_path: Path) -> None:
    code, output, errors = command(
        "postgresql://app:secret@127.0.0.1:1/shop?connect_timeout=1#totals", "--until", "2024-01-02T00:00:00Z"
    )
    assert code == 1
    assert "the completeness of postgresql://app@127.0.0.1:1/shop#totals cannot be read: " in errors
    assert "secret" not in output + errors
    (tmp_path / "files" / "_delta_log").mkdir(parents=True)
    (tmp_path / "files" / "_delta_log" / f"{0:020}.json").write_text("no JSON")
    code, _, errors = command(f"delta:{tmp_path}/files", "--until", "2024-01-02T00:00:00Z")
    assert code == 1
    assert f"the completeness of delta:{tmp_path}/files cannot be read: " in errors


def command(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["wait", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_the_exit_code_of_the_command_says_whether_the_table_is_complete(database: str) -> None:
    upserted(database, "one", 0, Completeness(DAY, DAY - 1))
    table = f"{database}#totals"
    code, output, _ = command(table, "--until", "2024-01-02T00:00:00Z")
    assert (code, output) == (0, "complete until 2024-01-02T00:00:00Z\n")
    code, _, errors = command(table, "--until", "2024-01-02T00:00:01Z", "--timeout", "0s")
    assert code == 3
    assert f"{table} is not complete until 2024-01-02T00:00:01Z yet" in errors
    code, output, _ = command(
        table, "--until", "2024-01-02T00:00:00Z", "--timeout", "0s", "--final", "--json"
    )
    assert code == 3
    assert json.loads(output) == {
        "table": table,
        "reached": False,
        "until": "2024-01-02T00:00:00Z",
        "complete_until": "2024-01-01T23:59:59.999999Z",
    }
    assert command("totals", "--until", "2024-01-02T00:00:00Z")[0] == 2
    assert command(table, "--until", "soon")[0] == 2
    assert (
        command("stream:shop/none", "--until", "2024-01-02T00:00:00Z", "--store", f"{database}.none")[0] == 1
    )
