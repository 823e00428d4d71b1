"""Group clicks into visits in a PostgreSQL table; a late click corrects the table.

A session that was closed is not opened again, so the sessions are merged in the database, click by click. A click that is
repeated after a crash counts twice, and no click is ever too late.
"""

from datetime import timedelta
from typing import Any

import bytewax.operators as op
import psycopg
from bytewax.dataflow import Stream
from bytewax.outputs import Sink

GAP = timedelta(minutes=30)
TABLE = "CREATE TABLE IF NOT EXISTS visits (person TEXT, first TIMESTAMPTZ, until TIMESTAMPTZ, clicks BIGINT, entry TEXT)"
TAKE = "DELETE FROM visits WHERE person = %s AND first <= %s AND until >= %s RETURNING first, until, clicks, entry"
ADD = "INSERT INTO visits VALUES (%s, %s, %s, %s, %s)"


def pipeline(clicks: Stream[dict[str, Any]], database: str, sink: Sink[Any]) -> None:
    def merge(click: dict[str, Any]) -> tuple[Any, ...]:
        visit = (click["at"], click["at"] + GAP, 1, click["page"])
        with psycopg.connect(database) as connection:
            connection.execute(TABLE)
            old = connection.execute(TAKE, (click["person"], visit[1], visit[0])).fetchall()
            first, until, counts, entries = zip(*sorted([visit, *old]), strict=True)
            row = (click["person"], first[0], max(until), sum(counts), entries[0])
            connection.execute(ADD, row)
        return row

    people = op.key_on("person", clicks, lambda click: click["person"])
    op.output("write", op.map_value("merge", people, merge), sink)
