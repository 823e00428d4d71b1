"""Count the records of each Kafka partition per minute, and write the counts to Parquet.

There is one watermark for all partitions: rows of a slow one are dropped.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the conventional alias
from pyspark.sql.streaming.readwriter import DataStreamWriter


def pipeline(kafka: DataFrame, folder: str) -> DataStreamWriter:
    minutes = F.window("timestamp", "1 minute")
    counts = kafka.withWatermark("timestamp", "10 seconds").groupBy("partition", minutes).count()
    output = {"path": f"{folder}/counts", "checkpointLocation": f"{folder}/checkpoint"}
    return counts.select("partition", "window.*", "count").writeStream.format("parquet").options(**output)
