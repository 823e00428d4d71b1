"""Ask a service for the exchange rate of every payment, and add up euros per shop and minute."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the conventional alias
from pyspark.sql.streaming.readwriter import DataStreamWriter


def pipeline(payments: DataFrame, rate: Callable[[str], Awaitable[float]], folder: str) -> DataStreamWriter:
    async def rates(currencies: pd.Series) -> list[float]:
        most = asyncio.Semaphore(100)

        async def limited(currency: str) -> float:
            async with most:
                return await asyncio.wait_for(rate(currency), 5)

        return await asyncio.gather(*map(limited, currencies))

    def converted(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for rows in batches:
            euros = rows["amount"] * asyncio.run(rates(rows["currency"]))
            yield rows.assign(euros=euros)[["shop", "at", "euros"]]

    paid = payments.mapInPandas(converted, "shop string, at timestamp, euros double")
    windows = paid.withWatermark("at", "10 seconds").groupBy("shop", F.window("at", "1 minute"))
    totals = windows.agg(F.sum("euros").alias("euros")).select("shop", "window.*", "euros")
    output = {"path": f"{folder}/totals", "checkpointLocation": f"{folder}/checkpoint"}
    return totals.writeStream.format("parquet").options(**output)
