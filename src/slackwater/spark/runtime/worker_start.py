"""Starting the Python processes of a session while its first query is still being built and planned.

Spark starts its workers with the first task that needs them, and each imports what the task needs. That takes
a second or two of the first micro-batch, while the planning before it uses one core. Spark creates the clock
in another Python process; building the query would wait for that process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from slackwater.spark.internals import is_remote, run_in_background
from slackwater.spark.runtime.worker_gc import freeze_imports
from slackwater.spark.wire.clock_source import ClockSpec, prepare_clock

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_started: Final[WeakSet[SparkSession]] = WeakSet()


def start_processes(spark: SparkSession, clock: ClockSpec | None, buckets: Sequence[int]) -> None:
    """Start the Python processes of a session in the background; only the first call for it has an effect.

    On a cluster the executors start their workers with the first micro-batch.

    Args:
        spark: The session.
        clock: The clock of the query that is about to be built; None if it has none.
        buckets: Its bucket ids.

    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> start_processes(spark, None, [0, 1])
    """
    if spark in _started or is_remote(spark) or not str(spark.sparkContext.master).startswith("local"):
        return
    _started.add(spark)
    if clock is not None:
        prepare_clock(spark, clock, buckets)
    Thread(target=_try_workers, args=(spark,), daemon=True).start()


def _try_workers(spark: SparkSession) -> None:
    """Start the workers; if that fails, as when the session ends meanwhile, the first query starts them."""
    with suppress(Exception):
        start_workers(spark)


def start_workers(spark: SparkSession) -> Any:
    """Start the workers of a session by a small Spark job.

    It has one task for each core, and each task imports what operators run in a worker.

    Returns:
        The job, whose ``get()`` waits for it.
    """
    cores = spark.sparkContext.defaultParallelism
    imports = spark.range(cores, numPartitions=cores).mapInArrow(_import_operators, "id long")
    return run_in_background(imports, "slackwater: start Python workers")


def _import_operators(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Import what map tasks and buckets run, and return no rows."""
    for module in ("bucket_task", "map_side"):
        import_module(f"slackwater.spark.runtime.{module}")
    for _ in batches:
        pass
    freeze_imports()
    return iter(())
