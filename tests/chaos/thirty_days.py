"""Thirty days of rows in an archive and in a live source that overlap, and the sessions over them.

The archive has a file for each of the days 0 to 29, in no order. The live source has the rows from day 26 on
in the order of their arrival, also of days that the archive has. The seam is at the beginning of day 28: rows
before it come from the archive, the others from the live source.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

import slackwater as sw
from slackwater.spark.api.panes import Panes
from slackwater.spark.wire.clock_source import Ticks
from slackwater.time import HOUR, SECOND, format_instant
from tests.spark.oracle import Truth
from tests.spark.running import Batch, write

SEED: Final = 30
DAY: Final = 24 * 3600
ARCHIVED: Final = range(30)
LIVE: Final = range(26, 33)
SEAM: Final = 28
FILES_A_DAY: Final = 2
GAP: Final = 3600
SCHEMA: Final = "key string, at timestamp, value long, origin string"

Row = tuple[str, int, int]
"""Key, event time in seconds, value. Every value occurs once."""


def rows() -> list[Row]:
    """All rows, in the order of their event time."""
    source = random.Random(SEED)
    times = sorted(source.randrange(DAY * LIVE.stop) for _ in range(25 * LIVE.stop))
    return [(source.choice("abc"), second, number * number) for number, second in enumerate(times)]


def write_archive(folder: Path, given: Iterable[Row]) -> None:
    """A file for each day that the archive has, in no order."""
    days: dict[int, list[Row]] = defaultdict(list)
    for row in given:
        days[row[1] // DAY].append(row)
    order = random.Random(SEED).sample(ARCHIVED, len(ARCHIVED))
    for number, day in enumerate(order):
        write(folder, number, Batch(days[day], 0, None))


def write_live(folder: Path, given: Iterable[Row]) -> int:
    """Files of the live rows in the order of their arrival, up to two hours late; returns their number."""
    source = random.Random(SEED)
    lived = [row for row in given if row[1] // DAY in LIVE]
    lived.sort(key=lambda row: row[1] + source.randrange(2 * 3600))
    size = -(-len(lived) // (FILES_A_DAY * len(LIVE)))
    parts = [lived[first : first + size] for first in range(0, len(lived), size)]
    for number, part in enumerate(parts):
        write(folder, number, Batch(part, 0, None))
    return len(parts)


def panes(spark: SparkSession, folder: Path, *, batches: int) -> Panes:
    """The sessions over archive and live rows, with a tick of the clock for each batch."""
    archive = spark.readStream.schema(SCHEMA).parquet(str(folder / "archive"))
    live = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / "live"))
    return sessions(
        live,
        history=sw.history(archive, until=format_instant(SEAM * DAY * SECOND)),
        clock=Ticks(tuple(SECOND * number for number in range(1, batches + 1))),
    )


def sessions(df: DataFrame, **options: Any) -> Panes:
    """The pipeline."""
    given = sw.stream(df, event_time="at", watermark=sw.lag("2 hours"), **options)
    windowed = given.key_by("key").window(sw.sessions("1 hour")).allowed_lateness("1 day")
    early = windowed.trigger(sw.after_watermark(early=sw.every(count=2), late=sw.every(count=1)))
    return early.accumulating_and_retracting().agg(count=sw.count(), sum=sw.sum("value"))


def truth(given: Sequence[Row]) -> Truth:
    """The sessions over all rows, by key, start and end."""
    found: Truth = {}
    keys: dict[str, list[Row]] = defaultdict(list)
    for row in sorted(given, key=lambda row: row[1]):
        keys[row[0]].append(row)
    for key, of_key in keys.items():
        session: list[Row] = []
        for row in [*of_key, (key, 2**60, 0)]:
            if session and row[1] - session[-1][1] >= GAP:
                bounds = session[0][1] * SECOND, session[-1][1] * SECOND + HOUR
                found[key, *bounds] = {"count": len(session), "sum": sum(one[2] for one in session)}
                session = []
            session.append(row)
    return found


def corrected(given: Sequence[Row], day: int) -> list[Row]:
    """The rows with changes on one day: some are missing, and new ones join sessions, also over midnight."""
    of_day = [row for row in given if row[1] // DAY == day]
    others = [row for row in given if row[1] // DAY != day]
    begin, end = day * DAY, (day + 1) * DAY
    joining = [(key, second, 7) for key in "ab" for second in (*range(begin, begin + 9000, 1800), end - 60)]
    return [*others, *(row for number, row in enumerate(of_day) if number % 3), *joining]


def near(given: Sequence[Row], day: int) -> list[Row]:
    """The rows of a day and of the days next to it."""
    return [row for row in given if abs(row[1] // DAY - day) <= 1]
