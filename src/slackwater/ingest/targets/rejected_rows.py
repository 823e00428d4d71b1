"""Rejected rows: a task fails with a row that the target cannot store, or stores it as a dead letter.

A dead letter has the reason, the row as JSON and the event time of the row. Letters travel to the driver with
the report of the task, and are stored when the other rows are swapped in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from slackwater._utf8 import split_unreadable
from slackwater.errors import InvalidArgument
from slackwater.ingest.job_errors import RowRejected
from slackwater.ingest.sources.arrow_types import INSTANTS, instants
from slackwater.ingest.sources.spark_columns import REJECTED

LETTERS: Final = pa.schema([("reason", pa.string()), ("content", pa.string()), ("time", pa.int64())])

Check = Callable[[pa.RecordBatch], "tuple[pa.Array, pa.Array] | None"]
"""Returns the reason for each row that the target cannot store, null for the others, and the rejected rows as
JSON, in order; None if there are none."""


@dataclass(frozen=True)
class RejectionRule:
    """What happens to rows that a target cannot store; it is sent to the executors."""

    emit: bool = False
    """Whether they become dead letters; otherwise the first one fails the unit."""
    time_column: str | None = None
    zone: str = "UTC"
    check: Check | None = None
    """Finds such rows before they are loaded: a database would cut some values without an error."""


class RowSorter:
    """Separates the rows of one task into accepted rows and dead letters.

    >>> rejection = {"reason": "column 'price' is odd", "value": "1.9", "content": '{"price":1.9}'}
    >>> batch = pa.record_batch({"price": [1, 2], REJECTED: [rejection, None]})
    >>> sorter = RowSorter(RejectionRule(emit=True))
    >>> sorter.accepted(batch).to_pylist(), sorter.letters[0].to_pylist()[0]["content"]
    ([{'price': 2}], '{"price":1.9}')
    """

    def __init__(self, rule: RejectionRule) -> None:
        self._rule = rule
        self.letters: list[pa.RecordBatch] = []

    def accepted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that the target can store, without the column of rejections.

        Raises:
            RowRejected: A row cannot be stored, and such rows fail the unit.
        """
        if REJECTED in batch.schema.names:
            batch = self._without_rejections(batch)
        batch = self._without_unreadable(batch)
        if self._rule.check is not None and batch.num_rows:
            found = self._rule.check(batch)
            if found is not None:
                reasons, contents = found
                if not self._rule.emit:
                    raise RowRejected(pc.drop_null(reasons)[0].as_py(), None, contents[0].as_py())
                kept = pc.is_null(reasons)
                self._add_letters(batch.filter(pc.invert(kept)), pc.drop_null(reasons), contents)
                batch = batch.filter(kept)
        return batch

    def _without_rejections(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        rejections = batch.column(REJECTED)
        batch = batch.drop_columns([REJECTED])
        if rejections.null_count == len(rejections):
            return batch
        kept = pc.is_null(rejections)
        found = rejections.filter(pc.invert(kept))
        if not self._rule.emit:
            raise RowRejected(*(found[0][name].as_py() for name in ("reason", "value", "content")))
        reasons, contents = (pc.struct_field(found, name) for name in ("reason", "content"))
        self._add_letters(batch.filter(pc.invert(kept)), reasons, contents)
        return batch.filter(kept)

    def _without_unreadable(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        accepted, rejected, reasons = split_unreadable(batch)
        if reasons:
            import polars as pl

            from slackwater.sql.letters import as_letters  # only here: most workers need no SQL

            contents = as_letters(pl.DataFrame(rejected), pl.Series(reasons))["content"].to_list()
            if not self._rule.emit:
                raise RowRejected(reasons[0], None, contents[0])
            self._add_letters(rejected, pa.array(reasons), pa.array(contents))
        return accepted

    def _add_letters(self, rows: pa.RecordBatch, reasons: pa.Array, contents: pa.Array) -> None:
        name = self._rule.time_column
        times = pa.nulls(rows.num_rows, pa.int64())
        if name is not None and name in rows.schema.names:
            times = times_of(rows.column(name), self._rule.zone, name)
        self.letters.append(pa.RecordBatch.from_arrays([reasons, contents, times], schema=LETTERS))

    def payload(self) -> bytes | None:
        """All dead letters as an Arrow IPC stream; None if there are none."""
        if not self.letters:
            return None
        from slackwater.sql.staging_table import serialize_batches  # only here: most workers need no SQL

        return serialize_batches(self.letters)


def times_of(column: pa.Array, zone: str, name: str) -> pa.Array:
    """The instants of a time column in microseconds; null where the values are not times.

    >>> times_of(pa.array(["1970-01-01 00:00:01"]), "UTC", "at").to_pylist()
    [1000000]
    """
    try:
        return instants(column, zone, name).cast(INSTANTS).cast(pa.int64())
    except InvalidArgument:
        return pa.nulls(len(column), pa.int64())


def joined_letters(payloads: Iterable[bytes | None]) -> pa.Table:
    """All dead letters of the tasks as one table.

    >>> joined_letters([None]).num_rows
    0
    """
    from slackwater.sql.staging_table import deserialize_batches  # only here: most workers need no SQL

    parts = [batch for payload in payloads for batch in deserialize_batches(payload)]
    return pa.Table.from_batches(parts, schema=LETTERS)
