"""Time-bounded joins of two streams, whose output is pairs of rows instead of panes.

A join forwards one watermark for each event time of its sides, so its rows can be the input of another
operator. Sides may have different watermark keys; keys with the same name on both sides are distinguished as
``left.<key>`` and ``right.<key>``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import polars as pl
from pyspark.sql.types import StringType, StructField, StructType

from slackwater.errors import InvalidArgument
from slackwater.spark.api.dataflow import Keep
from slackwater.spark.api.row_output import (
    RETRACTION_FIELD,
    RowDataflow,
    check_marks,
    failure_marks,
    record_marks,
)
from slackwater.spark.api.stream_inputs import StreamInputs, check_compatible
from slackwater.spark.runtime.hosts import ForwardedKeys, JoinHost
from slackwater.spark.runtime.operator_inputs import EITHER
from slackwater.spark.wire.pane_schema import empty_frame
from slackwater.spark.wire.wire_columns import KIND, RETRACTION, SIDE, TIME, time_column
from slackwater.windows import AsofSpec, Global, JoinSpec
from slackwater.windows.spec.operator_spec import SIDES, Side
from slackwater.windows.spec.spec_checks import check_choice

LATE_FIELDS: Final = (StructField(KIND, StringType()), StructField(SIDE, StringType()))
"""The columns that tell dropped rows from pairs; only with ``late="emit"`` or ``invalid="emit"``."""


@dataclass(frozen=True)
class JoinDataflow(RowDataflow):
    """A time-bounded or as-of join with its inputs."""

    host: JoinHost

    @property
    def spec(self) -> JoinSpec | AsofSpec:
        """The specification of the join."""
        return self.host.spec

    @property
    def times(self) -> dict[str, tuple[str, ...]]:
        """The event times of the output rows by watermark key: the first of these columns that is not null.

        Rows of a full join may have only one of the two times; `EITHER` is the one that they have.
        """
        times: dict[str, tuple[str, ...]] = {}
        names = self.host.operator.output_names
        for side, keys in zip(SIDES, self.host.keys, strict=True):
            if side in self.spec.forwarding:
                columns = {keys.driving: TIME, **{name: time_column(key) for key, name in keys.further}}
                times |= {key: (names[side][column],) for key, column in columns.items()}
        if self.spec.how == "full":
            times[EITHER] = tuple(names[side][TIME] for side in SIDES)
        return times

    @property
    def late(self) -> Keep:
        """Whether late rows are emitted."""
        return self.spec.late

    @property
    def default_key(self) -> str:
        """The watermark key that drives the next operator by default; every row has its time."""
        left, right = self.host.keys
        return {"right": right.driving, "full": EITHER}.get(self.spec.how, left.driving)

    @property
    def sent_keys(self) -> tuple[str, ...]:
        """The watermark keys that the buckets of the join send."""
        return tuple(key for key in self.times if key != EITHER or self.spec.how != "full")


def joined(
    left: StreamInputs, right: StreamInputs, join: JoinSpec, *, invalid: Keep = "count"
) -> JoinDataflow:
    """Join two keyed streams by their event times; the implementation of `Stream.join`.

    Retractions, the lateness of rows and further watermark keys follow from the streams.
    """
    check_sides(left, right)
    spec = replace(
        join,
        left_retractions=RETRACTION if left.retracts else None,
        right_retractions=RETRACTION if right.retracts else None,
        left_lateness=left.lateness,
        right_lateness=right.lateness,
        left_keys=further_keys(left),
        right_keys=further_keys(right),
    )
    return join_dataflow(left, right, spec, invalid=invalid)


def join_dataflow(
    left: StreamInputs, right: StreamInputs, spec: JoinSpec | AsofSpec, *, invalid: Keep
) -> JoinDataflow:
    """The dataflow of a join whose specification is complete."""
    check_choice("invalid", invalid, ("count", "emit"))
    further = {side: tuple(key for key, _ in spec.keys(side)) for side in SIDES}
    columns = {"left": _visible(left), "right": _visible(right)}
    host = JoinHost(
        spec,
        left=_side_schema(spec, "left", columns["left"]),
        right=_side_schema(spec, "right", columns["right"]),
        keys=_forwarded_keys(left, right, spec),
        emits_invalid=invalid == "emit",
    )
    fields = [StructField(name, columns["left"][name].dataType) for name in spec.on]
    for side in SIDES:
        names = host.operator.output_names[side]
        fields += [
            StructField(names[field.name], field.dataType) for field in columns[side] if field.name in names
        ]
    described = [*record_marks(left, right, invalid=invalid), *failure_marks(left, right)]
    return JoinDataflow(
        sources=left.sources + right.sources,
        buckets=left.buckets,
        key=left.key,
        host=host,
        columns=_by_source(left, right, tuple(columns["left"].names), tuple(columns["right"].names)),
        schema=StructType([*fields, *_marks(spec, fields, described, invalid=invalid)]),
        invalid=invalid,
        sides=side_indices(left, right),
        further_keys=_by_source(left, right, further["left"], further["right"]),
    )


def side_indices(left: StreamInputs, right: StreamInputs) -> tuple[int, ...]:
    """The index of the side of each source: 0 for the sources of the left side, 1 for those of the right."""
    return (0,) * len(left.sources) + (1,) * len(right.sources)


def check_sides(left: StreamInputs, right: StreamInputs, *, keyed: bool = True) -> None:
    """Raise if two streams cannot be the sides of one join or cogroup.

    >>> from slackwater.progress.watermark_policies import lag
    >>> from slackwater.spark.session import session
    >>> from slackwater.spark.api.stream import stream
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> bids = spark.sql("select timestamp'2024-01-01 00:00:05Z' as at, 7 as auction")
    >>> one = stream(bids, event_time="at", watermark=lag("5 seconds"))
    >>> check_sides(one, one)
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: left = (): has no key; call key_by("…") on both streams
    """
    for side, one in zip(SIDES, (left, right), strict=True):
        if not one.key and (keyed or left.key or right.key):
            raise InvalidArgument(side, one.key, "has no key", fix='call key_by("…") on both streams')
        if any(isinstance(window, Global) for source in one.sources for window in source.windows):
            raise InvalidArgument(
                side,
                "panes of a global window",
                "cannot be joined, because their timestamp is the end of time",
                fix="use a window that ends upstream, such as fixed",
            )
    if left.key != right.key:
        raise InvalidArgument(
            "other", right.key, f"is not the key of the left stream, {left.key}", fix="use equal keys"
        )
    check_compatible(left, right)
    both = StreamInputs(left.sources + right.sources, left.buckets)
    for name in left.key:
        both.field("key_by", name)


def _visible(inputs: StreamInputs) -> StructType:
    """The columns of a side: those of its first source, which all its sources must have."""
    return StructType([inputs.field("join", name) for name in inputs.sources[0].schema.names])


def _by_source(
    left: StreamInputs, right: StreamInputs, *columns: tuple[str, ...]
) -> tuple[tuple[str, ...], ...]:
    return (columns[0],) * len(left.sources) + (columns[1],) * len(right.sources)


def further_keys(inputs: StreamInputs) -> tuple[tuple[str, str], ...]:
    """The watermark keys in addition to the driving one that all sources have, with their columns."""
    shared = set.intersection(*(set(source.keys) for source in inputs.sources))
    driving = {source.rules.key for source in inputs.sources}
    further = sorted(shared - driving - {inputs.watermark_key, EITHER})
    return tuple((key, time_column(key)) for key in further)


def _side_schema(join: JoinSpec | AsofSpec, side: Side, columns: StructType) -> dict[str, pl.DataType]:
    """The columns of a side's rows: the event times, the user's columns, and the mark of retractions."""
    times = [TIME, *(column for _, column in join.keys(side))]
    marks = [] if join.retractions(side) is None else [RETRACTION]
    return {
        **dict.fromkeys(times, pl.Int64()),
        **empty_frame(columns).schema,
        **dict.fromkeys(marks, pl.Boolean()),
    }


def _forwarded_keys(
    left: StreamInputs, right: StreamInputs, join: JoinSpec | AsofSpec
) -> tuple[ForwardedKeys, ForwardedKeys]:
    """The names under which the watermarks of the two sides are forwarded."""
    keys = {
        side: [one.watermark_key, *(key for key, _ in join.keys(side))]
        for side, one in zip(SIDES, (left, right), strict=True)
    }
    shared = set(keys["left"]) & set(keys["right"])
    if join.forwarding != SIDES:
        shared = set()  # only the event times of the left side go on
    elif join.how == "full":
        shared.add(EITHER)  # the name of another event time of its rows
    names = {
        side: {key: f"{side}.{key}" if key in shared else key for key in several}
        for side, several in keys.items()
    }
    first, second = (
        ForwardedKeys(names[side][several[0]], tuple((key, names[side][key]) for key in several[1:]))
        for side, several in keys.items()
    )
    return first, second


def _marks(
    join: JoinSpec | AsofSpec,
    fields: Sequence[StructField],
    described: Sequence[StructField],
    *,
    invalid: Keep,
) -> list[StructField]:
    """The columns that describe output rows: retractions, dropped rows, then ``described``."""
    marks = [RETRACTION_FIELD] if join.retracts else []
    if "emit" in (join.late, invalid):
        marks += LATE_FIELDS
    marks += described
    check_marks("join", marks, fields)
    return marks
