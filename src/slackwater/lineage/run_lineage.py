"""Lineage of ingestion: one OpenLineage run for each unit, with its range as nominal time."""

from __future__ import annotations

from slackwater.ingest.jobfile.job import Job
from slackwater.ingest.ledger.run_ledger import Outcome
from slackwater.ingest.plan.planner import Plan, WorkUnit
from slackwater.ingest.runner import Watcher
from slackwater.lineage.datasets import source_dataset, target_dataset
from slackwater.lineage.emitter import LineageEmitter, LineageRun, State, new_run_id
from slackwater.time import now

_STATES: dict[str, State] = {"succeeded": "COMPLETE", "failed": "FAIL", "interrupted": "ABORT"}


class RunLineage(Watcher):
    """Sends the events of a run: one run for the job, and below it one for each unit.

    Args:
        job: The job.
        emitter: Sends the events; None sends none.
    """

    def __init__(self, job: Job, emitter: LineageEmitter | None) -> None:
        self._job = job
        self._emitter = emitter
        self._run = LineageRun(job.settings.name, new_run_id())
        self._units: dict[int, LineageRun] = {}
        self._inputs, self._outputs = (source_dataset(job),), (target_dataset(job),)
        self._failed = 0

    def planned(self, made: Plan) -> None:
        """Start the run of the job, whose nominal time is the range of the plan."""
        self._run = LineageRun(self._run.job, self._run.id, made.start, made.end)
        self._emit("START", self._run, now())

    def started(self, number: int, work: WorkUnit) -> None:
        """Start the run of a unit."""
        name = f"{self._run.job}.{work.unit}" if str(work.unit) else f"{self._run.job}.unit"
        unit = LineageRun(self._job.secrets.mask(name), new_run_id(), work.low, work.high, self._run)
        self._units[number] = unit
        self._emit("START", unit, now())

    def ended(self, number: int, work: WorkUnit, outcome: Outcome) -> None:
        """End the run of a unit."""
        self._failed += outcome.state != "succeeded"
        rows = outcome.rows if outcome.state == "succeeded" else None
        state, unit = _STATES[outcome.state], self._units.pop(number)
        self._emit(state, unit, outcome.ended_at, rows=rows, size=outcome.bytes, error=outcome.error)

    def close(self, *, succeeded: bool) -> None:
        """End the run of the job, and send what is left."""
        error = None if succeeded else f"{self._failed} units were not read; see slackwater ingest history"
        state: State = "COMPLETE" if succeeded else "FAIL"
        self._emit(state, self._run, now(), error=error)
        if self._emitter is not None:
            self._emitter.close()

    def _emit(
        self,
        state: State,
        run: LineageRun,
        at: int,
        *,
        rows: int | None = None,
        size: int | None = None,
        error: str | None = None,
    ) -> None:
        if self._emitter is not None:
            self._emitter.emit(
                state,
                run,
                at=at,
                inputs=self._inputs,
                outputs=self._outputs,
                rows=rows,
                size=size,
                error=error,
            )


def lineage_of_run(job: Job) -> RunLineage:
    """The lineage of one run, by the transport that the environment configures; without one, nothing is sent.

    >>> from slackwater.ingest.jobfile.job import parse_job
    >>> lineage_of_run(parse_job({})).close(succeeded=True)
    """
    return RunLineage(job, LineageEmitter.from_environment())
