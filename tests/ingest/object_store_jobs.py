"""Runs jobs that copy orders to object stores, day by day, and prints what Spark reads from the folder.

``python -m tests.ingest.object_store_jobs FOLDER SOURCE URL...``: each URL is the target of one job. The
credentials are in the environment when the JVM starts, so the Python workers have them as well.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from slackwater.ingest import parse_job
from slackwater.ingest.extraction import Extraction
from slackwater.ingest.runner import run_job
from slackwater.metadata.store import open_store
from slackwater.spark.session import session
from slackwater.time import instant
from tests.chaos.settings import short_lived
from tests.ingest.copying import AXIS, from_orders

UNITS = {"name": "shop", "type": "unit", "units": [{"shop": "a/b ø"}]}


def job_of(source: str, url: str) -> dict[str, Any]:
    """The keys of the job that writes to a URL."""
    kind = "delta" if url.endswith("delta") else "parquet"
    layout = {"target_layout": "manifest"} if url.startswith("file") else {}
    name = url.partition(":")[0] + kind
    keys = from_orders(source, target_type=kind, target_path=url, job_name=name, **layout)
    del keys["ms.source.table"]
    query = "SELECT id, at, name FROM orders WHERE {{shop}} IS NOT NULL AND at >= {{low}} AND at < {{high}}"
    return {
        **keys, "ms.source.query": query, "ms.watermark": [AXIS, UNITS], "ms.time.column": "at",
        "ms.work.unit.partition": "daily", "ms.grace.period.days": 1,
    }  # fmt: skip


def main(folder: Path, source: str, *urls: str) -> None:
    """Run each job twice, a day apart; the second run reads a day again."""
    config = short_lived("tests.ingest.preloaded")
    spark = session("objects", master="local[2]", partitions=2, config=config)
    spark.sparkContext.setLogLevel("OFF")
    read: list[list[Any]] = []
    with open_store(f"sqlite:///{folder}/state.db", create=True) as store:
        for url in urls:
            job = parse_job(job_of(source, url))
            for now in ("2020-01-03T01:00:00Z", "2020-01-04T01:00:00Z"):
                report = run_job(job, store, Extraction(job, spark), now=instant(now))
                assert report.succeeded, report.outcomes
            if url.startswith("file"):
                rows = spark.read.parquet(url).select("shop", "id").collect()
                read += sorted([row.shop, row.id] for row in rows)
    sys.stdout.write(json.dumps(read))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
