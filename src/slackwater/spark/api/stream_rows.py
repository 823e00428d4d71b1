"""The rows of a stream as a DataFrame: the implementation of `Stream.to_df`."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from slackwater.errors import InvalidArgument
from slackwater.spark.api.expression_sources import chosen_rows
from slackwater.spark.api.row_output import (
    RETRACTION_FIELD,
    check_marks,
    check_skipped_are_counted,
    failure_marks,
)
from slackwater.spark.api.stream_inputs import RowRequest, StreamInputs, quoted
from slackwater.spark.monitor.reports import metric_name
from slackwater.spark.wire.wire_columns import CONTROL, FAILED_ROW, FAILURE, RETRACTION, WITNESS


def stream_rows(inputs: StreamInputs, *, flush: bool) -> DataFrame:
    """The rows of all sources with the columns that they have in common, without those filtered out."""
    if flush and (not inputs.sources[0].is_streaming or all(one.clock is not None for one in inputs.sources)):
        raise InvalidArgument(
            "flush",
            flush,
            "has no meaning for batch input, or for rows that no operator holds back",
            fix="omit it",
        )
    check_skipped_are_counted(inputs)
    fields = [inputs.field("to_df", name) for name in inputs.sources[0].schema.names]
    marks = [RETRACTION_FIELD] if inputs.retracts else []
    failures = failure_marks(inputs)
    check_marks("to_df", [*marks, *failures], fields)
    names = tuple(field.name for field in fields)
    path = metric_name()
    frames: list[DataFrame] = []
    for number, source in enumerate(inputs.sources):
        request = RowRequest(names, inputs.retracts, flush, f"{path}_{number}")
        rows, driving = chosen_rows(source, request)
        if CONTROL in driving:  # rows with the headers of an operator
            rows = rows.where(sql.col(CONTROL).isNull())
        if WITNESS in driving:  # rows that were filtered out
            failed = quoted(FAILURE).isNotNull() if FAILURE in driving else sql.lit(0).cast("boolean")
            rows = rows.where(~sql.col(WITNESS) | failed)
        retraction = [quoted(RETRACTION).alias(mark.name) for mark in marks]
        described = [
            (quoted(name) if name in driving else sql.lit(None).cast("string")).alias(field.name)
            for name, field in zip((FAILURE, FAILED_ROW), failures, strict=False)
        ]
        frames.append(rows.select(*map(quoted, names), *retraction, *described))
    return reduce(DataFrame.unionByName, frames)
