"""The example of Spark Declarative Pipelines, run by Spark's own command."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from slackwater.spark.versions import PYSPARK
from tests.spark.running import put_in_order

pytestmark = [
    pytest.mark.spark,
    pytest.mark.proof,
    pytest.mark.skipif(PYSPARK < (4, 1), reason="Spark has declarative pipelines since 4.1"),
]
ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "examples" / "declarative_pipeline"
WINDOW = 10
LAST = 80
"""The start of the last window, which is open at the end."""
OF_A_TABLE = """
from pathlib import Path
from pyspark import pipelines as dp
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
import slackwater as sw

spark = SparkSession.active()


def of_a_table():
    rows = sw.declared(spark.readStream.table("panes"), "auction string, at timestamp")
    stream = sw.stream(rows, event_time="at", watermark=sw.lag("5 seconds"))
    return stream.window(sw.tumbling("1 minute")).agg(rows=sw.count()).to_df()


try:
    dp.append_flow(target="panes")(of_a_table)
except AnalysisException as error:
    Path("refused").write_text(error.getCondition())
"""
"""A flow that reads a table of the same pipeline, which the server analyzes before the table exists."""


def expected() -> dict[tuple[str, int], tuple[int, int]]:
    """The number of bids and the total of each auction and window, from the files."""
    found: dict[tuple[str, int], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for file in sorted((PROJECT / "data").glob("*.json")):
        for line in file.read_text(encoding="utf-8").splitlines():
            bid = json.loads(line)
            minutes, seconds = (int(part) for part in bid["at"].removesuffix("Z").split(":")[1:])
            key = (bid["auction"], (60 * minutes + seconds) // WINDOW * WINDOW)
            count, total = found[key]
            found[key] = (count + 1, total + bid["price"])
    return found


def test_the_example_runs(tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(PROJECT, project)
    for number, file in enumerate(sorted((project / "data").glob("*.json"))):
        put_in_order(file, number)
    spec = project / "spark-pipeline.yml"
    storage = f"storage: {tmp_path.as_uri()}/storage"
    spec.write_text(re.sub("storage: .*", storage, spec.read_text(encoding="utf-8")), encoding="utf-8")
    (project / "transformations" / "of_a_table.py").write_text(OF_A_TABLE, encoding="utf-8")
    programs = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT / "src"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [programs / "spark-pipelines", "run"],
        cwd=project, env=environment, capture_output=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr).decode()[-4000:]

    tables = project / "spark-warehouse"
    assert any(pane["retraction"] for pane in pq.read_table(tables / "panes")["pane"].to_pylist())
    found = {}
    for row in pq.read_table(tables / "totals").to_pylist():
        start = row["window"]["start"]
        found[row["auction"], 60 * start.minute + start.second] = (row["bids"], row["total"])
    assert found == {key: value for key, value in expected().items() if key[1] < LAST}
    assert (project / "refused").read_text(encoding="utf-8") == "TABLE_OR_VIEW_NOT_FOUND"
