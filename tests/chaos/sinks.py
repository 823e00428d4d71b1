"""The sinks of the kill test: how a query writes to each, and what a reader finds there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.streaming.readwriter import DataStreamWriter

from slackwater.spark.api.panes import Panes
from slackwater.streams.log.catalog import Streams
from slackwater.streams.log.scan import scan
from slackwater.streams.maintenance.mark_cycle import CycleRunner
from slackwater.streams.spark.stream_output import write_stream
from slackwater.table_progress.completeness_reader import read_completeness
from slackwater.tables.table_address import lake_table
from tests.spark.oracle import Truth, micros, table_of
from tests.tables.lakes import catalog_properties, truth_in

SINKS: Final = ("delta", "iceberg", "parquet", "sqlite", "postgresql", "stream")
CATALOG: Final = "chaos"
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

    sink: str
    complete_until: int | None
    final_until: int | None
    rows: Truth


@dataclass(frozen=True)
class Sinks:
    """The sinks in a folder, and a PostgreSQL database."""

    folder: Path
    url: str

    @property
    def catalog(self) -> dict[str, str]:
        """The variables that configure the Iceberg catalog."""
        found = catalog_properties(self.folder / "iceberg")
        return {
            f"PYICEBERG_CATALOG__{CATALOG.upper()}__{name.upper()}": value for name, value in found.items()
        }

    @property
    def store(self) -> str:
        return f"sqlite:///{self.folder}/store.db"

    def create_stream(self) -> None:
        with Streams.open(self.store, create=True) as streams:
            # a period of 0 would be no period; marks are made as soon as a cycle runs
            streams.create("chaos/sessions", columns=_EVENTS)

    def address(self, sink: str) -> str:
        return {
            "delta": f"delta:{self.folder}/delta",
            "iceberg": f"iceberg:{CATALOG}/chaos.sessions",
            "parquet": f"parquet:{self.folder}/parquet",
            "sqlite": f"sqlite:///{self.folder}/truth.db#sessions",
            "postgresql": f"{self.url}#sessions",
            "stream": "stream:chaos/sessions",
        }[sink]

    def writer(self, sink: str, panes: Panes, *, ends: bool) -> DataStreamWriter:
        address = self.address(sink)
        if sink == "stream":
            return write_stream(
                panes, address.removeprefix("stream:"), store=self.store, key="key", flush=ends
            )
        if sink in ("sqlite", "postgresql"):
            url, _, table = address.rpartition("#")
            return panes.upsert_to(url, table, create=True, flush=ends)
        return panes.merge_into(address, create=True, flush=ends)

    def observe(self, sink: str) -> Observation:
        """Read a sink; make a mark of the noted times first, if it is a stream."""
        if sink == "stream":
            with Streams.open(self.store) as streams:
                CycleRunner(streams.store).run(streams.get("chaos/sessions").id)
        stated = read_completeness(self.address(sink), store=self.store)
        return Observation(sink, stated.complete_until, stated.final_until, self.rows(sink))

    def rows(self, sink: str) -> Truth:
        """The rows of a sink by key and window."""
        address = self.address(sink)
        if sink == "stream":
            return self._events()
        if sink in ("sqlite", "postgresql"):
            url, _, table = address.rpartition("#")
            return table_of(url, table)
        return truth_in(lake_table(address))

    def _events(self) -> Truth:
        truth: Truth = {}
        with Streams.open(self.store) as streams:
            stream = streams.get("chaos/sessions")
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
        truth[group] = values
