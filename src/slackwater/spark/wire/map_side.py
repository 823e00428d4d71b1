"""The map side: rows become buffers, and what the rows say about time goes to every bucket.

Runs in `mapInArrow`, before any filter of the operator. Each task tells *every* bucket the highest event
times of the origins it saw, whether or not the bucket gets rows: all buckets of a query know the same
watermark, and none waits for a key of its own. Where producers numbered their buffers, the headers of
these are told instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import polars as pl
import pyarrow as pa
from polars import selectors
from pyspark import TaskContext

from slackwater.progress.values import DEFAULT_KEY, Origin
from slackwater.spark.runtime.worker_gc import spare_imports
from slackwater.spark.wire.buffers import (
    Chunk,
    Header,
    Observation,
    Peak,
    Rejects,
    Result,
    Shipment,
    buffer_batch,
    pack,
    read_result,
)
from slackwater.spark.wire.numbered_chunks import PLACE as CHUNK_PLACE
from slackwater.spark.wire.numbered_chunks import SEQUENCE, headed
from slackwater.time import SECOND
from slackwater.windows import Folded

TIME: Final = "event:time"
"""The event time in microseconds, null where there is none."""
ORIGIN: Final = "event:origin"
PLACE: Final = "event:bucket"
"""The place of the row's bucket in the list of buckets."""
CONTROL: Final = "event:control"
"""The header of a buffer of an operator that comes before, in a row of its own; null in rows of data."""
WITNESS: Final = "event:witness"
"""True in a row that only tells its time, because a step before has filtered what it held."""
FURTHEST: Final = 2**62
"""Event times further from 1970 than this (146,000 years) are taken for invalid."""

_ROWS_AT_ONCE: Final = 1_000_000
_PEAKS: Final = 100


Fold = Callable[[pl.DataFrame, Sequence[str]], Folded | None]
"""Folds rows into partials that keep some columns, or does not find it worthwhile."""


@dataclass(frozen=True, slots=True)
class Shipper:
    """Turns the rows of a map task into buffers.

    ``columns`` are the names of the numbered columns, ``origin`` is the name of a source that has no column
    of origins. ``times`` are the columns that tell an event time, by the watermark key of each; the one that
    drives the operator is `TIME`. With ``peaks`` an observation has up to a hundred times, so that whoever
    knows the clock can pass over those that lie too far ahead of it.
    """

    buckets: tuple[int, ...]
    input: int
    columns: tuple[str, ...]
    origin: Origin | None
    peaks: bool
    emit_invalid: bool
    times: tuple[tuple[str, str], ...] = ((DEFAULT_KEY, TIME),)
    fold: Fold | None = None
    """Folds rows before they are sent, where the operator can take them so and it is worth it."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The buffers of a task; none if it has no rows."""
        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        names = {numbered(place): name for place, name in enumerate(self.columns)}
        for part, frame in enumerate(_portions(batches)):
            yield buffer_batch(self.buffers(frame.rename(names), task, part))
        spare_imports()

    def buffers(
        self, frame: pl.DataFrame, task: int, part: int
    ) -> Iterator[tuple[int, Header, bytes | None]]:
        """The buffers of some rows: one for every bucket, and those with rows that have no usable time."""
        results: list[Result] = []
        is_source = CONTROL not in frame.columns
        if not is_source:
            control = frame[CONTROL]
            results = [read_result(data) for data in control.drop_nulls()]
            frame = frame.filter(control.is_null()).drop(CONTROL)
            if "window_start" in self.columns:
                # The pane of a global window lies at the end of time, and is to stay in that window.
                frame = frame.with_columns(pl.col(TIME).clip(-FURTHEST, FURTHEST))
        usable = _usable(TIME)
        chunks: list[Chunk] = []
        if SEQUENCE in frame.columns:
            frame, chunks = headed(frame, usable)
            usable = usable & pl.col(CHUNK_PLACE).is_not_null()
        observations = self.observations(frame) if is_source else []
        frame = frame.drop(column for _, column in self.times if column != TIME)
        rejects = frame.filter(~usable)
        if rejects.height:
            frame = frame.filter(usable)
        # Rows that belong to a numbered buffer are counted with it, because it may have come before.
        invalid = rejects.height - sum(chunk.invalid for chunk in chunks)
        header = Shipment(self.input, task, part, observations, results, invalid, chunks)
        frame, rejects = _elements(frame), _elements(rejects)
        # All at once, though buckets get their partials apart: a row costs more to be parted than a partial.
        folded = None if self.fold is None or frame.is_empty() else self.fold(frame, [PLACE])
        if folded is not None:
            header, frame = msgspec.structs.replace(header, kinds=dict(folded.kinds)), folded.partials
        parts = _by_place(frame)
        for place, bucket in enumerate(self.buckets):
            yield bucket, header, pack(parts[place]) if place in parts else None
        if self.emit_invalid and rejects.height:
            for place, rows in _by_place(rejects).items():
                yield self.buckets[place], Rejects(self.input, task, part), pack(rows)

    def observations(self, frame: pl.DataFrame) -> list[Observation]:
        """The highest event times of each origin, by key."""
        return [seen for key, column in self.times for seen in self._observed(frame, key, column)]

    def _observed(self, frame: pl.DataFrame, key: str, column: str) -> list[Observation]:
        named = [] if self.origin is not None else [ORIGIN]
        frame = frame.select(column, *named).filter(_usable(column))
        if frame.is_empty():
            return []
        time, rows = pl.col(column).max(), pl.len().alias("rows")
        if not self.peaks:
            if self.origin is not None:
                return [Observation(self.origin, [Peak(frame.select(time).item(), frame.height)], key)]
            highest = frame.group_by(ORIGIN).agg(time, rows).sort(ORIGIN)
            return [Observation(name, [Peak(at, count)], key) for name, at, count in highest.rows()]
        if self.origin is not None:
            frame = frame.with_columns(pl.lit(self.origin).alias(ORIGIN))
        seconds = frame.group_by(ORIGIN, (pl.col(column) // SECOND).alias("second")).agg(time, rows)
        ranked = seconds.sort(ORIGIN, column, descending=[False, True])
        observations: list[Observation] = []
        for (name,), mine in ranked.group_by(ORIGIN, maintain_order=True):
            peaks = [Peak(at, count) for at, count in mine.select(column, "rows").head(_PEAKS).rows()]
            rest = mine.slice(_PEAKS)
            if rest.height:
                peaks.append(Peak(rest[column][0], int(rest["rows"].sum())))
            observations.append(Observation(name, peaks, key))
        return observations


def _usable(column: str) -> pl.Expr:
    return pl.col(column).is_between(-FURTHEST, FURTHEST).fill_null(value=False)


def numbered(place: int) -> str:
    """What a column is called on its way into a map task, where Spark takes a dot in a name for a path.

    >>> numbered(2)
    'column:2'
    """
    return f"column:{place}"


def _portions(batches: Iterable[pa.RecordBatch]) -> Iterator[pl.DataFrame]:
    """The batches of a task in portions large enough to be worth the work, small enough for memory."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            rows += batch.num_rows
        if rows >= _ROWS_AT_ONCE:
            yield _frame(waiting)
            waiting, rows = [], 0
    if waiting:
        yield _frame(waiting)


def _frame(batches: list[pa.RecordBatch]) -> pl.DataFrame:
    frame = pl.DataFrame(pa.Table.from_batches(batches))
    # Spark names the zone of the session; state must not depend on it.
    return frame.with_columns(selectors.datetime(time_zone="*").dt.convert_time_zone("UTC"))


def _elements(frame: pl.DataFrame) -> pl.DataFrame:
    """The rows that hold something, once those that do not have told their time."""
    return frame.filter(~pl.col(WITNESS)).drop(WITNESS) if WITNESS in frame.columns else frame


def _by_place(frame: pl.DataFrame) -> dict[int, pl.DataFrame]:
    """The rows of every bucket that gets some, without the columns that are told in headers."""
    split = frame.drop(ORIGIN, strict=False).partition_by(PLACE, as_dict=True, include_key=False)
    return {int(place): part for (place,), part in split.items()}
