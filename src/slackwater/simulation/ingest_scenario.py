"""An hourly job that two hosts start again and again: its plan, its ledger, its lease and its target.

The source is a table whose rows appear with a delay within the grace period. The target is a folder of
Parquet files, a table, a stream or a Delta table. In the end it has every row of the source once. A high
watermark is never recorded, and no stream claims to be complete, before the rows below are in the target.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from slackwater.errors import SlackwaterError
from slackwater.ingest.job_errors import AlreadyRunning, RunReplaced
from slackwater.ingest.jobfile.job import parse_job
from slackwater.ingest.plan.plan_completeness import PlanCompleteness
from slackwater.ingest.plan.planner import Plan, WorkUnit
from slackwater.ingest.runner import Approve, run_job
from slackwater.ingest.sources.extracted_rows import RowPartitions, Rows
from slackwater.ingest.targets.replacement import ReplacingTarget, Slice, Target, Written
from slackwater.ingest.targets.stream_target import StreamTarget
from slackwater.simulation.ingest_copies import (
    NAME,
    SCHEMA,
    Copy,
    DeltaCopy,
    FolderCopy,
    StreamCopy,
    TableCopy,
)
from slackwater.simulation.scheduler import Task
from slackwater.simulation.world import START, World
from slackwater.time import HOUR, MINUTE, SECOND

_GRACE: Final = HOUR
_LONGEST_DELAY: Final = 30 * MINUTE
_DELTA_SHARE: Final = 0.1
"""Of the seeds: a commit to Delta takes as long as many seeds need for everything."""
_STREAM_SHARE: Final = 0.3
_CLOCK_ERROR: Final = 20 * SECOND
"""Largest clock error of a host; a clock that is hours ahead plans times whose rows do not exist yet."""
_JOB: Final = {
    "ms.job.name": NAME,
    "ms.watermark": [{"name": "system", "type": "datetime", "range": {"from": "2030-01-01", "to": "-"}}],
    "ms.work.unit.partition": "hourly",
    "ms.grace.period": "PT1H",
    "ms.time.column": "at",
    "ms.run.concurrency": 2,
}


class LocalFrame:
    """Runs the function of a task in this process."""

    def mapInArrow(  # noqa: N802 - Spark's name
        self, work: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], _: str
    ) -> LocalFrame:
        """Remember the function."""
        self._work = work
        return self

    def collect(self) -> list[tuple[Any, ...]]:
        """Run the function for the only partition."""
        numbers = iter([pa.record_batch({"id": pa.array([0], pa.int64())})])
        return [tuple(row.values()) for batch in self._work(numbers) for row in batch.to_pylist()]


class LocalSession:
    """The one function of a Spark session that staging calls."""

    def range(self, *_: int) -> LocalFrame:
        """A frame with one partition."""
        return LocalFrame()


@dataclass(frozen=True)
class SourceRow:
    """A row of the source: it can be read from ``appears_at`` on."""

    id: int
    at: int
    appears_at: int


@dataclass
class IngestScenario:
    """One job with its source, its target and the hosts that run it.

    Args:
        world: The world.
        minutes: Two simulated hours of faults for each.
    """

    world: World
    minutes: int = 5
    rows: list[SourceRow] = field(default_factory=list)
    written: dict[int, int] = field(default_factory=dict)
    """When each slice of one minute was read for the version that is in the target."""
    swapping: dict[Task, tuple[int, int, int]] = field(default_factory=dict)
    """The bounds of the slice that each task is about to replace, and when it was read."""

    def run(self) -> None:
        """Run the hosts with faults, then without, and compare the target with the source."""
        world, random = self.world, self.world.random
        self.end = START + self.minutes * 2 * HOUR
        for number in range(random.randint(5, 60)):
            at = random.randrange(START, self.end)
            self.rows.append(SourceRow(number, at, at + random.randrange(_LONGEST_DELAY)))
        self.job = parse_job(_JOB)
        self._database = sqlite3.connect(world.server.path, check_same_thread=False)
        self.copy = self._chosen_copy()
        world.committed = self._check
        world.largest_clock_error = _CLOCK_ERROR
        try:
            for number in range(2):
                world.start(f"host-{number}", self._host)
            self.copy.start()
            world.begin_faults(rarer=10)
            world.run_for(self.end - START, poll=HOUR)
            world.heal()
            if not world.run_for(12 * HOUR, until=self._has_arrived, poll=10 * MINUTE):
                self._explain_end()
        finally:
            self._database.close()

    # ---- the hosts

    def _host(self) -> None:
        world = self.world
        while True:
            # without faults only what the end needs, so that a seed is mostly faults
            world.sleep(MINUTE if world.is_faulty else HOUR, HOUR if world.is_faulty else 2 * HOUR)
            try:
                report = run_job(self.job, world.store(), _Extraction(self, self.copy.target()))
            except AlreadyRunning:
                world.tell("leaves the job to another host")
            except RunReplaced:
                world.tell("was replaced by another run")
            else:
                states = [outcome.state for outcome in report.outcomes]
                world.tell(f"runs {len(states)} units, {states.count('succeeded')} succeed")

    def _chosen_copy(self) -> Copy:
        draw = self.world.random.random()
        if draw < _DELTA_SHARE:
            return DeltaCopy(self.world)
        if draw < _DELTA_SHARE + _STREAM_SHARE:
            return StreamCopy(self.world, self._database)
        is_table = self.world.random.random() < 0.5
        return TableCopy(self.world, self._database) if is_table else FolderCopy(self.world)

    def visible(self, low: int, high: int) -> list[SourceRow]:
        """The rows of the source in a range, as they can be read now."""
        now = self.world.now
        return [row for row in self.rows if low <= row.at < high and row.appears_at <= now]

    # ---- the oracle

    def _check(self, changed: set[str]) -> None:
        if self.copy.has_changed(changed):
            # now, and not when the call returns: its process may stand still after the commit
            self.has_swapped()
            copied = self.copy.ids()
            if len(set(copied)) < len(copied):
                self.world.violate(f"the target has a row twice: {copied[:20]}")
            self._check_completeness()
        if "slackwater_high_watermarks" not in changed:
            return
        found = self._database.execute("SELECT start, high FROM slackwater_high_watermarks").fetchall()
        for start, high in found:
            for minute in range(start, high, MINUTE):
                if minute not in self.written:
                    self.world.violate(
                        f"the high watermark {high} was recorded, but {minute} was not written"
                    )
                    return

    def _check_completeness(self) -> None:
        until = self.copy.complete_until()
        missing = [minute for minute in range(START, until or START, MINUTE) if minute not in self.written]
        if missing:
            self.world.violate(f"the target claims to be complete before {until}, without {missing[0]}")

    def has_swapped(self) -> None:
        """The current task has replaced its slice, unless that is known already."""
        swapped = self.swapping.pop(self.world.scheduler.current, None)
        if swapped is not None:
            self.replaced(*swapped)

    def replaced(self, low: int, high: int, read_at: int) -> None:
        """A slice was replaced by rows that were read at a time."""
        for minute in range(low, high, MINUTE):
            if self.written.get(minute, read_at) > read_at:
                self.world.violate(f"rows of {minute} were replaced by older ones")
                return
            self.written[minute] = read_at

    def _has_arrived(self) -> bool:
        return self.world.now > self.end + _GRACE and self.copy.ids() == [row.id for row in self.rows]

    def _explain_end(self) -> None:
        copied = self.copy.ids()
        missing = sorted({row.id for row in self.rows} - set(copied))
        twice = sorted({one for one in copied if copied.count(one) > 1})
        self.world.violate(f"in the end {missing[:5]} are missing in the target, {twice[:5]} are there twice")


@dataclass(frozen=True)
class _Extraction:
    """Reads the source and replaces a slice of the target, as an extraction on Spark does."""

    scenario: IngestScenario
    target: Target

    def fence(self, token: int) -> None:
        """Set the fencing token of the run; the session of its writer fences a stream."""
        if isinstance(self.target, ReplacingTarget):
            self.target.fence(token)

    def last_number(self) -> int | None:
        """The number of the last commit to a stream; None for other targets."""
        return self.target.last_number() if isinstance(self.target, StreamTarget) else None

    def expect(self, made: Plan) -> None:
        """Receive the plan, from which the target knows up to when it is complete."""
        if isinstance(self.target, StreamTarget | ReplacingTarget):
            self.target.expect(PlanCompleteness(made))

    def __call__(self, work: WorkUnit, approve: Approve, /) -> Written:
        world = self.scenario.world
        world.point("read the source")
        if world.is_faulty and world.random.random() < 0.03:
            world.faults["failed read"] += 1
            raise SlackwaterError("the source does not answer")
        read_at = world.now
        found = self.scenario.visible(work.low, work.high)
        world.point("extract")
        columns = [[row.id for row in found], [row.at for row in found]]
        arrays = [pa.array(values, one.type) for values, one in zip(columns, SCHEMA, strict=True)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
        session: Any = LocalSession()
        partitions = RowPartitions(1, SCHEMA, lambda _: iter([batch]))
        rows = Rows.of_partitions(session, partitions)
        slice_ = Slice(work.unit, work.start, work.low, work.high)
        self.scenario.swapping[world.scheduler.current] = (work.low, work.high, read_at)
        written = self.target.replace(rows, slice_, approve)
        self.scenario.has_swapped()
        return written
