"""The pipeline of the demo, and the panes that it has emitted so far."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import slackwater as sw
from slackwater.demo.bids import ORIGINS, Bid
from slackwater.errors import SlackwaterError
from slackwater.spark.monitor import drop_warnings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from slackwater.spark.api.panes import Panes
    from slackwater.spark.monitor.reports import OperatorReport
    from slackwater.spark.monitor.telemetry import Telemetry

WINDOW: Final = "10 seconds"
LATENESS: Final = "30 seconds"
_ARRIVALS: Final = "demo_arrivals"


class NoJava(SlackwaterError):
    """No Java was found to run Spark with."""

    def __init__(self) -> None:
        super().__init__(
            "Spark needs Java 17 or newer, but no Java was found; run `make demo`, which installs it, "
            "or set JAVA_HOME"
        )


@dataclass(frozen=True, slots=True)
class Pane:
    """A pane, or a dropped bid (kind ``late``)."""

    batch: int
    auction: str
    start: int
    end: int
    bids: int
    best: int
    timing: str | None
    kind: str


@dataclass
class DemoRun:
    """A run of the pipeline: two queries on one checkpoint, of which the second ends the stream."""

    spark: SparkSession
    folder: Path
    telemetry: Telemetry
    panes: list[Pane] = field(default_factory=list)
    files: dict[int, int] = field(default_factory=dict)
    """The number of the last file that each batch read."""
    reports: dict[int, OperatorReport] = field(default_factory=dict)
    """The report of the operator for each batch."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._queries: list[StreamingQuery] = []

    def start(self, arriving: Path, *, flush: bool = False) -> StreamingQuery:
        """Start or restart the query; with ``flush``, end the stream."""
        writer = self._bids(arriving).to_df(flush=flush).writeStream.foreachBatch(self._collect)
        writer = writer.queryName("demo").option("checkpointLocation", str(self.folder / "checkpoint"))
        query = (writer.trigger(availableNow=True) if flush else writer).start()
        self._queries.append(query)
        return query

    def stop(self) -> None:
        """Stop the query and keep the files and reports of its batches."""
        from slackwater.spark.monitor.reports import reported

        query = self._queries[-1]
        query.stop()
        query.awaitTermination()
        for progress in query.recentProgress:
            highest = progress.observedMetrics[_ARRIVALS]["file"]
            if highest is not None:
                self.files[progress.batchId] = highest
            if (report := reported(progress)) is not None:
                self.reports[progress.batchId] = report.operators[0]

    def batch_of(self, bid: Bid) -> int:
        """The batch that read a bid."""
        read = (batch for batch, highest in self.files.items() if bid.file <= highest)
        return min(read, default=max(self.reports))

    def collected(self) -> list[Pane]:
        """The panes so far."""
        with self._lock:
            return list(self.panes)

    def final(self) -> list[Pane]:
        """The last pane of each auction and window, which is its current result."""
        latest: dict[tuple[int, str], Pane] = {}
        for pane in self.collected():
            if pane.kind == "pane":
                latest[pane.start, pane.auction] = pane
        return [latest[key] for key in sorted(latest)]

    def _bids(self, arriving: Path) -> Panes:
        """Bids per auction in windows of ten seconds, with early, on-time and late panes."""
        from pyspark.sql import functions as sql

        columns = "at timestamp, origin string, auction string, price long, file long"
        df = self.spark.readStream.schema(columns).parquet(str(arriving))
        bids = sw.stream(
            df.observe(_ARRIVALS, sql.max("file").alias("file")),
            event_time="at",
            watermark=sw.lag("3 seconds"),
            origin="origin",
            origins=ORIGINS,
            idle_after="3 seconds",
            clock="500 milliseconds",
        )
        return (
            bids.key_by("auction")
            .window(sw.fixed(WINDOW))
            .trigger(sw.after_watermark(early=sw.every(duration="3 seconds"), late=sw.every(count=1)))
            .allowed_lateness(LATENESS)
            .agg(late="emit", bids=sw.count(), best=sw.max("price"))
        )

    def _collect(self, frame: DataFrame, batch: int) -> None:
        rows = frame.collect()
        with self._lock:
            self.panes = [pane for pane in self.panes if pane.batch != batch]  # Spark may repeat a batch
            self.panes += [_pane(row, batch) for row in rows]


class QuietSession:
    """A context manager for a SparkSession that logs to a file, which is shown if Spark fails to start."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> SparkSession:
        home = os.environ.get("JAVA_HOME")
        if shutil.which(str(Path(home) / "bin" / "java") if home else "java") is None:
            raise NoJava
        log = self._folder / "spark.log"
        settings = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.warehouse.dir": str(self._folder / "warehouse"),
            "spark.sql.session.timeZone": "UTC",
            # The picture needs every batch, however many there are.
            "spark.sql.streaming.numRecentProgressUpdates": "10000",
        }
        # The demo itself tells which bid is late.
        logging.getLogger(drop_warnings.__name__).setLevel(logging.ERROR)
        try:
            with _stderr_to(log):
                self._spark = sw.session("slackwater demo", master="local[2]", partitions=2, config=settings)
        except Exception as error:
            output = log.read_text(errors="replace")[-2000:]
            raise SlackwaterError(f"Spark did not start: {error}\n{output}") from error
        return self._spark

    def __exit__(self, *exception: object) -> None:
        self._spark.stop()


@contextlib.contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """Redirect standard error of this process, and of processes started in the block, into a file."""
    original = os.dup(2)
    with log.open("w") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(original, 2)
        os.close(original)


def _pane(row: Any, batch: int) -> Pane:
    window, pane = row["window"], row["pane"]
    return Pane(
        batch=batch,
        auction=row["auction"],
        start=sw.instant(window["start"].astimezone(UTC)),
        end=sw.instant(window["end"].astimezone(UTC)),
        bids=row["bids"],
        best=row["best"],
        timing=pane["timing"],
        kind=pane["kind"],
    )


def panes_by_timing(panes: Sequence[Pane]) -> dict[str, int]:
    """The number of panes of each timing.

    >>> panes_by_timing([Pane(0, "lamp", 0, 10, 3, 70, "EARLY", "pane")])
    {'EARLY': 1, 'ON_TIME': 0, 'LATE': 0}
    """
    return {timing: sum(pane.timing == timing for pane in panes) for timing in ("EARLY", "ON_TIME", "LATE")}
