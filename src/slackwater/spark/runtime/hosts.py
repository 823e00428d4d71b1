"""Hosts: adapters that run each kind of operator of `slackwater.windows` in a bucket.

A host is sent to the workers as the operator's configuration, and builds the operator there on first use. All
hosts have the same interface, so that a bucket does not depend on the kind of operator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Generic, Protocol, TypeVar

import polars as pl

from slackwater.monitoring.query_state import OpenWindows, WindowPanes
from slackwater.progress.saved_form import Saved
from slackwater.spark.runtime.blob_cache import BlobCache
from slackwater.spark.runtime.window_reports import PaneCounts, open_by_end
from slackwater.spark.wire.pane_schema import (
    FAILED_KIND,
    FAILURE_FIELDS,
    INVALID_KIND,
    LATE_KIND,
    PANE_KIND,
    RECORD_FIELDS,
    ROW_KIND,
    row_values,
)
from slackwater.spark.wire.wire_columns import (
    FAILED_ROW,
    FAILURE,
    INVALID_REASON,
    KIND,
    RECORD_POSITION,
    RETRACTION,
    SIDE,
    TIME,
    WINDOW_BOUNDS,
)
from slackwater.time import BEGINNING_OF_TIME
from slackwater.windows import (
    AsofOperator,
    AsofOutput,
    AsofSpec,
    DeduplicateOperator,
    DeduplicateSpec,
    Folded,
    JoinOperator,
    JoinOutput,
    MergeOperator,
    WindowedOperator,
    WindowOutput,
)
from slackwater.windows.engine.blobs import BlobStore
from slackwater.windows.engine.join_buffers import BufferSize
from slackwater.windows.engine.pieces import Pieces
from slackwater.windows.engine.window_state import WindowState
from slackwater.windows.spec.cogroup_spec import CogroupSpec
from slackwater.windows.spec.join_spec import JoinSpec
from slackwater.windows.spec.operator_spec import SIDES, OperatorSpec, Side
from slackwater.windows.spec.window_spec import WindowSpec

APPLIED: Final = "apply:rows"
"""The name of the only accumulation of an `ApplyHost`, a list of rows."""

_MIN_REDUCTION: Final = 2
"""Rows are sent folded only if that divides their number by at least this: a partial is wider than a row."""


@dataclass(frozen=True)
class BatchInput:
    """The data of an input or a side in a batch: rows, and partials that map tasks folded."""

    rows: pl.DataFrame | None = None
    folded: Sequence[Folded] = ()

    @classmethod
    def combined(cls, several: Sequence[BatchInput]) -> BatchInput:
        """The data of several inputs of one side; their columns may be in different orders.

        >>> one, two = (BatchInput(pl.DataFrame(row)) for row in ({"n": [1], "m": [2]}, {"m": [4], "n": [3]}))
        >>> BatchInput.combined([one, BatchInput(), two]).rows.rows()
        [(1, 2), (3, 4)]
        """
        frames = [one.rows for one in several if one.rows is not None]
        rows = frames[0] if frames else None
        if len(frames) > 1:
            aligned = [frame.select(frames[0].columns) for frame in frames]
            rows = pl.concat(aligned, how="vertical_relaxed")
        return cls(rows, [part for one in several for part in one.folded])


@dataclass(frozen=True)
class OperatorBatch:
    """The input of one step."""

    sides: Sequence[BatchInput]
    """The data of each side: two for a join or cogroup, otherwise one."""
    watermarks: Sequence[int | None]
    """The watermark of each side."""
    keys: Sequence[Mapping[str, int]]
    """The known watermarks of each side by key."""
    idle: Sequence[bool]
    """For each side, whether all its inputs are idle."""
    watermark: int | None
    """The coalesced watermark of all inputs."""
    now: int
    """The processing time, for durations: it never goes back, even if the clock does."""


class StepCounts(Saved):
    """The number of panes emitted and of rows dropped in one step."""

    early: int = 0
    on_time: int = 0
    late: int = 0
    """Panes by their timing."""
    retractions: int = 0
    dropped_late: int = 0
    dropped_closed: int = 0

    def add_panes(self, panes: pl.DataFrame) -> None:
        """Count panes by their timing."""
        timing = panes.filter(~pl.col("retraction"))["timing"]
        self.early += int((timing == "EARLY").sum())
        self.on_time += int((timing == "ON_TIME").sum())
        self.late += int((timing == "LATE").sum())
        self.retractions += panes.height - timing.len()


@dataclass(frozen=True)
class HostOutput:
    """The result of one step, apart from the output rows."""

    counts: StepCounts
    watermarks: Mapping[str, int]
    open_windows: int
    waiting: int | None = None
    """The end of the earliest window that still owes a pane, or the earliest time of the rows that a join
    still holds; None if the operator holds nothing."""
    watermark: int | None = None
    """The watermark that the operator uses, if it is not the coalesced one of its inputs."""
    buffers: Mapping[str, BufferSize] = field(default_factory=dict)
    """The size of each buffer of rows, by its name."""
    duplicates: int = 0
    """The number of rows that were dropped because they repeat earlier ones."""
    windows: tuple[OpenWindows, ...] = ()
    """The open windows by end, the earliest first; bounded."""
    windows_left_out: int = 0
    panes: tuple[WindowPanes, ...] = ()
    """The panes of the step by the end of their window; bounded."""
    dropped_sample: pl.DataFrame | None = None
    """A few of the dropped rows."""
    expired_keys: int = 0
    """The number of keys whose state was purged because of the ttl of a global window."""
    forwarded: Mapping[str, int] = field(default_factory=dict)
    """The watermarks that were forwarded so far, in this step or an earlier one, by key."""


Emitting = Generator[pl.DataFrame, None, tuple[Any, HostOutput]]
"""A step: yields frames of output rows, each with all columns, and returns the new state and the result."""


class Operator(Protocol):
    """The part of an operator's interface that does not depend on its kind."""

    def initial_state(self, blobs: BlobStore | None = None) -> Any:
        """The state before the first step."""

    def load(self, saved: bytes, blobs: BlobStore) -> Any:
        """The state whose index `save` returned."""

    def save(self, state: Any) -> bytes:
        """The index of the state."""


Spec_co = TypeVar("Spec_co", bound=OperatorSpec, covariant=True)


@dataclass(frozen=True)
class Host(ABC, Generic[Spec_co]):
    """The specification of an operator, and the operator built from it."""

    spec: Spec_co

    @cached_property
    @abstractmethod
    def operator(self) -> Operator:
        """The operator, built on first use and not pickled."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "operator"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def initial_state(self, blobs: BlobStore) -> Any:
        """The state before the first step."""
        return self.operator.initial_state(blobs)

    def load(self, saved: bytes, blobs: BlobStore) -> Any:
        """The state whose index `save` returned."""
        return self.operator.load(saved, blobs)

    def save(self, state: Any) -> bytes:
        """The index of the state."""
        return self.operator.save(state)

    def fold(self, rows: pl.DataFrame, carried: Sequence[str]) -> Folded | None:
        """Fold rows into partials that keep the columns ``carried``; None if there would be too many."""
        raise NotImplementedError

    def merge_folded(self, several: Sequence[Folded], carried: Sequence[str]) -> Folded:
        """Merge what `fold` returned for rows that arrived one after the other."""
        raise NotImplementedError

    @abstractmethod
    def step(self, state: Any, batch: OperatorBatch) -> Emitting:
        """Process a batch: yield the output rows, then return the new state and the result."""

    def invalid(self, rows: pl.DataFrame, side: int) -> pl.DataFrame:
        """Convert rows of a side without a usable event time to output rows of kind ``invalid``."""
        raise NotImplementedError

    def failed(self, rows: pl.DataFrame, side: int) -> pl.DataFrame:
        """Convert rows of a side for which an async function failed to output rows of kind ``failed``."""
        reason, row = (field.name for field in FAILURE_FIELDS)
        described = rows.select(
            *(pl.lit(None, pl.Int64).alias(name) for name in (*WINDOW_BOUNDS, "timestamp")),
            pl.col(FAILURE).alias(reason),
            pl.col(FAILED_ROW).alias(row),
            pl.lit(SIDES[side]).alias(SIDE),
        )
        return _of_kind(described, FAILED_KIND)


class WindowHost(Host[WindowSpec]):
    """The host of a windowed operator, which processes the rows of all inputs as one batch."""

    @cached_property
    def operator(self) -> WindowedOperator:
        """The windowed operator."""
        return WindowedOperator(self.spec)

    def fold(self, rows: pl.DataFrame, carried: Sequence[str]) -> Folded | None:
        """Fold rows into partials that keep the columns ``carried``; None if there would be too many."""
        plain = [name for name in self.spec.key if not rows.schema[name].is_nested()]
        if plain and rows.height:
            # There is at least one partial per key, so with many keys folding is not worth trying.
            keys = max(rows.select(pl.col(plain).approx_n_unique()).row(0))
            if keys * _MIN_REDUCTION > rows.height:
                return None
        folded = self.operator.fold(rows, carried)
        return folded if folded.partials.height * _MIN_REDUCTION <= rows.height else None

    def merge_folded(self, several: Sequence[Folded], carried: Sequence[str]) -> Folded:
        """Merge what `fold` returned for rows that arrived one after the other."""
        return self.operator.merge_folded(several, carried)

    def step(self, state: Any, batch: OperatorBatch) -> Emitting:
        """Process the rows of all inputs as one batch; only the coalesced watermark is used."""
        (side,) = batch.sides
        rows, folded = side.rows, list(side.folded)
        if rows is not None and self.spec.can_fold:
            folded.append(self.operator.fold(rows))
            rows = None
        driving = {} if batch.watermark is None else {self.spec.watermark_key: batch.watermark}
        state, output = self.operator.step(
            state, rows, driving, batch.now, folded=folded, idle=all(batch.idle)
        )
        counts, panes = StepCounts(), PaneCounts()
        if output.panes.height:
            counts.add_panes(output.panes)
            panes.add(output.panes)
            yield _as_panes(output.panes)
        if output.late is not None and output.late.height:
            yield self._dropped(output.late, LATE_KIND)
        return state, _host_output(counts, panes, output, state, self.spec)

    def invalid(self, rows: pl.DataFrame, side: int) -> pl.DataFrame:
        """Convert rows without a usable event time to output rows of kind ``invalid``."""
        return _with_records(self._dropped(rows, INVALID_KIND), rows)

    def _dropped(self, rows: pl.DataFrame, kind: str) -> pl.DataFrame:
        """Convert dropped rows to output rows: key, window, and the values of each row by itself."""
        values = row_values(rows, self.spec.accumulations, TIME)
        bounds = [
            pl.col(name) if name in rows.columns else pl.lit(None, pl.Int64).alias(name)
            for name in WINDOW_BOUNDS
        ]
        kept = rows.select(*self.spec.key, *bounds, pl.col(TIME).alias("timestamp"))
        dropped = _of_kind(kept.hstack(values), kind)
        if self.spec.retractions not in rows.columns:
            return dropped
        return dropped.with_columns(rows[self.spec.retractions].alias("retraction"))


class ApplyHost(WindowHost):
    """The host of a windowed operator whose panes are the rows that a user's function returns."""

    def step(self, state: Any, batch: OperatorBatch) -> Emitting:
        """Process a batch; emit one row for each row that the function returned."""
        emitted = Pieces(super().step(state, batch))
        for frame in emitted:
            panes = frame.filter(pl.col(APPLIED).list.len() > 0)
            if panes.height:
                yield panes.explode(APPLIED).unnest(APPLIED)
        return emitted.result


class CogroupHost(Host[CogroupSpec]):
    """The host of a cogroup: two streams in the same windows."""

    @cached_property
    def operator(self) -> MergeOperator:
        """The cogroup operator."""
        return MergeOperator(self.spec)

    def step(self, state: Any, batch: OperatorBatch) -> Emitting:
        """Process the rows and watermarks of both sides."""
        left, right = (side.rows for side in batch.sides)
        emitted = Pieces(
            self.operator.pieces(state, left, right, _by_side(batch), batch.now, idle=_idle_sides(batch))
        )
        counts, pane_counts = StepCounts(), PaneCounts()
        for panes in emitted:
            if panes.height:
                counts.add_panes(panes)
                pane_counts.add(panes)
                yield self._with_known_lists(_as_panes(panes))
        state, output = emitted.result
        if output.late is not None and output.late.height:
            yield self._with_known_lists(self._late(output.late))
        return state, _host_output(counts, pane_counts, output, state.windows, self.spec)

    def _late(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Convert late rows to output rows, in which the other side is empty or null."""
        if self.spec.how == "cogroup":
            own = {side: pl.when(pl.col("side") == side).then(1).otherwise(0) for side in SIDES}
            rows = rows.with_columns(pl.concat_list(side).list.head(own[side]).alias(side) for side in SIDES)
        kept = rows.drop("side", "reason").rename({"event_time": "timestamp"})
        return _of_kind(kept, LATE_KIND)

    def invalid(self, rows: pl.DataFrame, side: int) -> pl.DataFrame:
        """Convert rows without a usable event time to output rows; the other side is empty or null."""
        own, other = SIDES[side], SIDES[1 - side]
        if self.spec.how == "cogroup":
            nothing = pl.Series([[]], dtype=pl.List(pl.Null))
            values = [pl.concat_list(pl.struct(self.spec.carried[own])).alias(own)]
            values.append(pl.lit(nothing).first().alias(other))
        else:
            names = self.spec.carried_names
            values = [pl.col(name).alias(names[own, name]) for name in self.spec.carried[own]]
            values += [pl.lit(None).alias(names[other, name]) for name in self.spec.carried[other]]
        bounds = [pl.lit(None, pl.Int64).alias(name) for name in WINDOW_BOUNDS]
        kept = rows.select(*self.spec.key, *bounds, *values, pl.col(TIME).alias("timestamp"))
        return _with_records(_of_kind(kept, INVALID_KIND), rows)

    def _with_known_lists(self, panes: pl.DataFrame) -> pl.DataFrame:
        """Replace the lists of a side that has never sent a row, because their type is not known yet."""
        if self.spec.how != "cogroup":
            return panes
        unknown = [
            side
            for side, columns in self.spec.carried.items()
            if not set(columns) <= {field.name for field in panes.schema[side].inner.fields}  # type: ignore[attr-defined]
        ]
        empty = pl.Series([[]], dtype=pl.List(pl.Null))
        return panes.with_columns(pl.lit(empty).first().alias(side) for side in unknown)


@dataclass(frozen=True)
class ForwardedKeys:
    """The names under which a join forwards the watermarks of a side."""

    driving: str
    further: tuple[tuple[str, str], ...] = ()
    """Further watermark keys of the side, each with its name in the output."""

    @property
    def names(self) -> tuple[str, ...]:
        """All names."""
        return (self.driving, *(name for _, name in self.further))


@dataclass(frozen=True)
class JoinHost(Host[JoinSpec | AsofSpec]):
    """The host of a time-bounded or as-of join."""

    left: Mapping[str, pl.DataType]
    """The schema of the left side."""
    right: Mapping[str, pl.DataType]
    keys: tuple[ForwardedKeys, ForwardedKeys]
    emits_invalid: bool = False
    """Whether rows without a usable event time are emitted; output rows then have a kind and a side."""

    @cached_property
    def operator(self) -> JoinOperator | AsofOperator:
        """The join operator."""
        match self.spec:
            case JoinSpec():
                return JoinOperator(self.spec, left=self.left, right=self.right)
            case AsofSpec():
                return AsofOperator(self.spec, left=self.left, right=self.right)

    def step(self, state: Any, batch: OperatorBatch) -> Emitting:
        """Process the rows and watermarks of both sides; a join does not use the clock."""
        left, right = (
            None if side.rows is None else side.rows.select(*schema)
            for side, schema in zip(batch.sides, (self.left, self.right), strict=True)
        )
        known = {
            side: {key: batch.keys[index][key] for key, _ in self.spec.keys(side) if key in batch.keys[index]}
            for index, side in enumerate(SIDES)
        }
        watermarks, idle = _by_side(batch), _idle_sides(batch)
        output: JoinOutput | AsofOutput
        match self.operator:
            case JoinOperator() as join:
                emitted = Pieces(join.pieces(state, left, right, watermarks, idle=idle, key_watermarks=known))
                yield from map(self._pairs, emitted)
                state, output = emitted.result
            case AsofOperator() as asof:
                state, output = asof.step(state, left, right, watermarks, idle=idle, key_watermarks=known)
                if output.rows.height:
                    yield self._pairs(output.rows)
        yield from self._late_rows(output)
        counts = StepCounts(dropped_late=sum(output.dropped.values()))
        return state, HostOutput(
            counts,
            self._forwarded(output),
            open_windows=0,
            waiting=self.operator.held(state),
            buffers={str(side): size for side, size in self.operator.buffer_sizes(state).items()},
            dropped_sample=output.dropped_sample,
        )

    def _pairs(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Pairs as output rows."""
        rows = _with_retraction(rows)
        if self.spec.late != "emit" and not self.emits_invalid:
            return rows
        return rows.with_columns(pl.lit(ROW_KIND).alias(KIND), pl.lit(None, pl.String).alias(SIDE))

    def _late_rows(self, output: JoinOutput | AsofOutput) -> Iterator[pl.DataFrame]:
        """The late rows as output rows, if they are emitted; the columns of the other side are null."""
        for side, late in ({} if output.late is None else output.late).items():
            if late.height:
                yield self._dropped(late, side, LATE_KIND)

    def invalid(self, rows: pl.DataFrame, side: int) -> pl.DataFrame:
        """Convert rows of a side without a usable event time to output rows of kind ``invalid``."""
        return _with_records(self._dropped(rows, SIDES[side], INVALID_KIND), rows)

    def _dropped(self, rows: pl.DataFrame, side: Side, kind: str) -> pl.DataFrame:
        """Dropped rows of a side as output rows of a kind; the columns of the other side are null."""
        dropped = _with_retraction(self.operator.late_rows(side, rows))
        described = dropped.with_columns(pl.lit(kind).alias(KIND), pl.lit(side).alias(SIDE))
        return pl.concat([self._empty_output, described], how="diagonal_relaxed")

    @property
    def _empty_output(self) -> pl.DataFrame:
        """A frame without rows that has all output columns: late rows have only those of their side."""
        empty = _with_retraction(self.operator.output_schema.to_frame())
        return pl.DataFrame(schema={**empty.schema, KIND: pl.String, SIDE: pl.String})

    def _forwarded(self, output: JoinOutput | AsofOutput) -> dict[str, int]:
        forwarded: dict[str, int] = {}
        for side, keys in zip(SIDES, self.keys, strict=True):
            if side in output.watermarks:
                forwarded[keys.driving] = output.watermarks[side]
            advanced = output.key_watermarks.get(side, {})
            forwarded |= {name: advanced[key] for key, name in keys.further if key in advanced}
        return forwarded


@dataclass(frozen=True)
class DeduplicateHost(Host[DeduplicateSpec]):
    """The host of a deduplication, whose rows keep all their watermark keys."""

    schema: Mapping[str, pl.DataType]
    """The columns of the rows."""

    @cached_property
    def operator(self) -> DeduplicateOperator:
        """The deduplication operator."""
        return DeduplicateOperator(self.spec, schema=self.schema)

    def step(self, state: Any, batch: OperatorBatch) -> Emitting:
        """Process the rows; every watermark is forwarded as it is."""
        (side,) = batch.sides
        rows = None if side.rows is None else side.rows.select(*self.schema)
        keys = (self.spec.watermark_key, *self.spec.further_keys)
        known = {**batch.keys[0], self.spec.watermark_key: batch.watermark}
        watermarks = {key: at for key in keys if (at := known.get(key)) is not None}
        state, output = self.operator.step(state, rows, watermarks)
        emits_late = output.late is not None
        if output.rows.height:
            rows = _with_retraction(output.rows)
            yield rows.with_columns(pl.lit(ROW_KIND).alias(KIND)) if emits_late else rows
        if output.late is not None and output.late.height:
            yield _with_retraction(output.late).with_columns(pl.lit(LATE_KIND).alias(KIND))
        return state, HostOutput(
            StepCounts(dropped_late=output.dropped),
            output.watermarks,
            open_windows=0,
            duplicates=output.duplicates,
            buffers={"kept": self.operator.buffer_size(state)},
            dropped_sample=output.dropped_sample,
        )


def _with_retraction(rows: pl.DataFrame) -> pl.DataFrame:
    """Output rows in which the column that marks retractions has its name in the output."""
    return rows.rename({RETRACTION: "retraction"}, strict=False)


def _idle_sides(batch: OperatorBatch) -> list[str]:
    return [side for side, idle in zip(SIDES, batch.idle, strict=True) if idle]


def _by_side(batch: OperatorBatch) -> dict[str, int]:
    return {side: at for side, at in zip(SIDES, batch.watermarks, strict=True) if at is not None}


def _host_output(
    counts: StepCounts,
    panes: PaneCounts,
    output: WindowOutput,
    state: WindowState,
    spec: WindowSpec | CogroupSpec,
) -> HostOutput:
    counts.dropped_late, counts.dropped_closed = output.dropped_late, output.dropped_closed
    sizes = state.blobs.cached if isinstance(state.blobs, BlobCache) else {}
    windows, left_out = open_by_end(state, spec.allowed_lateness, sizes)
    return HostOutput(
        counts,
        output.watermarks,
        state.open_windows,
        output.waiting,
        state.watermark,
        windows=windows,
        windows_left_out=left_out,
        panes=panes.panes,
        dropped_sample=output.dropped_sample,
        expired_keys=output.expired_keys,
        forwarded={} if state.forwarded == BEGINNING_OF_TIME else {spec.watermark_key: state.forwarded},
    )


def _of_kind(rows: pl.DataFrame, kind: str) -> pl.DataFrame:
    """Dropped rows as output rows of a kind, with null in the fields that describe a pane."""
    return rows.with_columns(
        *(pl.lit(None, pl.Int64).alias(name) for name in ("index", "on_time_index")),
        *(pl.lit(None, pl.Boolean).alias(name) for name in ("is_first", "is_last", "retraction")),
        pl.lit(None, pl.String).alias("timing"),
        pl.lit(kind).alias("kind"),
    )


def _with_records(dropped: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Output rows of kind ``invalid`` with the positions of ``rows``, if these are records."""
    if INVALID_REASON not in rows.columns:
        return dropped
    names = (*RECORD_POSITION, INVALID_REASON)
    return dropped.hstack(
        [rows[name].alias(field.name) for name, field in zip(names, RECORD_FIELDS, strict=True)]
    )


def _as_panes(panes: pl.DataFrame) -> pl.DataFrame:
    return panes.with_columns(pl.lit(PANE_KIND).alias("kind"))
