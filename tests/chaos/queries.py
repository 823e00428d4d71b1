"""The progress of the workload's queries, read from their checkpoint logs and sinks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import psycopg

from tests.chaos.workload import Workload, written_panes
from tests.spark.oracle import table_of

LEDGER = "SELECT max(batch) FROM slackwater_upserts WHERE identity = %s"


@dataclass(frozen=True)
class Query:
    """A pipeline into a sink: ``files`` or ``table``, and then the name of the pipeline."""

    folder: Path
    url: str
    name: str

    @property
    def sink(self) -> str:
        return self.name.partition("-")[0]

    @property
    def pipeline(self) -> str:
        return self.name.partition("-")[2]

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoints" / self.name

    @property
    def output(self) -> Path:
        return self.folder / "out" / self.name

    def planned(self) -> int:
        """The number of batches that were started."""
        return entries(self.checkpoint / "offsets")

    def committed(self) -> int:
        """The number of batches that were committed."""
        return entries(self.checkpoint / "commits")

    def applied(self) -> int:
        """The number of batches in the sink."""
        return entries(self.output / "_spark_metadata") if self.sink == "files" else self._noted()

    def _noted(self) -> int:
        metadata = self.checkpoint / "metadata"
        if not metadata.exists():
            return 0
        identity = f"query {json.loads(metadata.read_text(encoding='utf-8'))['id']}"
        with psycopg.connect(self.url) as connection:
            try:
                (batch,) = connection.execute(LEDGER, [identity]).fetchone() or (None,)
            except psycopg.errors.UndefinedTable:
                return 0
        return 0 if batch is None else int(batch) + 1

    def check(self, load: Workload) -> None:
        """Assert that the sink equals the model after the end of the stream."""
        batches = len(load.batches) + 1
        assert (self.planned(), self.committed(), self.applied()) == (batches, batches, batches)
        if self.sink == "files":
            assert written_panes(self.output) == load.expected_panes(self.pipeline)
        else:
            assert table_of(self.url, self.pipeline) == load.expected_truth(self.pipeline)


def entries(log: Path) -> int:
    """The number of batches in a Spark log, from the number of the last one: old entries are removed."""
    if not log.is_dir():
        return 0
    names = (path.name.removesuffix(".compact") for path in log.iterdir())
    return 1 + max((int(name) for name in names if name.isdigit()), default=-1)
