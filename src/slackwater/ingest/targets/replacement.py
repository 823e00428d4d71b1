"""What every target shares: which rows are replaced, and what the tasks tell about those they wrote.

Tasks put rows aside where nobody looks, and say where; the driver then swaps them in, in one step. A task
that is run again puts its rows elsewhere, and only the place that Spark accepted is used.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from slackwater.errors import InvalidArgument
from slackwater.ingest.sources.arrow_types import INSTANTS, instants
from slackwater.ingest.sources.extracted_rows import Batches, Rows
from slackwater.ingest.sources.queries import time_value
from slackwater.ingest.units import Unit

PARTITION: Final = "slackwater_partition"
"""The column that tells partitions apart where no time column does."""
_COLUMN: Final = "ms.watermark.column"
_TOLD: Final = pa.schema(
    [
        ("place", pa.string()), ("rows", pa.int64()), ("size", pa.int64()),
        ("highest", pa.int64()), ("payload", pa.binary()),
    ]
)  # fmt: skip
_TOLD_AS_TEXT: Final = "place string, rows long, size long, highest long, payload binary"


class Slice(NamedTuple):
    """The rows of one unit that are replaced: ``[low, high)`` by the time column, or all of the partition."""

    unit: Unit
    start: int
    low: int
    high: int


class Told(NamedTuple):
    """What a task put aside: where, how much, and the highest value of the watermark column."""

    place: str
    rows: int
    size: int
    highest: int | None
    payload: bytes | None


@dataclass(frozen=True)
class Written:
    """What replaced a slice.

    >>> Written.of([Told("a", 2, 10, 5, None), Told("b", 0, 0, None, None)])
    Written(rows=2, bytes=10, highest=5, drift=None, without_time=None)
    """

    rows: int
    bytes: int
    highest: int | None
    drift: str | None = None
    """How the columns that were read differ from those of the target."""
    without_time: int | None = None
    """Rows that were read and have no time; None where the source picks rows by it."""

    @classmethod
    def of(cls, told: Iterable[Told], drift: str | None = None) -> Written:
        """The sum of what tasks told."""
        parts = list(told)
        highest = max((part.highest for part in parts if part.highest is not None), default=None)
        return cls(sum(part.rows for part in parts), sum(part.size for part in parts), highest, drift)


class Approve(Protocol):
    """Called when everything is put aside, before it is swapped in; an error leaves the target as it is."""

    def __call__(self, amount: Written, number: int | None = None) -> None:
        """May this be swapped in? A target that appends says under which number."""


PutAside = Callable[[Batches, str], tuple[int, bytes | None]]
"""What a task does with its rows, under a name of its own: how many bytes, and a payload to bring along."""


class Target(Protocol):
    """Where rows go."""

    def replace(self, rows: Rows | None, where: Slice, approve: Approve) -> Written:
        """Put rows, or none, in place of a slice."""


def marks_of(where: Slice, time_column: str | None) -> dict[str, str | None]:
    """The columns by which rows of a unit are known in a table of all units, apart from their time.

    >>> from slackwater.ingest.units import unit_of
    >>> marks_of(Slice(unit_of({"site": 7}), 0, 0, 10), None)
    {'site': '7', 'slackwater_partition': '1970-01-01 00:00:00'}
    """
    marks = where.unit.as_dict()
    if time_column is None:
        marks[PARTITION] = str(time_value(where.start, "sqlite"))
    return marks


def ship(rows: Rows, put_aside: PutAside, watermark_column: str | None, zone: str) -> list[Told]:
    """Let every task put its rows aside, and gather what they tell; tasks without rows tell nothing.

    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> def put_aside(batches, place):
    ...     return sum(batch.num_rows for batch in batches) * 8, None
    >>> sum(one.rows for one in ship(Rows.of(spark.range(5)), put_aside, None, "UTC"))
    5
    """
    if watermark_column is not None and watermark_column not in rows.columns:
        known = ", ".join(rows.columns)
        raise InvalidArgument(_COLUMN, watermark_column, "is not read", fix=f"there are {known}")
    told_schema, told_text = _TOLD, _TOLD_AS_TEXT
    frame, rows_of = rows.in_tasks()

    def work(batches: Batches) -> Batches:
        count, highest = 0, None

        def counted() -> Batches:
            nonlocal count, highest
            for batch in rows_of(batches):
                if batch.num_rows:
                    count += batch.num_rows
                    if watermark_column is not None:
                        newest = _newest(batch, watermark_column, zone)
                        highest = max((each for each in (highest, newest) if each is not None), default=None)
                    yield batch

        place = uuid.uuid4().hex
        size, payload = put_aside(counted(), place)
        if count:
            told = [[place], [count], [size], [highest], [payload]]
            columns = [pa.array(each, kind) for each, kind in zip(told, told_schema.types, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=told_schema)

    return [Told(*row) for row in frame.mapInArrow(work, told_text).collect()]


def _newest(batch: pa.RecordBatch, column: str, zone: str) -> int | None:
    try:
        seen = instants(batch.column(column), zone, column)
    except InvalidArgument as error:
        raise InvalidArgument(_COLUMN, column, error.reason, fix=error.fix) from None
    newest: int | None = pc.max(seen).cast(INSTANTS).cast(pa.int64()).as_py()
    return newest
