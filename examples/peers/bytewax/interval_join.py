"""Join impressions of ads with the clicks that follow within a minute; keep impressions without a click.

Joins are within windows, so an interval join is a state of your own. It waits by the clock of the machine: there is no
watermark outside of windows.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import bytewax.operators as op
from bytewax.dataflow import Stream
from bytewax.outputs import Sink

MINUTE = timedelta(minutes=1)


@dataclass
class Pairs(op.StatefulLogic[Any, Any, Any]):
    waiting: list[dict[str, Any]] = field(default_factory=list)
    clicks: list[datetime] = field(default_factory=list)

    def on_item(self, row: dict[str, Any]) -> tuple[list[Any], bool]:
        if "clicked" in row:
            self.clicks.append(row["clicked"])
        else:
            self.waiting.append(row)
        return [], op.StatefulLogic.RETAIN

    def on_notify(self) -> tuple[list[Any], bool]:
        pairs = [
            {**row, "clicked": time}
            for row in self.waiting
            for time in [at for at in self.clicks if row["shown"] <= at <= row["shown"] + MINUTE] or [None]
        ]
        return pairs, op.StatefulLogic.DISCARD

    def on_eof(self) -> tuple[list[Any], bool]:
        return self.on_notify()

    def notify_at(self) -> datetime | None:
        return max((row["shown"] for row in self.waiting), default=datetime.now(UTC)) + MINUTE

    def snapshot(self) -> Any:
        return (list(self.waiting), list(self.clicks))


def pipeline(impressions: Stream[dict[str, Any]], clicks: Stream[dict[str, Any]], sink: Sink[Any]) -> None:
    rows = op.key_on("ad", op.merge("merge", impressions, clicks), lambda row: row["ad"])
    pairs = op.stateful("pair", rows, lambda state: Pairs(*(state or ())))
    op.output("write", pairs, sink)
