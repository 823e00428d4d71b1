"""Join impressions of ads with the clicks that follow within a minute; keep impressions without a click.

Joins are within windows, so an interval join is a stateful function with a timer for each key.
"""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.coders import PickleCoder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import TimestampedValue

SCHEMA = pa.schema({"ad": pa.string(), "site": pa.string(), "shown": pa.float64(), "clicked": pa.float64()})
SHOWN = BagStateSpec("shown", PickleCoder())
CLICKED = BagStateSpec("clicked", PickleCoder())
MINUTE_LATER = TimerSpec("minute_later", TimeDomain.WATERMARK)


class Pairs(beam.DoFn):
    def process(
        self,
        item: tuple[str, dict[str, Any]],
        shown: Any = beam.DoFn.StateParam(SHOWN),
        clicked: Any = beam.DoFn.StateParam(CLICKED),
        timer: Any = beam.DoFn.TimerParam(MINUTE_LATER),
    ) -> None:
        state, at = (shown, item[1]["shown"]) if "shown" in item[1] else (clicked, item[1]["clicked"])
        state.add(item[1])
        timer.set(max([at, *(row["shown"] for row in shown.read())]) + 60)

    @on_timer(MINUTE_LATER)
    def pair(
        self,
        shown: Any = beam.DoFn.StateParam(SHOWN),
        clicked: Any = beam.DoFn.StateParam(CLICKED),
    ) -> Iterator[dict[str, Any]]:
        for row in shown.read():
            times = [
                click["clicked"] for click in clicked.read() if 0 <= click["clicked"] - row["shown"] <= 60
            ]
            yield from ({**row, "clicked": time} for time in times or [None])
        shown.clear()
        clicked.clear()


def pipeline(impressions: "beam.PCollection[dict[str, Any]]", clicks: Any, folder: str) -> None:
    shown = impressions | "shown" >> beam.Map(lambda row: TimestampedValue((row["ad"], row), row["shown"]))
    clicked = clicks | "clicked" >> beam.Map(lambda row: TimestampedValue((row["ad"], row), row["clicked"]))
    pairs = (shown, clicked) | beam.Flatten() | beam.ParDo(Pairs())
    pairs | beam.io.WriteToParquet(f"{folder}/pairs", SCHEMA)
