"""What `slackwater doctor` finds, each finding with its fix."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sql
from typer.testing import CliRunner

from slackwater.cli.app import app
from slackwater.doctor.checkpoints import check_checkpoint
from slackwater.doctor.findings import Finding
from slackwater.doctor.installation import check_java, defaults_finding
from slackwater.doctor.stores import check_clock, check_leases, check_store
from slackwater.ingest.ledger.job_lease import JobLease
from slackwater.ingest.ledger.run_ledger import Run
from slackwater.metadata.leases import Leases
from slackwater.metadata.store import MetadataStore, open_store
from slackwater.metadata.store_schema import VERSION_TABLE
from slackwater.streams.log.catalog import Streams
from slackwater.streams.maintenance.controller import Controller
from slackwater.streams.segments.positions import Position
from slackwater.streams.time.mark_store import note
from slackwater.time import MINUTE, SECOND, now
from tests.stores import new_store


def problems(findings: object) -> list[Finding]:
    assert not isinstance(findings, Finding)
    return [finding for finding in findings if finding.level != "ok"]  # type: ignore[attr-defined]


def write_version(store: MetadataStore, version: str) -> None:
    change = sql.text(f"UPDATE {VERSION_TABLE} SET version_num = :version")  # noqa: S608 - a fixed name
    store.write(lambda connection: connection.execute(change, {"version": version}))


def test_a_new_store_has_no_problem(tmp_path: Path) -> None:
    found = list(check_store(new_store(tmp_path), must_exist=True))
    assert [finding.level for finding in found if finding.check != "disk"] == ["ok", "ok"]


def test_a_missing_store_is_an_error_only_if_it_was_named(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/none.db"
    assert [finding.level for finding in check_store(url, must_exist=True)] == ["error"]
    assert [finding.level for finding in check_store(url, must_exist=False)] == ["ok"]


def test_missing_migrations_are_counted_and_not_made(tmp_path: Path) -> None:
    url = new_store(tmp_path)
    with open_store(url) as store:
        write_version(store, "0010")
    before = (tmp_path / "store.db").read_bytes()
    (finding,) = [each for each in check_store(url, must_exist=True) if each.check == "store"]
    assert finding.level == "warning"
    assert "has schema version 0010" in finding.text
    assert "the next command that writes upgrades it" in str(finding)
    assert (tmp_path / "store.db").read_bytes() == before


@pytest.mark.parametrize(("skew", "level"), [(0, "ok"), (5 * SECOND, "warning"), (-5 * MINUTE, "error")])
def test_the_skew_of_the_clocks_is_measured(tmp_path: Path, skew: int, level: str) -> None:
    with open_store(new_store(tmp_path), clock=lambda: now() + skew) as store:
        assert check_clock(store).level == level


def test_writers_without_a_controller_are_an_error(tmp_path: Path) -> None:
    with open_store(new_store(tmp_path)) as store:
        streams = Streams(store)
        bids = streams.create("shop/bids")
        store.write(partial(note, stream=bids.id, writer="w", time=5, position=Position.of({0: 0}), at=now()))
        (finding,) = problems(check_leases(store))
        assert (finding.level, finding.fix) == ("error", "start one: slackwater controller")
        assert "no controller runs" in finding.text
        Controller(streams, name="c").step()
        assert problems(check_leases(store)) == []


def test_a_dead_controller_and_the_lease_of_a_killed_run_are_found(tmp_path: Path) -> None:
    with open_store(new_store(tmp_path)) as store:
        past = Leases(store, clock=lambda: now() - 10 * MINUTE)
        past.acquire("controller/c1", "c1", lasting=MINUTE)
        past.acquire("ingest orders", "host process 1", lasting=MINUTE)
        dead, lease = problems(check_leases(store))
    assert "controller c1 stopped without releasing its lease, 9 min" in dead.text
    assert "the lease 'ingest orders' expired" in lease.text


def test_a_run_without_a_process_is_found(tmp_path: Path) -> None:
    with open_store(new_store(tmp_path)) as store:
        with JobLease(store, "orders") as lease:
            run = Run(store, lease, "system")
            assert problems(check_leases(store)) == []
        (finding,) = problems(check_leases(store))
    assert f"run {run.id} of job orders is recorded as running" in finding.text


def test_a_java_that_cannot_be_started_is_an_error_with_its_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    finding = check_java()
    assert finding.level == "error"
    assert "install Java 17 or newer, and set JAVA_HOME to its folder" in str(finding)


def test_slow_and_wrong_session_settings_are_told_apart() -> None:
    slow = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled  false"
    assert defaults_finding(slow, "spark-defaults.conf").level == "warning"
    assert defaults_finding("# spark.master local\n\nspark.master  local[2]", "f").level == "ok"


@pytest.mark.parametrize(("partitions", "level"), [(4, "ok"), (8, "warning")])
def test_a_checkpoint_of_another_partition_count_is_found(
    tmp_path: Path, partitions: int, level: str
) -> None:
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    for number, count in ((9, 2), (10, 4)):
        conf = json.dumps({"batchWatermarkMs": 0, "conf": {"spark.sql.shuffle.partitions": str(count)}})
        (offsets / str(number)).write_text(f"v1\n{conf}\n{{}}", encoding="utf-8")
    finding = check_checkpoint(tmp_path, partitions)
    assert finding.level == level
    assert f"{tmp_path} was started with 4 shuffle partitions" in finding.text
    if level == "warning":
        assert "slackwater rescale" in str(finding)


def test_the_exit_code_says_whether_something_is_wrong(tmp_path: Path) -> None:
    run = partial(CliRunner().invoke, app, env={**os.environ, "JAVA_HOME": str(tmp_path)})
    failed = run(["doctor", "--store", new_store(tmp_path)])
    assert failed.exit_code == 1
    assert "error   java: " in failed.output
    found = json.loads(run(["doctor", "--store", new_store(tmp_path), "--json"]).stdout)
    assert {"python", "packages", "java", "session", "store", "clock", "disk"} <= {
        each["check"] for each in found
    }
