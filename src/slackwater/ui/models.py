"""The answers of the console's endpoints, which its page, its OpenAPI document and ``--json`` share.

Times are integers: microseconds since 1970-01-01T00:00:00Z.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict

from slackwater.monitoring.sentence import holder_text

HolderText = Annotated[str | None, BeforeValidator(holder_text)]
"""What holds a watermark back, in words."""


class Answer(BaseModel):
    """Base of all answers: immutable, made from the values of the library, documented by its attributes."""

    model_config = ConfigDict(from_attributes=True, use_attribute_docstrings=True, frozen=True)


class ErrorAnswer(Answer):
    """Why a view cannot be shown."""

    error: str
    """What is wrong, and what to do."""


class ConsoleStatus(Answer):
    """What the console reads, and whether it can."""

    now: int
    """The clock of the server."""
    started_at: int
    """When this server started; another value means that it was restarted."""
    release: str
    """The release of Slackwater that serves the console."""
    store: str
    """The address of the metadata store, without its password."""
    problem: str | None
    """Why the store cannot be read; null if it can."""
    changes: int
    """Grows whenever the store may have changed."""


# ---- ingestion


class AttemptAnswer(Answer):
    """The last attempt to read a unit of a partition."""

    run: str
    """The id of its run; `slackwater ingest history --run` lists it."""
    state: str
    """succeeded, failed or interrupted."""
    attempts: int
    """The number of recorded attempts, this one included."""
    rows: int
    bytes: int
    started_at: int
    ended_at: int
    error: str | None


class CellAnswer(Answer):
    """One unit in one partition of a job."""

    unit: str
    """The values of the unit as JSON; `{}` if the job has no units."""
    start: int
    end: int
    state: Literal["done", "owed", "failed", "waiting", "left out", "grace"]
    reason: str
    """Why it is in this state, in words."""
    low: int | None
    """Where the next read begins; null if the next run does not read it."""
    high: int | None
    high_watermark: int | None
    """Up to where it was read; null if no read has succeeded."""
    last: AttemptAnswer | None
    command: str | None
    """The command that reads it, or reads it again; null if there is none."""


class JobSummary(Answer):
    """One job and one of its watermarks."""

    job: str
    watermark: str
    sentence: str
    """What the next run would do, or what the ledger records."""
    planned: bool
    """Whether the states come from a plan; without the job file only the ledger is known."""
    problem: str | None
    """Why the job cannot be planned."""
    states: dict[str, int]
    """The number of cells by state."""
    high_watermark: int | None
    """The newest time that was read."""
    running_since: int | None
    """When its running run began; null if none is running."""


class OmittedTime(Answer):
    """A time range that no partition covers."""

    start: int
    end: int
    reason: str


class RunAnswer(Answer):
    """A run of a job."""

    id: str
    state: str
    started_at: int
    ended_at: int | None
    succeeded: int
    failed: int
    interrupted: int
    rows: int


class JobAnswer(Answer):
    """The calendar of a job."""

    now: int
    summary: JobSummary
    cells: list[CellAnswer]
    total_cells: int
    """The number of cells in the time range; `cells` has at most 20,000 of them."""
    omissions: list[OmittedTime]
    warnings: list[str]
    runs: list[RunAnswer]
    """The newest runs, newest first."""


class IngestionAnswer(Answer):
    """All jobs of the store."""

    now: int
    jobs: list[JobSummary]


# ---- streams


class StreamSummary(Answer):
    """One stream."""

    name: str
    segments: int
    events: int
    bytes: int
    mark: int | None
    """The lower bound of its newest mark: its watermark."""
    sentence: str


class StreamsAnswer(Answer):
    """All streams of the store."""

    now: int
    streams: list[StreamSummary]


class SegmentAnswer(Answer):
    """A segment from its creation to its sealing."""

    id: int
    number: int
    low: float
    """The key range as fractions of the key space."""
    high: float
    epoch: int
    created_at: int
    sealed_at: int | None
    """null while it takes events."""
    events: int
    bytes: int
    predecessors: list[int]
    """The segments that it replaced: one after a split, several after a merge."""


class MarkAnswer(Answer):
    """A mark: every writer had noted `lower` or later when it was made."""

    number: int
    lower: int
    upper: int
    at: int


class WriterAnswer(Answer):
    """A writer that has noted a time."""

    writer: str
    time: int
    state: Literal["holds", "ahead", "closed"]
    """`holds`: the next mark waits for it."""
    behind_since: int | None
    dropped_at: int | None
    """When the mark stops waiting for it, if it notes nothing until then."""


class GroupAnswer(Answer):
    """A reader group and its time window."""

    group: str
    readers: list[str]
    behind: int
    """The events that it has not read yet."""
    removed: int
    """Those of them that were removed before it read them."""
    lower: int | None
    upper: int | None


class StreamAnswer(Answer):
    """The timeline of a stream."""

    name: str
    now: int
    created_at: int
    epoch: int
    sentence: str
    mark: int | None
    period: int
    timeout: int
    segments: list[SegmentAnswer]
    marks: list[MarkAnswer]
    writers: list[WriterAnswer]
    groups: list[GroupAnswer]


# ---- queries


class WatermarkAnswer(Answer):
    """A watermark of an operator, by key or by input, and what holds it back."""

    name: str
    """The watermark key, or the name of the input."""
    watermark: int | None
    reason: str
    held_by: HolderText
    since: int | None
    text: str
    """The explanation in one line."""
    idle: bool


class OriginAnswer(Answer):
    """An origin: a partition, a file, a writer."""

    name: str
    status: Literal["active", "idle", "silent", "gap", "done"]
    watermark: int | None
    """The lowest over all keys; null if one is unknown."""
    watermarks: dict[str, int | None]
    """By watermark key."""
    since: int | None
    """Since when it has the status, or last sent something."""
    input: str | None
    gap: str | None
    """The missing buffers, if the status is `gap`."""


class BufferAnswer(Answer):
    """The rows that a join or a deduplication has buffered."""

    rows: int
    bytes: int


class OperatorAnswer(Answer):
    """An operator of a query after its newest batch."""

    id: str
    """`0` for the operator whose rows leave the query, `0.1` for the one before its second input."""
    now: int
    watermark: int | None
    reason: str
    held_by: str | None
    held_by_operator: str | None
    """The operator before it that holds it back; null if a source of its own does."""
    since: int | None
    text: str
    lag: int | None
    """The distance of the watermark to the clock."""
    inherited_lag: int | None
    """The largest lag of the operators before it; null if it reads only sources."""
    local_lag: int | None
    """The part of the lag that this operator adds."""
    ended: bool
    waiting: int | None
    open_windows: int
    totals: dict[str, int]
    """Counters since the query was first started: panes by timing, retractions, dropped rows by reason."""
    buffers: dict[str, BufferAnswer]
    keys: list[WatermarkAnswer]
    inputs: list[WatermarkAnswer]
    origins: dict[str, int]
    """The number of origins by status; `/api/origins` lists them."""


class QuerySummary(Answer):
    """A query in one row."""

    id: str
    title: str
    """Its name, or its id."""
    sentence: str
    """Where its watermark is, what holds it back since when, and what waits for it."""
    running: bool
    error: str | None
    age: int
    """How long ago it last reported, in microseconds."""
    updated: int
    started: int
    watermark: int | None
    lag: int | None
    open_windows: int
    dropped: int
    """Rows dropped since the query was first started."""
    origins: dict[str, int]
    """The number of origins by status."""


class NowAnswer(Answer):
    """All queries, those that run first."""

    now: int
    queries: list[QuerySummary]


class HolderAnswer(Answer):
    """A time in which the same input or origin held a watermark back for the same reason."""

    operator: str
    key: str
    at: int
    until: int
    lasted: int
    held_by: HolderText
    reason: str
    watermark: int | None
    reached: int | None


class HistoryAnswer(Answer):
    """A stretch of the history of a watermark."""

    at: int
    until: int
    watermark: int
    reached: int


class QueryAnswer(Answer):
    """The Now view of a query."""

    now: int
    summary: QuerySummary
    run: str
    batch: int | None
    batch_at: int | None
    duration: int | None
    rows: int | None
    state_bytes: int
    lost: int
    """Reports that could not be written to the store."""
    operators: list[OperatorAnswer]
    """The last operator first."""
    operator: str | None
    """The operator to which `history` belongs."""
    held_operator: str | None
    """The operator to which `holders` belongs."""
    key: str | None
    """The watermark key to which `history` belongs."""
    holders: list[HolderAnswer]
    """Newest first."""
    history: list[HistoryAnswer]
    """Oldest first."""


class OriginsAnswer(Answer):
    """Some of the origins of an operator."""

    now: int
    operator: str | None = None
    """The operator whose sources they are; null if no operator has reported origins."""
    clock: int | None = None
    """The clock of its newest batch."""
    watermark: int | None = None
    """The watermark of the operator."""
    counts: dict[str, int] = {}
    """The number of origins by status, over all of them."""
    total: int = 0
    """The number of all origins."""
    left_out: int = 0
    """How many are counted, but not in the reports, which have up to 20,000: neither slow nor fast ones."""
    lowest: int | None = None
    """The lowest known watermark of all origins, the beginning of the event-time axis."""
    highest: int | None = None
    """The highest known watermark of those that have not ended."""
    matching: int = 0
    """How many origins match the filter."""
    offset: int = 0
    """How many of them are before the first of `origins`."""
    origins: list[OriginAnswer] = []


class WindowAnswer(Answer):
    """The windows of an operator that end at the same time."""

    operator: str
    start: int
    end: int
    opened: int
    closed: int | None
    """When they were removed; null while they are open."""
    keys: int | None
    bytes: int | None
    early: int
    on_time: int
    late: int
    retractions: int
    closes_at: int
    """The watermark at which they are removed."""
    owes_pane: bool
    closes: str
    """What has to happen until they close, or when they did."""


class WindowsAnswer(Answer):
    """The Windows view of a query."""

    now: int
    summary: QuerySummary
    watermark: int | None
    operators: list[str]
    open: list[WindowAnswer]
    """By end."""
    left_out: int
    """How many open windows are not listed."""
    closed: list[WindowAnswer]
    """Newest first."""


class DelaysAnswer(Answer):
    """How far rows of an origin were behind the fastest event time that their source had reached."""

    origin: str
    rows: int
    highest: int
    """The largest delay in microseconds."""
    bins: list[tuple[int, int]]
    """Upper bound of the delay in microseconds, and the number of rows."""


class LagAnswer(Answer):
    """The lag of the watermark policy of a source."""

    operator: str
    name: str
    """The watermark key, with the name of the input if there are several."""
    lag: int
    """In microseconds; of a policy that learns it, the one in use."""
    coverage: float | None
    """The share of rows that should not be behind the watermark, if the lag is learned."""
    since: int | None
    """When a learned lag was last changed; null if it is still the initial one."""


class LateRowAnswer(Answer):
    """A sampled row that was dropped."""

    kind: Literal["late", "closed", "invalid"]
    at: int
    origin: str | None
    event_time: int | None
    window_start: int | None
    window_end: int | None
    lateness: int | None
    """By how much the watermark had passed the end of its window, or its event time without a window."""
    watermark: int | None
    ahead: str | None
    """The slowest origin at that time: all active origins had advanced at least as far."""
    rows: int
    """The number of rows that this sample stands for."""
    values: dict[str, str] | None
    """The key columns as text; null unless the query keeps them with `sample_late=True`."""
    side: str | None
    """`left` or `right` for a row of a join."""


class LateAnswer(Answer):
    """The Late view of a query."""

    now: int
    summary: QuerySummary
    dropped: dict[str, int]
    """Dropped rows by reason, since the query was first started."""
    lags: list[LagAnswer]
    """The lags of the watermark policies of its sources."""
    advice: str | None
    """The lag and allowed lateness that the delays suggest; null without delays."""
    delays: list[DelaysAnswer]
    """By origin, the one with most rows first; at most 200."""
    origins: int
    """The number of origins with delays."""
    samples: list[LateRowAnswer]
    """Newest first."""
