"""Builders of windowed dataflows: the implementation of `Windowed.agg`, `apply` and `cogroup`.

Invalid arguments raise here, on the user's line, and not in a worker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from pyspark.sql.types import ArrayType, DataType, StructField, StructType

from slackwater.errors import InvalidArgument
from slackwater.spark.api.dataflow import Keep
from slackwater.spark.api.joins import check_sides, side_indices
from slackwater.spark.api.key_columns import check_free, parse_schema
from slackwater.spark.api.pane_output import PaneDataflow
from slackwater.spark.api.row_output import check_marks, failure_marks, record_marks
from slackwater.spark.api.stream_inputs import StreamInputs
from slackwater.spark.runtime.hosts import APPLIED, ApplyHost, CogroupHost, WindowHost
from slackwater.spark.wire.pane_schema import empty_frame, pane_schema, value_types
from slackwater.spark.wire.wire_columns import RETRACTION, TIME
from slackwater.time import Range
from slackwater.windows import ColumnarAccumulation
from slackwater.windows.accumulations.applied import Applied
from slackwater.windows.spec.cogroup_spec import CogroupHow, CogroupSpec
from slackwater.windows.spec.spec_checks import check_choice
from slackwater.windows.spec.window_spec import WindowSpec
from slackwater.windows.spec.windowing_strategy import PANE_COLUMNS, WindowingStrategy


def aggregated(
    inputs: StreamInputs,
    strategy: WindowingStrategy,
    accumulations: Mapping[str, ColumnarAccumulation],
    *,
    late: Keep,
    invalid: Keep,
) -> PaneDataflow:
    """Panes of accumulated values."""
    check_choice("invalid", invalid, ("count", "emit"))
    for name, accumulation in accumulations.items():
        for column in accumulation.inputs:
            inputs.field(name, column)
    _check_names([*inputs.key, *accumulations])
    spec = _window_spec(inputs, strategy, accumulations, late=late)
    columns = _distinct(*inputs.key, *spec.inputs)
    fields = StructType([inputs.field("agg", name) for name in columns])
    return PaneDataflow(
        sources=inputs.sources,
        buckets=inputs.buckets,
        key=inputs.key,
        host=WindowHost(spec),
        columns=(columns,) * len(inputs.sources),
        schema=_with_marks(
            pane_schema(inputs.key_fields, value_types(fields, spec.accumulations)), inputs, invalid=invalid
        ),
        invalid=invalid,
    )


def check_accumulations(
    accumulations: Mapping[str, ColumnarAccumulation], unnamed: Sequence[object] = ()
) -> None:
    """Raise unless all values are accumulations, and have names.

    >>> check_accumulations({"total": 5})
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: total = 5: is not an accumulation; use sw.count(), sw.sum("price"), …
    """
    if unnamed:
        raise InvalidArgument(
            "agg",
            unnamed[0],
            "has no name",
            fix='name the values: agg(bids=sw.count(), total=sw.sum("price"))',
        )
    for name, accumulation in accumulations.items():
        if not isinstance(accumulation, ColumnarAccumulation):
            raise InvalidArgument(
                name, accumulation, "is not an accumulation", fix='use sw.count(), sw.sum("price"), …'
            )


def applied(
    inputs: StreamInputs,
    strategy: WindowingStrategy,
    function: Callable[[dict[str, Any], Range, Any], Any],
    schema: StructType | str,
    *,
    columns: Sequence[str] | None,
    frame: Literal["polars", "pandas"],
) -> PaneDataflow:
    """Panes whose rows a user's function returns."""
    output = parse_schema(schema)
    hidden = (*inputs.key, strategy.gap_column)
    names = [name for name in inputs.sources[0].schema.names if name not in hidden]
    names = names if columns is None else list(columns)
    fields = [inputs.field("columns", name) for name in names]
    _check_names([*inputs.key, *output.names])
    for name in output.names:
        if name in (*inputs.key, *PANE_COLUMNS):
            raise InvalidArgument("schema", name, "is used twice in the panes", fix="rename the column")
    rows = Applied(
        function=function,
        columns=tuple(one.name for one in fields),
        schema=dict(empty_frame(output).schema),
        key=inputs.key,
        frame=frame,
    )
    return PaneDataflow(
        sources=inputs.sources,
        buckets=inputs.buckets,
        key=inputs.key,
        host=ApplyHost(_window_spec(inputs, strategy, {APPLIED: rows}, late="count")),
        columns=(_distinct(*inputs.key, *names),) * len(inputs.sources),
        schema=_with_marks(
            pane_schema(inputs.key_fields, {one.name: one.dataType for one in output}),
            inputs,
            invalid="count",
        ),
        invalid="count",
    )


def cogrouped(
    inputs: StreamInputs,
    other: StreamInputs,
    strategy: WindowingStrategy,
    *,
    left: Sequence[str],
    right: Sequence[str],
    how: CogroupHow,
    late: Keep,
    invalid: Keep,
) -> PaneDataflow:
    """Panes of two streams in the same windows."""
    check_choice("invalid", invalid, ("count", "emit"))
    check_sides(inputs, other, keyed=False)
    _check_names([*inputs.key, *(() if how == "cogroup" else (*left, *right))])
    spec = CogroupSpec.from_strategy(
        strategy,
        left=left,
        right=right,
        how=how,
        left_time=TIME,
        right_time=TIME,
        retractions=RETRACTION if inputs.retracts or other.retracts else None,
        late=late,
    )
    fields = [inputs.field("left", name) for name in left], [other.field("right", name) for name in right]
    values: dict[str, DataType]
    if how == "cogroup":
        values = {
            side: ArrayType(StructType([StructField(one.name, one.dataType) for one in carried]))
            for side, carried in zip(("left", "right"), fields, strict=True)
        }
    else:
        types = [one.dataType for carried in fields for one in carried]
        values = dict(zip(spec.value_columns, types, strict=True))
    return PaneDataflow(
        sources=inputs.sources + other.sources,
        buckets=inputs.buckets,
        key=inputs.key,
        host=CogroupHost(spec),
        columns=(
            *[_distinct(*inputs.key, *left)] * len(inputs.sources),
            *[_distinct(*other.key, *right)] * len(other.sources),
        ),
        schema=_with_marks(pane_schema(inputs.key_fields, values), inputs, other, invalid=invalid),
        invalid=invalid,
        sides=side_indices(inputs, other),
    )


def _with_marks(panes: StructType, *inputs: StreamInputs, invalid: Keep) -> StructType:
    """The columns of panes, and those that describe invalid records and failed rows, if there can be any."""
    records = record_marks(*inputs, invalid=invalid)
    check_marks("from_kafka", records, panes.fields)
    failures = failure_marks(*inputs)
    check_marks("map_async", failures, panes.fields)
    return StructType([*panes.fields, *records, *failures])


def _window_spec(
    inputs: StreamInputs,
    strategy: WindowingStrategy,
    accumulations: Mapping[str, ColumnarAccumulation],
    *,
    late: Keep,
) -> WindowSpec:
    retractions = RETRACTION if inputs.retracts else None
    return WindowSpec.from_strategy(
        strategy, accumulations=accumulations, event_time=TIME, late=late, retractions=retractions
    )


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        # Spark ignores case in names; "kind" is a separate column until the pane struct is built.
        if name.lower() in ("window", "pane") or name == "kind":
            raise InvalidArgument(
                "name", name, "is reserved for the panes", fix="rename the column or the accumulation"
            )
        check_free("name", name)


def _distinct(*names: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
