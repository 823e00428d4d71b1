"""The driver program that the test kills: retracting sessions into every sink.

``python -m tests.chaos.sinks_driver FOLDER URL BATCHES SEED ends|goes-on SINK …``; prints ``started`` when
all queries run and ``done`` when all have ended, and exits with 1 if one of them failed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.chaos.driver import wait_for
from tests.chaos.settings import local_session
from tests.chaos.sinks import Sinks
from tests.chaos.workload import Workload, workload


def main(folder: Path, url: str, load: Workload, *names: str, ends: bool) -> None:
    spark = local_session("sinks")
    sinks = Sinks(folder, url)
    started = []
    for name in names:
        panes = load.panes(spark, folder / "in", "sessions", ends=ends)
        writer = sinks.writer(name, panes, ends=ends).trigger(availableNow=True)
        started.append(writer.option("checkpointLocation", str(folder / "checkpoints" / name)).start())
    wait_for(started)


if __name__ == "__main__":
    given, address, batches, seed, end, *chosen = sys.argv[1:]
    main(Path(given), address, workload(int(batches), seed=int(seed)), *chosen, ends=end == "ends")
