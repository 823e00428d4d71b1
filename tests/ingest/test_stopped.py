"""A run that is stopped by Ctrl-C: a process receives SIGINT while units run or Spark starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slackwater.ingest.ledger.run_ledger import list_runs, outcomes_of
from slackwater.metadata.store import MetadataStore, open_store
from tests.support.http_server import Api, serving

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[2]
ROWS = [{"id": day, "at": f"2020-01-0{day}T12:00:00Z"} for day in (1, 2, 3)]
JOB = {
    "ms.watermark": [{"name": "system", "type": "datetime", "range": {"from": "2020-01-01", "to": "P0D"}}],
    "ms.work.unit.partition": "daily",
    "ms.run.concurrency": 1,
    "ms.source.type": "http",
    "ms.source.http.query": {"since": "{{low}}", "until": "{{high}}"},
    "ms.time.column": "at",
    "ms.target.type": "parquet",
    "ms.target.path": "copied",
}
"""The first day is read at once, the second is never answered, the third waits for its turn."""


@pytest.fixture
def api() -> Iterator[Api]:
    with serving(ROWS) as running:
        running.allowed = lambda asked: asked.query["since"] < "2020-01-02" or running.released.wait()
        yield running
        running.released.set()


@contextmanager
def ingesting(folder: Path, api: Api, *options: str) -> Iterator[subprocess.Popen[str]]:
    keys = {**JOB, "ms.source.url": f"{api.url}/all"}
    (folder / "orders.yaml").write_text(json.dumps(keys), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "slackwater.cli", "ingest", "orders.yaml", "--now", "2020-01-04"]
    with subprocess.Popen(
        [*command, *options],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def output_after_stopping(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Send SIGINT; return standard output, and standard error from the stop message on."""
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, "Traceback" in errors) == (130, False), output + errors
    return output, errors[errors.index("stopping: ") :]


def states(store: MetadataStore) -> list[tuple[str, list[str]]]:
    found = list_runs(store, "orders")
    return [(run.state, [outcome.state for outcome in outcomes_of(store, run.id)]) for run in found]


@pytest.mark.proof
def test_running_units_are_cancelled_and_recorded_and_no_new_unit_starts(tmp_path: Path, api: Api) -> None:
    with ingesting(tmp_path, api) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("succeeded: ")
        while api.requests[-1].query["since"] < "2020-01-02":
            time.sleep(0.01)
        output, errors = output_after_stopping(process)
    assert errors.splitlines() == [
        "stopping: cancelling running units, starting no new ones; press Ctrl-C again to exit at once"
    ]
    assert "interrupted: 2020-01-02T00:00:00Z to 2020-01-03T00:00:00Z: " in output
    assert output.endswith("1 of 3 units succeeded, 1 row; 1 not started\n")
    with open_store(f"sqlite:///{tmp_path}/slackwater.db", create=True) as store:
        assert states(store) == [("interrupted", ["succeeded", "interrupted"])]


@pytest.mark.proof
def test_units_that_wait_do_not_start(tmp_path: Path, api: Api) -> None:
    with ingesting(tmp_path, api, "--set", "ms.work.unit.pacing.seconds=300") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("succeeded: ")
        output, _ = output_after_stopping(process)
    assert output.endswith("1 of 3 units succeeded, 1 row; 2 not started\n")


@pytest.mark.proof
def test_a_stop_while_spark_starts_prints_a_message_and_no_traceback(tmp_path: Path, api: Api) -> None:
    with ingesting(tmp_path, api) as process:
        while not (tmp_path / "slackwater.db").exists():
            time.sleep(0.01)
        time.sleep(1)
        output_after_stopping(process)
    assert api.requests == []
