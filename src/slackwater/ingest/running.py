"""Running a plan: units side by side, each with an outcome of its own, and a report at the end.

What reads and writes a unit is given, so nothing here knows of Spark. A unit that fails does not stop the
others; one that is not recorded, because the process died, is simply planned again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final, Protocol

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from slackwater.errors import SlackwaterError
from slackwater.ingest.errors import RunReplaced, TooFewRecords
from slackwater.ingest.job import Job
from slackwater.ingest.planner import Plan, WorkUnit, plan
from slackwater.ingest.runs import JobLease, Outcome, Run, failed_units
from slackwater.ingest.state import read_history
from slackwater.metadata.store import MetadataStore
from slackwater.time import SECOND
from slackwater.time import now as wall_clock

_LONGEST_ERROR: Final = 2000


class Amount(Protocol):
    """What a unit wrote."""

    @property
    def rows(self) -> int:
        """How many records."""

    @property
    def bytes(self) -> int:
        """How large."""

    @property
    def highest(self) -> int | None:
        """The highest value of the watermark column."""


Extract = Callable[[WorkUnit, Callable[[Amount], None]], Amount]
"""Reads and writes a unit; asks before it changes the target, and an error then leaves it as it is."""


class Watcher:
    """Hears what happens in a run; this one does nothing with it."""

    def planned(self, made: Plan) -> None:
        """The plan is made."""

    def started(self, number: int, work: WorkUnit) -> None:
        """A unit begins."""

    def ended(self, number: int, work: WorkUnit, outcome: Outcome) -> None:
        """A unit has an outcome, which is on record."""


@dataclass(frozen=True)
class Report:
    """What a run did: its plan, and an outcome for each of its units."""

    run: str
    plan: Plan
    outcomes: tuple[Outcome, ...]

    @property
    def succeeded(self) -> bool:
        """Whether all units did."""
        return all(outcome.state == "succeeded" for outcome in self.outcomes)


def run_job(
    job: Job,
    store: MetadataStore,
    extract: Extract,
    *,
    now: int | None = None,
    only_failed: bool = False,
    max_units: int | None = None,
    watcher: Watcher | None = None,
    clock: Callable[[], int] = wall_clock,
) -> Report:
    """Plan a job after its history in ``store`` and run the plan; refused while another run is under way.

    ``only_failed`` leaves out all units but those whose newest outcome is a failure, ``max_units`` all but
    the first so many.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.ingest.job import parse_job
    >>> from slackwater.metadata.store import open_store
    >>> @dataclass
    ... class Read:
    ...     rows: int = 3
    ...     bytes: int = 120
    ...     highest: int | None = None
    >>> def extract(work, approve):
    ...     approve(Read())
    ...     return Read()
    >>> with TemporaryDirectory() as folder, open_store(f"sqlite:///{folder}/store.db") as store:
    ...     report = run_job(parse_job({}), store, extract)
    >>> [(outcome.state, outcome.rows) for outcome in report.outcomes]
    [('succeeded', 3)]
    """
    name, watermark = job.settings.name, job.settings.axis.name
    hears = watcher or Watcher()
    with JobLease(store, name, clock=clock) as lease:
        history = store.read(lambda connection: read_history(connection, name, watermark))
        made = plan(job, history, clock() if now is None else now)
        if only_failed:
            failed = failed_units(store, name, watermark)
            made = replace(made, units=[work for work in made.units if (work.start, work.unit.key) in failed])
        if max_units is not None:
            made = replace(made, units=made.units[:max_units])
        hears.planned(made)
        run = Run(store, lease, watermark, clock=clock)
        one = _Unit(job, run, extract, hears, clock, made.pacing, time.monotonic())
        with ThreadPoolExecutor(job.settings.run_concurrency) as pool:
            outcomes = tuple(pool.map(one, range(len(made.units)), made.units))
        report = Report(run.id, made, outcomes)
        run.end("succeeded" if report.succeeded else "failed")
    return report


@dataclass(frozen=True)
class _Unit:
    """Runs one unit, from its turn to its record."""

    job: Job
    run: Run
    extract: Extract
    watcher: Watcher
    clock: Callable[[], int]
    pacing: int
    began: float

    def __call__(self, number: int, work: WorkUnit) -> Outcome:
        time.sleep(max(0.0, self.began + number * self.pacing / SECOND - time.monotonic()))
        self.watcher.started(number, work)
        started = self.clock()
        place = (number, work.start, work.unit.key, work.low, work.high)
        try:
            amount = self.extract(work, self._approve)
        except RunReplaced:
            raise
        except Exception as error:  # whatever it was, the other units go on
            text = self._told(error)
            outcome = Outcome(*place, "failed", 0, 0, started, self.clock(), text)
            self.run.record(work, outcome)
        else:
            outcome = Outcome(*place, "succeeded", amount.rows, amount.bytes, started, self.clock())
            self.run.record(work, outcome, self._high(work, amount))
        self.watcher.ended(number, work, outcome)
        return outcome

    def _approve(self, amount: Amount) -> None:
        wanted = self.job.settings.min_records
        if amount.rows < wanted:
            raise TooFewRecords(amount.rows, wanted)
        self.run.check()

    def _high(self, work: WorkUnit, amount: Amount) -> int:
        """The end; where the data says how far it goes, that, but no further than the end."""
        if self.job.settings.watermark_column is None:
            return work.high
        return work.low if amount.highest is None else min(work.high, amount.highest)

    def _told(self, error: Exception) -> str:
        """An error without secrets: what it says, or the last line of what another process said."""
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        remote = [line for line in lines if "Error: " in line or line.startswith("slackwater.")]
        text = str(error) if isinstance(error, SlackwaterError) else (remote[-1:] or lines or [""])[0]
        for url in (self.job.settings.source_url, self.job.settings.target_url):
            for secret in () if url is None else (url.get_secret_value(), _password(url.get_secret_value())):
                text = text.replace(secret, "…") if secret else text
        return self.job.secrets.mask(f"{type(error).__name__}: {text}"[:_LONGEST_ERROR])


def _password(url: str) -> str | None:
    try:
        return make_url(url).password
    except (ArgumentError, ValueError):
        return None
