"""Starting the Python workers of a session while its first query is still being built and planned.

Spark starts its workers with the first task that needs them, and each imports what the task needs. That takes
a second or two of the first micro-batch, while the planning before it uses one core.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from slackwater.spark.internals import is_remote, run_in_background
from slackwater.spark.runtime.worker_gc import freeze_imports

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_started: Final[WeakSet[SparkSession]] = WeakSet()


def start_workers(spark: SparkSession) -> Any:
    """Start the workers of a session in the background; only the first call for a session has an effect.

    A small Spark job has one task for each core, and each task imports what operators run in a worker. On a
    cluster the executors start their workers with the first micro-batch.

    Returns:
        The job, whose ``get()`` waits for it; None if nothing is started.

    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> _ = start_workers(spark)
    >>> start_workers(spark) is None
    True
    """
    if spark in _started or is_remote(spark) or not str(spark.sparkContext.master).startswith("local"):
        return None
    _started.add(spark)
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
