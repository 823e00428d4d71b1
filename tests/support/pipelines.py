"""Pipelines without Spark: operators composed through the pieces that Spark runs in its workers.

A pipeline is a tree of nodes; see `tests.support.pipeline_nodes`.

`Pipeline.step` runs one micro-batch: rows become buffers by the map side (`Shipper`), every bucket takes its
step (`OperatorPlan`), its state goes through bytes, and its panes and headers are the input of the next
operator. The pipeline records which rows of the feeds each operator accepted in which windows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl
import pyarrow as pa
from pyspark.sql.types import BinaryType, BooleanType, DataType, LongType, StringType, StructField, StructType

from slackwater import windows
from slackwater.progress.async_stage import Retry
from slackwater.progress.watermark_policies import Lag
from slackwater.spark.runtime.async_mapper import AsyncCall, AsyncMapper
from slackwater.spark.runtime.bucket import BucketOutput, OperatorPlan
from slackwater.spark.runtime.hosts import (
    CogroupHost,
    DeduplicateHost,
    ForwardedKeys,
    Host,
    JoinHost,
    WindowHost,
)
from slackwater.spark.runtime.map_side import Folding, Shipper
from slackwater.spark.runtime.operator_inputs import InputRules, UpstreamRules
from slackwater.spark.runtime.source_progress import SourceRules
from slackwater.spark.wire.buffers import Header, Tick, write_header
from slackwater.spark.wire.pane_schema import PANE_KIND
from slackwater.spark.wire.wire_columns import (
    BUCKET_INDEX,
    CONTROL,
    RETRACTION,
    TIME,
    WINDOW_BOUNDS,
    WITNESS,
    column_alias,
)
from slackwater.time import BEGINNING_OF_TIME, END_OF_TIME
from slackwater.windows.spec.operator_spec import SIDES, OperatorSpec
from tests.model.windows import Bounds, Row, assign
from tests.support.pipeline_nodes import (
    ACCUMULATIONS,
    CONDITION,
    GAP,
    PRIME,
    Called,
    Cogrouped,
    Deduplicated,
    Feed,
    Filtered,
    Joined,
    LookedUp,
    Mapped,
    Node,
    Operator,
    Rekeyed,
    Stateless,
    Windowed,
    base,
    drop_late,
    gap_of,
    is_keyed,
    lateness,
    results_of,
    retracts,
)

BUCKETS: Final = (3, 8)
Buffers = list[tuple[int, Header, bytes | None]]
_ROWS: Final = {"key": pl.String, "value": pl.Int64, TIME: pl.Int64}
_JOINED_ROWS: Final[dict[str, pl.DataType]] = {"key": pl.String(), "value": pl.Int64(), TIME: pl.Int64()}
_ELEMENTS: Final = {
    **_ROWS, RETRACTION: pl.Boolean, CONTROL: pl.Binary, **dict.fromkeys(WINDOW_BOUNDS, pl.Int64),
}  # fmt: skip


_PASSED: Final[Mapping[str, DataType]] = {
    TIME: LongType(), RETRACTION: BooleanType(), CONTROL: BinaryType(),
    **dict.fromkeys(WINDOW_BOUNDS, LongType()),
}  # fmt: skip
"""The columns that bypass an async function."""


@dataclass(frozen=True)
class Accepted:
    """A row of a feed in the windows of an operator that accepted it."""

    key: str | None
    value: int | None
    at: int
    windows: tuple[Bounds, ...] = ()
    step: int = 0
    """The number of the micro-batch in which it arrived."""


@dataclass
class Stage:
    """An operator with its buckets."""

    node: Operator
    plan: OperatorPlan
    saved: dict[int, bytes] = field(default_factory=dict)
    blobs: dict[int, dict[str, bytes]] = field(default_factory=lambda: {bucket: {} for bucket in BUCKETS})
    watermark: int = BEGINNING_OF_TIME
    feeds: dict[int, int] = field(default_factory=dict)
    """The watermark of each feed by the number of the input, for a join."""
    accepted: dict[int, list[Accepted]] = field(default_factory=dict)
    """By the number of the input."""
    steps: int = 0
    """The number of micro-batches so far."""
    dropped: int = 0
    """The number of rows of feeds, once for each window, that come too late for it."""
    reported: int = 0
    """The number that the operator reports."""
    forwarded: dict[int, dict[str, int]] = field(default_factory=dict)
    """The last watermarks that each bucket forwarded, by their key."""
    idle: bool = False
    """Whether it forwarded IDLE."""
    passed: set[int] = field(default_factory=set)
    """The numbers of the inputs that were idle while its watermark passed theirs."""
    overtaken: bool = False
    """Whether such an input has sent rows behind the watermark since then, which may be late."""

    def step(self, buffers: Buffers) -> list[BucketOutput]:
        """Run the step of every bucket."""
        outputs: list[BucketOutput] = []
        for bucket in BUCKETS:
            mine = [
                (write_header(header), payload) for target, header, payload in buffers if target == bucket
            ]
            output = self.plan.step(bucket, self.saved.get(bucket), self.blobs[bucket], mine)
            self.saved[bucket] = output.state
            outputs.append(output)
        self.steps += 1
        (watermark,) = {output.report.watermark for output in outputs}
        self.watermark = BEGINNING_OF_TIME if watermark is None else watermark
        self.reported = sum(output.report.totals["dropped_late"] for output in outputs)
        self.idle = all(output.header.idle for output in outputs)
        for output in outputs:
            self.forwarded.setdefault(output.header.bucket, {}).update(output.header.watermarks)
        return outputs

    @property
    def level(self) -> int:
        """The lowest watermark that it has forwarded."""
        lowest = (min(known.values(), default=BEGINNING_OF_TIME) for known in self.forwarded.values())
        return min(lowest, default=BEGINNING_OF_TIME)

    def note_times(self, number: int, times: Sequence[int | None]) -> None:
        """Note if an input that was idle sends rows behind the watermark before the step."""
        behind = any(at is not None and at < self.watermark for at in times)
        self.overtaken = self.overtaken or (number in self.passed and behind)

    def accept(self, number: int, rows: pl.DataFrame) -> None:
        """Record in which windows the rows of a feed are accepted, given the watermark before the step."""
        mine = self.accepted.setdefault(number, [])
        if isinstance(self.node, Joined | Deduplicated):
            joins = isinstance(self.node, Joined)
            reached = self.feeds.get(number, BEGINNING_OF_TIME) if joins else self.watermark
            timely = rows.filter(pl.col(TIME) >= reached).select("key", "value", TIME)
            self.dropped += rows.height - timely.height
            mine += [Accepted(key, value, at, step=self.steps) for key, value, at in timely.rows()]
            return
        lateness = self.node.lateness
        for row in rows.iter_rows(named=True):
            key = row["key"] if is_keyed(self.node) else None
            row[GAP] = gap_of(row["value"], self.node.tick) if isinstance(self.node, Windowed) else None
            found = assign(self.node.window, row[TIME], row)
            by_element = drop_late(self.node) == "by_element" and lateness is not None
            if by_element and row[TIME] < self.watermark - (lateness or 0):
                self.dropped += 1
                continue
            limits = [END_OF_TIME if lateness is None else end + lateness for _, end in found]
            kept = [window for window, limit in zip(found, limits, strict=True) if limit > self.watermark]
            self.dropped += len(found) - len(kept)
            mine.append(Accepted(key, row["value"], row[TIME], tuple(kept)))


class Pipeline:
    """A pipeline with its state; it may have several last operators over the same inputs."""

    def __init__(self, *last: Operator, folds: bool = True) -> None:
        self.folds = folds
        self.stages: dict[Operator, Stage] = {}
        for each in last:
            self._add(each)

    def _add(self, node: Node) -> None:
        if isinstance(node, Stateless):
            self._add(node.input)
        elif isinstance(node, Operator) and node not in self.stages:
            for each in node.inputs:
                self._add(each)
            rules = tuple(_rules(base(each)) for each in node.inputs)
            sides = (0, 1) if isinstance(node, Cogrouped | Joined) else ()
            self.stages[node] = Stage(node, OperatorPlan(rules, host(node), sides=sides))

    def step(
        self, batch: Mapping[str, Sequence[Row]], now: int, *, end: bool = False
    ) -> dict[Operator, pl.DataFrame]:
        """Run a micro-batch; return the panes of each operator."""
        inputs: dict[Node, pl.DataFrame] = {}
        sent_before: dict[tuple[object, ...], Buffers] = {}
        emitted: dict[Operator, pl.DataFrame] = {}
        for node, stage in self.stages.items():
            sent: Buffers = []
            for number, each in enumerate(node.inputs):
                start = base(each)
                if isinstance(start, Feed):
                    if start not in inputs:
                        inputs[start] = feed_rows(batch.get(start.name, ()))
                    rows = applied(each, inputs)
                    if rows.height:
                        stage.accept(number, rows.filter(~pl.col(WITNESS)))
                        highest = max(rows[TIME].to_list()) - start.lag
                        stage.feeds[number] = max(highest, stage.feeds.get(number, highest))
                    sent += [(bucket, Tick(now, 1, end), None) for bucket in BUCKETS]
                else:
                    rows = applied(each, inputs)
                    stage.note_times(number, rows[TIME].to_list())
                folding = stage.plan.host if self.folds and stage.plan.host.spec.can_fold else None
                form = (each, number, id(folding), *_form(stage))
                if form not in sent_before:
                    sent_before[form] = _shipped(stage, number, rows, folding)
                sent += sent_before[form]
            outputs = stage.step(sent)
            for number, each in enumerate(node.inputs):
                upstream = self.stages.get(base(each))  # type: ignore[arg-type]  # None for a feed
                if upstream is not None and upstream.idle and stage.watermark > upstream.level:
                    stage.passed.add(number)
            emitted[node] = elements(outputs, node)
            inputs[node] = with_headers(outputs, emitted[node])
        return emitted


def _form(stage: Stage) -> tuple[bool, bool, bool, int | None]:
    """What the buffers of an operator depend on, apart from the rows and how they are folded."""
    spec, node = stage.plan.host.spec, stage.node
    gap = node.tick if isinstance(node, Windowed) and spec.gap_column is not None else None
    return spec.takes_retractions, spec.inherits, is_keyed(node), gap


def _shipped(stage: Stage, number: int, rows: pl.DataFrame, folding: Folding | None) -> Buffers:
    """The buffers of some rows, as two map tasks would make them."""
    takes_retractions, inherits, keyed, gap = _form(stage)
    is_feed = CONTROL not in rows.columns
    unread = () if takes_retractions else (RETRACTION,)
    unread = unread if inherits else (*unread, *WINDOW_BOUNDS)
    index = pl.col("key").hash() % len(BUCKETS) if keyed else pl.lit(0)
    columns = [pl.col(name) for name in rows.columns if name not in unread]
    columns.append(index.cast(pl.Int32).alias(BUCKET_INDEX))
    if takes_retractions and RETRACTION not in rows.columns:
        columns.append(pl.lit(value=False).alias(RETRACTION))
    if gap is not None:
        columns.append(((1 + (pl.col("value").abs() % 5).fill_null(3)) * gap).alias(GAP))
    rows = rows.select(columns)
    origin = "input" if is_feed else None
    shipper = Shipper(
        BUCKETS, number, tuple(rows.columns), origin, peaks=False, emit_invalid=False, folding=folding
    )
    half = rows.height // 2
    parts = [(task, part) for task, part in enumerate((rows[:half], rows[half:])) if part.height]
    return [buffer for task, part in parts for buffer in shipper.buffers(part, task, 0)]


def _rules(start: Feed | Operator) -> InputRules:
    match start:
        case Feed():
            return SourceRules(Lag(start.lag), idle_after=start.idle_after)
        case LookedUp():
            return UpstreamRules(BUCKETS, start.by, (start.by,))
        case Joined():
            return UpstreamRules(BUCKETS, start.by, SIDES)
    return UpstreamRules(BUCKETS)


def host(node: Operator) -> Host[OperatorSpec]:
    """The host of an operator."""
    if isinstance(node, Joined):
        return _join_host(node)
    if isinstance(node, Deduplicated):
        mark = RETRACTION if retracts(node.input) else None
        spec = windows.DeduplicateSpec(
            on=("key",), within=node.within, event_time=TIME, retractions=mark, lateness=lateness(node.input)
        )
        return DeduplicateHost(spec, schema=_JOINED_ROWS | ({} if mark is None else {mark: pl.Boolean()}))
    retractions = RETRACTION if any(map(retracts, node.inputs)) else None
    settings: dict[str, Any] = {
        "window": node.window,
        "trigger": node.trigger,
        "mode": node.mode,
        "allowed_lateness": node.lateness,
        "drop_late": drop_late(node),
        "retractions": retractions,
    }
    if isinstance(node, Cogrouped):
        return CogroupHost(
            windows.CogroupSpec(
                **settings, key=("key",), left=("value",), right=("value",), left_time=TIME, right_time=TIME,
                how=node.how,  # type: ignore[arg-type]  # one of the choices
            )
        )  # fmt: skip
    return WindowHost(
        windows.WindowSpec(
            **settings,
            key=("key",) if node.keyed else (),
            accumulations={"value": ACCUMULATIONS[node.value], "elements": windows.count()},
            event_time=TIME,
            timestamp=node.timestamp,  # type: ignore[arg-type]  # one of the choices
        )
    )


def _join_host(node: Joined) -> JoinHost:
    keys = ForwardedKeys("left"), ForwardedKeys("right")
    marks = [RETRACTION if retracts(each) else None for each in node.inputs]
    left, right = (_JOINED_ROWS | ({} if mark is None else {mark: pl.Boolean()}) for mark in marks)
    if isinstance(node, LookedUp):
        asof = windows.AsofSpec(
            on=("key",),
            direction=node.direction,  # type: ignore[arg-type]  # one of the choices
            tolerance=node.after,
            how=node.how,  # type: ignore[arg-type]  # one of the choices
            left_time=TIME,
            right_time=TIME,
            left_retractions=marks[0],
            right_retractions=marks[1],
            left_lateness=lateness(node.left),
            right_lateness=lateness(node.right),
        )
        return JoinHost(asof, left=left, right=right, keys=keys)
    spec = windows.JoinSpec(
        on=("key",),
        before=node.before,
        after=node.after,
        how=node.how,  # type: ignore[arg-type]  # one of the choices
        left_time=TIME,
        right_time=TIME,
        condition=CONDITION if node.conditional else None,
        left_retractions=marks[0],
        right_retractions=marks[1],
        left_lateness=lateness(node.left),
        right_lateness=lateness(node.right),
    )
    return JoinHost(spec, left=left, right=right, keys=keys)


def feed_rows(rows: Sequence[Row]) -> pl.DataFrame:
    """The rows of a feed, of which none is a witness yet."""
    frame = pl.DataFrame(list(rows), schema=_ROWS, orient="row")
    return frame.with_columns(pl.lit(value=False).alias(WITNESS))


def applied(node: Node, known: dict[Node, pl.DataFrame]) -> pl.DataFrame:
    """The rows after the stateless steps of a node; filtered rows of a feed stay as witnesses.

    ``known`` has the rows of feeds and operators, and gets those of each step.
    """
    if node not in known:
        assert isinstance(node, Stateless)
        known[node] = _after_step(node, applied(node.input, known))
    return known[node]


def _after_step(node: Stateless, rows: pl.DataFrame) -> pl.DataFrame:
    value = pl.col("value")
    match node:
        case Filtered(modulus=modulus):
            kept = (value % modulus != 0).fill_null(value=True)
            if WITNESS in rows.columns:
                return rows.with_columns(pl.col(WITNESS) | ~kept)
            return rows.filter(kept | pl.col(CONTROL).is_not_null())
        case Mapped(factor=factor):
            return rows.with_columns(value * factor + 1)
        case Rekeyed(keys=keys):
            return rows.with_columns(pl.concat_str(pl.lit("r"), value % keys).alias("key"))
        case Called(modulus=modulus):
            return _called(rows, modulus)


def _called(rows: pl.DataFrame, modulus: int) -> pl.DataFrame:
    """The rows after the async function was called, as in the map tasks of Spark."""

    async def function(row: Row) -> list[Row]:
        return [{"key": row["key"], "value": value} for value in results_of(row["value"], modulus)]

    arguments = ("key", "value")
    schema = StructType([StructField("key", StringType()), StructField("value", LongType())])
    kept = [name for name in rows.columns if name not in (*arguments, WITNESS)]
    passed = [StructField(name, _PASSED[name]) for name in kept]
    output = StructType([*passed, StructField(WITNESS, BooleanType()), *schema.fields])
    call = AsyncCall(function, schema, ordered=True, capacity=10, timeout_seconds=None, retry=Retry())
    renamed = rows.rename({name: column_alias(index) for index, name in enumerate(arguments)})
    table = renamed.to_arrow(compat_level=pl.CompatLevel.oldest())
    mapped = list(AsyncMapper(call, arguments, output)(table.combine_chunks().to_batches()))
    return pl.DataFrame(pa.Table.from_batches(mapped)) if mapped else rows


def with_headers(outputs: Sequence[BucketOutput], rows: pl.DataFrame) -> pl.DataFrame:
    """The rows that the next operator gets: the header of each bucket, and the rows that it emitted."""
    headers = [{CONTROL: write_header(output.header)} for output in outputs]
    control = pl.DataFrame(headers, schema=_ELEMENTS)
    if rows.is_empty():
        return control
    elements = [pl.lit(None, pl.Binary).alias(CONTROL) if name == CONTROL else name for name in _ELEMENTS]
    return pl.concat([control, rows.select(elements)], how="vertical_relaxed")


def elements(outputs: Sequence[BucketOutput], node: Operator) -> pl.DataFrame:
    """The rows that all buckets emitted, under the names that every operator reads."""
    frames = [output.rows for output in outputs if output.rows is not None]
    if not frames:
        return pl.DataFrame()
    rows = pl.concat(frames, how="diagonal_relaxed")
    if isinstance(node, Joined):
        return _pairs(rows, node)
    if isinstance(node, Deduplicated):
        rows = rows.with_columns((pl.col(TIME) % PRIME).alias("value"))
        return _timed(rows, pl.col("retraction") if retracts(node) else pl.lit(value=False))
    rows = rows.filter(kind=PANE_KIND).rename({"timestamp": TIME, "retraction": RETRACTION})
    if isinstance(node, Cogrouped):
        rows = rows.with_columns(pair_value("value", "value_right"))
    elif not node.keyed:
        rows = rows.with_columns(pl.lit("all").alias("key"))
    return rows


def _pairs(rows: pl.DataFrame, node: Joined) -> pl.DataFrame:
    if isinstance(node, LookedUp):
        distance = pl.col(f"{TIME}_right") - pl.col(f"{TIME}_left")
        rows = rows.with_columns(distance.alias("value_right"))
    if node.how not in ("semi", "anti"):
        times = [f"{TIME}_{side}" for side in (SIDES if node.how != "right" else reversed(SIDES))]
        rows = rows.with_columns(pair_value("value_left", "value_right"), pl.coalesce(times).alias(TIME))
    return _timed(rows, pl.col("retraction") if retracts(node) else pl.lit(value=False))


def _timed(rows: pl.DataFrame, retraction: pl.Expr) -> pl.DataFrame:
    """Rows that are not in a window; both bounds are their event time."""
    bounds = [pl.col(TIME).alias(name) for name in WINDOW_BOUNDS]
    return rows.with_columns(retraction.alias(RETRACTION), *bounds)


def pair_value(left: str, right: str) -> pl.Expr:
    """The value of a pair, from two columns."""
    both = pl.col(left).cast(pl.Int64).fill_null(50), pl.col(right).cast(pl.Int64).fill_null(7)
    return (both[0] * 10 + both[1]).alias("value")
