"""Time-bounded joins of two streams, whose output is pairs of rows instead of panes.

A join forwards one watermark for each event time of its sides, so its rows can be the input of another
operator. Sides may have different watermark keys; keys with the same name on both sides are distinguished as
``left.<key>`` and ``right.<key>``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import polars as pl
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import BinaryType, BooleanType, LongType, StringType, StructField, StructType

from slackwater.errors import InvalidArgument
from slackwater.spark.api.dataflow import Dataflow
from slackwater.spark.api.stream_inputs import RowRequest, Source, StreamInputs, check_compatible, quoted
from slackwater.spark.runtime.hosts import ForwardedKeys, JoinHost
from slackwater.spark.runtime.operator_inputs import EITHER, InputRules, UpstreamRules
from slackwater.spark.wire.clock_source import ClockSpec
from slackwater.spark.wire.columns import CONTROL, KIND, RETRACTION, SIDE, TIME, time_column
from slackwater.spark.wire.pane_schema import empty_frame
from slackwater.spark.wire.payload_reader import PayloadReader
from slackwater.spark.wire.row_codec import RowCodec
from slackwater.windows import Global, JoinSpec
from slackwater.windows.spec import SIDES, Side

RETRACTION_FIELD: Final = StructField("retraction", BooleanType())
"""The column that marks rows which retract an earlier row; only if a side retracts."""
LATE_FIELDS: Final = (StructField(KIND, StringType()), StructField(SIDE, StringType()))
"""The columns that tell late rows from pairs; only with ``late="emit"``."""


@dataclass(frozen=True)
class JoinDataflow(Dataflow):
    """A time-bounded join with its inputs."""

    host: JoinHost

    @property
    def spec(self) -> JoinSpec:
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
            columns = {keys.driving: TIME, **{name: time_column(key) for key, name in keys.further}}
            times |= {key: (names[side][column],) for key, column in columns.items() if column in names[side]}
        if self.spec.how == "full":
            times[EITHER] = tuple(names[side][TIME] for side in SIDES)
        return times

    @property
    def default_key(self) -> str:
        """The watermark key that drives the next operator by default; every row has its time."""
        left, right = self.host.keys
        return {"right": right.driving, "full": EITHER}.get(self.spec.how, left.driving)

    @property
    def sent_keys(self) -> tuple[str, ...]:
        """The watermark keys that the buckets of the join send."""
        return tuple(key for key in self.times if key != EITHER or self.spec.how != "full")

    def to_df(self, *, flush: bool) -> DataFrame:
        """The pairs as a DataFrame."""
        return self.output(PayloadReader(self.schema), RowCodec.for_schema(self.schema), flush=flush)


@dataclass(frozen=True)
class JoinSource(Source):
    """The rows of a join as the input of another operator."""

    pairs: JoinDataflow
    key: str

    @property
    def schema(self) -> StructType:
        """The columns of the pairs."""
        marks = [RETRACTION_FIELD] if self.retracts else []
        return StructType([field for field in self.pairs.schema if field not in marks])

    @property
    def spark(self) -> SparkSession:
        """The Spark session."""
        return self.pairs.spark

    @property
    def is_streaming(self) -> bool:
        """Whether the inputs of the join are streaming."""
        return self.pairs.is_streaming

    @property
    def rules(self) -> InputRules:
        """The watermark of each key is the lowest of the join's buckets."""
        return UpstreamRules(self.pairs.buckets, self.key, self.pairs.sent_keys)

    @property
    def clock(self) -> ClockSpec | None:
        """None: the join passes the time on."""
        return None

    @property
    def retracts(self) -> bool:
        """Whether the join retracts rows."""
        return self.pairs.spec.retracts

    @property
    def keys(self) -> tuple[str, ...]:
        """The watermark keys of both sides."""
        return tuple(self.pairs.times)

    def by(self, key: str) -> Source:
        """The same rows, driven by another of their event times."""
        if key not in self.keys:
            raise InvalidArgument(
                "by", key, "is not a watermark key of the join", fix=f"use one of {', '.join(self.keys)}"
            )
        return replace(self, key=key)

    def driven(self, request: RowRequest) -> tuple[DataFrame, list[Column]]:
        """The pairs as rows, and one control row for each buffer."""
        times = {TIME: self.pairs.times[self.key]}
        times |= {time_column(key): self.pairs.times[key] for key in request.keys}
        driving = [*(StructField(name, LongType()) for name in times), StructField(CONTROL, BinaryType())]
        if request.signed:
            driving.append(StructField(RETRACTION, BooleanType()))
        schema = StructType([*driving, *(self.schema[name] for name in request.columns)])
        retraction = RETRACTION_FIELD.name if self.retracts else None
        prepare = partial(_elements, times=times, retraction=retraction)
        reader = PayloadReader(schema, prepare=prepare, header_column=CONTROL)
        rows = self.pairs.emitted(flush=request.flush, path=request.path).mapInArrow(reader, schema)
        return rows, [quoted(field.name) for field in driving]


def _elements(rows: pl.DataFrame, times: Mapping[str, Sequence[str]], retraction: str | None) -> pl.DataFrame:
    is_retraction = pl.lit(value=False) if retraction is None else pl.col(retraction)
    chosen = [pl.coalesce(columns).alias(name) for name, columns in times.items()]
    return rows.with_columns(*chosen, is_retraction.alias(RETRACTION))


def joined(left: StreamInputs, right: StreamInputs, join: JoinSpec) -> JoinDataflow:
    """Join two keyed streams by their event times; the implementation of `Stream.join`.

    Retractions, the lateness of rows and further watermark keys follow from the streams.
    """
    check_sides(left, right)
    further = {side: _further_keys(one) for side, one in zip(SIDES, (left, right), strict=True)}
    spec = replace(
        join,
        left_retractions=RETRACTION if left.retracts else None,
        right_retractions=RETRACTION if right.retracts else None,
        left_lateness=left.lateness,
        right_lateness=right.lateness,
        left_keys=tuple((key, time_column(key)) for key in further["left"]),
        right_keys=tuple((key, time_column(key)) for key in further["right"]),
    )
    columns = {"left": _visible(left), "right": _visible(right)}
    host = JoinHost(
        spec,
        left=_side_schema(spec, "left", columns["left"]),
        right=_side_schema(spec, "right", columns["right"]),
        keys=_forwarded_keys(left, right, spec),
    )
    fields = [StructField(name, columns["left"][name].dataType) for name in spec.on]
    for side in SIDES:
        names = host.operator.output_names[side]
        fields += [
            StructField(names[field.name], field.dataType) for field in columns[side] if field.name in names
        ]
    return JoinDataflow(
        sources=left.sources + right.sources,
        buckets=left.buckets,
        key=left.key,
        host=host,
        columns=_by_source(left, right, tuple(columns["left"].names), tuple(columns["right"].names)),
        schema=StructType([*fields, *_marks(spec, fields)]),
        invalid="count",
        sides=side_indices(left, right),
        further_keys=_by_source(left, right, further["left"], further["right"]),
    )


def side_indices(left: StreamInputs, right: StreamInputs) -> tuple[int, ...]:
    """The index of the side of each source: 0 for the sources of the left side, 1 for those of the right."""
    return (0,) * len(left.sources) + (1,) * len(right.sources)


def check_sides(left: StreamInputs, right: StreamInputs, *, keyed: bool = True) -> None:
    """Raise if two streams cannot be the sides of one join or cogroup.

    >>> from slackwater.progress.generator import lag
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


def _further_keys(inputs: StreamInputs) -> tuple[str, ...]:
    """The watermark keys, in addition to the driving one, that all sources of a side have."""
    shared = set.intersection(*(set(source.keys) for source in inputs.sources))
    driving = {source.rules.key for source in inputs.sources}
    return tuple(sorted(shared - driving - {inputs.watermark_key, EITHER}))


def _side_schema(join: JoinSpec, side: Side, columns: StructType) -> dict[str, pl.DataType]:
    """The columns of a side's rows: the event times, the user's columns, and the mark of retractions."""
    times = [TIME, *(column for _, column in join.keys(side))]
    marks = [] if join.retractions(side) is None else [RETRACTION]
    return {
        **dict.fromkeys(times, pl.Int64()),
        **empty_frame(columns).schema,
        **dict.fromkeys(marks, pl.Boolean()),
    }


def _forwarded_keys(
    left: StreamInputs, right: StreamInputs, join: JoinSpec
) -> tuple[ForwardedKeys, ForwardedKeys]:
    """The names under which the watermarks of the two sides are forwarded."""
    keys = {
        side: [one.watermark_key, *(key for key, _ in join.keys(side))]
        for side, one in zip(SIDES, (left, right), strict=True)
    }
    shared = set(keys["left"]) & set(keys["right"])
    if join.selects_left:
        shared = set()  # its rows have the event times of the left side only
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


def _marks(join: JoinSpec, fields: Sequence[StructField]) -> list[StructField]:
    """The columns that describe output rows: retractions of earlier rows, and late rows."""
    marks = [RETRACTION_FIELD] if join.retracts else []
    if join.late == "emit":
        marks += LATE_FIELDS
    taken = {field.name.lower() for field in fields}
    for mark in marks:
        if mark.name in taken:
            raise InvalidArgument(
                "join",
                mark.name,
                "is the name of a column that the join adds to its rows",
                fix="rename the column before the join",
            )
    return marks
