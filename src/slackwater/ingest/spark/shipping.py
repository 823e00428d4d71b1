"""What every target shares: which rows are replaced, and what the tasks tell about those they wrote.

Tasks put rows aside where nobody looks, and say where; the driver then swaps them in, in one step. A task
that is run again puts its rows elsewhere, and only the place that Spark accepted is used.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from slackwater.errors import SlackwaterError
from slackwater.ingest.spark.arrow import INSTANTS, instants
from slackwater.ingest.units import Unit

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
    Written(rows=2, bytes=10, highest=5)
    """

    rows: int
    bytes: int
    highest: int | None

    @classmethod
    def of(cls, told: Iterable[Told]) -> Written:
        """The sum of what tasks told."""
        parts = list(told)
        highest = max((part.highest for part in parts if part.highest is not None), default=None)
        return cls(sum(part.rows for part in parts), sum(part.size for part in parts), highest)


Approve = Callable[[Written], None]
"""Called when everything is put aside, before it is swapped in; an error leaves the target as it is."""
PutAside = Callable[[Iterator[pa.RecordBatch], str], tuple[int, bytes | None]]
"""What a task does with its rows, under a name of its own: how many bytes, and a payload to bring along."""


class Target(Protocol):
    """Where rows go."""

    def replace(self, frame: DataFrame | None, where: Slice, approve: Approve) -> Written:
        """Put the rows of ``frame``, or none, in place of a slice."""


class SchemaDrift(SlackwaterError):
    """Columns differ from those of the target, and the job does not say that they may."""

    def __init__(self, new: Iterable[str], missing: Iterable[str], changed: Iterable[str]) -> None:
        self.new, self.missing, self.changed = tuple(new), tuple(missing), tuple(changed)
        kinds = {"new": self.new, "missing": self.missing, "changed": self.changed}
        found = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in kinds.items() if names)
        super().__init__(
            f"the columns are not those of the target ({found}); alter the target, select other columns, or "
            f"set ms.schema.drift to add or ignore"
        )


def fitted(found: dict[str, str], known: dict[str, str], policy: str) -> list[str]:
    """The names of the columns to write, of those that were found, given those of the target.

    Types are compared by their names. A changed type fails under every policy but ``ignore``.

    >>> fitted({"a": "int64", "b": "string"}, {"a": "int64"}, "ignore")
    ['a']
    >>> fitted({"a": "int64", "b": "string"}, {"a": "int64"}, "add")
    ['a', 'b']
    """
    new = [name for name in found if name not in known]
    missing = [name for name in known if name not in found]
    changed = [name for name in found if name in known and found[name] != known[name]]
    if (policy == "fail" and (new or missing)) or (policy != "ignore" and changed):
        raise SchemaDrift(new, missing, changed)
    return [name for name in found if policy != "ignore" or name in known]


def ship(frame: DataFrame, put_aside: PutAside, watermark_column: str | None, zone: str) -> list[Told]:
    """Let every task put its rows aside, and gather what they tell; tasks without rows tell nothing.

    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> def put_aside(batches, place):
    ...     return sum(batch.num_rows for batch in batches) * 8, None
    >>> sum(one.rows for one in ship(spark.range(5), put_aside, None, "UTC"))
    5
    """
    told_schema, told_text = _TOLD, _TOLD_AS_TEXT

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows, highest = 0, None

        def counted() -> Iterator[pa.RecordBatch]:
            nonlocal rows, highest
            for batch in batches:
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

    return [Told(*row) for row in frame.mapInArrow(work, told_text).collect()]
