"""Detection of streaming sources that are limited per micro-batch.

A run with ``flush=True`` ends the stream with its first micro-batch. A source that is limited still has rows
left at that point, so it is rejected before anything has run. A limit that is built into a source and has no
option cannot be seen here; it is detected when the rows of a second batch arrive (`AfterEnd`).
"""

from __future__ import annotations

import re
from typing import Final

from pyspark.sql import DataFrame

from slackwater.errors import InvalidArgument
from slackwater.spark.internals import streaming_source_options

_LIMIT: Final = re.compile(r"(max|min)\w+Per(Trigger|Batch)|max_events|rowsPerBatch", re.IGNORECASE)
"""The names of limits in the sources of Spark, its connectors and this library."""


def check_unlimited(df: DataFrame) -> None:
    """Raise if a streaming source of the plan is limited per micro-batch; the message names the option.

    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> check_unlimited(spark.readStream.format("rate").load())
    >>> check_unlimited(spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load())
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: flush = True: a source is limited by rowsPerBatch = '5', so rows \
would be left over after the first batch, which ends the stream; run the query to its end without flush, \
then once more with flush=True and without that option
    """
    for options in streaming_source_options(df):
        for name, value in options.items():
            if _LIMIT.fullmatch(name):
                raise InvalidArgument(
                    "flush",
                    True,  # noqa: FBT003 - the value that was given
                    f"a source is limited by {name} = {value!r}, so rows would be left over after the first "
                    "batch, which ends the stream",
                    fix="run the query to its end without flush, then once more with flush=True and without "
                    "that option",
                )
