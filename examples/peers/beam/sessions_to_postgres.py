"""Group clicks into visits in a PostgreSQL table; a click that is up to an hour late corrects the table."""

from collections.abc import Iterable
from typing import Any

import apache_beam as beam
import psycopg
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, AfterWatermark
from apache_beam.transforms.window import Sessions, TimestampedValue

TABLE = "CREATE TABLE IF NOT EXISTS visits (person TEXT, first FLOAT, until FLOAT, clicks BIGINT, entry TEXT)"
TAKE = "DELETE FROM visits WHERE person = %s AND first < %s AND until > %s"
ADD = "INSERT INTO visits VALUES (%s, %s, %s, %s, %s)"
Clicks = tuple[str, Iterable[dict[str, Any]]]


def replace(item: Clicks, database: str, window: Any = beam.DoFn.WindowParam) -> None:
    first, until = float(window.start), float(window.end)
    clicks = sorted(item[1], key=lambda click: click["at"])
    with psycopg.connect(database) as connection:
        connection.execute(TABLE)
        connection.execute(TAKE, (item[0], until, first))
        connection.execute(ADD, (item[0], first, until, len(clicks), clicks[0]["page"]))


def pipeline(clicks: "beam.PCollection[dict[str, Any]]", database: str) -> None:
    visits = beam.WindowInto(
        Sessions(30 * 60),
        trigger=AfterWatermark(late=AfterCount(1)),
        accumulation_mode=AccumulationMode.ACCUMULATING,
        allowed_lateness=3600,
    )
    timed = clicks | beam.Map(
        lambda click: TimestampedValue((click["person"], click), click["at"].timestamp())
    )
    timed | visits | beam.GroupByKey() | beam.Map(replace, database)
