"""Keep the five best sellers of each hour in a table, from the first sale of the hour to its last."""

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

import slackwater as sw


def pipeline(sales: DataFrame, database: str, folder: str) -> DataStreamWriter:
    """``sales`` has the columns product, at and pieces; ``database`` is the address of the database."""
    often = sw.after_watermark(early=sw.every(count=1), late=sw.every(count=1))
    timed = sw.stream(sales, event_time="at", watermark=sw.lag("1 minute")).key_by("product")
    hours = timed.window(sw.fixed("1 hour")).trigger(often).accumulating_and_retracting()
    sold = hours.agg(pieces=sw.sum("pieces")).window(sw.inherited()).trigger(often)
    best = sold.agg(best=sw.top_n_by_key("pieces", key="product", n=5))
    return best.upsert_to(database, "best_sellers", create=True).option("checkpointLocation", folder)
