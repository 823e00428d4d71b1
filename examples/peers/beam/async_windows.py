"""Ask a service for the exchange rate of every payment, and add up euros per shop and minute."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.transforms.window import FixedWindows, TimestampedValue

SCHEMA = pa.schema({"shop": pa.string(), "window_start": pa.float64(), "euros": pa.float64()})
Payment = dict[str, Any]


def row(item: tuple[str, float], window: Any = beam.DoFn.WindowParam) -> dict[str, Any]:
    return {"shop": item[0], "window_start": float(window.start), "euros": item[1]}


def pipeline(
    payments: "beam.PCollection[Payment]", rate: Callable[[str], Awaitable[float]], folder: str
) -> None:
    async def rates(batch: list[Payment]) -> list[float]:
        return await asyncio.gather(*(asyncio.wait_for(rate(payment["currency"]), 5) for payment in batch))

    def converted(batch: list[Payment]) -> Iterator[tuple[str, float]]:
        for payment, found in zip(batch, asyncio.run(rates(batch)), strict=True):
            yield TimestampedValue((payment["shop"], payment["amount"] * found), payment["at"].timestamp())

    paid = payments | beam.BatchElements(max_batch_size=100) | beam.FlatMap(converted)
    totals = paid | beam.WindowInto(FixedWindows(60)) | beam.CombinePerKey(sum) | beam.Map(row)
    totals | beam.io.WriteToParquet(f"{folder}/totals", SCHEMA)
