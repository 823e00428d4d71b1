"""Operators in a bucket: how each kind takes the batches of its inputs, and what it gives back.

An operator of `slackwater.windows` is built where it is used, in a worker; what travels there is its
configuration. All kinds answer alike, so that a bucket need not know which one it runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import polars as pl

from slackwater.spark.wire.map_side import TIME
from slackwater.spark.wire.pane_rows import INVALID_KIND, LATE_KIND, PANE_KIND, each_alone
from slackwater.windows import Folded, JoinOperator, MergeOperator, WindowedOperator, WindowOutput
from slackwater.windows.engine.blobs import BlobStore

APPLIED: Final = "apply:rows"
"""The name of the one accumulation of an `ApplyHost`: a list of rows."""

Edges = Sequence[int | None]

_WORTH_FOLDING: Final = 2
"""Rows are sent folded if that makes them so many times fewer: a partial is wider than a row."""


@dataclass(frozen=True)
class Taken:
    """What a batch brings of one input: rows, or partials that map tasks folded."""

    rows: pl.DataFrame | None = None
    folded: Sequence[Folded] = ()


@dataclass(frozen=True)
class HostOutput:
    """What an operator did in one step."""

    rows: list[pl.DataFrame]
    counts: Mapping[str, int]
    watermarks: Mapping[str, int]
    open_windows: int


@dataclass(frozen=True)
class Host(ABC):
    """An operator by its configuration."""

    options: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    @abstractmethod
    def operator(self) -> Any:
        """The operator; built on first use, because it does not travel well."""

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def initial_state(self, blobs: BlobStore) -> Any:
        """The state before the first step."""
        return self.operator.initial_state(blobs)

    def load(self, saved: bytes, blobs: BlobStore) -> Any:
        """The state whose index was saved."""
        return self.operator.load(saved, blobs)

    def save(self, state: Any) -> bytes:
        """The index of the state."""
        saved: bytes = self.operator.save(state)
        return saved

    @property
    def can_fold(self) -> bool:
        """Whether rows can be folded before the operator gets them, where there is no state."""
        return False

    def fold(self, rows: pl.DataFrame, carried: Sequence[str]) -> Folded | None:
        """Rows as the partials of their windows; None if these would not be far fewer."""
        raise NotImplementedError

    @abstractmethod
    def step(
        self, state: Any, taken: Sequence[Taken], edges: Edges, watermark: int | None, now: int
    ) -> tuple[Any, HostOutput]:
        """Take a batch of each input, their watermarks, the one of all, and the time."""

    def invalid(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows without a usable event time in the form of what is emitted."""
        raise NotImplementedError


class WindowHost(Host):
    """A windowed operator; the rows of several inputs are one batch to it."""

    @cached_property
    def operator(self) -> WindowedOperator:
        """The windowed operator."""
        return WindowedOperator(event_time=TIME, **self.options)

    @property
    def can_fold(self) -> bool:
        """Unless rows have to be judged one by one."""
        return self.operator.can_fold

    def fold(self, rows: pl.DataFrame, carried: Sequence[str]) -> Folded | None:
        """Rows as the partials of their windows; None if these would not be far fewer."""
        flat = [name for name in self.operator.spec.key if not rows.schema[name].is_nested()]
        if flat and rows.height:
            # There is at least a partial for each key: where keys are many, it need not be tried.
            keys = max(rows.select(pl.col(flat).approx_n_unique()).row(0))
            if keys * _WORTH_FOLDING > rows.height:
                return None
        folded = self.operator.fold(rows, carried)
        return folded if folded.partials.height * _WORTH_FOLDING <= rows.height else None

    def step(
        self, state: Any, taken: Sequence[Taken], edges: Edges, watermark: int | None, now: int
    ) -> tuple[Any, HostOutput]:
        """Take the rows, then the watermark, then the clock."""
        frames = [one.rows for one in taken if one.rows is not None]
        batch = pl.concat(frames, how="vertical_relaxed") if frames else None
        folded = [part for one in taken for part in one.folded]
        if batch is not None and self.can_fold:
            folded.append(self.operator.fold(batch))
            batch = None
        watermarks = {} if watermark is None else {self.operator.spec.watermark_key: watermark}
        state, output = self.operator.step(state, batch, watermarks, now, folded=folded)
        rows = _panes(output)
        if output.late is not None and output.late.height:
            rows.append(self._dropped(output.late, LATE_KIND))
        return state, HostOutput(rows, _counts(output), output.watermarks, state.open_windows)

    def invalid(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows as rows of panes, each with its values alone."""
        return self._dropped(rows, INVALID_KIND)

    def _dropped(self, rows: pl.DataFrame, kind: str) -> pl.DataFrame:
        """Rows that no pane holds, each as a row of panes: its key, its window, and its values alone."""
        values = each_alone(rows, self.operator.spec.accumulations, TIME)
        bounds = [
            pl.col(name) if name in rows.columns else pl.lit(None, pl.Int64).alias(name)
            for name in ("window_start", "window_end")
        ]
        nothing = [
            *(pl.lit(None, pl.Int64).alias(name) for name in ("index", "on_time_index")),
            *(pl.lit(None, pl.Boolean).alias(name) for name in ("is_first", "is_last", "retraction")),
            pl.lit(None, pl.String).alias("timing"),
        ]
        kept = rows.select(*self.operator.spec.key, *bounds, pl.col(TIME).alias("timestamp"))
        return kept.hstack(values).with_columns(*nothing, pl.lit(kind).alias("kind"))


class ApplyHost(WindowHost):
    """A windowed operator whose panes are the rows that a function made of them."""

    def step(
        self, state: Any, taken: Sequence[Taken], edges: Edges, watermark: int | None, now: int
    ) -> tuple[Any, HostOutput]:
        """A row for each row of the function, with what the pane says of itself."""
        state, output = super().step(state, taken, edges, watermark, now)
        rows = [panes.filter(pl.col(APPLIED).list.len() > 0) for panes in output.rows]
        made = [panes.explode(APPLIED).unnest(APPLIED) for panes in rows if panes.height]
        return state, replace(output, rows=made)


class MergeHost(Host):
    """Two streams in the same windows."""

    @cached_property
    def operator(self) -> MergeOperator:
        """The merge."""
        return MergeOperator(left_time=TIME, right_time=TIME, **self.options)

    def step(
        self, state: Any, taken: Sequence[Taken], edges: Edges, watermark: int | None, now: int
    ) -> tuple[Any, HostOutput]:
        """Take the rows of both sides, then the lower of their watermarks, then the clock."""
        left, right = (side.rows for side in taken)
        state, output = self.operator.step(state, left, right, _sides(edges), now)
        rows = [self._filled(panes) for panes in _panes(output)]
        return state, HostOutput(rows, _counts(output), output.watermarks, state.windows.open_windows)

    def _filled(self, panes: pl.DataFrame) -> pl.DataFrame:
        """The panes of a cogroup; the list of a side that never sent a row does not know its columns."""
        if self.operator.spec.how != "cogroup":
            return panes
        unknown = [
            side
            for side, columns in self.operator.spec.carried.items()
            if not set(columns) <= {field.name for field in panes.schema[side].inner.fields}  # type: ignore[attr-defined]
        ]
        empty = pl.Series([[]], dtype=pl.List(pl.Null))
        return panes.with_columns(pl.lit(empty).first().alias(side) for side in unknown)


class JoinHost(Host):
    """Rows of two streams that lie close together in time; ``options`` has the join and the two schemas."""

    @cached_property
    def operator(self) -> JoinOperator:
        """The join."""
        options = dict(self.options)
        return JoinOperator(options.pop("join"), **options)

    def step(
        self, state: Any, taken: Sequence[Taken], edges: Edges, watermark: int | None, now: int
    ) -> tuple[Any, HostOutput]:
        """Take the rows of both sides, then their watermarks."""
        left, right = (
            None if side.rows is None else side.rows.select(*schema)
            for side, schema in zip(taken, (self.options["left"], self.options["right"]), strict=True)
        )
        state, output = self.operator.step(state, left, right, _sides(edges))
        rows = [output.rows] if output.rows.height else []
        counts = {"dropped_late": sum(output.dropped.values())}
        return state, HostOutput(rows, counts, {str(side): at for side, at in output.watermarks.items()}, 0)


def _sides(edges: Edges) -> dict[str, int]:
    return {side: at for side, at in zip(("left", "right"), edges, strict=True) if at is not None}


def _panes(output: WindowOutput) -> list[pl.DataFrame]:
    return [output.panes.with_columns(pl.lit(PANE_KIND).alias("kind"))] if output.panes.height else []


def _counts(output: WindowOutput) -> dict[str, int]:
    counts = {"dropped_late": output.dropped_late, "dropped_closed": output.dropped_closed}
    panes = output.panes
    if panes.height:
        results = panes.filter(~pl.col("retraction"))["timing"]
        for timing in ("EARLY", "ON_TIME", "LATE"):
            counts[timing.lower()] = int((results == timing).sum())
        counts["retractions"] = panes.height - results.len()
    return counts
