"""The driver program of the composed pipelines: it runs them all, into Parquet files.

``python -m tests.chaos.pipelines_driver FOLDER NUMBER …`` runs the pipeline of each number in its folder;
prints ``started`` when all queries run and ``done`` when all have ended.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.chaos.driver import wait_for
from tests.chaos.pipelines import Composed
from tests.chaos.settings import local_session
from tests.spark.test_random_pipelines import output


def main(*queries: Composed) -> None:
    spark = local_session("pipelines")
    started = []
    for query in queries:
        frame = output(spark, query.folder / "in", query.made)
        writer = frame.writeStream.format("parquet").option("path", str(query.output))
        writer = writer.option("checkpointLocation", str(query.checkpoint)).trigger(availableNow=True)
        started.append(writer.start())
    wait_for(started)


if __name__ == "__main__":
    folders, numbers = sys.argv[1::2], sys.argv[2::2]
    main(*(Composed(Path(folder), int(number)) for folder, number in zip(folders, numbers, strict=True)))
