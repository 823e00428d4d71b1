"""The answers of the console's endpoints, which its page, its OpenAPI document and ``--json`` share.

Times are integers: microseconds since 1970-01-01T00:00:00Z.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict


class Answer(BaseModel):
    """Base of all answers: immutable, made from the values of the library, documented by its attributes."""

    model_config = ConfigDict(from_attributes=True, use_attribute_docstrings=True, frozen=True)


class Problem(Answer):
    """Why a view cannot be shown."""

    error: str
    """What is wrong, and what to do."""


class Status(Answer):
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


class Omission(Answer):
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
    omissions: list[Omission]
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
