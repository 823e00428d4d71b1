"""The driver program that the test kills: retracting sessions into a sink.

``python -m tests.chaos.sinks_driver KIND FOLDER URL BATCHES SEED ends|goes-on``; prints ``started`` when the
query runs and ``done`` when it has ended, and exits with 1 if it failed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.chaos.driver import wait_for
from tests.chaos.settings import local_session, slow_commits
from tests.chaos.sinks import Sink
from tests.chaos.workload import Workload, workload


def main(sink: Sink, load: Workload, *, ends: bool) -> None:
    spark = local_session("sinks")
    slow_commits(spark)
    panes = load.panes(spark, sink.folder / "in", "sessions", ends=ends)
    writer = sink.writer(panes, ends=ends).option("checkpointLocation", str(sink.checkpoint))
    wait_for([writer.trigger(availableNow=True).start()])


if __name__ == "__main__":
    kind, given, address, batches, seed, end = sys.argv[1:]
    main(Sink(kind, Path(given), address), workload(int(batches), seed=int(seed)), ends=end == "ends")
