"""`python -m benchmarks.peers.flink_engine`: the windows in Flink SQL, from CSV files to CSV files."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from pyflink.table import EnvironmentSettings, TableDescriptor, TableEnvironment

from benchmarks.announcements import announced_run
from benchmarks.peers.workloads import SECOND, Job, Workload, parse_job


def window_function(window: Workload) -> str:
    """The table function that assigns windows."""
    size = f"INTERVAL '{window.size // SECOND}' SECOND"
    if window.sessions:
        return f"SESSION(TABLE bid PARTITION BY auction, DESCRIPTOR(ts), {size})"
    if window.every is not None:
        return f"HOP(TABLE bid, DESCRIPTOR(ts), INTERVAL '{window.every // SECOND}' SECOND, {size})"
    return f"TUMBLE(TABLE bid, DESCRIPTOR(ts), {size})"


def started() -> TableEnvironment:
    """The engine: the JVM, without a cluster, which every job starts for itself."""
    return TableEnvironment.create(EnvironmentSettings.in_streaming_mode())


def run(job: Job, tables: TableEnvironment, checkpoints: Path) -> None:
    """Run the job to its end, with checkpoints in a folder."""
    settings = {
        "table.local-time-zone": "UTC",
        "parallelism.default": str(job.cores),
        "heartbeat.timeout": "10 min",
        "restart-strategy.type": "none",
        # A file is complete when a checkpoint is.
        "execution.checkpointing.interval": "10 s",
        # By default checkpoints are stored in memory, with at most 5 MiB of state in a task.
        "execution.checkpointing.storage": "filesystem",
        "execution.checkpointing.dir": checkpoints.absolute().as_uri(),
    }
    for name, value in settings.items():
        tables.get_config().set(name, value)
    tables.execute_sql(f"""
        CREATE TABLE bid (
            auction BIGINT, price BIGINT, millis BIGINT,
            ts AS TO_TIMESTAMP_LTZ(millis, 3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
        ) WITH ('connector' = 'filesystem', 'path' = '{job.data / "csv"}', 'format' = 'csv')
    """)
    select = """
        SELECT auction,
            CAST(TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', window_start) AS BIGINT) * 1000
            + EXTRACT(MILLISECOND FROM window_start) AS `start`,
            COUNT(*) AS bids, SUM(price) AS total, MAX(price) AS best
    """
    group = "GROUP BY auction, window_start, window_end"
    result = tables.sql_query(f"{select} FROM {window_function(job.window)} {group}")
    sink = TableDescriptor.for_connector("filesystem").option("path", str(job.output)).format("csv").build()
    result.execute_insert(sink).wait()


if __name__ == "__main__":
    parsed = parse_job()
    running = started() if parsed.started else None
    with TemporaryDirectory(prefix="slackwater-peers-") as name, announced_run():
        run(parsed, running or started(), Path(name))
