"""The job of the HTTP guide, run by the command against a server: incremental, its token in no output."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from tests.support.http_server import Api, serving

pytestmark = pytest.mark.spark
ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "from-an-http-api.md"
TOKEN = "s3cret-token-of-the-shop"  # noqa: S105 - the server below knows it
ROWS = [
    {"id": day, "at": f"2020-01-{day:02}T12:00:00Z", "shop": "north" if day % 2 else "south"}
    for day in range(1, 10)
]


@pytest.fixture
def api() -> Iterator[Api]:
    with serving(ROWS) as running:
        running.allowed = lambda asked: asked.headers.get("authorization") == f"Bearer {TOKEN}"
        yield running


def ingest(folder: Path, api: Api, now: str) -> tuple[int, list[dict[str, Any]], str]:
    environment = os.environ | {
        "SHOP_API": api.url, "SHOP_TOKEN": TOKEN, "SPARK_CONF_DIR": str(folder / "conf"),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
    }  # fmt: skip
    command = [sys.executable, "-m", "slackwater.cli", "ingest", "orders.yaml", "--json", "--now", now]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert done.returncode < 2, said
    return done.returncode, json.loads(done.stdout)["units"], said


@pytest.mark.proof
def test_the_job_of_the_guide_reads_what_is_missing_and_tells_no_secret(tmp_path: Path, api: Api) -> None:
    (job,) = re.findall(r"```yaml\n(# orders\.yaml\n.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "orders.yaml").write_text(job, encoding="utf-8")
    for name in ("conf", "events"):
        (tmp_path / name).mkdir()
    settings = {
        "spark.eventLog.enabled": "true", "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{tmp_path}/events",
    }  # fmt: skip
    lines = "".join(f"{name} {value}\n" for name, value in settings.items())
    (tmp_path / "conf" / "spark-defaults.conf").write_text(lines, encoding="utf-8")

    code, units, first = ingest(tmp_path, api, "2020-01-08T09:00:00Z")
    assert (code, [unit["rows"] for unit in units]) == (0, [4, 3]), first
    api.requests.clear()
    right = api.allowed
    api.allowed = lambda asked: right(asked) and "south" not in asked.path
    code, units, second = ingest(tmp_path, api, "2020-01-10T09:00:00Z")
    assert (code, [(unit["rows"], unit["outcome"]) for unit in units]) == (
        1,
        [(1, "succeeded"), (0, "failed")],
    )
    assert "returned 401 Unauthorized" in units[1]["error"]
    assert "/shops/south/orders" in units[1]["error"]
    assert {asked.query["since"] for asked in api.requests} == {"2020-01-08T00:00:00Z"}

    table = ds.dataset(tmp_path / "copied", partitioning="hive").to_table(["id", "shop"])
    assert sorted(table.to_pylist(), key=lambda row: row["id"]) == [
        {"id": row["id"], "shop": row["shop"]} for row in ROWS if row["id"] != 8
    ]
    logs = [path.read_bytes() for path in (tmp_path / "events").rglob("*") if path.is_file()]
    assert sum(map(len, logs)) > 10_000
    written = [*logs, (tmp_path / "slackwater.db").read_bytes(), (first + second).encode()]
    assert [TOKEN.encode() in data for data in written] == [False] * len(written)
