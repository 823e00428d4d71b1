"""Runs that are killed while they change the target: the next run completes them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from slackwater.ingest import parse_job
from slackwater.ingest.extraction import Extraction
from slackwater.ingest.ledger.existing_stores import look_up_history
from slackwater.ingest.runner import run_job
from slackwater.metadata.store import open_store
from slackwater.streams.log.catalog import Streams
from slackwater.streams.log.scan import scan
from slackwater.time import instant
from tests.ingest.copying import ROWS, execute, orders
from tests.ingest.killed import POINTS, TARGETS, job_of
from tests.spark.postgres import Server

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.proof]
ROOT = Path(__file__).parents[2]
STAGED = "SELECT relname FROM pg_class WHERE relname LIKE 'slackwater_ingest_%'"


def copied(spark: SparkSession, target: str, folder: Path, postgres: str) -> list[int]:
    if target == "stream":
        with Streams.open(f"sqlite:///{folder}/streams.db", create=True) as streams:
            stream = streams.get("shop/orders")
            batches = list(scan(stream, stream.head()))
        return sorted(number for batch in batches for number in batch.events.column("id").to_pylist())
    if target in ("sqlite", "postgresql"):
        url = postgres if target == "postgresql" else f"sqlite:///{folder}/copied.db"
        return sorted(row[0] for row in execute(url, "SELECT id FROM copied"))
    if target == "delta":
        return sorted(DeltaTable(folder / target).to_pyarrow_table()["id"].to_pylist())
    reader = spark.read.format(target).option("header", "true")
    return sorted(int(row.id) for row in reader.load(f"{folder}/{target}/rows").collect())


def test_the_next_run_completes_a_killed_run(spark: SparkSession, tmp_path: Path, server: Server) -> None:
    source = f"sqlite:///{tmp_path}/source.db"
    orders(source)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}

    for point in POINTS:
        folder = tmp_path / point
        folder.mkdir()
        postgres = server.create_database(f"killed_{time.monotonic_ns()}")
        command = [sys.executable, "-m", "tests.ingest.killed", str(folder), source, postgres, point]
        killed = subprocess.run(
            [*command, "2020-01-03T01:00:00Z"],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            check=False,
            timeout=300,
        )
        assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-3000:]
        staged = execute(postgres, STAGED)
        assert len(staged) == {"approved": 1, "swapping": 1, "written": 0}[point]

        # a day later: what the killed run had read is now part of a longer history
        for target in TARGETS:
            job = parse_job(job_of(target, folder, source, postgres))
            with open_store(f"sqlite:///{folder}/state.db", create=True) as store:
                report = run_job(job, store, Extraction(job, spark), now=instant("2020-01-04T01:00:00Z"))
            assert report.succeeded, (target, point, report.outcomes)
            assert copied(spark, target, folder, postgres) == [row[0] for row in ROWS], (target, point)
            history = look_up_history(f"sqlite:///{folder}/state.db", job)
            assert [high for _, _, high in history.rows()] == [
                instant(f"2020-01-0{day}T00:00:00Z") for day in (2, 3, 4)
            ]
        assert execute(postgres, STAGED) == []
        assert not list((folder / "parquet" / "_staging" / "parquet").iterdir())
