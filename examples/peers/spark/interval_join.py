"""Join impressions of ads with the clicks that follow within a minute; keep impressions without a click."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the conventional alias
from pyspark.sql.streaming.readwriter import DataStreamWriter


def pipeline(impressions: DataFrame, clicks: DataFrame, folder: str) -> DataStreamWriter:
    shown = impressions.withWatermark("shown", "10 seconds")
    clicked = clicks.withWatermark("clicked", "10 seconds").withColumnRenamed("ad", "clicked_ad")
    near = F.expr("ad = clicked_ad AND clicked BETWEEN shown AND shown + INTERVAL 1 MINUTE")
    pairs = shown.join(clicked, near, "leftOuter").drop("clicked_ad")
    output = {"path": f"{folder}/pairs", "checkpointLocation": f"{folder}/checkpoint"}
    return pairs.writeStream.format("parquet").options(**output)
