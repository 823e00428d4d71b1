"""The stream that runs while processes are killed: early and late panes, retractions, merging sessions.

Everything is fixed by a seed: a micro-batch is one file and one tick of the clock, also when it is run
again, so the model can say beforehand which panes come out, and tables and folders of files can be compared
with it. Files are written as they are needed; the stream is as long as the number of files at its end.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlparse

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from slackwater import windows
from slackwater.progress.watermark_policies import Lag
from slackwater.spark.api.panes import Panes
from slackwater.time import SECOND
from tests.model.windows import Pane
from tests.spark.oracle import Truth, micros, truth_of
from tests.spark.running import Batch, Scenario, expected, write
from tests.spark.scenarios import EARLY_AND_LATE, LAG, following
from tests.support.windowed import Options

PIPELINES: Final = ("fixed", "sessions")
_WINDOWS: Final[dict[str, windows.Window]] = {
    "fixed": windows.Fixed(10 * SECOND),
    "sessions": windows.Sessions(4 * SECOND),
}
_SCHEMA: Final = "key string, at timestamp, value long, origin string"
_LONGEST: Final = 400
_PANE_FIELDS: Final = ("timing", "index", "on_time_index", "is_first", "is_last", "retraction")


@dataclass(frozen=True)
class Workload:
    """Batches of rows, and the pipelines over them."""

    batches: Sequence[Batch]

    def scenario(self, pipeline: str) -> Scenario:
        options = Options(
            _WINDOWS[pipeline],
            EARLY_AND_LATE,
            mode="accumulating_and_retracting",
            allowed_lateness=20 * SECOND,
        )
        return Scenario(options, self.batches, Lag(LAG * SECOND))

    def write(self, folder: Path) -> None:
        """Write a file for each batch that has none yet."""
        for number in range(len(list(folder.glob("*.parquet"))), len(self.batches)):
            write(folder, number, self.batches[number])

    def panes(self, spark: SparkSession, folder: Path, pipeline: str, *, ends: bool) -> Panes:
        """The panes of a pipeline over the existing files, with one more batch if the stream ends."""
        rows = spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))
        times = [batch.now * SECOND for batch in self.batches]
        return self.scenario(pipeline).build(rows, [*times, times[-1] + SECOND][: len(times) + ends])

    def expected_truth(self, pipeline: str) -> Truth:
        """The expected content of the table at the end."""
        return truth_of(expected(self.scenario(pipeline), [[batch] for batch in self.batches]))

    def expected_panes(self, pipeline: str) -> list[str]:
        """Every pane as a string that can be sorted."""
        steps = expected(self.scenario(pipeline), [[batch] for batch in self.batches])
        return sorted(worded(pane) for step in steps for pane in step.panes)


def workload(count: int, *, seed: int) -> Workload:
    """Rows of a few keys in advancing event time, out of order, some late and some too late.

    A longer workload begins with the shorter one.
    """
    assert count <= _LONGEST, f"{count} batches were not enough: the stream never gets on"
    source = random.Random(seed)
    batches: list[list[tuple[Any, ...]]] = []
    for number in range(count):
        rows = []
        for _ in range(source.randrange(1, 12)):
            behind = source.choice([0, 0, 1, 3, 6, 12, 24, 40])
            second = 3 * number + source.randrange(4) - behind
            rows.append((source.choice(["a", "b", "c", "d", "ü", None]), second, source.randrange(100)))
        batches.append(rows)
    return Workload(following(batches))


def worded(pane: Pane) -> str:
    return repr(
        (
            pane.key, pane.start, pane.end, sorted(pane.values.items()),
            *(getattr(pane, name) for name in _PANE_FIELDS),
        )
    )  # fmt: skip


def written_panes(folder: Path) -> list[str]:
    """Every pane in the files that Spark's sink log lists, as strings that can be sorted.

    Read through the log, as every reader of such a folder has to: files of failed attempts lie there too.
    """
    return sorted(worded(pane) for file in committed_files(folder) for pane in _panes(file))


def _panes(file: Path) -> Iterator[Pane]:
    for row in pq.read_table(file).to_pylist():
        if row["pane"]["kind"] == "pane":
            yield Pane(
                key=(row["key"],),
                start=micros(row["window"]["start"]),
                end=micros(row["window"]["end"]),
                values={"count": row["count"], "sum": row["sum"], "collect": sorted(row["collect"])},
                timestamp=0,
                **{name: row["pane"][name] for name in _PANE_FIELDS},
            )


def committed_files(folder: Path) -> list[Path]:
    """The files of batches that Spark's sink log lists, each once."""
    log = folder / "_spark_metadata"
    entries = sorted((path for path in log.iterdir() if not path.name.startswith(".")), key=_number)
    compacted = [path for path in entries if path.name.endswith(".compact")]
    if compacted:
        entries = entries[entries.index(compacted[-1]) :]
    lines = [line for entry in entries for line in entry.read_text(encoding="utf-8").splitlines()[1:]]
    files = [Path(unquote(urlparse(json.loads(line)["path"]).path)) for line in lines]
    assert len(files) == len(set(files)), "a file is listed twice"
    return files


def _number(path: Path) -> int:
    return int(path.name.removesuffix(".compact"))
