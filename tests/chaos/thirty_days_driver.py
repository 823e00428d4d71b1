"""The driver program that the test kills: thirty days of history, then live rows, into a SQLite table.

``python -m tests.chaos.thirty_days_driver FOLDER BATCHES``; prints ``started`` when the query runs and
``done`` when it has ended.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.chaos.driver import wait_for
from tests.chaos.settings import local_session
from tests.chaos.thirty_days import panes

if __name__ == "__main__":
    folder, batches = Path(sys.argv[1]), int(sys.argv[2])
    sessions = panes(local_session("thirty days"), folder, batches=batches)
    writer = sessions.upsert_to(f"sqlite:///{folder}/truth.db", "sessions", create=True, flush=True)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True)
    wait_for([writer.start()])
