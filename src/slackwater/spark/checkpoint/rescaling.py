"""Rescaling: the state of a stopped query, distributed over another number of shuffle partitions.

Spark fixes the number of shuffle partitions at the first start of a query. Buckets are the grouping keys of
its state, and their number never changes; a rescale moves whole buckets to other partitions. Their ids spread
evenly over every number of partitions that divides their number (`slackwater.spark.wire.bucket_ids`).
"""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from slackwater.errors import InvalidArgument
from slackwater.spark.checkpoint.state_reader import OperatorState, operator_states
from slackwater.spark.internals import JavaError, repartition_checkpoint
from slackwater.spark.versions import needs
from slackwater.spark.wire.bucket_ids import bucket_ids


def rescale(spark: SparkSession, checkpoint: str, partitions: int) -> int:
    """Distribute the state in a checkpoint over another number of shuffle partitions.

    The query must be stopped, and its last micro-batch must be committed. Spark writes the new state as a
    further micro-batch without input; the query goes on with it when it is started again.

    Args:
        spark: A classic session of Spark 4.2 or later, with the RocksDB state store.
        checkpoint: The ``checkpointLocation`` of the query.
        partitions: The new number; it must divide the number of buckets.

    Returns:
        The number of buckets, to which ``buckets=`` of `slackwater.stream` must be set if the session of the
        query has another number of shuffle partitions.

    Raises:
        InvalidArgument: The folder has no state, or its buckets do not fit that number of partitions.
        NeedsNewerSpark: PySpark is older than 4.2.
    """
    needs("Rescaling a checkpoint", "4.2", fix="start with a new checkpoint")
    states = operator_states(spark, checkpoint)
    count = _check(states, checkpoint, partitions)
    try:
        available = repartition_checkpoint(spark, checkpoint, partitions)
    except (PySparkException, JavaError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InvalidArgument(
            "checkpoint",
            checkpoint,
            f"cannot be rescaled ({reason})",
            fix="stop the query, let its last micro-batch finish, and try again",
        ) from error
    if not available:
        raise InvalidArgument(
            "spark",
            spark.version,
            "cannot rescale checkpoints",
            fix="use a classic session, not Spark Connect",
        )
    return count


def _check(states: list[OperatorState], checkpoint: str, partitions: int) -> int:
    """The number of buckets; raises if they cannot be distributed over the partitions."""
    counts = {len(each.buckets) for each in states}
    if any(tuple(each.buckets) != tuple(sorted(bucket_ids(len(each.buckets)))) for each in states):
        raise InvalidArgument(
            "checkpoint",
            checkpoint,
            "was written before release 0.1.0, with bucket ids that depend on the number of partitions",
            fix="start with a new checkpoint and read the input again from its beginning",
        )
    fitting = [number for number in range(1, min(counts) + 1) if all(count % number == 0 for count in counts)]
    if partitions not in fitting:
        raise InvalidArgument(
            "partitions",
            partitions,
            f"does not divide the number of buckets ({', '.join(map(str, sorted(counts)))}), which the first "
            "start of the query has fixed",
            fix=f"use one of {', '.join(map(str, fitting))}",
        )
    if all(each.partitions == partitions for each in states):
        raise InvalidArgument(
            "partitions",
            partitions,
            "is already the number of partitions of the state",
            fix="give another number, or leave the checkpoint as it is",
        )
    return max(counts)
