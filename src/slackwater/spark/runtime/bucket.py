"""The step of one bucket in one micro-batch: buffers in, panes out. Does not depend on Spark.

The order is: load the small state, apply the headers of all inputs, collect their rows, advance the watermark
and the clock, return what to emit, and save the state.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

import msgspec
import polars as pl

from slackwater._time_text import instant_text
from slackwater.errors import AfterEnd, CorruptState
from slackwater.monitoring.origins import OriginSummary
from slackwater.monitoring.query_state import LateRow
from slackwater.progress.delays import DelayHistogram
from slackwater.progress.saved_form import Saved, SavedForm
from slackwater.spark.monitor.reports import BucketReport, BufferReport, InputReport, KeyReport
from slackwater.spark.runtime.blob_cache import BlobCache
from slackwater.spark.runtime.delay_reports import reported_delays
from slackwater.spark.runtime.hosts import BatchInput, Host, HostOutput, OperatorBatch, StepCounts
from slackwater.spark.runtime.local_copies import LocalCopies, LocalCopy
from slackwater.spark.runtime.numbered_progress import NumberedRules
from slackwater.spark.runtime.operator_inputs import (
    AdvanceResult,
    InputRules,
    Inputs,
    ProgressHeaders,
    SavedInputs,
    UpstreamRules,
)
from slackwater.spark.runtime.source_progress import LONGEST_NAME, SourceRules
from slackwater.spark.runtime.window_reports import late_rows, shortened
from slackwater.spark.wire.buffers import (
    Failures,
    Rejects,
    Result,
    Shipment,
    Tick,
    read_header,
    unpack_in_order,
)
from slackwater.spark.wire.numbered_chunks import new_rows
from slackwater.spark.wire.wire_columns import FAILED_ROW, TIME
from slackwater.time import END_OF_TIME
from slackwater.windows import Folded
from slackwater.windows.engine.blobs import BlobStore
from slackwater.windows.engine.dropped_samples import SAMPLED_ROWS
from slackwater.windows.engine.pieces import Pieces, bounded_pieces
from slackwater.windows.spec.operator_spec import OperatorSpec


class Totals(StepCounts):
    """The counters of a bucket since the query was first started."""

    dropped_duplicate: int = 0
    """Rows of repeated numbered buffers, and duplicates that a deduplication dropped."""
    invalid: int = 0
    """Rows without a usable event time or header, over all buckets."""
    ahead: int = 0
    """Rows too far in the future to advance the watermark, over all buckets."""
    duplicates: int = 0
    """Repeated numbered buffers, over all buckets."""
    expired_keys: int = 0
    """Keys whose state was purged because of the ttl of a global window."""
    fallbacks: int = 0
    """Rows that got the result of a fallback of `map_async`, over all buckets."""
    failed: int = 0
    """Rows for which an async function failed with ``on_error="emit"`` or ``"skip"``."""

    def add(self, counts: StepCounts) -> None:
        """Add the counts of one step."""
        self.early += counts.early
        self.on_time += counts.on_time
        self.late += counts.late
        self.retractions += counts.retractions
        self.dropped_late += counts.dropped_late
        self.dropped_closed += counts.dropped_closed


class SavedBucket(Saved):
    """The small state of a bucket: one value that is read and written with every batch."""

    now: int
    run: int
    ended: bool
    inputs: SavedInputs
    operator: bytes
    totals: Totals
    cached: dict[str, bytes]
    """The blobs of the operator that are in the cache."""
    stored: list[str]
    """The names of its other blobs."""
    back: int = 0
    """By how much the clock was set back so far, in all."""
    copies: dict[str, LocalCopy] = msgspec.field(default_factory=dict)
    """The copies that an executor has of stored blobs, by the names of the blobs."""


FORM: Final = SavedForm("bucket", "B", 6, SavedBucket, readable=(1, 2, 3, 4, 5))


@dataclass(frozen=True)
class _Clock:
    """The time of a batch."""

    now: int
    run: int
    back: int = 0

    @property
    def steady(self) -> int:
        """The time for durations, which never goes back."""
        return self.now + self.back


class BucketOutput(msgspec.Struct):
    """What a bucket emits in one batch, and its new small state."""

    rows: pl.DataFrame | None
    """The output rows, or the last piece of them."""
    header: Result
    report: BucketReport
    state: bytes


@dataclass(frozen=True)
class OperatorPlan:
    """The configuration that buckets need: how the watermarks are made, and the operator.

    ``now`` is set for bounded input, which has no clock and ends with its only batch.
    """

    inputs: tuple[InputRules, ...]
    host: Host[OperatorSpec]
    now: int | None = None
    sides: tuple[int, ...] = ()
    """The index of each input's side, for a join or cogroup; otherwise empty: all inputs are one side."""
    names: tuple[str | None, ...] = ()
    """What reports call the inputs."""
    reporter: int | None = None
    """The bucket that reports the origins, which are the same in all; None if every bucket does."""
    sample_late: bool = False
    """Whether reports contain the keys of dropped rows."""

    def step(
        self,
        bucket: int,
        saved: bytes | None,
        store: BlobStore,
        buffers: Iterable[tuple[bytes, bytes | None]],
    ) -> BucketOutput:
        """Process the buffers of a batch, given the small state and the blobs that the last batch left."""
        emitted = Pieces(self.pieces(bucket, saved, store, buffers))
        rows = list(emitted)
        output = emitted.result
        if rows and output.rows is not None:
            output.rows = pl.concat([*rows, output.rows], how="diagonal_relaxed")
        return output

    def pieces(
        self,
        bucket: int,
        saved: bytes | None,
        store: BlobStore,
        buffers: Iterable[tuple[bytes, bytes | None]],
        copies: LocalCopies | None = None,
    ) -> Generator[pl.DataFrame, None, BucketOutput]:
        """Do the same as `step`, but yield the output rows in pieces, of which one is in memory at a time.

        With ``copies``, large blobs are read from files of this executor if possible.

        Yields:
            All pieces but the last.

        Returns:
            The output with the last piece.
        """
        batch = _Batch.of(buffers, len(self.inputs))
        before = None if saved is None else FORM.decode(saved)
        clock = self._clock(before, batch)
        now, run = clock.now, clock.run
        if before is None:
            blobs = BlobCache(store, copies=copies)
            inputs = Inputs(self.inputs, now, sides=self.sides, names=self.names)
            state, totals = self.host.initial_state(blobs), Totals()
        else:
            blobs = BlobCache(store, before.cached, before.stored, copies, before.copies)
            inputs = Inputs(self.inputs, before.now, before.inputs, sides=self.sides, names=self.names)
            state, totals = self.host.load(before.operator, blobs), before.totals
        watermark_before, fronts = inputs.watermark, inputs.fronts
        restarted = before is not None and run != before.run
        duplicates = inputs.duplicates
        set_back = 0 if before is None else clock.back - before.back
        found = inputs.advance(
            batch.headers, now, restarted=restarted, set_back=set_back, tables=batch.tables
        )
        data = batch.data(self.inputs, found, inputs.arrival_times(now))
        if before is not None and before.ended and data.has_source_rows(self.inputs):
            raise AfterEnd
        totals.ahead += found.ahead
        totals.fallbacks += batch.fallbacks
        totals.invalid += data.invalid
        totals.failed += sum(failed.height for _, failed in data.failures)
        totals.dropped_duplicate += data.dropped
        totals.duplicates += inputs.duplicates - duplicates
        ended = self.now is not None or batch.ends or (before is not None and before.ended)
        sides = data.by_side(self.sides)
        watermarks = [END_OF_TIME] * len(sides) if ended else inputs.side_watermarks
        watermark = END_OF_TIME if ended else inputs.watermark
        keys = [
            dict.fromkeys(side, END_OF_TIME)
            if ended
            else {key: at for key, at in side.items() if at is not None}
            for side in inputs.side_keys
        ]
        step = OperatorBatch(sides, watermarks, keys, inputs.idle_sides, watermark, clock.steady)
        emitted = Pieces(self.host.step(state, step))
        rejects = (
            self.host.invalid(rejected, self.sides[number] if self.sides else 0)
            for number, rejected in data.rejects
        )
        failures = (
            self.host.failed(failed, self.sides[number] if self.sides else 0)
            for number, failed in data.emitted_failures
        )
        rows: pl.DataFrame | None = None
        for piece in bounded_pieces(chain(emitted, rejects, failures)):
            if rows is not None:
                yield rows
            rows = piece
        state, output = emitted.result
        totals.add(output.counts)
        totals.dropped_duplicate += output.duplicates
        totals.expired_keys += output.expired_keys
        operator = self.host.save(state)
        blobs.evict()
        used = watermark if output.watermark is None else output.watermark
        why = replace(inputs.why(), watermark=used)
        is_idle = inputs.idle and not ended and output.waiting is None
        report = BucketReport(
            bucket=bucket,
            now=now,
            watermark=used,
            why="the stream has ended" if ended else why.text + _waiting(inputs, output),
            held_by=None if ended else why.held_by,
            since=None if ended else why.since,
            reason=why.reason.value,
            open_windows=output.open_windows,
            buffers={name: BufferReport(*size) for name, size in output.buffers.items()},
            ended=ended,
            totals=msgspec.structs.asdict(totals),
            keys=() if ended else _keys(inputs),
            inputs=() if ended else _by_input(inputs),
            waiting=output.waiting,
            origins=inputs.origins() if self.reporter in (None, bucket) else OriginSummary(),
            windows=output.windows,
            windows_left_out=output.windows_left_out,
            panes=output.panes,
            forwarded=dict(output.forwarded),
            delays=batch.delays(fronts),
            policy_lags=inputs.policy_lags if self.reporter in (None, bucket) else (),
            late_rows=(
                *late_rows(
                    output.dropped_sample, watermark_before, why.held_by, keeps_values=self.sample_late
                ),
                *batch.invalid_rows,
            ),
        )
        return BucketOutput(
            rows=rows,
            header=Result(bucket, now, run, ended, is_idle, dict(output.watermarks), clock.back),
            report=report,
            state=FORM.encode(
                SavedBucket(
                    now,
                    run,
                    ended,
                    inputs.save(),
                    operator,
                    totals,
                    blobs.cached,
                    sorted(blobs.stored),
                    clock.back,
                    blobs.copied,
                )
            ),
        )

    def _clock(self, before: SavedBucket | None, batch: _Batch) -> _Clock:
        known = [*batch.ticks, *([] if before is None else [before])]
        if known:
            # With several clocks, the latest time and the latest start of a run are used. A clock that was
            # set back is later than all of its times before that.
            latest = max(known, key=lambda one: (one.back, one.now))
            return _Clock(latest.now, max(one.run for one in known), latest.back)
        if self.now is None:
            raise CorruptState("bucket", "it is missing, although the query has run before")
        return _Clock(self.now, 0)


def _waiting(inputs: Inputs, output: HostOutput) -> str:
    """The window, or the rows of a join, that wait for idle inputs."""
    if not inputs.idle or output.waiting is None:
        return ""
    waits = f"the window that ends at {instant_text(output.waiting)} waits"
    if not output.open_windows:
        waits = "the rows of the join wait"
    return f"; {waits} for {', '.join(inputs.idle_names)}"


def _by_input(inputs: Inputs) -> tuple[InputReport, ...]:
    """The progress of each input, if there are several."""
    several = inputs.by_input()
    if len(several) < 2:
        return ()
    return tuple(
        InputReport(
            one.name, one.watermark, one.idle, one.why.text, one.why.held_by, one.why.since,
            one.why.reason.value,
        )
        for one in several
    )  # fmt: skip


def _keys(inputs: Inputs) -> tuple[KeyReport, ...]:
    """The progress of each watermark key, if there are several."""
    if len(inputs.watermarks) < 2:
        return ()
    reasons = {key: inputs.why(key) for key in inputs.watermarks}
    return tuple(
        KeyReport(
            key, at, reasons[key].text, reasons[key].held_by, reasons[key].since, reasons[key].reason.value
        )
        for key, at in inputs.watermarks.items()
    )


@dataclass(frozen=True)
class _BatchData:
    """The rows of a batch, decoded."""

    inputs: list[BatchInput]
    rejects: list[tuple[int, pl.DataFrame]]
    """Rows without a usable event time, with the number of their input."""
    failures: list[tuple[int, pl.DataFrame]]
    """Rows for which an async function failed, with the number of their input."""
    invalid: int
    dropped: int

    @property
    def emitted_failures(self) -> list[tuple[int, pl.DataFrame]]:
        """The failed rows that go to the output; those that are skipped have no description."""
        described = [
            (number, rows.filter(pl.col(FAILED_ROW).is_not_null())) for number, rows in self.failures
        ]
        return [(number, rows) for number, rows in described if rows.height]

    def by_side(self, sides: Sequence[int]) -> list[BatchInput]:
        """The data of each side of the operator."""
        if not sides:
            return [BatchInput.combined(self.inputs)]
        return [
            BatchInput.combined([data for data, of in zip(self.inputs, sides, strict=True) if of == side])
            for side in range(max(sides) + 1)
        ]

    def has_source_rows(self, rules: Sequence[InputRules]) -> bool:
        """Whether a source sent rows; an upstream operator may still emit panes when the stream ends."""
        return any(
            not isinstance(one, UpstreamRules)
            and (bool(data.folded) or (data.rows is not None and data.rows.height > 0))
            for one, data in zip(rules, self.inputs, strict=True)
        )


@dataclass(frozen=True)
class _Batch:
    """The buffers of a micro-batch by kind and input."""

    ticks: Sequence[Tick | Result]
    shipments: list[list[tuple[Shipment, bytes | None]]]
    rejects: list[list[tuple[Rejects, bytes | None]]]
    failures: list[list[tuple[Failures, bytes | None]]]

    @property
    def ends(self) -> bool:
        return any(tick.end for tick in self.ticks)

    @property
    def tables(self) -> dict[str, int]:
        """The times up to which tables are complete, from the clock."""
        ticks = [tick for tick in self.ticks if isinstance(tick, Tick)]
        return {table: at for tick in ticks for table, at in tick.tables.items()}

    @property
    def fallbacks(self) -> int:
        """How many rows of the map tasks got the result of a fallback."""
        return sum(shipment.fallbacks for several in self.shipments for shipment, _ in several)

    @property
    def headers(self) -> list[ProgressHeaders]:
        return [
            ProgressHeaders(
                [seen for shipment, _ in several for seen in shipment.observations],
                [result for shipment, _ in several for result in shipment.results],
                [chunk for shipment, _ in several for chunk in shipment.chunks],
            )
            for several in self.shipments
        ]

    def delays(self, fronts: Sequence[tuple[str | None, int | None]]) -> dict[str, DelayHistogram]:
        """The delays of the rows by origin, if this is the bucket that reports them."""
        return reported_delays(
            (name, [delays for shipment, _ in several for delays in shipment.delays], front)
            for several, (name, front) in zip(self.shipments, fronts, strict=True)
        )

    @property
    def invalid_rows(self) -> list[LateRow]:
        """A sample of the rows without a usable event time, if this is the bucket that reports them."""
        found = [
            rows for several in self.shipments for shipment, _ in several for rows in shipment.invalid_rows
        ]
        return [
            LateRow(
                "invalid",
                origin=None if one.origin is None else str(one.origin)[:LONGEST_NAME],
                event_time=one.time,
                rows=one.rows,
                values=None if one.key is None else shortened(one.key),
            )
            for one in found[:SAMPLED_ROWS]
        ]

    @classmethod
    def of(cls, buffers: Iterable[tuple[bytes, bytes | None]], inputs: int) -> _Batch:
        ticks: list[Tick | Result] = []
        shipments: list[list[tuple[Shipment, bytes | None]]] = [[] for _ in range(inputs)]
        rejects: list[list[tuple[Rejects, bytes | None]]] = [[] for _ in range(inputs)]
        failures: list[list[tuple[Failures, bytes | None]]] = [[] for _ in range(inputs)]
        for data, payload in buffers:
            match read_header(data):
                case Tick() as tick:
                    ticks.append(tick)
                case Shipment() as shipment:
                    shipments[shipment.input].append((shipment, payload))
                    ticks += shipment.results
                case Rejects() as header:
                    rejects[header.input].append((header, payload))
                case Failures() as header:
                    failures[header.input].append((header, payload))
        return cls(ticks, shipments, rejects, failures)

    def data(self, inputs: Sequence[InputRules], found: AdvanceResult, arrivals: Sequence[int]) -> _BatchData:
        """Decode the rows of each input, without those of repeated numbered buffers.

        ``arrivals`` has the event time of rows that have none of their own, for each input.
        """
        several: list[BatchInput] = []
        rejects: list[tuple[int, pl.DataFrame]] = []
        failures: list[tuple[int, pl.DataFrame]] = []
        invalid = dropped = 0
        for index, rules in enumerate(inputs):
            headers = [shipment for shipment, _ in self.shipments[index]]
            invalid += sum(header.invalid for header in headers)
            if isinstance(rules, NumberedRules):
                repeats = found.repeats[index]
                chunks = [chunk for header in headers for chunk in header.chunks]
                invalid += sum(chunk.invalid for chunk in chunks if chunk.number not in repeats.chunks)
                frame, repeated_rows = new_rows(self.shipments[index], headers, repeats)
                data = BatchInput(frame)
                rejected, _ = new_rows(self.rejects[index], headers, repeats)
                rejects += [] if rejected is None else [(index, rejected)]
                failed, _ = new_rows(self.failures[index], headers, repeats)
                failures += [] if failed is None else [(index, failed)]
                dropped += repeated_rows
            else:
                data = _batch_input(self.shipments[index])
                rejects += [(index, frame) for _, frame in unpack_in_order(self.rejects[index])]
                failures += [(index, frame) for _, frame in unpack_in_order(self.failures[index])]
            if data.rows is not None and isinstance(rules, SourceRules) and rules.arrival:
                data = BatchInput(data.rows.with_columns(pl.lit(arrivals[index], pl.Int64).alias(TIME)))
            several.append(data)
        return _BatchData(several, rejects, failures, invalid, dropped)


def _batch_input(shipments: list[tuple[Shipment, bytes | None]]) -> BatchInput:
    parts = unpack_in_order(shipments)
    folded = [Folded(frame, header.kinds) for header, frame in parts if header.kinds is not None]
    frames = [frame for header, frame in parts if header.kinds is None]
    return BatchInput(pl.concat(frames, how="vertical_relaxed") if frames else None, folded)
