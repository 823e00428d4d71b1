"""History, then live rows, with a driver that is killed at the seam: equal to the truth, nothing doubled."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from slackwater.table_progress.completeness_reader import complete_until
from slackwater.time import END_OF_TIME
from tests.chaos.queries import entries
from tests.chaos.thirty_days import ARCHIVED, DAY, LIVE, SEAM, rows, truth, write_archive, write_live
from tests.spark.oracle import table_of
from tests.support.programs import Program

KILLED_IN: Final = ("history", "history in the table", "first live batch", "live")
"""The moments at which the driver is killed."""


def test_both_sources_have_rows_of_the_other_side_of_the_seam() -> None:
    days = {row[1] // DAY for row in rows()}
    assert days == set(range(LIVE.stop))
    assert LIVE.start < SEAM < ARCHIVED.stop < LIVE.stop


@pytest.mark.spark
@pytest.mark.proof
def test_a_driver_killed_at_the_seam_loses_and_doubles_no_row(tmp_path: Path) -> None:
    given = rows()
    write_archive(tmp_path / "archive", given)
    batches = write_live(tmp_path / "live", given) + 1
    offsets, commits = (tmp_path / "checkpoint" / name for name in ("offsets", "commits"))
    address = f"sqlite:///{tmp_path}/truth.db"

    def reached(moment: str) -> bool:
        planned, committed = entries(offsets), entries(commits)
        match moment:
            case "history":
                return planned == 1
            case "history in the table":
                return applied(tmp_path) == 1
            case "first live batch":
                return planned == 2
            case _:
                return planned > committed > 4

    for number, moment in enumerate(KILLED_IN):
        with driver(tmp_path, batches, f"killed-{number}.log") as killed:
            killed.wait_until(lambda moment=moment: reached(moment), interval=0.002)  # type: ignore[misc]
            killed.kill()
        assert entries(commits) < batches
    with driver(tmp_path, batches, "last.log") as last:
        last.finish()
    assert table_of(address, "sessions") == truth(given)
    assert complete_until(f"{address}#sessions") == END_OF_TIME


def applied(folder: Path) -> int:
    """The number of batches in the table."""
    try:
        with closing(sqlite3.connect(f"file:{folder}/truth.db?mode=ro", uri=True)) as connection:
            (batch,) = connection.execute("SELECT max(batch) + 1 FROM slackwater_upserts").fetchone()
    except sqlite3.OperationalError:  # not created yet, or locked
        return 0
    return int(batch or 0)


def driver(folder: Path, batches: int, log: str) -> Program:
    command = [sys.executable, "-m", "tests.chaos.thirty_days_driver", str(folder), str(batches)]
    return Program(command, folder / log)
