"""The query and the run that a task of a streaming query belongs to."""

from __future__ import annotations

from typing import Final

from pyspark import TaskContext

from slackwater.errors import InvalidArgument
from slackwater.sql.commit_owner import Committer

_QUERY: Final = "sql.streaming.queryId"
_RUN: Final = "spark.jobGroup.id"
"""A streaming query runs its jobs in a job group that is named after its run."""


def running_query() -> Committer:
    """The query and the run of this task, as Spark reports them to the worker.

    Raises:
        InvalidArgument: This is not a task of a streaming query.

    >>> running_query()
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: query = None: Spark did not report the query that this task belongs \
to; write the sink with writeStream
    """
    task = TaskContext.get()
    query = None if task is None else task.getLocalProperty(_QUERY)
    if task is None or query is None:
        raise InvalidArgument(
            "query", None, "Spark did not report the query that this task belongs to",
            fix="write the sink with writeStream",
        )  # fmt: skip
    return Committer(query, task.getLocalProperty(_RUN))
