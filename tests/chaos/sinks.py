"""A sink of the kill test: how a query writes to it, and what a reader finds there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import sqlalchemy as sql
from pyspark.sql.streaming.readwriter import DataStreamWriter

from slackwater.metadata.store_schema import writers
from slackwater.spark.api.panes import Panes
from slackwater.sql.database import database_url, temporary_engine
from slackwater.sql.pane_table import LEDGER
from slackwater.streams.log.catalog import Streams
from slackwater.streams.log.scan import scan
from slackwater.streams.maintenance.mark_cycle import CycleRunner
from slackwater.streams.settings import MarkSettings, StreamSettings
from slackwater.streams.spark.stream_output import write_stream
from slackwater.table_progress.completeness_reader import read_completeness
from slackwater.tables.table_address import append_table, lake_table
from tests.chaos.queries import entries
from tests.spark.oracle import Truth, micros, table_of
from tests.tables.appended import current_results
from tests.tables.lakes import catalog_properties, truth_in

APPENDED: Final = ("delta files", "parquet files")
"""Tables that files are appended to."""
SINKS: Final = (
    "delta", "iceberg", "parquet", "sqlite", "postgresql", "stream", "delta files", "parquet files"
)  # fmt: skip
CATALOG: Final = "chaos"
_STREAM: Final = "chaos/sessions"
_EVENTS: Final = pa.schema(
    [
        ("key", pa.string()),
        ("window_start", pa.timestamp("us", "UTC")),
        ("window_end", pa.timestamp("us", "UTC")),
        ("count", pa.int64()),
        ("sum", pa.int64()),
        ("collect", pa.list_(pa.int64())),
        ("retraction", pa.bool_()),
        ("kind", pa.string()),
    ]
)


@dataclass(frozen=True)
class Observation:
    """What a reader found: the completeness first, then the rows, so the rows are at least as new."""

    complete_until: int | None
    final_until: int | None
    rows: Truth


@dataclass(frozen=True)
class Sink:
    """A sink in a folder, or in a PostgreSQL database."""

    kind: str
    folder: Path
    url: str

    @property
    def environment(self) -> dict[str, str]:
        """The variables that configure the Iceberg catalog."""
        found = catalog_properties(self.folder / "iceberg")
        return {
            f"PYICEBERG_CATALOG__{CATALOG.upper()}__{name.upper()}": value for name, value in found.items()
        }

    @property
    def store(self) -> str:
        """The metadata store of the stream."""
        return f"sqlite:///{self.folder}/store.db"

    @property
    def checkpoint(self) -> Path:
        """The checkpoint of the query."""
        return self.folder / "checkpoint"

    def create(self) -> None:
        """Create what the query does not create itself."""
        if self.kind == "stream":
            quick = StreamSettings(marks=MarkSettings(period="1 microsecond"))
            with Streams.open(self.store, create=True) as streams:
                streams.create(_STREAM, columns=_EVENTS, settings=quick)

    @property
    def address(self) -> str:
        """The address of the table."""
        return {
            "delta": f"delta:{self.folder}/delta",
            "iceberg": f"iceberg:{CATALOG}/chaos.sessions",
            "parquet": f"parquet:{self.folder}/parquet",
            "delta files": f"delta:{self.folder}/files",
            "parquet files": f"parquet:{self.folder}/files",
            "sqlite": f"sqlite:///{self.folder}/truth.db#sessions",
            "postgresql": f"{self.url}#sessions",
            "stream": f"stream:{_STREAM}",
        }[self.kind]

    def writer(self, panes: Panes, *, ends: bool) -> DataStreamWriter:
        """The writer of the query, as a user calls it."""
        if self.kind == "stream":
            return write_stream(panes, _STREAM, store=self.store, key="key", flush=ends)
        if self.kind in ("sqlite", "postgresql"):
            url, _, table = self.address.rpartition("#")
            return panes.upsert_to(url, table, create=True, flush=ends)
        if self.kind in APPENDED:
            return panes.append_to(self.address, create=True, flat=True, flush=ends)
        return panes.merge_into(self.address, create=True, flush=ends)

    def planned(self) -> int:
        """The number of batches that were started."""
        return entries(self.checkpoint / "offsets")

    def committed(self) -> int:
        """The number of batches that Spark has committed."""
        return entries(self.checkpoint / "commits")

    def applied(self) -> int:
        """The number of batches in the sink."""
        if self.kind == "stream":
            with Streams.open(self.store) as streams:
                newest = sql.select(sql.func.max(writers.c.last_event_number))
                return streams.store.read(lambda connection: connection.execute(newest).scalar()) or 0
        if self.kind not in ("sqlite", "postgresql"):
            target = append_table if self.kind in APPENDED else lake_table
            known = target(self.address).ledger().values()
            return max((entry.batch + 1 for entry in known), default=0)
        url, _, _ = self.address.rpartition("#")
        with temporary_engine(database_url(url)) as engine, engine.connect() as connection:
            found = connection.exec_driver_sql(f"SELECT max(batch) + 1 FROM {LEDGER}")  # noqa: S608 - a constant
            return found.scalar() or 0

    def observe(self) -> Observation:
        """Read the sink; make a mark of the noted times first, if it is a stream."""
        if self.kind == "stream":
            with Streams.open(self.store) as streams:
                CycleRunner(streams.store).run(streams.get(_STREAM).id)
        stated = read_completeness(self.address, store=self.store)
        return Observation(stated.complete_until, stated.final_until, self.rows())

    def rows(self) -> Truth:
        """The rows of the sink by key and window."""
        if self.kind == "stream":
            return self._events()
        if self.kind in ("sqlite", "postgresql"):
            url, _, table = self.address.rpartition("#")
            return table_of(url, table)
        if self.kind in APPENDED:
            return current_results(append_table(self.address))
        return truth_in(lake_table(self.address))

    def _events(self) -> Truth:
        truth: Truth = {}
        with Streams.open(self.store) as streams:
            stream = streams.get(_STREAM)
            for batch in scan(stream, stream.head()):
                for event in batch.events.to_pylist():
                    if event["kind"] == "pane":
                        _apply(truth, event)
        return truth


def _apply(truth: Truth, event: dict[str, Any]) -> None:
    group = (event["key"], micros(event["window_start"]), micros(event["window_end"]))
    values = {"count": event["count"], "sum": event["sum"], "collect": sorted(event["collect"])}
    if event["retraction"]:
        assert truth.pop(group) == values, "a pane is retracted that is not the last one"
    else:
        assert group not in truth, "a pane that was not retracted comes again"
        truth[group] = values
