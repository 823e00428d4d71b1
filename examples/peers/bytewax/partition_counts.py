"""Count the records of each Kafka partition per minute."""

from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as win
from bytewax.dataflow import Stream
from bytewax.outputs import Sink

EPOCH, MINUTE = datetime(1970, 1, 1, tzinfo=UTC), timedelta(minutes=1)


def pipeline(kafka: Stream[dict[str, Any]], sink: Sink[Any]) -> None:
    clock = win.EventClock(itemgetter("timestamp"), wait_for_system_duration=timedelta(seconds=10))
    minutes = win.TumblingWindower(length=MINUTE, align_to=EPOCH)
    counts = win.count_window("count", kafka, clock, minutes, key=lambda record: str(record["partition"]))
    rows = op.map("row", counts.down, lambda item: (int(item[0]), EPOCH + item[1][0] * MINUTE, item[1][1]))
    op.output("write", rows, sink)
