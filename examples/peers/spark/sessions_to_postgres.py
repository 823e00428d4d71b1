"""Group clicks into visits in a PostgreSQL table; a click that is up to an hour late corrects the table.

Session windows of Spark cannot be corrected, so the sessions are merged in the database. A batch that is repeated
after a crash counts its clicks twice.
"""

import psycopg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the conventional alias
from pyspark.sql.streaming.readwriter import DataStreamWriter

TABLE = "CREATE TABLE IF NOT EXISTS visits (person TEXT, first TIMESTAMPTZ, until TIMESTAMPTZ, clicks BIGINT, entry TEXT)"
TAKE = "DELETE FROM visits WHERE person = %s AND first <= %s AND until >= %s RETURNING first, until, clicks, entry"
ADD = "INSERT INTO visits VALUES (%s, %s, %s, %s, %s)"


def pipeline(clicks: DataFrame, database: str, folder: str) -> DataStreamWriter:
    def merge(batch: DataFrame, number: int) -> None:
        sessions = batch.groupBy("person", F.session_window("at", "30 minutes").alias("visit"))
        new = sessions.agg(F.count("*").alias("clicks"), F.min_by("page", "at").alias("entry")).collect()
        with psycopg.connect(database) as connection:
            connection.execute(TABLE)
            for row in new:
                visit = (row.visit.start.astimezone(), row.visit.end.astimezone(), row.clicks, row.entry)
                old = connection.execute(TAKE, (row.person, visit[1], visit[0])).fetchall()
                first, until, counts, entries = zip(*sorted([visit, *old]), strict=True)
                connection.execute(ADD, (row.person, first[0], max(until), sum(counts), entries[0]))

    return clicks.writeStream.foreachBatch(merge).option("checkpointLocation", folder)
