"""Count the records of each Kafka partition per minute, and write the counts to Parquet."""

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

import slackwater as sw


def pipeline(kafka: DataFrame, folder: str) -> DataStreamWriter:
    """``kafka`` has the columns of Spark's Kafka source."""
    records = sw.stream(kafka, event_time="timestamp", watermark=sw.lag("10 seconds"), origin="partition")
    counts = records.key_by("partition").window(sw.fixed("1 minute")).agg(records=sw.count())
    output = {"path": f"{folder}/counts", "checkpointLocation": f"{folder}/checkpoint"}
    return counts.to_df(flat=True).writeStream.format("parquet").options(**output)
