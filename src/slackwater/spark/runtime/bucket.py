"""One bucket in one micro-batch: buffers in, panes out. Knows nothing of Spark.

The order is that of the design: read the small state, hear everybody, take the rows, let the watermark
and the clock move, say what is to be emitted, and write the state back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import polars as pl

from slackwater.errors import AfterEnd, CorruptState
from slackwater.progress.saved_form import Saved, SavedForm
from slackwater.spark.monitor.reports import BucketReport, KeyReport
from slackwater.spark.runtime.blob_cache import NearbyBlobs
from slackwater.spark.runtime.hosts import Host, Taken
from slackwater.spark.runtime.numbered_progress import NumberedRules
from slackwater.spark.runtime.operator_inputs import (
    Heard,
    InputRules,
    Inputs,
    Judged,
    SavedInputs,
    UpstreamRules,
)
from slackwater.spark.runtime.source_progress import SourceRules
from slackwater.spark.wire.buffers import Rejects, Result, Shipment, Tick, in_order, read_header
from slackwater.spark.wire.map_side import TIME
from slackwater.spark.wire.numbered_chunks import fresh_rows, with_chunks
from slackwater.time import END_OF_TIME
from slackwater.windows import Folded
from slackwater.windows.engine.blobs import BlobStore


class Totals(Saved):
    """What a bucket has counted since the query began."""

    early: int = 0
    on_time: int = 0
    late: int = 0
    """Panes by their timing."""
    retractions: int = 0
    dropped_late: int = 0
    dropped_closed: int = 0
    dropped_duplicate: int = 0
    """Rows of numbered buffers that came again."""
    invalid: int = 0
    """Rows without a usable event time or header, of all buckets."""
    ahead: int = 0
    """Rows too far ahead of the clock to move the watermark, of all buckets."""
    duplicates: int = 0
    """Numbered buffers that came again, of all buckets."""


class SavedBucket(Saved):
    """The small state of a bucket: one value, read and written with every batch."""

    now: int
    run: int
    ended: bool
    inputs: SavedInputs
    operator: bytes
    totals: Totals
    near: dict[str, bytes]
    """Blobs of the operator that are small."""
    far: list[str]
    """The names of its others."""


FORM: Final = SavedForm("bucket", "B", 1, SavedBucket)


class BucketOutput(msgspec.Struct):
    """What a bucket does in one batch."""

    rows: pl.DataFrame | None
    header: Result
    report: BucketReport
    state: bytes


@dataclass(frozen=True)
class OperatorPlan:
    """What a bucket needs to know: how the watermarks are made, and the operator. Travels to the workers.

    ``now`` is set where the input is bounded: there is no clock then, and the input ends with the batch.
    """

    inputs: tuple[InputRules, ...]
    host: Host
    now: int | None = None

    def step(
        self,
        bucket: int,
        saved: bytes | None,
        store: BlobStore,
        buffers: Iterable[tuple[bytes, bytes | None]],
    ) -> BucketOutput:
        """Take the buffers of a batch, given the state that the last one left."""
        batch = _Batch.of(buffers, len(self.inputs))
        before = None if saved is None else FORM.decode(saved)
        now, run = self._clock(before, batch)
        blobs = NearbyBlobs(store) if before is None else NearbyBlobs(store, before.near, before.far)
        if before is None:
            inputs, state, totals = Inputs(self.inputs, now), self.host.initial_state(blobs), Totals()
        else:
            inputs = Inputs(self.inputs, before.now, before.inputs)
            state, totals = self.host.load(before.operator, blobs), before.totals
        restarted = before is not None and run != before.run
        judged = inputs.advance(batch.heard, now, restarted=restarted)
        taken = batch.taken(self.inputs, judged, now)
        if before is not None and before.ended and taken.fresh(self.inputs):
            raise AfterEnd
        totals.ahead += judged.ahead
        totals.invalid += taken.invalid
        totals.dropped_duplicate += taken.dropped
        totals.duplicates = inputs.duplicates
        ended = self.now is not None or batch.ends or (before is not None and before.ended)
        edges = [END_OF_TIME] * len(self.inputs) if ended else inputs.edges
        watermark = END_OF_TIME if ended else inputs.watermark
        state, output = self.host.step(state, taken.inputs, edges, watermark, now)
        for name, count in output.counts.items():
            setattr(totals, name, getattr(totals, name) + count)
        rows = output.rows + [self.host.invalid(rejects) for rejects in taken.rejects]
        operator = self.host.save(state)
        blobs.settle()
        why = inputs.why()
        report = BucketReport(
            bucket=bucket,
            now=now,
            watermark=watermark,
            why="the stream has ended" if ended else why.text,
            held_by=None if ended else why.held_by,
            since=None if ended else why.since,
            reason=why.reason.value,
            open_windows=output.open_windows,
            ended=ended,
            totals=msgspec.structs.asdict(totals),
            keys=() if ended else _keys(inputs),
        )
        return BucketOutput(
            rows=pl.concat(rows, how="diagonal_relaxed") if rows else None,
            header=Result(bucket, now, run, ended, inputs.idle and not ended, dict(output.watermarks)),
            report=report,
            state=FORM.encode(
                SavedBucket(now, run, ended, inputs.save(), operator, totals, blobs.near, sorted(blobs.far))
            ),
        )

    def _clock(self, before: SavedBucket | None, batch: _Batch) -> tuple[int, int]:
        known = [*batch.ticks, *([] if before is None else [before])]
        if known:
            # Where several clocks meet, the latest time and the latest start count.
            return max(one.now for one in known), max(one.run for one in known)
        if self.now is None:
            raise CorruptState("bucket", "it is missing, though the query has run before")
        return self.now, 0


def _keys(inputs: Inputs) -> tuple[KeyReport, ...]:
    """How far each key is, where there are several."""
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
class _Taken:
    """What of a batch an operator gets."""

    inputs: list[Taken]
    rejects: list[pl.DataFrame]
    invalid: int
    dropped: int

    def fresh(self, rules: Sequence[InputRules]) -> bool:
        """Whether a source brought rows: what an operator sends after its end came of none."""
        return any(
            not isinstance(one, UpstreamRules)
            and (bool(taken.folded) or (taken.rows is not None and taken.rows.height > 0))
            for one, taken in zip(rules, self.inputs, strict=True)
        )


@dataclass(frozen=True)
class _Batch:
    """The buffers of a micro-batch, sorted out."""

    ticks: Sequence[Tick | Result]
    shipments: list[list[tuple[Shipment, bytes | None]]]
    rejects: list[list[tuple[Rejects, bytes]]]

    @property
    def ends(self) -> bool:
        return any(tick.end for tick in self.ticks)

    @property
    def heard(self) -> list[Heard]:
        return [
            Heard(
                [seen for shipment, _ in several for seen in shipment.observations],
                [result for shipment, _ in several for result in shipment.results],
                [chunk for shipment, _ in several for chunk in shipment.chunks],
            )
            for several in self.shipments
        ]

    @classmethod
    def of(cls, buffers: Iterable[tuple[bytes, bytes | None]], inputs: int) -> _Batch:
        ticks: list[Tick | Result] = []
        shipments: list[list[tuple[Shipment, bytes | None]]] = [[] for _ in range(inputs)]
        rejects: list[list[tuple[Rejects, bytes]]] = [[] for _ in range(inputs)]
        for data, payload in buffers:
            match read_header(data):
                case Tick() as tick:
                    ticks.append(tick)
                case Shipment() as shipment:
                    shipments[shipment.input].append((shipment, payload))
                    ticks += shipment.results
                case Rejects() as header if payload is not None:
                    rejects[header.input].append((header, payload))
        return cls(ticks, shipments, rejects)

    def taken(self, inputs: Sequence[InputRules], judged: Judged, now: int) -> _Taken:
        """The rows of each input, and those without a usable time, given what was found of the batch."""
        several: list[Taken] = []
        rejects: list[pl.DataFrame] = []
        invalid = dropped = 0
        for place, rules in enumerate(inputs):
            headers = [shipment for shipment, _ in self.shipments[place]]
            invalid += sum(header.invalid for header in headers)
            if isinstance(rules, NumberedRules):
                again = judged.repeated[place]
                chunks = [chunk for header in headers for chunk in header.chunks]
                invalid += sum(chunk.invalid for chunk in chunks if chunk.number not in again)
                frame, out = fresh_rows(with_chunks(self.shipments[place], headers), again)
                taken = Taken(frame)
                rejected, _ = fresh_rows(with_chunks(self.rejects[place], headers), again)
                rejects += [] if rejected is None else [rejected]
                dropped += out
            else:
                taken = _taken(self.shipments[place])
                rejects += [frame for _, frame in in_order(self.rejects[place])]
            if taken.rows is not None and isinstance(rules, SourceRules) and rules.arrival:
                taken = Taken(taken.rows.with_columns(pl.lit(now, pl.Int64).alias(TIME)))
            several.append(taken)
        return _Taken(several, rejects, invalid, dropped)


def _taken(shipments: list[tuple[Shipment, bytes | None]]) -> Taken:
    parts = in_order([(shipment, payload) for shipment, payload in shipments if payload is not None])
    folded = [Folded(frame, header.kinds) for header, frame in parts if header.kinds is not None]
    frames = [frame for header, frame in parts if header.kinds is None]
    return Taken(pl.concat(frames, how="vertical_relaxed") if frames else None, folded)
