"""Ask a service for the exchange rate of every payment, and add up euros per shop and minute."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from operator import add, itemgetter
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as win
from bytewax.dataflow import Stream
from bytewax.outputs import Sink

EPOCH, MINUTE = datetime(1970, 1, 1, tzinfo=UTC), timedelta(minutes=1)


def pipeline(
    payments: Stream[dict[str, Any]], rate: Callable[[str], Awaitable[float]], sink: Sink[Any]
) -> None:
    async def converted(batch: list[dict[str, Any]]) -> list[dict[str, Any]]:
        rates = await asyncio.gather(*(asyncio.wait_for(rate(payment["currency"]), 5) for payment in batch))
        return [{**row, "euros": row["amount"] * found} for row, found in zip(batch, rates, strict=True)]

    paid = op.flat_map_batch("convert", payments, lambda batch: asyncio.run(converted(batch)))
    shops = op.key_on("shop", paid, itemgetter("shop"))
    clock = win.EventClock(itemgetter("at"), wait_for_system_duration=timedelta(seconds=10))
    minutes = win.TumblingWindower(length=MINUTE, align_to=EPOCH)
    euros = win.fold_window("sum", shops, clock, minutes, float, lambda total, row: total + row["euros"], add)
    rows = op.map("row", euros.down, lambda item: (item[0], EPOCH + item[1][0] * MINUTE, item[1][1]))
    op.output("write", rows, sink)
