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

from slackwater.errors import CorruptState
from slackwater.progress.saved import Saved, SavedForm
from slackwater.spark.buffers import Rejects, Result, Shipment, Tick, in_order, read_header
from slackwater.spark.hosts import Host, Taken
from slackwater.spark.inputs import Heard, InputRules, Inputs, SavedInputs
from slackwater.spark.reports import BucketReport
from slackwater.time import END_OF_TIME
from slackwater.windows import Folded
from slackwater.windows.blobs import BlobStore


class Totals(Saved):
    """What a bucket has counted since the query began."""

    early: int = 0
    on_time: int = 0
    late: int = 0
    """Panes by their timing."""
    retractions: int = 0
    dropped_late: int = 0
    dropped_closed: int = 0
    invalid: int = 0
    """Rows without a usable event time, of all buckets."""
    ahead: int = 0
    """Rows too far ahead of the clock to move the watermark, of all buckets."""


class SavedBucket(Saved):
    """The small state of a bucket: one value, read and written with every batch."""

    now: int
    run: int
    ended: bool
    inputs: SavedInputs
    operator: bytes
    totals: Totals


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
        blobs: BlobStore,
        buffers: Iterable[tuple[bytes, bytes | None]],
    ) -> BucketOutput:
        """Take the buffers of a batch, given the state that the last one left."""
        batch = _Batch.of(buffers, len(self.inputs))
        before = None if saved is None else FORM.unseal(saved)
        now, run = self._clock(before, batch)
        if before is None:
            inputs, state, totals = Inputs(self.inputs, now), self.host.initial_state(blobs), Totals()
        else:
            inputs = Inputs(self.inputs, before.now, before.inputs)
            state, totals = self.host.load(before.operator, blobs), before.totals
        restarted = before is not None and run != before.run
        totals.ahead += inputs.advance(batch.heard, now, restarted=restarted)
        totals.invalid += batch.invalid
        ended = self.now is not None or batch.ends or (before is not None and before.ended)
        edges = [END_OF_TIME] * len(self.inputs) if ended else inputs.edges
        watermark = END_OF_TIME if ended else inputs.watermark
        state, output = self.host.step(state, batch.taken, edges, watermark, now)
        for name, count in output.counts.items():
            setattr(totals, name, getattr(totals, name) + count)
        rows = output.rows + [self.host.invalid(rejects) for rejects in batch.rejects]
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
        )
        return BucketOutput(
            rows=pl.concat(rows, how="diagonal_relaxed") if rows else None,
            header=Result(bucket, now, run, ended, inputs.idle and not ended, dict(output.watermarks)),
            report=report,
            state=FORM.seal(SavedBucket(now, run, ended, inputs.save(), self.host.save(state), totals)),
        )

    def _clock(self, before: SavedBucket | None, batch: _Batch) -> tuple[int, int]:
        known = [*batch.ticks, *([] if before is None else [before])]
        if known:
            # Where several clocks meet, the latest time and the latest start count.
            return max(one.now for one in known), max(one.run for one in known)
        if self.now is None:
            raise CorruptState("bucket", "it is missing, though the query has run before")
        return self.now, 0


@dataclass(frozen=True)
class _Batch:
    """The buffers of a micro-batch, sorted out."""

    ticks: Sequence[Tick | Result]
    heard: list[Heard]
    taken: list[Taken]
    rejects: list[pl.DataFrame]
    invalid: int

    @property
    def ends(self) -> bool:
        return any(tick.end for tick in self.ticks)

    @classmethod
    def of(cls, buffers: Iterable[tuple[bytes, bytes | None]], inputs: int) -> _Batch:
        ticks: list[Tick | Result] = []
        shipments: list[list[tuple[Shipment, bytes | None]]] = [[] for _ in range(inputs)]
        rejects: list[tuple[Rejects, bytes]] = []
        for data, payload in buffers:
            match read_header(data):
                case Tick() as tick:
                    ticks.append(tick)
                case Shipment() as shipment:
                    shipments[shipment.input].append((shipment, payload))
                    ticks += shipment.results
                case Rejects() as header if payload is not None:
                    rejects.append((header, payload))
        return cls(
            ticks=ticks,
            heard=[
                Heard(
                    [seen for shipment, _ in several for seen in shipment.observations],
                    [result for shipment, _ in several for result in shipment.results],
                )
                for several in shipments
            ],
            taken=[_taken(several) for several in shipments],
            rejects=[frame for _, frame in in_order(rejects)],
            invalid=sum(shipment.invalid for several in shipments for shipment, _ in several),
        )


def _taken(shipments: list[tuple[Shipment, bytes | None]]) -> Taken:
    parts = in_order([(shipment, payload) for shipment, payload in shipments if payload is not None])
    folded = [Folded(frame, header.kinds) for header, frame in parts if header.kinds is not None]
    frames = [frame for header, frame in parts if header.kinds is None]
    return Taken(pl.concat(frames, how="vertical_relaxed") if frames else None, folded)
