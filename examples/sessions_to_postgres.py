"""Group clicks into visits in a PostgreSQL table; a click that is up to an hour late corrects the table."""

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

import slackwater as sw


def pipeline(clicks: DataFrame, database: str, folder: str) -> DataStreamWriter:
    """``clicks`` has the columns person, at and page; ``database`` is the address of the database."""
    timed = sw.stream(clicks, event_time="at", watermark=sw.lag("1 minute")).key_by("person")
    windows = timed.window(sw.sessions(gap="30 minutes")).allowed_lateness("1 hour")
    visits = windows.accumulating_and_retracting().agg(clicks=sw.count(), entry=sw.first("page"))
    return visits.upsert_to(database, "visits", create=True).option("checkpointLocation", folder)
