"""A windowed query over a stream into a table: micro-batches that are repeated after every crash.

The loop does what Spark's micro-batch execution does: log the end of a batch, read it, step the operator from
the state of the batch before, save its state, write the result, and log that the batch is done. Source,
operator, saved state and merge are the library's.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import polars as pl
import pyarrow as pa

from slackwater import windows
from slackwater.simulation.log_oracle import WrittenEvent
from slackwater.simulation.log_scenario import LogScenario
from slackwater.simulation.pipeline_oracle import PipelineOracle
from slackwater.spark.versions import ReadAllAvailable, ReadLimit, ReadMaxRows
from slackwater.sql.database import database_url
from slackwater.sql.pane_merge import merge_panes, stage_panes
from slackwater.sql.pane_table import PaneColumn, PaneTable
from slackwater.streams.log.catalog import VALUE, Stream
from slackwater.streams.spark.stream_columns import EMPTY, spark_schema
from slackwater.streams.spark.stream_source import Offset, StreamSource
from slackwater.time import MILLISECOND, MINUTE, SECOND

_TABLE: Final = "totals"
_SIZE: Final = 10 * SECOND


@dataclass
class QueryCheckpoint:
    """What a query keeps on durable storage: the ends of its batches, its states, and its last batch."""

    start: Offset | None = None
    ends: list[Offset] = field(default_factory=list)
    clocks: list[int] = field(default_factory=list)
    states: dict[int, tuple[bytes, dict[str, bytes]]] = field(default_factory=dict)
    done: int = -1


@dataclass(frozen=True)
class SourceOptions:
    """The options of the source, with a stream that is open already."""

    stream: Stream
    start: str = "head"
    headers: bool = True
    max_events: int | None = None

    def open(self) -> Stream:
        """The stream."""
        return self.stream


class PipelineScenario(LogScenario):
    """The writers and controllers of a log, and a query in place of its readers."""

    ages: ClassVar[Sequence[str | None]] = (None,)

    def _run(self) -> None:
        world, random = self.world, self.world.random
        lateness = random.choice([0, 20 * SECOND, 5 * MINUTE])
        mode = random.choice(["discarding", "accumulating", "accumulating_and_retracting"])
        self.checkpoint = QueryCheckpoint()
        self.target = PaneTable(
            database_url(f"sqlite:///{world.server.path}"),
            _TABLE,
            (PaneColumn("k", "text"), PaneColumn("start", "long")),
            (PaneColumn("n", "long"), PaneColumn("total", "long")),
            windows=False,
            fold={"n": "sum", "total": "sum"} if mode == "discarding" else {},
        )
        self.target.prepare(create=True)
        self.operator = windows.WindowedOperator(
            window=windows.Fixed(_SIZE),
            trigger=windows.after_watermark(early=windows.every(count=1), late=windows.every(count=1)),
            accumulations={"n": windows.count(), "total": windows.sum("number")},
            key=("k",),
            event_time="at",
            mode=mode,
            allowed_lateness=lateness,
        )
        self.results = PipelineOracle(world, _TABLE, self.target.ledger.name, _SIZE, lateness)
        log, results = self.oracle.check, self.results.check

        def check(changed: set[str]) -> None:
            log(changed)
            results(changed)

        world.committed = check
        try:
            super()._run()
        finally:
            self.results.close()

    def start_readers(self) -> None:
        """Start the query."""
        self.world.start("query", self._query)

    def _query(self) -> None:
        world, random = self.world, self.world.random
        options: Any = SourceOptions(self._stream())
        source = StreamSource(options, spark_schema(VALUE, headers=True))
        checkpoint = self.checkpoint
        if checkpoint.start is None:
            checkpoint.start = _logged(source.initialOffset())
        while True:
            number = checkpoint.done + 1
            start = checkpoint.ends[number - 1] if number else checkpoint.start
            if number == len(checkpoint.ends):
                limit: ReadLimit = (
                    ReadMaxRows(random.randint(1, 9)) if random.random() < 0.3 else ReadAllAvailable()
                )
                end = _logged(source.latestOffset(start, limit))
                if end == start:
                    world.sleep(100 * MILLISECOND, 20 * SECOND)
                    continue
                world.point("log the end of a batch")
                checkpoint.ends.append(end)
                checkpoint.clocks.append(world.now)
            else:
                world.faults["repeated batch"] += 1
                world.tell(f"repeats batch {number}")
            self._run_batch(source, number, start)
            world.point("log a finished batch")
            checkpoint.done = number

    def _run_batch(self, source: StreamSource, number: int, start: Offset) -> None:
        world, checkpoint = self.world, self.checkpoint
        end = checkpoint.ends[number]
        events = [
            WrittenEvent.parse(row["value"])
            for partition in source.partitions(start, end)
            for batch in source.read(partition)
            for row in batch.to_pylist()
            if not row[EMPTY]
        ]
        watermark = end.get("watermark")
        self.results.read(number, events, watermark)
        operator = self.operator
        if number:
            saved, blobs = checkpoint.states[number - 1]
            kept = dict(blobs)
            state = operator.load(saved, kept)
        else:
            kept = {}
            state = operator.initial_state(kept)
        rows = pl.DataFrame(
            [(event.key, event.time, event.number) for event in events],
            schema={"k": pl.String, "at": pl.Int64, "number": pl.Int64},
            orient="row",
        )
        watermarks = {} if watermark is None else {"default": watermark}
        state, output = operator.step(state, rows, watermarks, now=checkpoint.clocks[number])
        self.results.stepped(number, output.dropped_late)
        world.point("save state")
        checkpoint.states[number] = (operator.save(state), kept)
        self._merge(number, output.panes)
        world.tell(f"merges batch {number}: events {len(events)}, panes {output.panes.height}")

    def _merge(self, number: int, panes: pl.DataFrame) -> None:
        rows = panes.select(
            "k",
            pl.col("window_start").alias("start"),
            pl.col("n").cast(pl.Int64),
            pl.col("total").cast(pl.Int64),
            pl.col("index").alias("pane_index"),
            "retraction",
        )
        batches: list[pa.RecordBatch] = rows.to_arrow(compat_level=pl.CompatLevel.oldest()).to_batches()
        self.world.scheduler.current.process.note = number
        with self.world.engine.begin() as connection:
            staged = stage_panes(connection, self.target, batches, "query")
            merge_panes(connection, self.target, [staged], "query", number)

    def has_arrived(self) -> bool:
        """Whether every event is in a batch, and the table has them all."""
        return (
            self.have_writers_ended()
            and self.results.seen() == self.quotas
            and self.results.merged == len(self.results.batches) - 1
        )

    def explain_end(self) -> None:
        """Report what has not arrived."""
        self.world.violate(
            f"20 minutes after the last fault {self.results.seen()} of {self.quotas} events were read, "
            f"{self.results.merged + 1} of {len(self.results.batches)} batches merged"
        )


def _logged(offset: Offset) -> Offset:
    """The offset after a round trip through Spark's log."""
    found: Offset = json.loads(json.dumps(offset))
    return found
