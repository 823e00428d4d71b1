"""How a target replaces a slice: fit, stage, approve, swap.

Tasks write their rows to a staging area that readers do not see and report what they wrote; the driver then
swaps the staged rows in, in one step. A task that Spark retries stages its rows under another name, and only
the names that Spark accepted are used. `ReplacingTarget` owns the order of these steps, the retry and the
clean-up; each target supplies the steps.
"""

from __future__ import annotations

import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from slackwater._suggestions import available
from slackwater.errors import InvalidArgument
from slackwater.ingest.sources.arrow_types import INSTANTS, instants
from slackwater.ingest.sources.extracted_rows import Batches, Rows
from slackwater.ingest.sources.spark_columns import Columns
from slackwater.ingest.sources.sql_statements import time_value
from slackwater.ingest.targets.rejected_rows import Check, RejectionRule, RowSorter, joined_letters
from slackwater.ingest.targets.schema_drift import Fit, fit
from slackwater.ingest.units import Unit

if TYPE_CHECKING:
    from slackwater.ingest.plan.plan_completeness import PlanCompleteness  # executors need no job files

PARTITION: Final = "slackwater_partition"
"""The column that identifies the partition of a row in a target without a time column."""
_WATERMARK_COLUMN: Final = "ms.watermark.column"
_STAGED_SCHEMA: Final = pa.schema(
    [
        ("name", pa.string()), ("rows", pa.int64()), ("size", pa.int64()),
        ("highest", pa.int64()), ("payload", pa.binary()), ("letters", pa.binary()),
    ]
)  # fmt: skip
_STAGED_DDL: Final = "name string, rows long, size long, highest long, payload binary, letters binary"

StagingArea = TypeVar("StagingArea")


class Slice(NamedTuple):
    """The rows of one unit that are replaced: ``[low, high)`` by the time column, or the whole partition."""

    unit: Unit
    start: int
    low: int
    high: int

    def identity(self, time_column: str | None) -> dict[str, str | None]:
        """The columns, apart from the time, that identify the rows of a unit in a table of all units.

        >>> from slackwater.ingest.units import unit_of
        >>> Slice(unit_of({"site": 7}), 0, 0, 10).identity(None)
        {'site': '7', 'slackwater_partition': '1970-01-01 00:00:00'}
        """
        columns = self.unit.as_dict()
        if time_column is None:
            columns[PARTITION] = str(time_value(self.start, "sqlite"))
        return columns


class StagedRows(NamedTuple):
    """What one task staged: under which name, how much, and the highest value of the watermark column."""

    name: str
    rows: int
    size: int
    highest: int | None
    payload: bytes | None
    letters: bytes | None = None
    """The rows that the target cannot store, as an Arrow IPC stream; see `joined_letters`."""


@dataclass(frozen=True)
class Written:
    """What replaced a slice.

    >>> Written.of([StagedRows("a", 2, 10, 5, None), StagedRows("b", 0, 0, None, None)])
    Written(rows=2, bytes=10, highest=5, drift=None, without_time=None, rejected=0)
    """

    rows: int
    bytes: int
    highest: int | None
    drift: str | None = None
    """How the columns of the source differ from those of the target."""
    without_time: int | None = None
    """Rows of the source without a time; None where the source selects rows by time."""
    rejected: int = 0
    """Rows that the target cannot store, which were stored as dead letters."""

    @classmethod
    def of(cls, staged: Iterable[StagedRows], drift: str | None = None, rejected: int = 0) -> Written:
        """Add up what the tasks staged."""
        parts = list(staged)
        highest = max((part.highest for part in parts if part.highest is not None), default=None)
        size = sum(part.size for part in parts)
        return cls(sum(part.rows for part in parts), size, highest, drift, rejected=rejected)


class ApproveWrite(Protocol):
    """Called when all rows are staged, before they are swapped in; an error leaves the target unchanged."""

    def __call__(self, amount: Written, number: int | None = None) -> None:
        """Approve the swap, or raise; a target that appends passes the number of its commit."""


StageTask = Callable[[Batches, str], tuple[int, bytes | None]]
"""Stages the rows of one task under a unique name; returns the size in bytes and a payload for the driver."""


class Target(Protocol):
    """Where the rows of a job are written."""

    def replace(self, rows: Rows | None, slice_: Slice, approve: ApproveWrite) -> Written:
        """Replace a slice by rows; None means that the source has no files or rows for it."""


class _RunState:
    """What the threads of a run share: the lock of the swap, its token, and whether leftovers are removed."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.token: int | None = None
        self.completeness: PlanCompleteness | None = None
        self.leftovers_removed = False


@dataclass(frozen=True, kw_only=True)
class ReplacingTarget(ABC, Generic[StagingArea]):
    """A target whose slices are replaced; the subclass supplies the steps, this class their order."""

    time_column: str | None
    watermark_column: str | None
    zone: str
    drift: str = "fail"
    job: str = "job"
    on_error: str = "fail"
    """Rows that the target cannot store ``fail`` the unit, or are stored as dead letters (``emit``)."""
    _state: _RunState = field(default_factory=_RunState, repr=False, compare=False)

    @property
    def token(self) -> int | None:
        """The fencing token of the run; None if there is no other run to be fenced off."""
        return self._state.token

    @property
    def identity(self) -> str:
        """The identity under which the job states the completeness of the target."""
        return f"ingest:{self.job}"

    def fence(self, token: int) -> None:
        """Set the fencing token of the run, before the first slice is replaced."""
        self._state.token = token

    def expect(self, completeness: PlanCompleteness) -> None:
        """Receive the completeness of all units of the job, before the first slice is replaced."""
        self._state.completeness = completeness

    def complete_after(self, slice_: Slice) -> int | None:
        """The time before which all units are read once a slice is replaced; None if it is not known.

        With a watermark column, rows that the source did not have yet are read later.
        """
        known = self._state.completeness
        if known is None or self.watermark_column is not None:
            return None
        return known.time_without(slice_.start, slice_.unit)

    def replace(self, rows: Rows | None, slice_: Slice, approve: ApproveWrite) -> Written:
        """Replace a slice by rows, or by nothing.

        Record the fencing token before the first slice. Fit the columns to those of the target, stage the
        rows, ask for approval, and swap the staged rows in. If another unit changed the columns of the target
        in the meantime, start again with those columns.
        """
        with self._state.lock:
            if not self._state.leftovers_removed:
                self.pass_fence()  # first, or a run that was replaced would remove what the newer one stages
                self.remove_leftovers()
                self._state.leftovers_removed = True
        shaped = None if rows is None else self.shape(rows, slice_)
        while True:
            with self.staging_area() as area:
                staged, letters, columns, drift = self._stage(shaped, area, slice_)
                written = Written.of(staged, drift, letters.num_rows)
                approve(written)
                with self._state.lock:
                    found = self.swap(area, staged, columns, slice_, letters)
                    if found is not None and self._state.completeness is not None:
                        self._state.completeness.succeed(slice_.start, slice_.unit)
                if found is not None:
                    return replace(written, rows=written.rows - found, rejected=written.rejected + found)

    def _stage(
        self, rows: Rows | None, area: StagingArea, slice_: Slice
    ) -> tuple[list[StagedRows], pa.Table, Columns, str | None]:
        if rows is None:
            return [], joined_letters([]), {}, None
        fitting = fit(rows.columns, self.target_columns(rows.columns), self.drift)
        columns = self.staged_columns(fitting)
        task = self.stage_task(area, slice_)
        rule = RejectionRule(self.on_error == "emit", self.time_column, self.zone, self.row_check())
        reports = stage_rows(rows.fitted(columns), task, self.watermark_column, self.zone, rule)
        letters = joined_letters(report.letters for report in reports)
        staged = [report for report in reports if report.rows]
        if not staged:  # without rows, the source may not know the types of its columns
            return [], letters, {}, None
        return staged, letters, columns, fitting.difference

    # ---- the steps

    @abstractmethod
    def pass_fence(self) -> None:
        """Record the token of the run in the target; raise `RunReplaced` if a newer run of the job did so."""

    @abstractmethod
    def remove_leftovers(self) -> None:
        """Remove what a killed run of this job left in the staging area; a job has one run at a time."""

    @abstractmethod
    def shape(self, rows: Rows, slice_: Slice) -> Rows:
        """Add or drop columns as the target stores them."""

    @abstractmethod
    def staging_area(self) -> AbstractContextManager[StagingArea]:
        """Provide a new staging area, which is removed at the end."""

    @abstractmethod
    def target_columns(self, found: Columns) -> Columns | None:
        """Look up the columns of the target; None if it does not exist yet."""

    def staged_columns(self, fitting: Fit) -> Columns:
        """Choose the columns to stage: all of the target's, also those that the source does not have."""
        return fitting.all_columns

    def row_check(self) -> Check | None:
        """Make the function that finds rows that the target cannot store; it is sent to the executors."""
        return None

    @abstractmethod
    def stage_task(self, area: StagingArea, slice_: Slice) -> StageTask:
        """Make the function that stages the rows of a task; it is sent to the executors."""

    @abstractmethod
    def swap(
        self,
        area: StagingArea,
        staged: Sequence[StagedRows],
        columns: Columns,
        slice_: Slice,
        letters: pa.Table,
    ) -> int | None:
        """Replace the slice by the staged rows, and its dead letters by ``letters``.

        The same step passes the fence, so that a run that was replaced in the meantime changes nothing.
        Without staged rows ``columns`` is empty, and the slice is emptied.

        Returns:
            The number of staged rows that were rejected only now, and became dead letters as well; None if
            the rows no longer fit the columns of the target.
        """


def stage_rows(
    rows: Rows,
    task: StageTask,
    watermark_column: str | None,
    zone: str,
    rule: RejectionRule = RejectionRule(),  # noqa: B008 - it is immutable
) -> list[StagedRows]:
    """Let every Spark task stage its rows, and collect the reports of those that had rows.

    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> def stage(batches, name):
    ...     return sum(batch.num_rows for batch in batches) * 8, None
    >>> sum(staged.rows for staged in stage_rows(Rows.of(spark.range(5)), stage, None, "UTC"))
    5
    """
    if watermark_column is not None and watermark_column not in rows.columns:
        fix = available(watermark_column, rows.columns)
        raise InvalidArgument(_WATERMARK_COLUMN, watermark_column, "column not found in the source", fix=fix)
    schema, ddl = _STAGED_SCHEMA, _STAGED_DDL
    frame, rows_of = rows.in_tasks()

    def work(batches: Batches) -> Batches:
        count, highest = 0, None
        sorter = RowSorter(rule)

        def counted() -> Batches:
            nonlocal count, highest
            for batch in map(sorter.accepted, rows_of(batches)):
                if batch.num_rows:
                    count += batch.num_rows
                    if watermark_column is not None:
                        newest = _highest(batch, watermark_column, zone)
                        highest = max((each for each in (highest, newest) if each is not None), default=None)
                    yield batch

        name = uuid.uuid4().hex
        size, payload = task(counted(), name)
        if count or sorter.letters:
            report = [[name], [count], [size], [highest], [payload], [sorter.payload()]]
            columns = [pa.array(each, kind) for each, kind in zip(report, schema.types, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return [StagedRows(*row) for row in frame.mapInArrow(work, ddl).collect()]


def _highest(batch: pa.RecordBatch, column: str, zone: str) -> int | None:
    try:
        times = instants(batch.column(column), zone, column)
    except InvalidArgument as error:
        raise InvalidArgument(_WATERMARK_COLUMN, column, error.reason, fix=error.fix) from None
    highest: int | None = pc.max(times).cast(INSTANTS).cast(pa.int64()).as_py()
    return highest
