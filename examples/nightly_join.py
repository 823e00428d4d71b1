"""Give each order the price that is valid at its time; `nightly_prices.yaml` loads new prices every night."""

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

import slackwater as sw


def pipeline(orders: DataFrame, store: str, folder: str) -> DataStreamWriter:
    """``orders`` has the columns product, at and pieces; ``store`` has the stream of the nightly job."""
    prices = sw.read_stream(orders.sparkSession, "shop/prices", store=store, event_time="valid_from")
    placed = sw.stream(orders, event_time="at", watermark=sw.lag("1 minute"))
    priced = placed.join_asof(prices, on="product").select("product", "at", "pieces", "price")
    output = {"path": f"{folder}/priced", "checkpointLocation": f"{folder}/checkpoint"}
    return priced.to_df().writeStream.format("parquet").options(**output)
