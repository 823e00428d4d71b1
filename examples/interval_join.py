"""Join impressions of ads with the clicks that follow within a minute; keep impressions without a click."""

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

import slackwater as sw


def pipeline(impressions: DataFrame, clicks: DataFrame, folder: str) -> DataStreamWriter:
    """``impressions`` has the columns ad, shown and site, ``clicks`` has ad and clicked."""
    shown = sw.stream(impressions, event_time="shown", watermark=sw.lag("10 seconds"))
    clicked = sw.stream(clicks, event_time="clicked", watermark=sw.lag("10 seconds"))
    pairs = shown.join(clicked, on="ad", before="0 seconds", after="1 minute", how="left")
    output = {"path": f"{folder}/pairs", "checkpointLocation": f"{folder}/checkpoint"}
    return pairs.to_df().writeStream.format("parquet").options(**output)
