"""Orders, deliveries and returns: three streams with three event times, out of order, and their truth.

Everything is fixed by a seed. A micro-batch is one file of each stream.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import polars as pl
from pyspark.sql import SparkSession

import slackwater as sw
from slackwater.spark.api.panes import Panes
from slackwater.spark.api.stream import Stream

DAY: Final = 86_400
LAG: Final = "1 day"
DELIVERED_WITHIN: Final = "3 days"
RETURNED_WITHIN: Final = "14 days"
STREAMS: Final = {
    "orders": "order long, product string, price long, ordered timestamp",
    "deliveries": "order long, delivered timestamp",
    "returns": "order long, refund long, returned timestamp",
}
_TIMES: Final = {"orders": "ordered", "deliveries": "delivered", "returns": "returned"}
_TYPES: Final = {"order": pl.Int64, "product": pl.String, "price": pl.Int64, "refund": pl.Int64}

Truth = dict[tuple[str, datetime], tuple[int, int]]


@dataclass(frozen=True)
class Shop:
    """The rows of each stream in the order in which they arrive, in one list per micro-batch."""

    batches: dict[str, list[list[dict[str, Any]]]]

    @classmethod
    def of(cls, seed: int, *, orders: int = 400, batches: int = 12) -> Shop:
        """A random history of sixty days; every row arrives within the lag of its stream."""
        source = random.Random(seed)
        rows: dict[str, list[tuple[float, dict[str, Any]]]] = {name: [] for name in STREAMS}

        def add(stream: str, second: int, row: dict[str, Any]) -> None:
            at = datetime.fromtimestamp(second, UTC)
            arrival = second + source.uniform(0, 0.99) * DAY
            rows[stream].append((arrival, {**row, _TIMES[stream]: at}))

        for number in range(orders):
            ordered = source.randrange(60 * DAY)
            product = source.choice(["book", "lamp", "ü", None])
            add("orders", ordered, {"order": number, "product": product, "price": source.randrange(1, 90)})
            if source.random() < 0.85:
                # some deliveries and returns come too late to match
                delivered = ordered + source.randrange(4 * DAY)
                add("deliveries", delivered, {"order": number})
                for _ in range(source.choice([0, 0, 1, 1, 2])):
                    returned = delivered + source.randrange(18 * DAY)
                    add("returns", returned, {"order": number, "refund": source.randrange(1, 50)})
        last = max(arrival for several in rows.values() for arrival, _ in several)
        cuts = [last * number / batches for number in range(1, batches)]
        files: dict[str, list[list[dict[str, Any]]]] = {}
        for name, several in rows.items():
            files[name] = [[] for _ in range(batches)]
            for arrival, row in sorted(several, key=lambda each: each[0]):
                files[name][sum(arrival > cut for cut in cuts)].append(row)
        return cls(files)

    def write(self, folder: Path, count: int) -> None:
        """Write the first ``count`` files of each stream that do not exist yet."""
        for name, batches in self.batches.items():
            (folder / name).mkdir(parents=True, exist_ok=True)
            for number, rows in enumerate(batches[:count]):
                path = folder / name / f"{number:03}.parquet"
                if not path.exists():
                    _frame(name, rows).write_parquet(path.with_suffix(".tmp"))
                    os.utime(path.with_suffix(".tmp"), (number, number))  # Spark's order
                    path.with_suffix(".tmp").rename(path)

    def expected(self) -> Truth:
        """Returns and refunds by product and day of the return, from all rows at once."""
        orders, deliveries, returns = (
            _frame(name, [row for batch in batches for row in batch]).lazy()
            for name, batches in self.batches.items()
        )
        delivered = orders.join(deliveries, on="order").filter(
            pl.col("delivered").is_between(pl.col("ordered"), pl.col("ordered") + pl.duration(days=3))
        )
        returned = delivered.join(returns, on="order").filter(
            pl.col("returned").is_between(pl.col("delivered"), pl.col("delivered") + pl.duration(days=14))
        )
        days = returned.group_by("product", day=pl.col("returned").dt.truncate("1d"))
        counted = days.agg(returns=pl.len(), refunds=pl.col("refund").sum()).collect()
        return {(row["product"], row["day"]): (row["returns"], row["refunds"]) for row in counted.to_dicts()}


def refunds(spark: SparkSession, folder: Path, *, clock: Any, streaming: bool = True) -> Panes:
    """Returns and refunds by product and day of the return: two joins and one window."""

    def stream(name: str) -> Stream:
        reader = spark.readStream if streaming else spark.read
        rows = reader.schema(STREAMS[name]).option("maxFilesPerTrigger", 1).parquet(str(folder / name))
        return sw.stream(rows, event_times={_TIMES[name]: sw.lag(LAG)}, clock=clock)

    orders, deliveries, returns = map(stream, STREAMS)
    delivered = orders.join(deliveries, on=["order"], before="0 seconds", after=DELIVERED_WITHIN)
    returned = delivered.by("delivered").join(
        returns, on=["order"], before="0 seconds", after=RETURNED_WITHIN
    )
    return (
        returned.key_by("product")
        .window(sw.fixed("1 day"), by="returned")
        .trigger(sw.after_watermark(early=sw.every(count=1), late=sw.every(count=1)))
        .accumulating_and_retracting()
        .agg(returns=sw.count(), refunds=sw.sum("refund"))
    )


def _frame(name: str, rows: list[dict[str, Any]]) -> pl.DataFrame:
    columns = [column.split()[0] for column in STREAMS[name].split(", ")]
    times = pl.Datetime("us", "UTC")
    return pl.DataFrame(rows, schema={column: _TYPES.get(column, times) for column in columns})
