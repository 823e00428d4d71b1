"""The rows of a stream as a DataFrame: the implementation of `Stream.to_df`."""

from __future__ import annotations

import uuid
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from slackwater.errors import InvalidArgument
from slackwater.spark.api.expressions import chosen_rows
from slackwater.spark.api.row_output import RETRACTION_FIELD, check_marks
from slackwater.spark.api.stream_inputs import RowRequest, StreamInputs, quoted
from slackwater.spark.monitor.reports import METRIC
from slackwater.spark.wire.columns import CONTROL, RETRACTION, WITNESS


def stream_rows(inputs: StreamInputs, *, flush: bool) -> DataFrame:
    """The rows of all sources with the columns that they have in common, without those filtered out."""
    if flush and (not inputs.sources[0].is_streaming or all(one.clock is not None for one in inputs.sources)):
        raise InvalidArgument(
            "flush",
            flush,
            "has no meaning for batch input, or for rows that no operator holds back",
            fix="omit it",
        )
    fields = [inputs.field("to_df", name) for name in inputs.sources[0].schema.names]
    marks = [RETRACTION_FIELD] if inputs.retracts else []
    check_marks("to_df", marks, fields)
    names = tuple(field.name for field in fields)
    # A query may contain several operators, and each observed metric needs a unique name.
    path = f"{METRIC}_{uuid.uuid4().hex[:8]}"
    frames: list[DataFrame] = []
    for number, source in enumerate(inputs.sources):
        request = RowRequest(names, inputs.retracts, flush, f"{path}_{number}")
        rows, driving = chosen_rows(source, request)
        if CONTROL in driving:  # rows with the headers of an operator
            rows = rows.where(sql.col(CONTROL).isNull())
        if WITNESS in driving:  # rows that were filtered out
            rows = rows.where(~sql.col(WITNESS))
        retraction = [quoted(RETRACTION).alias(mark.name) for mark in marks]
        frames.append(rows.select(*map(quoted, names), *retraction))
    return reduce(DataFrame.unionByName, frames)
