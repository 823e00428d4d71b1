"""Errors of Python workers and of the JVM as Spark raises them, and a secret that a server repeats."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from slackwater.ingest import parse_job
from slackwater.ingest.runner import run_job
from slackwater.metadata.store import open_store
from tests.support.http_server import serving

pytestmark = pytest.mark.spark
AXIS = {"name": "system", "type": "datetime", "range": {"from": "2020-01-01", "to": "P0D"}}
ROOT = Path(__file__).parents[2]
SECRET = "s3cret-in-the-file"  # noqa: S105 - the server below repeats it


def in_a_worker(spark: SparkSession) -> None:
    def failing(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for _ in batches:
            yield pa.RecordBatch.from_pylist([{"id": "x"}], pa.schema([("id", pa.int64())]))

    spark.range(1).mapInArrow(failing, "id long").collect()


def in_a_task(spark: SparkSession) -> None:
    def failing(number: int) -> float:
        return 1 / number

    spark.sparkContext.parallelize([0], 1).map(failing).collect()


def in_the_jvm(spark: SparkSession) -> None:
    assert spark._jvm is not None
    spark._jvm.java.io.FileInputStream("/no/such/file")


@pytest.mark.parametrize(
    ("failing", "said"),
    [
        (in_a_worker, "ArrowInvalid: Could not convert 'x' with type str"),
        (in_a_task, "ZeroDivisionError: division by zero"),
        (in_the_jvm, "FileNotFoundException: /no/such/file (No such file or directory)"),
    ],
)
def test_the_innermost_cause_is_recorded(
    spark: SparkSession, tmp_path: Path, failing: Any, said: str
) -> None:
    def extract(*_: object) -> Any:
        failing(spark)

    with open_store(f"sqlite:///{tmp_path}/store.db", create=True) as store:
        (outcome,) = run_job(parse_job({}), store, extract).outcomes
    assert str(outcome.error).startswith(said)


@pytest.mark.proof
def test_a_secret_that_a_server_repeats_is_redacted_everywhere(tmp_path: Path) -> None:
    with serving([{"id": SECRET, "at": "2020-01-01T12:00:00Z"}]) as api:
        keys = {
            "ms.watermark": [AXIS],
            "ms.source.type": "http", "ms.source.url": f"{api.url}/all",
            "ms.source.http.headers": {"X-Key": SECRET},
            "ms.schema": [{"name": "id", "type": "bigint"}, {"name": "at", "type": "timestamp"}],
            "ms.time.column": "at",
            "ms.target.type": "parquet", "ms.target.path": "copied",
        }  # fmt: skip
        (tmp_path / "orders.yaml").write_text(json.dumps(keys), encoding="utf-8")
        command = [sys.executable, "-m", "slackwater.cli", "ingest", "orders.yaml", "--now", "2020-01-02"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "correct the source, or set ms.target.on.error to emit" in done.stdout
    assert SECRET not in done.stdout + done.stderr
    assert "QueryContextLogger" not in done.stderr
    kept = [path.read_bytes() for path in tmp_path.glob("slackwater.db*")]
    assert [SECRET.encode() in data for data in kept] == [False] * len(kept)
