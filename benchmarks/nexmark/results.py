"""Final results of a run from what it wrote: the last update of every key, or the sum of all changes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

import polars as pl

from benchmarks.nexmark.truth import QUERIES, Events

KEYS: Final = {
    "q4": ("category",),
    "q9": ("id",),
    "q15": ("day",),
    "q16": ("channel", "day"),
    "q17": ("auction", "day"),
    "q18": ("auction", "bidder"),
    "q19": ("auction",),
}
"""The columns that identify a result that is updated."""


def last_updates(query: str, output: Path) -> pl.DataFrame:
    """The final result from the Parquet files that `spark_engine` wrote, a folder per micro-batch."""
    rows = pl.read_parquet(output / "*" / "*.parquet", hive_partitioning=True)
    if "pane" in rows.columns:
        pane = pl.col("pane").struct
        rows = rows.filter(~pane.field("retraction")).with_columns(batch=pane.field("index")).drop("pane")
    key = KEYS.get(query)
    if key is not None:
        rows = rows.filter(pl.col("batch") == pl.col("batch").max().over(key))
    return rows.drop("batch")


def sum_of_changes(query: str, output: Path, truth: pl.Schema) -> pl.DataFrame:
    """The final result from the changes that `flink_engine` wrote: rows that were added and not removed."""
    times = [name for name, dtype in truth.items() if isinstance(dtype, pl.Datetime)]
    files = sorted(path for path in output.rglob("*") if path.is_file() and not path.name.startswith("."))
    if not files:
        return truth.to_frame()
    lines = pl.concat(pl.read_ndjson(path, infer_schema_length=None) for path in files)
    added = lines.filter(pl.col("op") == "c").select(row="after", change=1)
    removed = lines.filter(pl.col("op") == "d")
    changes = [added] if removed.is_empty() else [added, removed.select(row="before", change=-1)]
    rows = pl.concat(changes, how="vertical_relaxed").unnest("row")
    columns = [name for name in rows.columns if name != "change"]
    left = rows.group_by(columns).agg(pl.col("change").sum()).filter(pl.col("change") != 0)
    negative = left.filter(pl.col("change") < 0)
    assert negative.is_empty(), f"{query}: {negative.height} rows were removed that had not been added"
    repeated = left.select(pl.col(columns).repeat_by("change").explode())
    return repeated.with_columns(
        pl.col(name).str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_zone="UTC") for name in times
    )


def final_result(engine: str, query: str, output: Path, events: Events) -> pl.DataFrame:
    """The final result of a run of an engine."""
    if engine == "flink":
        schema = {**QUERIES[query].result(events).collect_schema()}
        if QUERIES[query].chosen:
            schema["date_time"] = pl.Datetime("us", "UTC")
        return sum_of_changes(query, output, pl.Schema(schema))
    return last_updates(query, output)


@dataclass
class Measurement:
    """What was measured of a query on an engine."""

    query: str
    engine: str
    events: int
    rows: int = 0
    """Rows of the truth."""
    missing: int = 0
    wrong: int = 0
    seconds: list[float] = field(default_factory=list)
    """Of the timed runs."""
    cpu_seconds: list[float] = field(default_factory=list)
    peak_mib: int = 0
    load: float = 0.0
    """The load of the machine when the engine was started."""
    cores: int = 0
    error: str = ""

    @property
    def per_second(self) -> float:
        """Events per second of the median run."""
        return self.events / median(self.seconds)

    @property
    def per_cpu_second(self) -> float:
        """Events per CPU second of the median run: what one core processes in a second."""
        return self.events / median(self.cpu_seconds)

    @property
    def spread(self) -> float:
        """How far the slowest and the fastest run are apart, as a share of the median."""
        return (max(self.seconds) - min(self.seconds)) / median(self.seconds)


def load_measurements(path: Path) -> dict[tuple[str, str], Measurement]:
    """The measurements in a file, by query and engine; empty if there is none."""
    if not path.exists():
        return {}
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return {(row["query"], row["engine"]): Measurement(**row) for row in rows}


def save_measurements(path: Path, measurements: dict[tuple[str, str], Measurement]) -> None:
    """Write the measurements in the order of the queries, one a line."""
    order = list(QUERIES)
    chosen = sorted(measurements.values(), key=lambda one: (order.index(one.query), one.engine))
    lines = ",\n".join(json.dumps(asdict(one)) for one in chosen)
    path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
