"""What `Windowed` is turned into: the operator with its options, and the columns and types of its panes.

Everything that cannot work is refused here, while the user's line is still on the stack.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql.types import ArrayType, DataType, StructField, StructType

from slackwater.errors import InvalidArgument
from slackwater.spark.api.dataflow import Keep
from slackwater.spark.api.joins import check_sides
from slackwater.spark.api.key_columns import schema_of
from slackwater.spark.api.pane_output import EmittedPanes
from slackwater.spark.api.stream_inputs import RETRACTION
from slackwater.spark.runtime.hosts import APPLIED, ApplyHost, MergeHost, WindowHost
from slackwater.spark.wire.pane_rows import empty_frame, pane_schema, value_types
from slackwater.time import Range
from slackwater.windows import ColumnarAccumulation
from slackwater.windows.accumulations.applied import Applied
from slackwater.windows.spec import PANE_COLUMNS, CogroupHow

if TYPE_CHECKING:
    from slackwater.spark.api.stream import Stream


def aggregated(
    mine: Stream,
    options: Mapping[str, Any],
    accumulations: Mapping[str, ColumnarAccumulation],
    *,
    late: Keep,
    invalid: Keep,
) -> EmittedPanes:
    """Panes of accumulations; behind `Windowed.agg`."""
    if invalid not in ("count", "emit"):
        raise InvalidArgument("invalid", invalid, "is not known", fix="use one of count, emit")
    for name, accumulation in accumulations.items():
        if not isinstance(accumulation, ColumnarAccumulation):
            raise InvalidArgument(
                name, accumulation, "is not an accumulation", fix='use count(), sum("price"), …'
            )
        for column in accumulation.inputs:
            mine.field(name, column)
    _check_names([*mine.key, *accumulations])
    host = WindowHost({**options, "accumulations": accumulations, "late": late, **_signed(mine)})
    operator = host.operator  # whatever it refuses is refused here
    used = [name for each in operator.spec.accumulations.values() for name in each.inputs]
    columns = _distinct(*mine.key, *used)
    inputs = StructType([mine.field("agg", name) for name in columns])
    keys = [mine.field("key_by", name) for name in mine.key]
    return EmittedPanes(
        sources=mine.sources,
        buckets=mine.buckets,
        key=mine.key,
        host=host,
        columns=(columns,) * len(mine.sources),
        schema=pane_schema(keys, value_types(inputs, operator.spec.accumulations)),
        invalid=invalid,
    )


def applied(
    mine: Stream,
    options: Mapping[str, Any],
    function: Callable[[dict[str, Any], Range, Any], Any],
    schema: StructType | str,
    *,
    columns: Sequence[str] | None,
    frame: Literal["polars", "pandas"],
) -> EmittedPanes:
    """Panes whose rows a function makes; behind `Windowed.apply`."""
    made = schema_of(schema)
    seen = [name for name in mine.sources[0].schema.names if name not in mine.key]
    seen = seen if columns is None else list(columns)
    fields = [mine.field("columns", name) for name in seen]
    _check_names([*mine.key, *made.names])
    for name in made.names:
        if name in (*mine.key, *PANE_COLUMNS):
            raise InvalidArgument("schema", name, "is used twice in the panes", fix="rename the column")
    rows = Applied(
        function=function,
        columns=tuple(one.name for one in fields),
        schema=dict(empty_frame(made).schema),
        key=mine.key,
        frame=frame,
    )
    host = ApplyHost({**options, "accumulations": {APPLIED: rows}, **_signed(mine)})
    _ = host.operator  # whatever it refuses is refused here
    return EmittedPanes(
        sources=mine.sources,
        buckets=mine.buckets,
        key=mine.key,
        host=host,
        columns=(_distinct(*mine.key, *seen),) * len(mine.sources),
        schema=pane_schema(
            [mine.field("key_by", name) for name in mine.key],
            {one.name: one.dataType for one in made},
        ),
        invalid="count",
    )


def cogrouped(
    mine: Stream,
    other: Stream,
    options: Mapping[str, Any],
    *,
    left: Sequence[str],
    right: Sequence[str],
    how: CogroupHow,
) -> EmittedPanes:
    """Panes of two streams; behind `Windowed.cogroup`."""
    check_sides(mine, other)
    _check_names([*mine.key, *(() if how == "cogroup" else (*left, *right))])
    host = MergeHost({**options, "left": tuple(left), "right": tuple(right), "how": how})
    operator = host.operator  # whatever it refuses is refused here
    fields = [mine.field("left", name) for name in left], [other.field("right", name) for name in right]
    values: dict[str, DataType]
    if how == "cogroup":
        values = {
            side: ArrayType(StructType([StructField(one.name, one.dataType) for one in carried]))
            for side, carried in zip(("left", "right"), fields, strict=True)
        }
    else:
        _, empty = operator.step(operator.initial_state())
        names = empty.panes.columns[len(mine.key) + 2 :]
        types_of = [one.dataType for carried in fields for one in carried]
        values = dict(zip(names, types_of, strict=False))
    return EmittedPanes(
        sources=mine.sources + other.sources,
        buckets=mine.buckets,
        key=mine.key,
        host=host,
        columns=(_distinct(*mine.key, *left), _distinct(*mine.key, *right)),
        schema=pane_schema([mine.field("key_by", name) for name in mine.key], values),
        invalid="count",
    )


def _signed(mine: Stream) -> dict[str, Any]:
    """The option of an operator whose elements may be taken back."""
    return {"retractions": RETRACTION} if any(source.retracts for source in mine.sources) else {}


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        # Spark takes no notice of case; the kind is a column of its own until the pane is made.
        if name.lower() in ("window", "pane") or name == "kind":
            raise InvalidArgument(
                "name", name, "is used by the panes themselves", fix="rename the column or the accumulation"
            )


def _distinct(*names: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
