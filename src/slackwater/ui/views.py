"""The views of the console: queries, ingestion and streams as answers for the web server and for commands."""

from __future__ import annotations

import shlex
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Self, TypeVar

import msgspec
from sqlalchemy.engine import Connection

from slackwater.errors import InvalidArgument, MetadataError, SlackwaterError
from slackwater.ingest import Job, Plan, load_job
from slackwater.ingest import plan as make_plan
from slackwater.ingest.ledger.job_ledger import check_identity
from slackwater.ingest.ledger.progress_ledger import read_history
from slackwater.ingest.ledger.run_ledger import RunRecord, list_runs
from slackwater.ingest.ledger.unit_calendar import (
    CalendarCell,
    last_attempts,
    planned_cells,
    recorded_cells,
    recorded_jobs,
)
from slackwater.ingest.plan.plan_report import OMISSIONS, warnings_of
from slackwater.metadata import store_schema as schema
from slackwater.metadata.leases import Leases
from slackwater.metadata.store import MetadataStore, open_store, schema_version
from slackwater.monitoring.advice import advised
from slackwater.monitoring.monitor import Monitor
from slackwater.monitoring.origins import OriginState
from slackwater.monitoring.query_state import (
    HolderSpan,
    OperatorSnapshot,
    QueryState,
    WatermarkSpan,
    WindowSnapshot,
)
from slackwater.monitoring.sentence import clock_text, holder_of, operator_that_holds, rough, sentence
from slackwater.progress.delays import DelayHistogram, bound_of
from slackwater.progress.values import DEFAULT_KEY
from slackwater.sql.database import database_url, redacted_url
from slackwater.streams.description import summarize_stream
from slackwater.streams.log.catalog import Streams
from slackwater.streams.timeline import stream_timeline
from slackwater.time import BEGINNING_OF_TIME, END_OF_TIME
from slackwater.time import now as wall_clock
from slackwater.ui.metrics import Names, metrics_text
from slackwater.ui.models import (
    CellAnswer,
    DelaysAnswer,
    HistoryAnswer,
    HolderAnswer,
    IngestionAnswer,
    JobAnswer,
    JobSummary,
    LagAnswer,
    LateAnswer,
    LateRowAnswer,
    NowAnswer,
    OmittedTime,
    OperatorAnswer,
    OriginAnswer,
    OriginsAnswer,
    QueryAnswer,
    QuerySummary,
    RunAnswer,
    StreamAnswer,
    StreamsAnswer,
    StreamSummary,
    WindowAnswer,
    WindowsAnswer,
)

MOST_CELLS: Final = 20_000
"""The most cells of a calendar that one answer has."""
DROPPED: Final = {
    "late": "dropped_late", "closed": "dropped_closed", "invalid": "invalid", "duplicate": "dropped_duplicate"
}  # fmt: skip
"""The counters of an operator for rows that it dropped, by reason."""
LISTED_ORIGINS: Final = 100
"""How many origins an answer has by default."""
MOST_LISTED: Final = 1_000
"""The most origins that one answer has."""
OriginOrder = Literal["behind", "name", "state"]
_LISTED_RUNS: Final = 20
_LISTED_HOLDERS: Final = 200
_LISTED_WINDOWS: Final = 100
_LISTED_DELAYS: Final = 200
_STATE_ORDER: Final = ("failed", "owed", "grace", "waiting", "left out", "done")
_STATE_WORDS: Final = {"grace": "to read again"}

Result = TypeVar("Result")


class OutdatedStore(MetadataError):
    """The metadata store was made by an older release, and the console does not change stores.

    >>> print(OutdatedStore("sqlite:///shop.db", "0003"))
    the metadata store at sqlite:///shop.db has schema version 0003, which this release has to upgrade \
first; run any command that writes to it, such as `slackwater controller --once`
    """

    def __init__(self, url: str, version: str) -> None:
        self.url = url
        self.version = version
        fix = "run any command that writes to it, such as `slackwater controller --once`"
        super().__init__(
            f"the metadata store at {url} has schema version {version}, which this release has to upgrade "
            f"first; {fix}"
        )


@dataclass(frozen=True, slots=True)
class _Calendar:
    """A job with its cells, and the plan if there is one."""

    job: str
    watermark: str
    file: Path | None
    cells: Sequence[CalendarCell]
    plan: Plan | None
    problem: str | None


class Views:
    """Reads a metadata store for the console. Safe to use from several threads; never writes.

    The store is opened on first use, and again after an error, so that a console survives an outage.

    Args:
        store: The address of the metadata store.
        jobs: Job files, so that their jobs are planned; other jobs show what the ledger records.
        clock: Returns the current time in microseconds.

    >>> Views("sqlite:////no-such-store.db").streams()
    Traceback (most recent call last):
    slackwater.errors.UnknownStore: there is no metadata store at sqlite:////no-such-store.db; check the \
address, or create the store: open it with create=True, or run `slackwater stream create`
    """

    def __init__(
        self, store: str, *, jobs: Iterable[Path] = (), clock: Callable[[], int] = wall_clock
    ) -> None:
        self.url = database_url(store)
        self.address = redacted_url(self.url)
        self._clock = clock
        self._files = tuple(jobs)
        self._lock = threading.Lock()
        self._store: MetadataStore | None = None

    # ---- the store

    def close(self) -> None:
        """Close the connections to the store."""
        with self._lock:
            self._drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def problem(self) -> str | None:
        """Why the store cannot be read; None if it can."""
        try:
            self._read(lambda store: store.read(schema_version))
        except SlackwaterError as error:
            return str(error)
        return None

    def _read(self, work: Callable[[MetadataStore], Result]) -> Result:
        try:
            return work(self._open())
        except MetadataError:
            with self._lock:
                self._drop()
            raise

    def _open(self) -> MetadataStore:
        with self._lock:
            if self._store is None:
                store = open_store(self.url, upgrade=False)
                found = store.read(schema_version)
                if found != schema.NEWEST:
                    store.close()
                    raise OutdatedStore(self.address, found or "none")
                self._store = store
            return self._store

    def _drop(self) -> None:
        if self._store is not None:
            with suppress(MetadataError):
                self._store.close()
            self._store = None

    # ---- metrics

    def metrics(self, names: Names = "slackwater") -> str:
        """All metrics in the text format of Prometheus.

        Args:
            names: ``slackwater``, or ``flink`` for the names of Flink's metrics.
        """
        return self._read(lambda store: metrics_text(store, names=names))

    # ---- ingestion

    def ingestion(self) -> IngestionAnswer:
        """Every job of the store or of a job file, in a sentence."""

        def work(store: MetadataStore) -> IngestionAnswer:
            running = _running(store)
            found = [_summary(store, each, running) for each in self._calendars(store)]
            return IngestionAnswer(now=self._clock(), jobs=found)

        return self._read(work)

    def job(
        self,
        name: str,
        *,
        watermark: str | None = None,
        since: int = BEGINNING_OF_TIME,
        until: int = END_OF_TIME,
    ) -> JobAnswer:
        """The calendar of one job.

        Args:
            name: The name of the job.
            watermark: The name of its watermark; by default its first.
            since: Leave out the partitions that end at or before this instant.
            until: Leave out the partitions that begin at or after this instant.

        Raises:
            InvalidArgument: There is no such job.
        """

        def work(store: MetadataStore) -> JobAnswer:
            for each in self._calendars(store, only=name):
                if watermark in (None, each.watermark):
                    return self._job(store, each, since, until)
            known = sorted({each.job for each in self._calendars(store)})
            raise InvalidArgument("job", _short(name), f"is not known; known: {', '.join(known) or 'none'}")

        return self._read(work)

    def _job(self, store: MetadataStore, calendar: _Calendar, since: int, until: int) -> JobAnswer:
        inside = [cell for cell in calendar.cells if cell.end > since and cell.start < until]
        inside.sort(key=lambda cell: (cell.start, cell.unit))
        omitted = [] if calendar.plan is None else calendar.plan.omissions
        return JobAnswer(
            now=self._clock(),
            summary=_summary(store, calendar, _running(store)),
            cells=[self._cell(cell, calendar.file) for cell in inside[-MOST_CELLS:]],
            total_cells=len(inside),
            omissions=[
                OmittedTime(start=each.start, end=each.end, reason=OMISSIONS[each.reason]) for each in omitted
            ],
            warnings=[] if calendar.plan is None else warnings_of(calendar.plan),
            runs=[
                RunAnswer.model_validate(run) for run in list_runs(store, calendar.job, limit=_LISTED_RUNS)
            ],
        )

    def _calendars(self, store: MetadataStore, *, only: str | None = None) -> list[_Calendar]:
        """The calendars of all jobs, or of one; a job without a file shows what the ledger records."""
        found, planned = [], set()
        for file in self._files:
            try:
                job = load_job(file)
            except SlackwaterError as error:
                found.append(_Calendar(file.stem, "", file, (), None, str(error)))
                planned.add((file.stem, ""))
                continue
            key = job.settings.name, job.settings.axis.name
            planned.add(key)
            if only in (None, key[0]):
                found.append(self._planned(store, job, file))
        for name, watermarks in store.read(recorded_jobs).items():
            for watermark in watermarks:
                if (name, watermark) not in planned and only in (None, name):
                    cells = store.read(lambda connection: list(recorded_cells(connection, name, watermark)))  # noqa: B023 - called at once
                    found.append(_Calendar(name, watermark, None, cells, None, None))
        return found

    def _planned(self, store: MetadataStore, job: Job, file: Path) -> _Calendar:
        name, watermark = job.settings.name, job.settings.axis.name

        def work(connection: Connection) -> _Calendar:
            try:
                check_identity(connection, job)
                history = read_history(connection, name, watermark)
                made = make_plan(job, history, self._clock())
            except SlackwaterError as error:
                cells = list(recorded_cells(connection, name, watermark))
                return _Calendar(name, watermark, file, cells, None, str(error))
            cells = list(planned_cells(made, history, last_attempts(connection, name, watermark)))
            return _Calendar(name, watermark, file, cells, made, None)

        return store.read(work)

    def _cell(self, cell: CalendarCell, file: Path | None) -> CellAnswer:
        command = None if file is None else self._command(cell, file)
        fields = {name: getattr(cell, name) for name in CellAnswer.model_fields if name != "command"}
        return CellAnswer.model_validate({**fields, "command": command})

    def _command(self, cell: CalendarCell, file: Path) -> str | None:
        """The command that reads a cell, as a shell line; None if waiting is all that helps."""
        arguments = f"{shlex.quote(str(file))} --state {shlex.quote(self.address)}"
        if cell.state == "failed":
            return f"slackwater ingest {arguments} --only-failed"
        if cell.state in {"owed", "grace"}:
            return f"slackwater ingest {arguments}"
        return None

    # ---- queries

    def now(self) -> NowAnswer:
        """Every query in a sentence, those that run first."""

        def work(store: MetadataStore) -> NowAnswer:
            monitor = Monitor(store)
            at = monitor.now()
            found = sorted(monitor.queries(), key=lambda query: not query.running)
            return NowAnswer(now=at, queries=[_query_summary(query, at) for query in found])

        return self._read(work)

    def query(self, name: str, *, operator: str | None = None, key: str | None = None) -> QueryAnswer:
        """Where the watermark of a query is, and why.

        Args:
            name: The id or name of the query.
            operator: The operator whose history and holders are returned; by default the history of the last
                one, and the holders of the one that holds it back.
            key: The watermark key of the history; by default the first one of the operator.

        Raises:
            InvalidArgument: There is no such query or operator.
        """

        def work(store: MetadataStore) -> QueryAnswer:
            monitor = Monitor(store)
            at, query = monitor.now(), monitor.query(name)
            chosen = _operator_of(query, operator)
            keys = [] if chosen is None else [each.name for each in chosen.keys]
            wanted = key or (keys[0] if keys else None)
            holders: tuple[HolderSpan, ...] = ()
            history: tuple[WatermarkSpan, ...] = ()
            held = chosen
            if chosen is not None:
                # An operator in a chain only names the one before it; that one names the origin.
                held = chosen if operator is not None else holder_of(query, chosen)
                holders = monitor.holders(query.id, operator=held.id, key=key, limit=_LISTED_HOLDERS)
                history = monitor.watermark_history(query.id, operator=chosen.id, key=wanted or DEFAULT_KEY)
            return QueryAnswer(
                now=at, summary=_query_summary(query, at), run=query.run, batch=query.batch,
                batch_at=query.at, duration=query.duration, rows=query.rows, state_bytes=query.state_bytes,
                lost=query.lost, operators=[_operator(query, each) for each in query.operators],
                operator=None if chosen is None else chosen.id, key=wanted,
                held_operator=None if held is None else held.id,
                holders=[HolderAnswer.model_validate(each) for each in holders],
                history=[HistoryAnswer.model_validate(each) for each in history],
            )  # fmt: skip

        return self._read(work)

    def origins(
        self,
        name: str,
        *,
        operator: str | None = None,
        text: str = "",
        order: OriginOrder = "behind",
        offset: int = 0,
        limit: int = LISTED_ORIGINS,
    ) -> OriginsAnswer:
        """The origins of an operator, page by page.

        Args:
            name: The id or name of the query.
            operator: The operator whose sources they are; by default the one that holds the query back.
            text: Only origins with this text in their name, input or status; upper and lower case are equal.
            order: ``behind`` for the slowest first, ``name``, or ``state``.
            offset: How many of them to leave out.
            limit: The largest number to return; at most `MOST_LISTED`.

        Raises:
            InvalidArgument: There is no such query or operator.
        """

        def work(store: MetadataStore) -> OriginsAnswer:
            monitor = Monitor(store)
            at, query = monitor.now(), monitor.query(name)
            source = _source_of(query, operator)
            if source is None:
                return OriginsAnswer(now=at)
            found = source.origins.all()
            # They are in the order of their watermarks, so that the ends of the axis are found at once.
            lowest = next((mark for each in found if (mark := each.watermark) is not None), None)
            highest = next(
                (mark for each in reversed(found) if (mark := each.watermark) != END_OF_TIME), None
            )
            matching = _matching(found, text)
            if order in _ORDERS:
                matching = sorted(matching, key=_ORDERS[order])
            return OriginsAnswer(
                now=at, operator=source.id, clock=source.now, watermark=source.watermark,
                counts=source.origins.counts, total=source.origins.total, left_out=source.origins.left_out,
                lowest=None if lowest == END_OF_TIME else lowest, highest=highest, matching=len(matching),
                offset=offset,
                origins=[
                    OriginAnswer.model_validate(each)
                    for each in matching[offset : offset + min(limit, MOST_LISTED)]
                ],
            )  # fmt: skip

        return self._read(work)

    def windows(self, name: str, *, operator: str | None = None) -> WindowsAnswer:
        """The open windows of a query by end, and those that were closed last.

        Args:
            name: The id or name of the query.
            operator: Only the windows of this operator.

        Raises:
            InvalidArgument: There is no such query or operator.
        """

        def work(store: MetadataStore) -> WindowsAnswer:
            monitor = Monitor(store)
            at, query = monitor.now(), monitor.query(name)
            chosen = _operator_of(query, operator)
            marks = {each.id: each.watermark for each in query.operators}
            shown = [
                _window(each, marks.get(each.operator), at)
                for each in monitor.windows(query.id, operator=operator, closed=_LISTED_WINDOWS)
            ]
            return WindowsAnswer(
                now=at, summary=_query_summary(query, at),
                watermark=None if chosen is None else chosen.watermark,
                operators=[each.id for each in query.operators],
                open=[each for each in shown if each.closed is None],
                left_out=sum(
                    each.windows_left_out for each in query.operators if operator in (None, each.id)
                ),
                closed=[each for each in shown if each.closed is not None],
            )  # fmt: skip

        return self._read(work)

    def late(self, name: str) -> LateAnswer:
        """How late the rows of a query are, by origin, and a sample of those that were dropped.

        Args:
            name: The id or name of the query.

        Raises:
            InvalidArgument: There is no such query.
        """

        def work(store: MetadataStore) -> LateAnswer:
            monitor = Monitor(store)
            at, query = monitor.now(), monitor.query(name)
            found = sorted(monitor.delays(query.id).items(), key=lambda item: (-item[1].rows, item[0]))
            return LateAnswer(
                now=at,
                summary=_query_summary(query, at),
                dropped=_dropped(query),
                lags=[
                    LagAnswer(operator=each.id, **msgspec.structs.asdict(lag))
                    for each in query.operators
                    for lag in each.policy_lags
                ],
                advice=str(advised(delays for _, delays in found)) if found else None,
                delays=[_delays(origin, delays) for origin, delays in found[:_LISTED_DELAYS]],
                origins=len(found),
                samples=[LateRowAnswer.model_validate(row) for row in monitor.late_rows(query.id)],
            )

        return self._read(work)

    # ---- streams

    def streams(self) -> StreamsAnswer:
        """Every stream of the store, in a sentence."""

        def work(store: MetadataStore) -> StreamsAnswer:
            catalog = Streams(store)
            found = []
            for record in catalog.list():
                stream = catalog.get(record.name)
                line = stream_timeline(stream, marks=0)
                shown = {**summarize_stream(stream), "mark": line.mark, "sentence": line.sentence}
                found.append(StreamSummary.model_validate(shown))
            return StreamsAnswer(now=self._clock(), streams=found)

        return self._read(work)

    def stream(self, name: str) -> StreamAnswer:
        """The timeline of one stream.

        Args:
            name: Scope and name, as in ``shop/bids``.

        Raises:
            UnknownStream: There is no such stream.
            InvalidArgument: The name is not of the form ``scope/name``.
        """
        return self._read(
            lambda store: StreamAnswer.model_validate(stream_timeline(Streams(store).get(name)))
        )


def _query_summary(query: QueryState, now: int) -> QuerySummary:
    last = query.operator()
    origins: Counter[str] = Counter()
    for operator in query.operators:
        origins.update(operator.origins.counts)
    return QuerySummary(
        id=query.id, title=query.title, sentence=sentence(query, now), running=query.running,
        error=query.error, age=query.age, updated=query.updated, started=query.started,
        watermark=None if last is None else last.watermark, lag=None if last is None else last.lag,
        open_windows=sum(operator.open_windows for operator in query.operators),
        dropped=sum(_dropped(query).values()), origins=dict(origins),
    )  # fmt: skip


def _operator_of(query: QueryState, wanted: str | None) -> OperatorSnapshot | None:
    found = query.operator(wanted)
    if found is None and wanted is not None:
        known = ", ".join(operator.id for operator in query.operators) or "none"
        raise InvalidArgument("operator", _short(wanted), f"is not known; known: {known}")
    return found


def _source_of(query: QueryState, operator: str | None) -> OperatorSnapshot | None:
    """An operator that reads sources: the one that was asked for, or the one that holds the query back.

    If that one has none, because it only reads other operators, one before it.
    """
    chosen = _operator_of(query, operator)
    if chosen is None:
        return None
    holder = holder_of(query, chosen)
    first = (holder, chosen) if operator is None else (chosen, holder)
    before = (each for each in query.operators if each.id.startswith(f"{chosen.id}."))
    return next((each for each in (*first, *before) if each.origins.counts), None)


def _matching(origins: Sequence[OriginState], text: str) -> Sequence[OriginState]:
    """The origins with a text in their name, input or status."""
    wanted = text.strip().lower()
    if not wanted:
        return origins
    return [
        each
        for each in origins
        if wanted in each.name.lower() or wanted in each.status or wanted in (each.input or "").lower()
    ]


_ORDERS: Final[Mapping[OriginOrder, Callable[[OriginState], tuple[str, ...]]]] = {
    "name": lambda origin: (origin.name, origin.input or ""),
    "state": lambda origin: (origin.status,),
}
"""The origins of a report are in the order `behind`, which also holds within a state."""


def _operator(query: QueryState, operator: OperatorSnapshot) -> OperatorAnswer:
    before = operator_that_holds(query, operator)
    derived = {
        "origins": operator.origins.counts, "held_by_operator": None if before is None else before.id
    }  # fmt: skip
    fields = {name: getattr(operator, name) for name in OperatorAnswer.model_fields if name not in derived}
    return OperatorAnswer.model_validate({**fields, **derived})


def _dropped(query: QueryState) -> dict[str, int]:
    """The dropped rows of all operators by reason."""
    counts: Counter[str] = Counter()
    for operator in query.operators:
        counts.update({reason: operator.totals.get(counter, 0) for reason, counter in DROPPED.items()})
    return {name: rows for name, rows in counts.items() if rows}


def _window(window: WindowSnapshot, watermark: int | None, now: int) -> WindowAnswer:
    if window.closed is not None:
        closes = f"closed at {clock_text(window.closed, now)}"
    elif window.closes_at == END_OF_TIME:
        closes = "never closes by time"
    else:
        closes = f"closes when the watermark reaches {clock_text(window.closes_at, now)}"
        if watermark is not None and watermark < window.closes_at:
            closes += f", {rough(window.closes_at - watermark)} from here"
        if window.owes_pane and window.end != window.closes_at:
            closes = f"fires at {clock_text(window.end, now)}; {closes}"
    fields = {name: getattr(window, name) for name in WindowAnswer.model_fields if name != "closes"}
    return WindowAnswer.model_validate({**fields, "closes": closes})


def _delays(origin: str, delays: DelayHistogram) -> DelaysAnswer:
    bins = [(bound_of(number), delays.bins[number]) for number in sorted(delays.bins)]
    return DelaysAnswer(origin=origin, rows=delays.rows, highest=delays.highest, bins=bins)


def _running(store: MetadataStore) -> set[str]:
    """The jobs whose lease is held."""
    return {lease.name.removeprefix("ingest ") for lease in Leases(store).held("ingest ")}


def _summary(store: MetadataStore, calendar: _Calendar, running: set[str]) -> JobSummary:
    counts = Counter(str(cell.state) for cell in calendar.cells)
    highs = [cell.high_watermark for cell in calendar.cells if cell.high_watermark is not None]
    since = _running_since(list_runs(store, calendar.job, limit=1)) if calendar.job in running else None
    return JobSummary(
        job=calendar.job,
        watermark=calendar.watermark,
        sentence=_job_sentence(counts, is_planned=calendar.plan is not None, is_running=since is not None),
        planned=calendar.plan is not None,
        problem=calendar.problem,
        states=dict(counts),
        high_watermark=max(highs, default=None),
        running_since=since,
    )


def _running_since(newest: list[RunRecord]) -> int | None:
    return next((run.started_at for run in newest if run.state == "running"), None)


def _job_sentence(counts: Mapping[str, int], *, is_planned: bool, is_running: bool) -> str:
    named = [
        f"{counts[state]} {_STATE_WORDS.get(state, state)}" for state in _STATE_ORDER if counts.get(state)
    ]
    total = ", ".join(named) or "nothing recorded"
    source = "" if is_planned else " (from the ledger; give the job file with --job for the plan)"
    return f"{'running: ' if is_running else ''}{total}{source}"


def _short(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:100]}…"
