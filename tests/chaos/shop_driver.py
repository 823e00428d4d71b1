"""The driver program of the shop: it joins three streams and keeps a PostgreSQL table up to date.

``python -m tests.chaos.shop_driver FOLDER URL FILES ends|goes-on`` reads the first FILES files of each
stream; prints ``started`` when the query runs and ``done`` when it has ended.
"""

from __future__ import annotations

import sys
from pathlib import Path

from slackwater.spark.wire.clock_source import Ticks
from slackwater.time import SECOND
from tests.chaos.driver import wait_for
from tests.chaos.settings import local_session
from tests.chaos.shop import refunds


def main(folder: Path, url: str, files: int, *, ends: bool) -> None:
    spark = local_session("shop")
    clock = Ticks(tuple(number * SECOND for number in range(1, files + 1 + ends)))
    panes = refunds(spark, folder / "in", clock=clock)
    writer = panes.upsert_to(url, "refunds", create=True, flush=ends)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    wait_for([writer.start()])


if __name__ == "__main__":
    given, address, count, end = sys.argv[1:]
    main(Path(given), address, int(count), ends=end == "ends")
