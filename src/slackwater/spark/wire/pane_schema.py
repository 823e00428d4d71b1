"""The schema of panes, and the types of their values.

Inside an operator a pane is a row of integers and strings. Outside it has key columns, a window, values and
a struct that describes the pane, in Spark types. The types of the values come from the accumulations
themselves: they are applied to an empty frame with the types of the input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import polars as pl
from pyspark.errors import PySparkTypeError
from pyspark.sql.types import (
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from slackwater.errors import InvalidArgument
from slackwater.spark.versions import from_arrow_type, to_arrow_schema
from slackwater.spark.wire.packed_flags import FlagValues
from slackwater.spark.wire.payload_reader import PayloadReader
from slackwater.spark.wire.row_codec import OutputOptions, RowCodec, Structures, null_if
from slackwater.spark.wire.wire_columns import REPORT
from slackwater.time import BEGINNING_OF_TIME, END_OF_TIME
from slackwater.windows import ColumnarAccumulation
from slackwater.windows.accumulations.base import PartialColumns
from slackwater.windows.operator_columns import TIME as ELEMENT_TIME
from slackwater.windows.operator_columns import input_column

WINDOW: Final = StructType([StructField("start", TimestampType()), StructField("end", TimestampType())])
PANE: Final = StructType(
    [
        StructField("timing", StringType()),
        StructField("index", LongType()),
        StructField("on_time_index", LongType()),
        StructField("is_first", BooleanType()),
        StructField("is_last", BooleanType()),
        StructField("retraction", BooleanType()),
        StructField("kind", StringType()),
    ]
)
"""The description of a pane. Its kind is ``pane``; ``late`` or ``invalid`` for a row that was dropped; or
``failed`` for a row for which an async function failed."""
PANE_KIND: Final = "pane"
ROW_KIND: Final = "row"
"""The kind of the rows of a join, in which late rows are emitted as well."""
LATE_KIND: Final = "late"
INVALID_KIND: Final = "invalid"
FAILED_KIND: Final = "failed"
FAILURE_FIELDS: Final = (StructField("failure", StringType()), StructField("failed_row", StringType()))
"""The columns of the output that describe failed rows: the reason, and the row as JSON. Only if an input has
an async function with ``on_error="emit"``."""
RECORD_FIELDS: Final = (
    StructField("invalid_topic", StringType()),
    StructField("invalid_partition", IntegerType()),
    StructField("invalid_offset", LongType()),
    StructField("invalid_reason", StringType()),
)
"""The columns of the output that locate invalid records. Only if they are emitted, and an input has them."""
STRUCTURES: Final[Structures] = {
    "window": {"start": "window_start", "end": "window_end"},
    "pane": {name: name for name in PANE.names},
}
"""The struct columns of panes: the operator's column for each field."""
FLAGS: Final[Mapping[str, FlagValues]] = {
    "timing": ("EARLY", "ON_TIME", "LATE"),
    "is_first": (False, True),
    "is_last": (False, True),
    "retraction": (False, True),
    "kind": (PANE_KIND, LATE_KIND, INVALID_KIND, FAILED_KIND),
}
"""The possible values of these fields of a pane."""
PANE_NUMBERS: Final = tuple(range(256))
SINGLE_PANE_FLAGS: Final[Mapping[str, FlagValues]] = {
    **FLAGS,
    "index": PANE_NUMBERS,
    "on_time_index": PANE_NUMBERS,
}
"""The same for windows that fire only once, so that their panes have index 0.

A window that was open when the query got these settings may have emitted panes before; it goes on numbering.
"""
UNBOUNDED: Final = {"window_start": BEGINNING_OF_TIME, "window_end": END_OF_TIME}
"""The bounds of a global window, which are null in the output."""


def empty_frame(schema: StructType) -> pl.DataFrame:
    """An empty frame with the types of a Spark schema.

    >>> empty_frame(StructType([StructField("n", LongType())])).rows()
    []
    """
    try:
        return pl.DataFrame(to_arrow_schema(schema).empty_table())
    except PySparkTypeError as error:
        raise InvalidArgument(
            "columns",
            schema.names,
            f"include a type that cannot be converted to Arrow: {error}",
            fix="cast the column to another type",
        ) from error


def row_values(
    rows: pl.DataFrame, accumulations: Mapping[str, ColumnarAccumulation], event_time: str
) -> pl.DataFrame:
    """The accumulated value of each row by itself, as if it were the only row of its window.

    >>> from slackwater.windows import Sum
    >>> row_values(pl.DataFrame({"at": [5, 7], "price": [1, 2]}), {"total": Sum("price")}, "at")[
    ...     "total"
    ... ].to_list()
    [1, 2]
    """
    inputs = list(
        dict.fromkeys(name for accumulation in accumulations.values() for name in accumulation.inputs)
    )
    elements = rows.select(
        pl.int_range(pl.len()).alias("row"),
        pl.col(event_time).alias(ELEMENT_TIME),
        *(pl.col(name).alias(input_column(name)) for name in inputs),
    )
    parts = {name: PartialColumns(name, retractable=False) for name in accumulations}
    folded = elements.group_by("row", maintain_order=True).agg(
        part for name, accumulation in accumulations.items() for part in accumulation.add(parts[name])
    )
    return folded.select(
        accumulation.output(parts[name]).alias(name) for name, accumulation in accumulations.items()
    )


def value_types(schema: StructType, accumulations: Mapping[str, ColumnarAccumulation]) -> dict[str, DataType]:
    """The Spark types of the accumulated values, given the schema of the input rows.

    >>> from slackwater.windows import Count, Mean
    >>> value_types(StructType([StructField("price", LongType())]), {"n": Count(), "average": Mean("price")})
    {'n': LongType(), 'average': DoubleType()}
    """
    rows = empty_frame(schema).with_columns(pl.lit(0, pl.Int64).alias(ELEMENT_TIME))
    for name, accumulation in accumulations.items():
        for column in accumulation.inputs:
            if not accumulation.takes(column, rows.schema[column]):
                kind = schema[column].dataType.simpleString()
                raise InvalidArgument(
                    name,
                    column,
                    f"is of type {kind}, which {accumulation.name} does not support",
                    fix="cast the column, or use another accumulation",
                )
    values = row_values(rows, accumulations, ELEMENT_TIME)
    types: dict[str, DataType] = {}
    for field in values.to_arrow(compat_level=pl.CompatLevel.oldest()).schema:
        types[field.name] = from_arrow_type(field.type)
    return types


def pane_schema(keys: Sequence[StructField], values: Mapping[str, DataType]) -> StructType:
    """The schema of panes: key columns, window, values, pane.

    >>> pane_schema([], {"n": LongType()}).names
    ['window', 'n', 'pane']
    """
    return StructType(
        [
            *(StructField(field.name, field.dataType) for field in keys),
            StructField("window", WINDOW),
            *(StructField(name, kind) for name, kind in values.items()),
            StructField("pane", PANE),
        ]
    )


def pane_codec(schema: StructType, *, fires_once: bool, window_length: int | None) -> RowCodec | None:
    """The codec for panes; None if they have to be sent as payloads, as lists and maps have.

    ``fires_once`` says that a window has at most one pane, and ``window_length`` is the length in
    microseconds that all windows have, or None.

    >>> pane_codec(pane_schema([], {"n": LongType()}), fires_once=True, window_length=10).wire_schema.names
    ['bucket_or_flags', 'report', 'column:0', 'column:2']
    """
    options = OutputOptions(
        null_values=UNBOUNDED,
        flags=SINGLE_PANE_FLAGS if fires_once else FLAGS,
        offsets={} if window_length is None else {"window_end": ("window_start", window_length)},
    )
    return RowCodec.for_schema(schema, STRUCTURES, options)


def pane_reader(schema: StructType, *, reports: bool = False) -> PayloadReader:
    """The decoder for panes that are sent as payloads; with ``reports`` also for the reports of buckets."""
    return PayloadReader(
        reported_schema(schema) if reports else schema,
        prepare=_null_unbounded,
        structures=STRUCTURES,
        report_column=REPORT if reports else None,
    )


def reported_schema(schema: StructType) -> StructType:
    """The columns of output rows for a sink, which also gets the reports of buckets.

    >>> reported_schema(pane_schema([], {"n": LongType()})).names
    ['window', 'n', 'pane', 'event:report']
    """
    return StructType([*schema.fields, StructField(REPORT, StringType())])


def _null_unbounded(panes: pl.DataFrame) -> pl.DataFrame:
    return panes.with_columns(null_if(name, value) for name, value in UNBOUNDED.items())
