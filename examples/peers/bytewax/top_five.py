"""Emit the five best sellers of each hour with every sale. The state of an hour is never removed."""

from collections import Counter
from typing import Any

import bytewax.operators as op
from bytewax.dataflow import Stream
from bytewax.outputs import Sink

Ranks = list[tuple[str, int]]


def pipeline(sales: Stream[dict[str, Any]], sink: Sink[Any]) -> None:
    def best(sold: Counter[str] | None, sale: dict[str, Any]) -> tuple[Counter[str], Ranks]:
        sold = sold or Counter()
        sold[sale["product"]] += sale["pieces"]
        return sold, sold.most_common(5)

    hours = op.key_on("hour", sales, lambda sale: f"{sale['at']:%Y-%m-%dT%H}")
    op.output("write", op.stateful_map("best", hours, best), sink)
