"""Running a plan: units side by side, each with an outcome of its own, and a report at the end.

What reads and writes a unit is given, so nothing here knows of Spark. A unit that fails does not stop the
others; one that is not recorded, because the process died, is simply planned again.
"""

from __future__ import annotations

import base64
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Literal, Protocol, runtime_checkable
from urllib.parse import quote, quote_plus

from sqlalchemy.engine import Connection, make_url
from sqlalchemy.exc import ArgumentError

from slackwater.errors import SlackwaterError
from slackwater.ingest.job_errors import RunReplaced, TooFewRecords
from slackwater.ingest.jobfile.job import Job
from slackwater.ingest.jobfile.references import Secrets
from slackwater.ingest.ledger.intents import settle
from slackwater.ingest.ledger.progress_ledger import read_history
from slackwater.ingest.ledger.run_ledger import JobLease, Outcome, Run
from slackwater.ingest.plan.planner import Plan, WorkUnit, plan
from slackwater.metadata.store import MetadataStore
from slackwater.time import SECOND
from slackwater.time import now as wall_clock

_LONGEST_ERROR: Final = 2000
_HIDDEN: Final = ("password", "sslpassword", "passfile")
_IN_AN_ADDRESS: Final = re.compile(r"(?i)(?:password|pwd)=([^&;]+)")
_SHORTEST_SECRET: Final = 4
_FIELD: Final = re.compile(r"\{\{\s*(.+?)\s*\}\}")
_PARTS: Final = re.compile(r"=\"?([^;,\s\"]+)")
"""The values in a header such as a cookie."""
_TRACEBACK: Final = "Traceback (most recent call last):"
_JAVA_CAUSE: Final = re.compile(r"(?:Caused by)?: (.+)")
_NAMED: Final = re.compile(r"(?:[\w$]+\.)*([\w$]+)((?:: .*)?)", re.DOTALL)
_DETAILS: Final = ("DETAIL:", "Detail:")


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

    @property
    def drift(self) -> str | None:
        """How the columns that were read differ from those of the target; None if they do not."""

    @property
    def without_time(self) -> int | None:
        """Records that were read and left out because they have no time; None if nobody could see them."""


class Approve(Protocol):
    """Asked before the target is changed; an error then leaves it as it is."""

    def __call__(self, amount: Any, number: int | None = None) -> None:
        """May this be put in place? A target that cannot replace says under which number it appends."""


class Extract(Protocol):
    """Reads and writes a unit."""

    def __call__(self, work: WorkUnit, approve: Approve, /) -> Amount:
        """Read a unit's range and put it in place; asks before it changes the target."""


@runtime_checkable
class Appending(Protocol):
    """An extraction whose target may be one that cannot replace, and numbers its commits."""

    def last_number(self) -> int | None:
        """The number of the last commit; None if the target can replace."""

    def expect(self, made: Plan) -> None:
        """The plan is made: all of it, also what this run leaves out."""


class Watcher:
    """Hears what happens in a run; this one does nothing with it."""

    def planned(self, made: Plan) -> None:
        """The plan is made."""

    def started(self, number: int, work: WorkUnit) -> None:
        """A unit begins."""

    def ended(self, number: int, work: WorkUnit, outcome: Outcome) -> None:
        """A unit has an outcome, which is on record."""


class Stopped(SlackwaterError):
    """Somebody stopped the run before this unit was put in place."""

    def __init__(self) -> None:
        super().__init__("the run was stopped; run the job again to read it")


@dataclass(frozen=True)
class Report:
    """What a run did: its plan, and an outcome for each of its units that has begun."""

    run: str
    plan: Plan
    outcomes: tuple[Outcome, ...]

    @property
    def succeeded(self) -> bool:
        """Whether all units did."""
        return not self.not_begun and all(outcome.state == "succeeded" for outcome in self.outcomes)

    @property
    def not_begun(self) -> int:
        """How many units were not begun, because the run was stopped before."""
        return len(self.plan.units) - len(self.outcomes)


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
    stop: threading.Event | None = None,
) -> Report:
    """Plan a job after its history in ``store`` and run the plan; refused while another run is under way.

    ``only_failed`` leaves out all units but those whose last read failed, ``max_units`` all but
    the first so many. Once ``stop`` is set no unit begins, and none that runs is put in place.

    >>> from tempfile import TemporaryDirectory
    >>> from slackwater.ingest.jobfile.job import parse_job
    >>> from slackwater.metadata.store import open_store
    >>> @dataclass
    ... class Read:
    ...     rows: int = 3
    ...     bytes: int = 120
    ...     highest: int | None = None
    ...     drift: str | None = None
    ...     without_time: int | None = None
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
        _settle(store, lease, extract, watermark)
        history = store.read(lambda connection: read_history(connection, name, watermark))
        planned_at = clock() if now is None else now
        made = plan(job, history, planned_at)
        if isinstance(extract, Appending):
            extract.expect(made)
        if only_failed:
            made = plan(job, history, planned_at, only_failed=True)
        made = first_units(made, max_units)
        hears.planned(made)
        run = Run(store, lease, watermark, clock=clock)
        stopped = stop or threading.Event()
        one = _Unit(job, run, extract, hears, clock, made.pacing, time.monotonic(), stopped)
        with ThreadPoolExecutor(job.settings.run_concurrency) as pool:
            outcomes = list(pool.map(one, range(len(made.units)), made.units))
        report = Report(run.id, made, tuple(outcome for outcome in outcomes if outcome is not None))
        was_stopped = report.not_begun or any(outcome.state == "interrupted" for outcome in report.outcomes)
        run.end("interrupted" if was_stopped else "succeeded" if report.succeeded else "failed")
    return report


def first_units(made: Plan, most: int | None) -> Plan:
    """A plan with at most the first ``most`` units; None keeps all of them.

    >>> from slackwater.ingest.units import WHOLE
    >>> units = [WorkUnit(0, 10, WHOLE, 0), WorkUnit(10, 20, WHOLE, 10)]
    >>> made = Plan("orders", "system", 20, 0, 20, units, [], (), None)
    >>> [work.start for work in first_units(made, 1).units]
    [0]
    """
    return replace(made, units=made.units[:most])


def _settle(store: MetadataStore, lease: JobLease, extract: Extract, watermark: str) -> None:
    """Count what a run that died had appended, before anything is planned."""
    last = extract.last_number() if isinstance(extract, Appending) else None

    def work(connection: Connection) -> None:
        lease.check(connection)
        settle(connection, lease.job, watermark, last or 0)

    store.write(work)


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
    stop: threading.Event

    def __call__(self, number: int, work: WorkUnit) -> Outcome | None:
        if self.stop.wait(max(0.0, self.began + number * self.pacing / SECOND - time.monotonic())):
            return None
        self.run.begin(work)
        self.watcher.started(number, work)
        started = self.clock()
        place = (number, work.start, work.unit.key, work.low, work.high)
        try:
            amount = self.extract(work, partial(self._approve, work))
        except RunReplaced:
            raise
        except Exception as error:  # whatever it was, the other units go on
            state: Literal["interrupted", "failed"] = "interrupted" if self.stop.is_set() else "failed"
            text = told(error, self.job)
            outcome = Outcome(*place, state, 0, 0, started, self.clock(), text)
            self.run.record(work, outcome)
        else:
            read = (amount.rows, amount.bytes, started, self.clock())
            outcome = Outcome(
                *place, "succeeded", *read, drift=amount.drift, without_time=amount.without_time
            )
            self.run.record(work, outcome, self._high(work, amount))
        self.watcher.ended(number, work, outcome)
        return outcome

    def _approve(self, work: WorkUnit, amount: Amount, number: int | None = None) -> None:
        wanted = self.job.settings.min_records
        if amount.rows < wanted:
            raise TooFewRecords(amount.rows, wanted)
        if self.stop.is_set():
            raise Stopped
        if number is None:
            self.run.check()
        else:
            self.run.intend(work, number)

    def _high(self, work: WorkUnit, amount: Amount) -> int:
        """The end; where the data says how far it goes, that, but no further than the end."""
        if self.job.settings.watermark_column is None:
            return work.high
        return work.low if amount.highest is None else min(work.high, amount.highest)


# ---- what is told of an error


def told(error: Exception, job: Job) -> str:
    r"""What went wrong, at its innermost, without the secrets of the job.

    >>> from slackwater.ingest.jobfile.job import parse_job
    >>> told(
    ...     RuntimeError("Traceback (most recent call last):\n  File x\na.ArrowInvalid: no 5"), parse_job({})
    ... )
    'ArrowInvalid: no 5'
    >>> told(RuntimeError("calling o1.collect\n: a.Job: failed\nCaused by: b.NoFile: no data"), parse_job({}))
    'NoFile: no data'
    """
    text, settings = _cause(error), job.settings
    for given in (settings.source_url, settings.target_url, settings.source_jdbc_password):
        for secret in () if given is None else secrets_of(given.get_secret_value()):
            text = text.replace(secret, "…")
    written = Secrets({f"(secret {number})": secret for number, secret in enumerate(_written_secrets(job))})
    return written.mask(job.secrets.mask(text))[:_LONGEST_ERROR]  # no half of a secret is left


def _cause(error: Exception) -> str:
    """The innermost error, by its name without a package, and what it says in a line or two."""
    if isinstance(error, SlackwaterError):
        return f"{type(error).__name__}: {error}"
    lines = str(error).splitlines()
    remote = _last_of_python(lines) or _last_of_java(lines)
    if remote:
        named = _NAMED.fullmatch(remote)
        return f"{named[1]}{named[2]}" if named else remote
    return f"{type(error).__name__}: {_message([line for line in lines if line.strip()])}"


def _last_of_python(lines: list[str]) -> str:
    """What stands below the last traceback of a worker; empty if there is none."""
    begun = [number for number, line in enumerate(lines) if _TRACEBACK in line]
    below = lines[begun[-1] + 1 :] if begun else []
    return _message([line for line in below if line.strip() and not line.startswith((" ", "\t"))])


def _last_of_java(lines: list[str]) -> str:
    """The last cause that says something; empty if there is none."""
    causes = [
        (found[1], lines[number + 1 : number + 2])
        for number, line in enumerate(lines)
        if (found := _JAVA_CAUSE.match(line.strip()))
    ]
    telling = [cause for cause in causes if ": " in cause[0]] or causes
    return _message([telling[-1][0], *telling[-1][1]]) if telling else ""


def _message(lines: list[str]) -> str:
    """The first line; with the second, if it belongs to it."""
    first, second = (line.strip() for line in [*lines, "", ""][:2])
    return f"{first} {second}" if first.endswith(":") or second.startswith(_DETAILS) else first


def _written_secrets(job: Job) -> list[str]:
    """What the job file itself says to authenticate, as it is sent, and parts that somebody may repeat."""
    settings, who = job.settings, job.settings.http_authentication
    record = job.inputs.authentication

    def filled(text: str) -> str:
        return _FIELD.sub(lambda found: record.get(found[1]) or found[0], text)

    texts = [filled(text) for text in (*(who.texts if who else ()), *settings.http_headers.values())]
    if who is not None and who.method == "basic":
        account = f"{filled(str(who.user))}:{filled(str(who.password))}"
        texts.append(base64.b64encode(account.encode()).decode())
    if settings.source_jdbc_password is not None:
        texts.append(settings.source_jdbc_password.get_secret_value())
    parts = [part for text in texts for part in (text, *_PARTS.findall(text), *text.split(" ", 2)[1:2])]
    return [part for part in dict.fromkeys(parts) if len(part) >= _SHORTEST_SECRET]


def secrets_of(url: str) -> list[str]:
    """What of an address may not be shown, in every spelling that a message can have, the longest first.

    >>> secrets_of("postgresql://app:a%20b@db.example/shop")
    ['postgresql://app:a%20b@db.example/shop', 'a%20b', 'a b', 'a+b']
    >>> secrets_of("jdbc:derby:shop;user=app;password=a b")
    ['jdbc:derby:shop;user=app;password=a b', 'a b']
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        return [url, *_IN_AN_ADDRESS.findall(url)]
    given = parsed.normalized_query
    passwords = [parsed.password, *(one for name in _HIDDEN for one in given.get(name, ()))]
    written = re.search(r"//[^/@]*?:([^/]*)@", url)
    found = {spelt for one in passwords if one for spelt in (one, quote(one, safe=""), quote_plus(one))}
    whole = set() if url.startswith("http") else {url}  # what an HTTP API is called helps to find a mistake
    return sorted(
        {*whole, *found, *([written[1]] if written else [])} - {""}, key=lambda one: (-len(one), one)
    )
