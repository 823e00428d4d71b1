"""Buckets without Spark: the plans that workers run, in one process, with state that goes through bytes."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import polars as pl

from slackwater import windows
from slackwater.progress.values import DEFAULT_KEY
from slackwater.spark.runtime.bucket import BucketOutput, OperatorPlan
from slackwater.spark.runtime.hosts import WindowHost
from slackwater.spark.runtime.map_side import Shipper
from slackwater.spark.wire.buffers import Header, Tick, write_header
from slackwater.spark.wire.wire_columns import BUCKET_INDEX, CONTROL, ORIGIN, RETRACTION, TIME
from tests.model.windows import Pane, Row
from tests.support.windowed import Options, blocks, pane_of

BUCKETS = (3, 8, 11)
ACCUMULATIONS = {"count": windows.count(), "sum": windows.sum("value")}


@dataclass
class Stage:
    """An operator with its buckets."""

    plan: OperatorPlan
    saved: dict[int, bytes] = field(default_factory=dict)
    blobs: dict[int, dict[str, bytes]] = field(default_factory=lambda: {bucket: {} for bucket in BUCKETS})

    def step(self, buffers: Sequence[tuple[int, Header, bytes | None]]) -> list[BucketOutput]:
        outputs: list[BucketOutput] = []
        for bucket in BUCKETS:
            mine = [
                (write_header(header), payload) for target, header, payload in buffers if target == bucket
            ]
            output = self.plan.step(bucket, self.saved.get(bucket), self.blobs[bucket], mine)
            self.saved[bucket] = output.state
            outputs.append(output)
        return outputs


def shipped(frame: pl.DataFrame, number: int = 0, key: str | None = "key", **options: Any) -> list[Any]:
    """The buffers of some rows, as two tasks would make them."""
    indices = [0] * frame.height
    if key is not None:
        indices = [zlib.crc32(repr(value).encode()) % len(BUCKETS) for value in frame[key]]
    indexed = frame.with_columns(pl.Series(BUCKET_INDEX, indices, dtype=pl.Int32))
    origin = None if {CONTROL, ORIGIN} & set(frame.columns) else "input"
    shipper = Shipper(BUCKETS, number, (), origin, False, True, **options)
    half = frame.height // 2
    parts = enumerate((indexed[:half], indexed[half:]))
    return [buffer for task, part in parts if part.height for buffer in shipper.buffers(part, task, 0)]


def ticks(now: int, run: int = 1, *, end: bool = False) -> list[Any]:
    return [(bucket, Tick(now, run, end), None) for bucket in BUCKETS]


def rows_frame(rows: Sequence[Row]) -> pl.DataFrame:
    schema = {"key": pl.String, "ts": pl.Int64, "value": pl.Int64}
    return pl.DataFrame(list(rows), schema=schema, orient="row").rename({"ts": TIME})


def emitted(outputs: Sequence[BucketOutput], key: Sequence[str]) -> list[Pane]:
    panes: list[Pane] = []
    for output in outputs:
        rows = (
            [] if output.rows is None else output.rows.filter(pl.col("kind") == "pane").iter_rows(named=True)
        )
        panes += [pane_of(row, key, {name: row[name] for name in ACCUMULATIONS}) for row in rows]
    return panes


def canonical(panes: Sequence[Pane]) -> list[Any]:
    return sorted((sorted(map(repr, old)), repr(new)) for old, new in blocks(panes))


def host(options: Options, watermark_key: str = DEFAULT_KEY) -> WindowHost:
    spec = windows.WindowSpec(
        window=options.window,
        trigger=options.trigger,
        accumulations=ACCUMULATIONS,
        event_time=TIME,
        key=options.key,
        mode=options.mode,  # type: ignore[arg-type]
        allowed_lateness=options.allowed_lateness,
        idle=options.idle,  # type: ignore[arg-type]
        retractions=RETRACTION if options.retractions else None,
        watermark_key=watermark_key,
    )
    return WindowHost(spec)


def random_batches(random: Random, count: int = 8) -> list[list[Row]]:
    """Rows that drift forward in time, out of order, some of them far behind."""
    return [
        [
            {
                "key": random.choice(["a", "b", "c", "d", None]),
                "ts": 6 * number + random.randint(-12, 9),
                "value": random.randint(-3, 6),
            }
            for _ in range(random.randint(0, 8))
        ]
        for number in range(count)
    ]


class Follower:
    """The watermark of rows with a lag of five."""

    def __init__(self) -> None:
        self.at: int | None = None

    def after(self, rows: Sequence[Row]) -> int | None:
        times = [row["ts"] - 5 for row in rows]
        self.at = max([*times, *([] if self.at is None else [self.at])], default=None)
        return self.at


TRIGGER = windows.after_watermark(early=windows.every(count=2), late=windows.every(count=1))
MODES = ("discarding", "accumulating", "accumulating_and_retracting")


def element(pane: Pane) -> Row:
    return {
        "ts": pane.timestamp,
        "value": pane.values["sum"],
        "retraction": pane.retraction,
        "window_start": pane.start,
        "window_end": pane.end,
    }


def pane_rows(outputs: Sequence[BucketOutput]) -> pl.DataFrame:
    """The rows that the next operator gets: a control row of each bucket, and the panes."""
    schema = {
        TIME: pl.Int64, RETRACTION: pl.Boolean, CONTROL: pl.Binary,
        "window_start": pl.Int64, "window_end": pl.Int64, "value": pl.Int64,
    }  # fmt: skip
    frames = [pl.DataFrame({CONTROL: [write_header(output.header)]}) for output in outputs]
    frames += [
        output.rows.select(
            pl.col("timestamp").alias(TIME),
            pl.col("retraction").alias(RETRACTION),
            "window_start",
            "window_end",
            pl.col("sum").alias("value"),
        )
        for output in outputs
        if output.rows is not None
    ]
    return pl.concat([pl.DataFrame(schema=schema), *frames], how="diagonal_relaxed")
