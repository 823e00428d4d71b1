"""The driver program that the test kills: it writes the workload to Parquet files and PostgreSQL tables.

``python -m tests.chaos.driver FOLDER URL MASTER BATCHES SEED ends|goes-on QUERY …``; prints ``started``
when all queries run and ``done`` when all have ended, and exits with 1 if one of them failed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql.streaming.query import StreamingQuery

from slackwater.spark.api.upsert import upsert_to
from slackwater.spark.session import session
from tests.chaos.queries import Query
from tests.chaos.settings import QUICK, short_lived, slow_commits
from tests.chaos.workload import Workload, workload


def main(folder: Path, url: str, master: str, load: Workload, *names: str, ends: bool) -> None:
    spark = session(
        "chaos",
        master=master,
        partitions=2,
        config={
            **short_lived("tests.chaos.preloaded"),
            "spark.executor.extraJavaOptions": QUICK,
            "spark.sql.session.timeZone": "UTC",
            "spark.executor.cores": "1",
            "spark.executor.memory": "700m",
            "spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        },
    )
    spark.sparkContext.setLogLevel("ERROR")
    if master.startswith("local"):
        slow_commits(spark)
    started = []
    for query in (Query(folder, url, name) for name in names):
        frame = load.panes(spark, folder / "in", query.pipeline, ends=ends).to_df(flush=ends)
        if query.sink == "files":
            writer = frame.writeStream.format("parquet").option("path", str(query.output))
        else:
            writer = upsert_to(frame, url, query.pipeline, key=["key"], create=True)
        writer = writer.option("checkpointLocation", str(query.checkpoint)).trigger(availableNow=True)
        started.append(writer.start())
    wait_for(started)


def wait_for(started: Sequence[StreamingQuery]) -> None:
    """Print ``started``, wait for the end of all queries, and print ``done``."""
    say("started")
    for running in started:
        running.awaitTermination()
    say("done")


def say(word: str) -> None:
    """Print a word that the test waits for."""
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    given, address, cluster, batches, seed, end, *chosen = sys.argv[1:]
    load = workload(int(batches), seed=int(seed))
    main(Path(given), address, cluster, load, *chosen, ends=end == "ends")
