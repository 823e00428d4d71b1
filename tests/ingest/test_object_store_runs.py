"""Jobs that write to object stores, from a source through Spark to an S3 server and to ``file:``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import deltalake
import pytest

from slackwater.table_progress.completeness_reader import complete_until
from slackwater.tables.manifest import parquet_dataset
from slackwater.time import instant
from tests.ingest.copying import ROWS, orders
from tests.tables.object_store import s3_server

pytestmark = [pytest.mark.spark, pytest.mark.proof]
ROOT = Path(__file__).parents[2]
SECRET = "-".join(["hunter", "22", "hunter"])
EXPECTED = [["a/b ø", number] for number, _, _ in ROWS]


def pairs(found: Any) -> list[list[Any]]:
    return sorted([row["shop"], row["id"]] for row in found.to_pylist())


def test_jobs_write_to_object_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = f"sqlite:///{tmp_path}/source.db"
    orders(source)
    with s3_server("lake") as variables:
        for name, value in {**variables, "AWS_SECRET_ACCESS_KEY": SECRET}.items():
            monkeypatch.setenv(name, value)
        local = f"{tmp_path.as_uri()}/orders"
        urls = ["s3://lake/orders/parquet", "s3://lake/orders/delta", local]
        monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}{os.pathsep}{ROOT}")
        program = [sys.executable, "-m", "tests.ingest.object_store_jobs", str(tmp_path), source, *urls]
        done = subprocess.run(program, cwd=ROOT, capture_output=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr.decode()[-3000:]
        assert json.loads(done.stdout.splitlines()[-1]) == EXPECTED
        assert pairs(parquet_dataset(urls[0]).to_table()) == EXPECTED
        assert pairs(parquet_dataset(local).to_table()) == EXPECTED
        assert pairs(deltalake.DeltaTable(urls[1]).to_pyarrow_table()) == EXPECTED
        addresses = (
            f"parquet:{urls[0]}",
            f"delta:{urls[1]}",
            f"parquet:{local}",
            f"parquet:{tmp_path}/orders",
        )
        for address in addresses:
            assert complete_until(address) == instant("2020-01-04T00:00:00Z"), address
        assert complete_until("parquet:s3://lake/missing") is None
    assert SECRET.encode() not in done.stdout + done.stderr
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path
