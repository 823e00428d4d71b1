"""`python -m benchmarks.peers.pathway_engine`: the windows in Pathway, from CSV files to a CSV file.

The files are read in static mode, as one batch: nothing is late, and nothing is emitted twice.
"""

from __future__ import annotations

import csv
import os
from typing import Any

from benchmarks.announcements import announced_run
from benchmarks.peers.workloads import COLUMNS, Job, parse_job


def run(job: Job, pw: Any) -> None:
    """Run the job to its end."""

    class Bid(pw.Schema):
        auction: int
        price: int
        millis: int

    size = job.window.size
    if job.window.sessions:
        # Bids are in one session if they are less than the gap apart.
        window = pw.temporal.session(max_gap=size + 1)
    elif job.window.every is not None:
        window = pw.temporal.sliding(hop=job.window.every, duration=size)
    else:
        window = pw.temporal.tumbling(duration=size)
    bids = pw.io.csv.read(str(job.data / "csv_with_header"), schema=Bid, mode="static")
    windows = bids.windowby(bids.millis, window=window, instance=bids.auction)
    result = windows.reduce(
        auction=pw.this._pw_instance,  # noqa: SLF001 - the public name of the column
        start=pw.reducers.min(pw.this.millis) if job.window.sessions else pw.this._pw_window_start,  # noqa: SLF001
        bids=pw.reducers.count(),
        total=pw.reducers.sum(pw.this.price),
        best=pw.reducers.max(pw.this.price),
    )
    pw.io.csv.write(result, str(job.output / "all"))
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    _add_up(job)


def _add_up(job: Job) -> None:
    """Write the rows that were added, without their time and sign; each must have been added once."""
    with (job.output / "all").open(encoding="utf-8") as changes, (job.output / "all.csv").open("w") as lines:
        for row in csv.DictReader(changes):
            assert row["diff"] == "1", row
            lines.write(",".join(row[column] for column in COLUMNS) + "\n")


if __name__ == "__main__":
    job = parse_job()
    os.environ["PATHWAY_THREADS"] = str(job.cores)
    import pathway  # reads the number of threads when it is imported

    with announced_run():
        run(job, pathway)
