"""Sources that give a batch only a part of what there is, by the options of a plan.

A run that ends the stream tells its end with the first batch, before which every row has to come. A source
that is limited has rows left by then, so it is refused while nothing has happened yet. What cannot be seen
here, a limit that a source has by itself, is found in the batch that it is too late for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from pyspark.sql import DataFrame

from slackwater.errors import InvalidArgument
from slackwater.spark.session import is_remote

_LIMIT: Final = re.compile(r"(max|min)\w+Per(Trigger|Batch)|max_events|rowsPerBatch", re.IGNORECASE)
"""How sources of Spark, of its connectors and of this library call a limit."""


def check_unlimited(df: DataFrame) -> None:
    """Refuse a plan in which a streaming source is limited; the message names the option.

    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> check_unlimited(spark.readStream.format("rate").load())
    >>> check_unlimited(spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load())
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: flush = True: a source is limited by rowsPerBatch = '5', and what is \
left after the first batch would come after the end; run the query to its end without flush, then once more \
with flush=True and without that option
    """
    found = _remote_options(df) if is_remote(df.sparkSession) else _options(df)
    for options in found:
        for name, value in options.items():
            if _LIMIT.fullmatch(name):
                raise InvalidArgument(
                    "flush",
                    True,  # noqa: FBT003 - the value that was given
                    f"a source is limited by {name} = {value!r}, and what is left after the first batch "
                    "would come after the end",
                    fix="run the query to its end without flush, then once more with flush=True and without "
                    "that option",
                )


def _options(df: DataFrame) -> Iterator[Mapping[str, str]]:
    """The options of each streaming source; DataFrames do not show them."""
    leaves = cast(Any, df)._jdf.queryExecution().analyzed().collectLeaves()  # noqa: SLF001
    for number in range(leaves.size()):
        leaf = leaves.apply(number)
        match leaf.getClass().getSimpleName():
            case "StreamingRelationV2":
                yield dict(leaf.extraOptions().asCaseSensitiveMap())
            case "StreamingRelation":
                pairs = leaf.dataSource().options().toList()
                yield {pairs.apply(each)._1(): pairs.apply(each)._2() for each in range(pairs.size())}  # noqa: SLF001


def _remote_options(df: DataFrame) -> Iterator[Mapping[str, str]]:
    """The same of a plan that has not left this process."""
    remote = cast(Any, df)
    return _read(remote._plan.to_proto(remote.sparkSession.client))  # noqa: SLF001


def _read(message: Any) -> Iterator[Mapping[str, str]]:
    if message.DESCRIPTOR.name == "Read":
        if message.is_streaming:
            yield dict(message.data_source.options) | dict(message.named_table.options)
        return
    for field, value in message.ListFields():
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for each in value if field.is_repeated else (value,):
                yield from _read(each)
