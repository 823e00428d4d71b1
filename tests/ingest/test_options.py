"""Options of a run: fewer units, only failed units, pacing, and another timezone."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from slackwater.ingest import WorkUnit, parse_job
from slackwater.ingest.ledger.existing_stores import look_up_history
from slackwater.ingest.runner import Watcher
from slackwater.time import DAY, HOUR, format_instant
from tests.ingest.copying import AXIS, ROWS, START, execute, from_orders, orders, run

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[2]


@pytest.fixture
def source(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/source.db"
    orders(url)
    return url


def copied(spark: SparkSession, folder: Path) -> list[int]:
    return sorted(row.id for row in spark.read.parquet(f"{folder}/copied/rows").collect())


def into_folder(source: str, folder: Path, **more: Any) -> dict[str, Any]:
    return from_orders(source, target_type="parquet", target_path=str(folder / "copied"), **more)


class Starts(Watcher):
    def __init__(self) -> None:
        self.times: list[float] = []

    def started(self, number: int, work: WorkUnit) -> None:
        self.times.append(time.monotonic())


def test_options_max_units_only_failed_and_pacing(spark: SparkSession, tmp_path: Path, source: str) -> None:
    keys = into_folder(source, tmp_path, work_unit_partition="daily", work_unit_min_records=5)
    now = "2020-01-04T01:00:00Z"
    execute(source, "DELETE FROM orders WHERE id = 7")  # the second day has four orders left
    report = run(spark, tmp_path, now, keys, max_units=2)
    assert [(outcome.state, outcome.rows) for outcome in report.outcomes] == [("succeeded", 5), ("failed", 0)]
    assert copied(spark, tmp_path) == [0, 1, 2, 3, 4]
    keys["ms.work.unit.min.records"] = 4
    report = run(spark, tmp_path, now, keys, only_failed=True)
    assert [(format_instant(outcome.low), outcome.rows) for outcome in report.outcomes] == [
        ("2020-01-02T00:00:00Z", 4)
    ]
    starts = Starts()
    paced = {**keys, "ms.work.unit.pacing.seconds": 1, "ms.backfill": True}
    planned = time.monotonic()
    assert run(spark, tmp_path, now, paced, watcher=starts).succeeded
    assert len(starts.times) == 3
    # Unit i starts no earlier than i seconds after the plan, however late the units before it started.
    assert all(started - planned >= number for number, started in enumerate(starts.times))
    assert copied(spark, tmp_path) == [number for number, _, _ in ROWS if number != 7]


def test_a_watermark_from_the_data_goes_no_further_than_the_plan(
    spark: SparkSession, tmp_path: Path, source: str
) -> None:
    execute(source, "ALTER TABLE orders ADD COLUMN updated TEXT")
    execute(source, "UPDATE orders SET updated = '2020-01-02 12:00:00' WHERE id < 4")
    keys = into_folder(source, tmp_path, watermark_column="updated")

    def high() -> list[str]:
        history = look_up_history(f"sqlite:///{tmp_path}/state.db", parse_job({}))
        return [format_instant(at) for _, _, at in history.rows()]

    assert run(spark, tmp_path, "2020-01-03T00:00:00Z", keys).succeeded
    assert high() == ["2020-01-02T12:00:00Z"]
    execute(source, "UPDATE orders SET updated = '2031-01-01 00:00:00'")
    assert run(spark, tmp_path, "2020-01-04T00:00:00Z", keys).succeeded
    assert high() == ["2020-01-04T00:00:00Z"]
    assert copied(spark, tmp_path) == list(range(15))


def test_options_days_follow_the_timezone_of_the_job(
    spark: SparkSession, tmp_path: Path, source: str
) -> None:
    # the times of SQLite name no zone, so they are on the clocks of the job; in Kiritimati it is tomorrow
    keys = into_folder(source, tmp_path, timezone="Pacific/Kiritimati", work_unit_partition="daily")
    report = run(spark, tmp_path, "2020-01-02T10:00:00Z", keys)
    assert [(format_instant(outcome.low), outcome.rows) for outcome in report.outcomes] == [
        ("2019-12-31T10:00:00Z", 5),
        ("2020-01-01T10:00:00Z", 5),
    ]
    times = spark.read.parquet(f"{tmp_path}/copied/rows").selectExpr("min(unix_micros(at))").collect()
    assert times[0][0] == START - 14 * HOUR
    assert run(spark, tmp_path, "2020-01-03T10:00:00Z", keys).outcomes[0].low == START + 2 * DAY - 14 * HOUR
    assert copied(spark, tmp_path) == list(range(15))


def test_units_come_from_the_records_of_a_file(spark: SparkSession, tmp_path: Path, source: str) -> None:
    lines = [
        {"name": f"o'{number}", "state": "open" if number < 3 else "closed", "more": 1} for number in range(6)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "names.json").write_text(text, encoding="utf-8")
    given = {"path": str(tmp_path / "names.json"), "fields": ["name"], "filters": {"state": "open"}}
    keys = into_folder(source, tmp_path, secondary_input=[given], watermark=[AXIS])
    del keys["ms.source.table"]
    keys["ms.source.query"] = "SELECT id, at FROM orders WHERE name = {{name}}"
    report = run(spark, tmp_path, "2020-01-04T01:00:00Z", keys)
    assert [(outcome.unit, outcome.rows) for outcome in report.outcomes] == [
        (json.dumps({"name": f"o'{number}"}, separators=(",", ":")), 1) for number in range(3)
    ]
    rows = spark.read.parquet(f"{tmp_path}/copied").collect()
    assert sorted((row.id, row.name) for row in rows) == [(number, f"o'{number}") for number in range(3)]


@pytest.mark.proof
def test_the_command_prints_lines_to_a_file_and_bars_to_a_terminal(tmp_path: Path, source: str) -> None:
    keys = into_folder(source, tmp_path, work_unit_partition="daily", work_unit_min_records=5)
    execute(source, "DELETE FROM orders WHERE id = 7")
    (tmp_path / "orders.yaml").write_text(
        yaml.safe_dump({"ms.watermark": [AXIS], "ms.time.column": "at", **keys}), encoding="utf-8"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "200", "TERM": "xterm"}
    command = [sys.executable, "-m", "slackwater.cli", "ingest", str(tmp_path / "orders.yaml")]
    command += ["--state", f"sqlite:///{tmp_path}/store.db", "--now", "2020-01-04T01:00:00Z"]

    def run_options(*options: str) -> tuple[int, str]:
        ran = subprocess.run(
            [*command, *options], env=environment, capture_output=True, check=False, timeout=300, text=True
        )
        return ran.returncode, ran.stdout

    code, shown = run_options("--dry-run", "--max-units", "2")
    assert (code, shown.splitlines()[-1]) == (0, "2 units would run")
    code, shown = run_options("--max-units", "2")
    assert code == 1
    assert "succeeded: 2020-01-01T00:00:00Z to 2020-01-02T00:00:00Z, 5 rows" in shown
    assert "failed: 2020-01-02T00:00:00Z to 2020-01-03T00:00:00Z, 0 rows" in shown
    assert "1 of 2 units succeeded, 5 rows" in shown

    ours, theirs = pty.openpty()
    bars = b""
    with subprocess.Popen(
        [*command, "--only-failed"], env=environment, stdout=subprocess.PIPE, stderr=theirs, text=True
    ) as ran:
        os.close(theirs)
        with suppress(OSError):  # the other end is closed
            while part := os.read(ours, 4096):
                bars += part
        os.close(ours)
        shown, _ = ran.communicate(timeout=60)
    assert ran.returncode == 1
    assert "0 of 1 unit succeeded, 0 rows" in shown
    assert b"1/1" in bars
    assert b"2020-01-02T00:00:00Z to 2020-01-03T00:00:00Z" in bars
