"""The map side of an operator: it turns rows into buffers and sends observed event times to every bucket.

Runs in `mapInArrow`, before any filter of the operator. Each task sends the highest event times of its
origins to *every* bucket, whether or not the bucket gets rows. So all buckets of a query have the same
watermark, and no bucket waits for one of its own keys. If producers number their buffers, the headers of the
buffers are sent instead of event times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec
import polars as pl
import pyarrow as pa
from polars import selectors
from pyspark import TaskContext

from slackwater._utf8 import replace_invalid_bytes, unreadable_rows
from slackwater.progress.values import DEFAULT_KEY, Origin
from slackwater.spark.runtime.delay_reports import binned, observed_delays
from slackwater.spark.runtime.worker_gc import freeze_imports
from slackwater.spark.wire.buffers import (
    Failures,
    Header,
    InvalidRows,
    Observation,
    OriginChunk,
    OriginDelays,
    Peak,
    Rejects,
    Result,
    Shipment,
    buffer_batch,
    pack,
    read_result,
)
from slackwater.spark.wire.numbered_chunks import CHUNK_INDEX, INPUT_ROW, ROW, SEQUENCE, extract_chunks
from slackwater.spark.wire.wire_columns import (
    BUCKET_INDEX,
    CONTROL,
    FAILED_ROW,
    FAILURE,
    FALLBACKS,
    INVALID_REASON,
    ORIGIN,
    RECORD_POSITION,
    TIME,
    UNREADABLE,
    WITNESS,
    column_alias,
)
from slackwater.time import SECOND
from slackwater.windows import Folded
from slackwater.windows.assigners import LONGEST
from slackwater.windows.engine.dropped_samples import SAMPLED_ROWS

FURTHEST: Final = 2**62
"""Event times further from 1970 than this (146,000 years) are invalid."""

_ROWS_AT_ONCE: Final = 1_000_000
_ROWS_IN_TURNS: Final = 100_000
"""A task works on so many rows at a time, while the JVM converts the next ones."""
_BYTES_AT_ONCE: Final = 128 * 1024 * 1024
_PEAKS: Final = 100
_INVALID_GAP: Final = "the session gap is null, not positive or too long"
_INVALID_TEXT: Final = "a text is not UTF-8"
_NO_WINDOW: Final = "its calendar window is outside of the years 1 to 9999"

_COUNT: Final = "invalid:count"


class Folding(Protocol):
    """How an operator folds rows before they are sent."""

    def fold(self, rows: pl.DataFrame, carried: Sequence[str]) -> Folded | None:
        """Fold rows into partials that keep the columns ``carried``; None if there would be too many."""

    def merge_folded(self, several: Sequence[Folded], carried: Sequence[str]) -> Folded:
        """Merge what `fold` returned for rows that arrived one after the other."""


@dataclass
class _Portion:
    """Rows of a task that are sent together, and what was folded of them while others arrived."""

    frames: list[pl.DataFrame] = field(default_factory=list)
    folded: list[Folded] = field(default_factory=list)
    """For the first frames, each on its own."""
    rows: int = 0
    size: int = 0
    """In bytes."""

    def add(self, frame: pl.DataFrame, folded: Folded | None, size: int) -> None:
        """Add rows that arrived, and what was folded of them."""
        self.frames.append(frame)
        self.folded += [] if folded is None else [folded]
        self.rows += frame.height
        self.size += size

    @property
    def is_folded(self) -> bool:
        """Whether all rows so far have been folded."""
        return len(self.folded) == len(self.frames)

    @property
    def frame(self) -> pl.DataFrame:
        """All rows."""
        if len(self.frames) == 1:
            return self.frames[0]
        frame = pl.concat(self.frames, how="diagonal")
        # Only frames with such rows have the column.
        return frame.with_columns(selectors.by_name(UNREADABLE, require_all=False).fill_null(value=False))

    @property
    def known_fold(self) -> Sequence[Folded] | None:
        """The folded rows; empty if they do not fold, None if it was not tried with all of them."""
        if self.is_folded:
            return self.folded
        return () if len(self.frames) == 1 and _is_plain(self.frames[0]) else None


@dataclass(frozen=True, slots=True)
class Shipper:
    """Turns the rows of a map task into buffers.

    ``columns`` are the names of the positional columns. ``origin`` is the name of the single origin, if the
    source has no origin column. ``times`` maps watermark keys to event-time columns; the one that drives the
    operator is `TIME`. With ``peaks`` an observation contains up to a hundred times, so that a bucket, which
    knows the clock, can skip those that are too far in the future.
    """

    buckets: tuple[int, ...]
    input: int
    columns: tuple[str, ...]
    origin: Origin | None
    peaks: bool
    emit_invalid: bool
    times: tuple[tuple[str, str], ...] = ((DEFAULT_KEY, TIME),)
    learned: tuple[str, ...] = ()
    """The watermark keys whose lag is learned: their observations contain the distribution of times."""
    kept: tuple[str, ...] = ()
    """The event-time columns, other than `TIME`, that the operator reads."""
    folding: Folding | None = None
    """Folds rows before they are sent, if the operator supports it."""
    sampled: tuple[str, ...] | None = None
    """The columns of the key that samples of invalid rows contain; None: they contain no values."""
    gap: str | None = None
    """The column with the session gap of each row, if there is one; a row must have a positive gap."""
    limits: tuple[int, int] | None = None
    """The first and the last event time that has a window; other rows are invalid."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The buffers of a task; none if it has no rows."""
        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        for part, portion in enumerate(self._portions(batches)):
            yield buffer_batch(self.buffers(portion.frame, task, part, portion.known_fold))
        freeze_imports()

    def _portions(self, batches: Iterable[pa.RecordBatch]) -> Iterator[_Portion]:
        """Combine the Arrow batches of a task, and fold rows while the JVM converts the next ones.

        The first rows decide. If they fold, a portion has about `_ROWS_AT_ONCE` rows or `_BYTES_AT_ONCE`,
        because rows become fewer partials the more of them are folded. Otherwise it has about
        `_ROWS_IN_TURNS` rows, or those of one Arrow batch.
        """
        names = {column_alias(index): name for index, name in enumerate(self.columns)}
        portion = _Portion()
        limit: int | None = None
        for several in _turns(batches):
            size = sum(batch.nbytes for batch in several)
            if portion.frames and portion.size + size > _BYTES_AT_ONCE:
                yield portion
                portion = _Portion()
            frame = _frame(several).rename(names)
            folded = self._folded_early(frame) if portion.is_folded else None
            if limit is None:
                all_at_once = folded is not None or not _is_plain(frame)
                limit = _ROWS_AT_ONCE if all_at_once else _ROWS_IN_TURNS
            portion.add(frame, folded, size)
            if portion.rows >= limit or portion.size >= _BYTES_AT_ONCE:
                yield portion
                portion = _Portion()
        if portion.frames:
            yield portion

    def _folded_early(self, frame: pl.DataFrame) -> Folded | None:
        """Those rows folded that `buffers` will send; None if they do not fold, or not without the others."""
        if self.folding is None or not _is_plain(frame):
            return None
        sent = self._sent(frame)
        return None if sent.is_empty() else self.folding.fold(sent, [BUCKET_INDEX])

    def _sent(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows that are sent to the operator as its input."""
        valid = self._valid(frame)
        if not frame.select(valid.all()).item():
            frame = frame.filter(valid)
        if self.kept:
            frame = frame.with_columns(pl.when(_usable(name)).then(name).alias(name) for name in self.kept)
        return _without_witnesses(frame)

    def _valid(self, frame: pl.DataFrame) -> pl.Expr:
        """Whether a row can be read and has a time, a gap and a window."""
        valid = _usable(TIME)
        if self.gap is not None:
            valid = valid & pl.col(self.gap).is_between(1, LONGEST).fill_null(value=False)
        if self.limits is not None:
            valid = valid & pl.col(TIME).is_between(*self.limits).fill_null(value=False)
        if UNREADABLE in frame.columns:
            valid = valid & ~pl.col(UNREADABLE)
        return valid

    def buffers(
        self, frame: pl.DataFrame, task: int, part: int, folded_early: Sequence[Folded] | None = None
    ) -> Iterator[tuple[int, Header, bytes | None]]:
        """The buffers of a frame: one per bucket, and more for rows without a usable time and failed rows.

        If its rows have been folded already, ``folded_early`` has the results in order; it is empty if they
        do not fold.
        """
        results: list[Result] = []
        is_source = CONTROL not in frame.columns
        if not is_source:
            control = frame[CONTROL]
            results = [read_result(data) for data in control.drop_nulls()]
            frame = frame.filter(control.is_null()).drop(CONTROL)
            if "window_start" in self.columns:
                # The pane of a global window has the timestamp END_OF_TIME, and must stay in its window.
                frame = frame.with_columns(pl.col(TIME).clip(-FURTHEST, FURTHEST))
        fallbacks = 0
        if FALLBACKS in frame.columns:
            fallbacks = int(frame[FALLBACKS].sum())
            frame = frame.drop(FALLBACKS)
        usable = self._valid(frame)
        chunks: list[OriginChunk] = []
        if SEQUENCE in frame.columns:
            frame, chunks = extract_chunks(frame, usable | _is_witness(frame))
            usable = usable & pl.col(CHUNK_INDEX).is_not_null()
        seen = frame.filter(~pl.col(UNREADABLE)) if UNREADABLE in frame.columns else frame
        observations = self.observations(seen) if is_source else []
        delays = self._delays(seen) if is_source else []
        if unread := [column for _, column in self.times if column not in (TIME, *self.kept)]:
            frame = frame.drop(unread)
        if self.kept:
            frame = frame.with_columns(pl.when(_usable(name)).then(name).alias(name) for name in self.kept)
        failed = _failed(frame)
        if FAILURE in frame.columns:
            frame = frame.drop(FAILURE, FAILED_ROW)
        rejects = frame.filter(~usable)
        invalid_rows: list[InvalidRows] = []
        if rejects.height:
            frame, rejects = frame.filter(usable), _without_witnesses(rejects)
            invalid_rows = self._invalid_rows(rejects)
        frame = _without_witnesses(frame)
        if INVALID_REASON in frame.columns:
            frame = frame.drop(INVALID_REASON, *RECORD_POSITION, strict=False)
            rejects = rejects.with_columns(pl.col(INVALID_REASON).fill_null(self._unstated_reason(rejects)))
        if UNREADABLE in frame.columns:
            frame, rejects = frame.drop(UNREADABLE), rejects.drop(UNREADABLE)
        # Invalid rows of a numbered chunk are counted in the chunk, because it may be a repeated one.
        invalid = rejects.height - sum(chunk.invalid for chunk in chunks)
        header = Shipment(self.input, task, part, observations, results, invalid, chunks, fallbacks=fallbacks)
        # Fold before splitting into buckets: splitting partials is cheaper than splitting rows.
        folded: Folded | None = None
        if self.folding is not None and folded_early:
            folded = self.folding.merge_folded(folded_early, [BUCKET_INDEX])
        elif self.folding is not None and folded_early is None and not frame.is_empty():
            folded = self.folding.fold(frame, [BUCKET_INDEX])
        if folded is not None:
            header, frame = msgspec.structs.replace(header, kinds=dict(folded.kinds)), folded.partials
        parts = _by_bucket(frame)
        for index, bucket in enumerate(self.buckets):
            mine = header
            if index == 0 and (delays or invalid_rows):
                mine = msgspec.structs.replace(header, delays=delays, invalid_rows=invalid_rows)
            yield bucket, mine, pack(parts[index]) if index in parts else None
        if self.emit_invalid and rejects.height:
            for index, rows in _by_bucket(rejects).items():
                yield self.buckets[index], Rejects(self.input, task, part), pack(rows)
        if failed is not None:
            for index, rows in _by_bucket(failed).items():
                yield self.buckets[index], Failures(self.input, task, part), pack(rows)

    def _invalid_rows(self, rejects: pl.DataFrame) -> list[InvalidRows]:
        """A sample of rows without a usable event time: one of each origin, for at most ten origins."""
        has_origin = ORIGIN in rejects.columns
        count = pl.len().over(ORIGIN) if has_origin else pl.len()
        found = rejects.with_columns(count.alias(_COUNT))
        found = found.unique(ORIGIN, keep="first", maintain_order=True) if has_origin else found.head(1)
        return [
            InvalidRows(
                row[ORIGIN] if has_origin else self.origin,
                row[_COUNT],
                row[TIME],
                None if self.sampled is None else {name: str(row[name]) for name in self.sampled},
            )
            for row in found.head(SAMPLED_ROWS).iter_rows(named=True)
        ]

    def _unstated_reason(self, rejects: pl.DataFrame) -> pl.Expr:
        """Why records are invalid if their source did not find a reason."""
        reason = pl.lit(_INVALID_GAP if self.gap is not None else _NO_WINDOW)
        if UNREADABLE in rejects.columns:
            return pl.when(UNREADABLE).then(pl.lit(_INVALID_TEXT)).otherwise(reason)
        return reason

    def _delays(self, frame: pl.DataFrame) -> list[OriginDelays]:
        """The delays of the rows by origin, for reports."""
        if self.origin is None and ORIGIN not in frame.columns:
            return []
        named = [] if self.origin is not None else [ORIGIN]
        return observed_delays(frame.select(TIME, *named).filter(_usable(TIME)), self.origin)

    def observations(self, frame: pl.DataFrame) -> list[Observation]:
        """The highest event times of each origin and watermark key."""
        return [seen for key, column in self.times for seen in self._observed(frame, key, column)]

    def _observed(self, frame: pl.DataFrame, key: str, column: str) -> list[Observation]:
        named = [] if self.origin is not None else [ORIGIN]
        frame = frame.select(column, *named).filter(_usable(column))
        if frame.is_empty():
            return []
        observations = self._peaks(frame, key, column)
        if key in self.learned:
            whole: dict[tuple[object, ...], pl.DataFrame] = {(self.origin,): frame}
            parts = whole if self.origin is not None else frame.partition_by(ORIGIN, as_dict=True)
            for seen in observations:
                seen.bins, seen.rows = binned(parts[seen.origin,][column], seen.peaks[0].time)
        return observations

    def _peaks(self, frame: pl.DataFrame, key: str, column: str) -> list[Observation]:
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


def _turns(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Combine small Arrow batches to about `_ROWS_IN_TURNS` rows or `_BYTES_AT_ONCE`."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
        if rows >= _ROWS_IN_TURNS or size >= _BYTES_AT_ONCE:
            yield waiting
            waiting, rows, size = [], 0, 0
    if waiting:
        yield waiting


def _is_plain(frame: pl.DataFrame) -> bool:
    """Whether rows can be folded before the others of their task are known: no results, no chunks."""
    return CONTROL not in frame.columns and SEQUENCE not in frame.columns


def _frame(batches: list[pa.RecordBatch]) -> pl.DataFrame:
    unreadable = [unreadable_rows(batch) for batch in batches]
    if any(unreadable):
        batches = [_marked(batch, rows) for batch, rows in zip(batches, unreadable, strict=True)]
    frame = pl.DataFrame(pa.Table.from_batches(batches))
    # Spark uses the session's time zone; the state must not depend on it.
    return frame.with_columns(selectors.datetime(time_zone="*").dt.convert_time_zone("UTC"))


def _marked(batch: pa.RecordBatch, unreadable: list[int]) -> pa.RecordBatch:
    """The rows with a column that marks those with text that is not UTF-8."""
    marks = [False] * batch.num_rows
    for row in unreadable:
        marks[row] = True
    return replace_invalid_bytes(batch).append_column(UNREADABLE, pa.array(marks, pa.bool_()))


def _is_witness(frame: pl.DataFrame) -> pl.Expr:
    return pl.col(WITNESS) if WITNESS in frame.columns else pl.lit(value=False)


def _failed(frame: pl.DataFrame) -> pl.DataFrame | None:
    """The description of rows for which an async function failed; None if there are none."""
    if FAILURE not in frame.columns or frame[FAILURE].null_count() == frame.height:
        return None
    numbers = [name for name in (CHUNK_INDEX, ROW, INPUT_ROW) if name in frame.columns]
    failed = frame.filter(pl.col(FAILURE).is_not_null())
    return failed.select(BUCKET_INDEX, FAILURE, FAILED_ROW, *numbers)


def _without_witnesses(frame: pl.DataFrame) -> pl.DataFrame:
    """Drop witness rows after their event time has been observed."""
    return frame.filter(~pl.col(WITNESS)).drop(WITNESS) if WITNESS in frame.columns else frame


def _by_bucket(frame: pl.DataFrame) -> dict[int, pl.DataFrame]:
    """Split rows by bucket index, and drop the columns that are sent in headers."""
    if frame.is_empty():
        return {}
    if ORIGIN in frame.columns:
        frame = frame.drop(ORIGIN)
    split = frame.partition_by(BUCKET_INDEX, as_dict=True, include_key=False)
    return {int(index): part for (index,), part in split.items()}
