"""Detection of streaming sources that are limited per micro-batch.

With ``flush=True`` the stream ends with the run. Only a run with ``availableNow`` has a known end; otherwise
the stream ends with the first micro-batch of the run, after which a limited source has rows left. A limit
that is built into a source and has no option cannot be seen here; it is detected when the rows of a second
batch arrive (`AfterEnd`).
"""

from __future__ import annotations

import re
from typing import Final

from pyspark.sql import DataFrame

from slackwater.errors import InvalidArgument
from slackwater.spark.internals import streaming_source_options

_LIMIT: Final = re.compile(r"(max|min)\w+Per(Trigger|Batch)|max_events|rowsPerBatch", re.IGNORECASE)
"""The names of limits in the sources of Spark, its connectors and this library."""
_UNLIMITED: Final = str(2**31 - 1)
"""The largest number that these options take, for sources that have a limit by default."""


def source_limit(df: DataFrame) -> str | None:
    """The option that limits a streaming source of the plan per micro-batch; None if there is none.

    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> source_limit(spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load())
    "rowsPerBatch = '5'"
    """
    for options in streaming_source_options(df):
        for name, value in options.items():
            if _LIMIT.fullmatch(name) and value != _UNLIMITED:
                return f"{name} = {value!r}"
    return None


def check_unlimited(df: DataFrame) -> None:
    """Raise if a source of the plan is limited per micro-batch, where the end of a run cannot be observed.

    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> check_unlimited(spark.readStream.format("rate").load())
    >>> check_unlimited(spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load())
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: flush = True: a source is limited by rowsPerBatch = '5', so rows \
would be left over after the first batch, which ends the stream on Spark Connect; run the query to its end \
without flush, then once more with flush=True and without that option
    """
    if limit := source_limit(df):
        raise InvalidArgument(
            "flush",
            True,  # noqa: FBT003 - the value that was given
            f"a source is limited by {limit}, so rows would be left over after the first batch, which ends "
            "the stream on Spark Connect",
            fix="run the query to its end without flush, then once more with flush=True and without that "
            "option",
        )
