"""Ask a service for the exchange rate of every payment, and add up euros per shop and minute."""

from collections.abc import Awaitable, Callable
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

import slackwater as sw


def pipeline(payments: DataFrame, rate: Callable[[str], Awaitable[float]], folder: str) -> DataStreamWriter:
    """``payments`` has the columns shop, at, amount and currency; ``rate`` calls the service."""

    async def converted(payment: dict[str, Any]) -> dict[str, Any]:
        return {"shop": payment["shop"], "euros": payment["amount"] * await rate(payment["currency"])}

    timed = sw.stream(payments, event_time="at", watermark=sw.lag("10 seconds"))
    paid = timed.map_async(converted, "shop string, euros double", capacity=100, timeout="5 seconds")
    totals = paid.key_by("shop").window(sw.fixed("1 minute")).agg(euros=sw.sum("euros"))
    output = {"path": f"{folder}/totals", "checkpointLocation": f"{folder}/checkpoint"}
    return totals.to_df(flat=True).writeStream.format("parquet").options(**output)
