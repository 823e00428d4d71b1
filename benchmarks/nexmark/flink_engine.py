"""`python -m benchmarks.nexmark.flink_engine`: run a query in Flink SQL, in a cluster inside this process.

Prints a report before and after every run. The first run writes its changes as JSON files, to be
compared; the other runs write to nothing and are timed. Needs nothing of this project but this folder.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pyflink.table import EnvironmentSettings, TableDescriptor, TableEnvironment

from benchmarks.announcements import announced_run
from benchmarks.nexmark.flink_queries import QUERIES, TABLES

SETTINGS = {
    "table.local-time-zone": "UTC",
    # On a loaded machine, a job that loses its heartbeat must fail or go on, not wait for another cluster.
    "heartbeat.timeout": "10 min",
    "restart-strategy.type": "none",
    # As in the public setup of this benchmark: updates are emitted once for up to 50,000 rows or 2 seconds.
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2 s",
    "table.exec.mini-batch.size": "50000",
    "table.optimizer.distinct-agg.split.enabled": "true",
}


def environment(data: Path, cores: int, checkpoints: Path | None) -> Any:
    """A table environment with the tables of the benchmark, and checkpoints in a folder if it is given."""
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in SETTINGS.items():
        tables.get_config().set(name, value)
    tables.get_config().set("parallelism.default", str(cores))
    if checkpoints is not None:
        # A file is complete when a checkpoint is.
        tables.get_config().set("execution.checkpointing.interval", "5 s")
        # By default checkpoints are stored in memory, with at most 5 MiB of state in a task.
        tables.get_config().set("execution.checkpointing.storage", "filesystem")
        tables.get_config().set("execution.checkpointing.dir", checkpoints.absolute().as_uri())
    for name, columns in TABLES.items():
        watermark = "WATERMARK FOR date_time AS date_time - INTERVAL '4' SECOND"
        _create(tables, f"CREATE TABLE {name} ({columns}, {watermark})", data / name)
    _create(tables, "CREATE TABLE side_input (`key` BIGINT, `value` STRING)", data / "side_input")
    tables.execute_sql("CREATE VIEW arriving_bid AS SELECT *, PROCTIME() AS arrived FROM bid")
    return tables


def _create(tables: Any, statement: str, path: Path) -> None:
    tables.execute_sql(f"{statement} WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv')")


def run(data: Path, query: str, cores: int, output: Path | None) -> None:
    """Run a query to its end, into files of changes or into nothing."""
    tables = environment(data, cores, None if output is None else output.with_name("checkpoints"))
    if output is None:
        sink = TableDescriptor.for_connector("blackhole").build()
    else:
        files = TableDescriptor.for_connector("filesystem").option("path", str(output))
        sink = files.format("debezium-json").build()
    tables.sql_query(QUERIES[query]).execute_insert(sink).wait()


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--query", required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--runs", type=int, required=True)
    parser.add_argument("--cores", type=int, required=True)
    arguments = parser.parse_args()
    for number in range(arguments.runs + 1):
        output = arguments.output / arguments.query if number == 0 else None
        with announced_run(run=number):
            run(arguments.data, arguments.query, arguments.cores, output)


if __name__ == "__main__":
    main()
