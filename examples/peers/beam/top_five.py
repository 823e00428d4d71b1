"""Emit the five best sellers of each hour, early and at its end.

Panes are not retracted between two steps, so one combiner must count and rank.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import apache_beam as beam
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, AfterWatermark
from apache_beam.transforms.window import FixedWindows, TimestampedValue

Sold = Counter[str]


class BestSellers(beam.CombineFn):
    def create_accumulator(self) -> Sold:
        return Counter()

    def add_input(self, sold: Sold, sale: dict[str, Any]) -> Sold:
        sold[sale["product"]] += sale["pieces"]
        return sold

    def merge_accumulators(self, parts: Iterable[Sold]) -> Sold:
        return sum(parts, Counter())

    def extract_output(self, sold: Sold) -> list[tuple[str, int]]:
        return heapq.nlargest(5, sold.items(), key=lambda item: item[1])


def pipeline(sales: "beam.PCollection[dict[str, Any]]", write: Callable[[Any], None]) -> None:
    hours = beam.WindowInto(
        FixedWindows(3600),
        trigger=AfterWatermark(early=AfterCount(1), late=AfterCount(1)),
        accumulation_mode=AccumulationMode.ACCUMULATING,
    )
    timed = sales | beam.Map(lambda sale: TimestampedValue(sale, sale["at"].timestamp()))
    best = timed | hours | beam.CombineGlobally(BestSellers()).without_defaults()
    best | beam.Map(write)
