"""A writer process for the end-to-end test: ``python -m tests.spark.click_writer FOLDER NAME``."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

from slackwater.streams.log.catalog import Streams
from slackwater.streams.log.writer import Writer
from slackwater.streams.time.notes import NoteResult
from slackwater.time import SECOND, to_datetime

STEPS = 30
START = 1_700_000_000 * SECOND
FINAL = START + 3_600 * SECOND
SKEWS = {"even": 0, "fast": 20, "slow": -15, "stalls": 7}
"""The writers, and by how many seconds their clocks are ahead."""
SLOWEST = min(SKEWS, key=SKEWS.__getitem__)
STALLED_AT = 10
"""The step after which the stalling writer stops writing."""


def main(folder: Path, name: str) -> None:
    draw, skew, stalls = random.Random(name), SKEWS[name], name == "stalls"
    with (
        Streams.open(f"sqlite:///{folder}/store.db", create=True) as streams,
        Writer(streams.get("shop/clicks"), name) as writer,
    ):
        # A writer that notes its first time after a mark of the others would write late rows: the slowest
        # one begins, and holds back the marks until all have noted a time.
        if name != SLOWEST:
            wait_for(folder, f"noted-{SLOWEST}", 1)
        check(writer.note_time(START + skew * SECOND))
        (folder / f"noted-{name}").touch()
        wait_for(folder, "noted-*", len(SKEWS))
        for step in range(STEPS):
            clock = START + (skew + step) * SECOND
            # out of order by up to five seconds, but never before the noted time
            rows = [
                {
                    "user": f"user {draw.randrange(5)}",
                    "at": to_datetime(clock + draw.randrange(5 * SECOND)),
                    "amount": n,
                }
                for n in range(20)
            ]
            writer.write_many(rows, keys="user")
            if stalls and step > STALLED_AT:
                writer.flush()
                (folder / "stalled").touch()
                while not (folder / "go").exists():
                    time.sleep(0.05)
                return
            check(writer.note_time(clock + SECOND) if step + 1 < STEPS else writer.note_time(FINAL))
            time.sleep(0.1)


def wait_for(folder: Path, pattern: str, files: int) -> None:
    end = time.monotonic() + 120
    while len(list(folder.glob(pattern))) < files:
        if time.monotonic() > end:
            raise SystemExit(f"waited for 120 s for {files} files {pattern}")
        time.sleep(0.05)


def check(result: NoteResult) -> None:
    if result is not NoteResult.OK:
        raise SystemExit(f"refused: {result}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
