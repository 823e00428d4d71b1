"""The program that is killed: one job for each kind of target, all copying the same orders.

``python -m tests.ingest.killed FOLDER SOURCE POSTGRES POINT NOW`` runs all jobs concurrently and kills its
own process when every one of them has reached the point: ``approved`` (all rows are staged), ``swapping``
(in the middle of the change of the target) or ``written`` (the target is changed, the run is not recorded).
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import deltalake

from slackwater.ingest import WorkUnit, parse_job
from slackwater.ingest.extraction import Extraction
from slackwater.ingest.runner import Approve, run_job
from slackwater.ingest.targets import folder_target as directories
from slackwater.ingest.targets.replacement import Written
from slackwater.ingest.targets.table_target import TableTarget
from slackwater.metadata.store import open_store
from slackwater.spark.session import session
from slackwater.streams.log.catalog import Streams
from slackwater.streams.log.transactions import TransactionalWriter
from slackwater.time import instant
from tests.chaos.settings import short_lived
from tests.ingest.copying import AXIS, from_orders

POINTS: Final = ("approved", "swapping", "written")
TARGETS: Final = ("parquet", "csv", "delta", "stream", "sqlite", "postgresql")


def job_of(target: str, folder: Path, source: str, postgres: str) -> dict[str, Any]:
    """The keys of the job that writes to one kind of target."""
    place: dict[str, Any] = {"target_type": target, "target_path": str(folder / target)}
    if target == "stream":
        store = f"sqlite:///{folder}/streams.db"
        place = {"target_type": "stream", "target_url": store, "target_stream": "shop/orders"}
    if target in ("sqlite", "postgresql"):
        url = postgres if target == "postgresql" else f"sqlite:///{folder}/copied.db"
        place = {"target_type": "sql", "target_url": url, "target_table": "copied"}
    keys = from_orders(source, **place, job_name=target, work_unit_partition="daily")
    return {"ms.watermark": [AXIS], "ms.time.column": "at", "ms.run.concurrency": 1, **keys}


def main(folder: Path, source: str, postgres: str, point: str, now: str) -> None:
    config = short_lived("tests.ingest.preloaded")
    spark = session("killed", master="local[2]", partitions=2, config=config)
    spark.sparkContext.setLogLevel("OFF")
    all_here = threading.Barrier(len(TARGETS), action=lambda: os.kill(os.getpid(), signal.SIGKILL))
    if point == "swapping":
        _stop_in_the_middle(all_here.wait)

    store = open_store(f"sqlite:///{folder}/state.db", create=True)
    Streams.open(f"sqlite:///{folder}/streams.db", create=True).close()

    def run(target: str) -> None:
        job = parse_job(job_of(target, folder, source, postgres))
        extraction = Extraction(job, spark)

        class Stopping:
            fence = extraction.fence
            last_number = extraction.last_number
            expect = extraction.expect

            def __call__(self, work: WorkUnit, approve: Approve, /) -> Written:
                def approved(amount: Any, number: int | None = None) -> None:
                    approve(amount, number)
                    if point == "approved":
                        all_here.wait()

                written = extraction(work, approved)
                if point == "written":
                    all_here.wait()
                return written

        run_job(job, store, Stopping(), now=instant(now))

    threads = [threading.Thread(target=run, args=(target,)) for target in TARGETS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _stop_in_the_middle(stop: Callable[[], Any]) -> None:
    """Let every target stop where half of the change is made."""

    def before(function: Any) -> Any:
        def stopped(*arguments: Any, **options: Any) -> Any:
            stop()
            return function(*arguments, **options)

        return stopped

    def after(function: Any) -> Any:
        def stopped(*arguments: Any, **options: Any) -> Any:
            function(*arguments, **options)
            stop()

        return stopped

    directories.FolderTarget._set_link = before(directories.FolderTarget._set_link)  # type: ignore[method-assign]
    deltalake.write_deltalake = before(deltalake.write_deltalake)
    TransactionalWriter.commit_staged = before(TransactionalWriter.commit_staged)  # type: ignore[method-assign]
    TableTarget._insert = after(TableTarget._insert)  # type: ignore[method-assign]


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
