"""What every target shares: which rows are replaced, and what the tasks tell about those they wrote.

Tasks put rows aside where nobody looks, and say where; the driver then swaps them in, in one step. A task
that is run again puts its rows elsewhere, and only the place that Spark accepted is used.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from slackwater.ingest.queries import time_value
from slackwater.ingest.spark.arrow import INSTANTS, in_utc, instants
from slackwater.ingest.units import Unit

PARTITION: Final = "slackwater_partition"
"""The column that tells partitions apart where no time column does."""
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
    Written(rows=2, bytes=10, highest=5, drift=None)
    """

    rows: int
    bytes: int
    highest: int | None
    drift: str | None = None
    """How the columns that were read differ from those of the target."""

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


PutAside = Callable[[Iterator[pa.RecordBatch], str], tuple[int, bytes | None]]
"""What a task does with its rows, under a name of its own: how many bytes, and a payload to bring along."""


class Target(Protocol):
    """Where rows go."""

    def replace(self, frame: DataFrame | None, where: Slice, approve: Approve) -> Written:
        """Put the rows of ``frame``, or none, in place of a slice."""


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


def marked(frame: DataFrame, marks: Mapping[str, str | None]) -> DataFrame:
    """A frame with the columns by which its rows are known.

    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> marked(spark.range(1), {"site": "7"}).collect()
    [Row(id=0, site='7')]
    """
    for name, value in marks.items():
        frame = frame.withColumn(name, F.lit(value).cast("string"))
    return frame


def ship(frame: DataFrame, put_aside: PutAside, watermark_column: str | None, zone: str) -> list[Told]:
    """Let every task put its rows aside, and gather what they tell; tasks without rows tell nothing.

    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> def put_aside(batches, place):
    ...     return sum(batch.num_rows for batch in batches) * 8, None
    >>> sum(one.rows for one in ship(spark.range(5), put_aside, None, "UTC"))
    5
    """
    told_schema, told_text, names = _TOLD, _TOLD_AS_TEXT, frame.columns
    # mapInArrow takes a dot in the name of a column for a field of a struct
    plain = frame.toDF(*(f"c{number}" for number in range(len(names))))

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows, highest = 0, None

        def counted() -> Iterator[pa.RecordBatch]:
            nonlocal rows, highest
            for given in batches:
                batch = in_utc(given.rename_columns(names))
                if batch.num_rows:
                    rows += batch.num_rows
                    if watermark_column is not None:
                        seen = instants(batch.column(watermark_column), zone, watermark_column)
                        newest = pc.max(seen).cast(INSTANTS).cast(pa.int64()).as_py()
                        highest = max((each for each in (highest, newest) if each is not None), default=None)
                    yield batch

        place = uuid.uuid4().hex
        size, payload = put_aside(counted(), place)
        if rows:
            told = [[place], [rows], [size], [highest], [payload]]
            columns = [pa.array(each, kind) for each, kind in zip(told, told_schema.types, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=told_schema)

    return [Told(*row) for row in plain.mapInArrow(work, told_text).collect()]
