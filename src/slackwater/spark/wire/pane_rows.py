"""The rows that come out: the schema of panes, and buffers of panes turned into rows of Spark.

Inside, a pane is columns of integers and words; outside it is the key columns, a window, the values and
what the pane says of itself, as Spark types. Which types the values have is asked of the accumulations
themselves, on an empty frame with the types of the input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl
import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import (
    BooleanType,
    DataType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from slackwater.errors import InvalidArgument
from slackwater.spark.wire.buffers import unpack
from slackwater.spark.wire.pane_codec import Words, without
from slackwater.time import BEGINNING_OF_TIME, END_OF_TIME
from slackwater.windows import ColumnarAccumulation
from slackwater.windows.accumulations.base import PartialColumns
from slackwater.windows.columns import TIME as ELEMENT_TIME
from slackwater.windows.columns import input_column

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
"""What a pane says of itself. Its kind is ``pane``, or ``late`` or ``invalid`` for a row that was dropped."""
PANE_KIND: Final = "pane"
LATE_KIND: Final = "late"
INVALID_KIND: Final = "invalid"
STRUCTURES: Final[Mapping[str, Mapping[str, str]]] = {
    "window": {"start": "window_start", "end": "window_end"},
    "pane": {name: name for name in PANE.names},
}
"""The columns of panes that are made of several, by what an operator calls these."""
WORDS: Final[Mapping[str, Words]] = {
    "timing": ("EARLY", "ON_TIME", "LATE"),
    "is_first": (False, True),
    "is_last": (False, True),
    "retraction": (False, True),
    "kind": (PANE_KIND, LATE_KIND, INVALID_KIND),
}
"""All that these fields of a pane can hold."""
NUMBERS: Final[Mapping[str, Words]] = {"index": (0,), "on_time_index": (0,)}
"""And these, if there is but one pane of each window."""
UNBOUNDED: Final = {"window_start": BEGINNING_OF_TIME, "window_end": END_OF_TIME}
"""The bounds of a window that has none: null says so better than a year that nothing can show."""


def empty_frame(schema: StructType) -> pl.DataFrame:
    """A frame without rows that has the types of a Spark schema.

    >>> empty_frame(StructType([StructField("n", LongType())])).rows()
    []
    """
    try:
        return pl.DataFrame(to_arrow_schema(schema, timezone="UTC").empty_table())
    except PySparkTypeError as error:
        raise InvalidArgument(
            "columns", schema.names, f"have a type that cannot leave the JVM: {error}", fix="cast it"
        ) from error


def each_alone(
    rows: pl.DataFrame, accumulations: Mapping[str, ColumnarAccumulation], event_time: str
) -> pl.DataFrame:
    """The values of every row by itself: what it would have brought to its window.

    >>> from slackwater.windows import Sum
    >>> each_alone(pl.DataFrame({"at": [5, 7], "price": [1, 2]}), {"total": Sum("price")}, "at")[
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
    """The Spark types of the values, from the schema of the rows that are accumulated.

    >>> from slackwater.windows import Count, Mean
    >>> value_types(StructType([StructField("price", LongType())]), {"n": Count(), "average": Mean("price")})
    {'n': LongType(), 'average': DoubleType()}
    """
    rows = empty_frame(schema).with_columns(pl.lit(0, pl.Int64).alias(ELEMENT_TIME))
    for name, accumulation in accumulations.items():
        for column in accumulation.inputs:
            if not accumulation.takes(column, rows.schema[column]):
                raise InvalidArgument(
                    name,
                    column,
                    f"is of type {schema[column].dataType.simpleString()}, which has no {accumulation.name}",
                    fix="cast it, or use another accumulation",
                )
    values = each_alone(rows, accumulations, ELEMENT_TIME)
    types: dict[str, DataType] = {}
    for field in values.to_arrow(compat_level=pl.CompatLevel.oldest()).schema:
        types[field.name] = from_arrow_type(field.type)
    return types


def pane_schema(keys: Sequence[StructField], values: Mapping[str, DataType]) -> StructType:
    """Key columns, window, values, pane.

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


@dataclass(frozen=True)
class PaneReader:
    """Turns the buffers that an operator emits into rows; for `mapInArrow`."""

    schema: StructType

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the payloads, in their order."""
        target = to_arrow_schema(self.schema, timezone="UTC")
        for batch in batches:
            for payload in batch.column("payload"):
                if payload.is_valid:
                    yield from self._table(unpack(payload.as_py()), target).to_batches()

    def _table(self, panes: pl.DataFrame, target: pa.Schema) -> pa.Table:
        bounded = panes.with_columns(without(name, value) for name, value in UNBOUNDED.items())
        columns = bounded.to_arrow(compat_level=pl.CompatLevel.oldest())
        made: list[Any] = []
        for field in target:
            if field.name in STRUCTURES:
                column = _struct(columns, field.type, STRUCTURES[field.name])
            else:
                column = columns.column(field.name).cast(field.type)
            made.append(column)
        return pa.Table.from_arrays(made, schema=target)


def _struct(columns: pa.Table, kind: pa.StructType, names: Mapping[str, str]) -> pa.Array:
    fields = [kind.field(place) for place in range(kind.num_fields)]
    arrays = [columns.column(names[field.name]).cast(field.type).combine_chunks() for field in fields]
    return pa.StructArray.from_arrays(arrays, fields=fields)
