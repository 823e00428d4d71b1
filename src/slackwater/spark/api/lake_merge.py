"""Merges of panes into Delta Lake and Iceberg tables that show the current results, exactly once.

The sink folds the rows of each task, and they travel to the driver with the commit messages. There one commit
of the table applies the changes and records the batch, so readers see whole batches only.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.streaming.readwriter import DataStreamWriter

from slackwater.errors import InvalidArgument
from slackwater.spark.api.pane_sink import SinkIdentity, register_sink
from slackwater.spark.api.upsert import Folding, Mode, PaneColumns, pane_columns, result_rows
from slackwater.spark.runtime.sink_progress import (
    BucketProgress,
    CompletenessClaim,
    batch_clock,
    stated_completeness,
    without_reports,
)
from slackwater.spark.versions import DataSourceStreamArrowWriter, to_arrow_schema
from slackwater.sql.commit_owner import Committer
from slackwater.sql.pane_merge import PANE_INDEX, RETRACTION
from slackwater.sql.pane_table import check_columns
from slackwater.sql.staging_table import deserialize_batches, serialize_batches
from slackwater.tables.lake_ledger import BatchCommit
from slackwater.tables.lake_table import LakeColumns, LakeTable, plain_schema
from slackwater.tables.pane_fold import DELETED, folded_panes
from slackwater.tables.table_address import lake_table

_log = logging.getLogger(__name__)


def merge_into(
    frame: DataFrame,
    table: str,
    *,
    key: Sequence[str],
    windows: bool = True,
    mode: Mode | None = None,
    fold: Folding | None = None,
    create: bool = False,
    identity: str | None = None,
    takeover_from: str | None = None,
    claim: CompletenessClaim | None = None,
) -> DataStreamWriter:
    """Build a stream writer that merges panes into a Delta Lake or Iceberg table; see `Panes.merge_into`.

    Args:
        frame: A streaming DataFrame with the schema of panes.
        table: The table, as ``delta:LOCATION`` or ``iceberg:CATALOG/NAMESPACE.TABLE``.
        key: The key columns of the panes.
        windows: Keep one row for each key and window instead of one for each key.
        mode: The accumulation mode of the panes, if it is known, to check ``fold`` against it.
        fold: How deltas are folded, as in `upsert_to`.
        create: Create the table if it does not exist.
        identity: The name under which batches are recorded, as in `upsert_to`.
        takeover_from: The id of the query whose ``identity`` this query takes over.
        claim: How the completeness follows from reports in ``frame``, as in `upsert_to`.

    Raises:
        InvalidArgument: An argument is invalid.
        TableDoesNotFit: The table does not exist, or has missing or wrong columns, which are all named.
        MissingExtra: ``deltalake`` or ``pyiceberg`` is not installed.
    """
    if not frame.isStreaming:
        raise InvalidArgument(
            "frame", "a batch DataFrame", "is not streaming",
            fix="write to_df() with the table's own writer",
        )  # fmt: skip
    commits = SinkIdentity(identity, takeover_from, claim)
    target = lake_table(table)
    columns = pane_columns(frame, key, windows=windows, mode=mode, fold=fold)
    check_columns(columns.identity, columns.values, columns.fold)
    rows = result_rows(frame, columns)
    lake = lake_columns(rows, columns)
    target.prepare(lake, create=create)
    merge = LakeMerge(target, lake, commits)
    name = register_sink(
        frame.sparkSession, "merge", (target.name, merge), stream_writer=lambda: LakeWriter(merge)
    )
    return rows.writeStream.format(name).outputMode("append")


def lake_columns(rows: DataFrame, columns: PaneColumns) -> LakeColumns:
    """The columns of a lakehouse table for rows that `result_rows` returned."""
    schema = plain_schema(to_arrow_schema(rows.schema))
    identity, values = (
        pa.schema([schema.field(column.name) for column in several])
        for several in (columns.identity, columns.values)
    )
    return LakeColumns(identity, values, dict(columns.fold))


@dataclass(frozen=True)
class LakeMerge:
    """The configuration of the sink."""

    target: LakeTable
    columns: LakeColumns
    commits: SinkIdentity


@dataclass
class _TaskChanges(WriterCommitMessage):
    """The folded changes of a task, serialized."""

    committer: Committer
    payload: bytes | None
    progress: list[BucketProgress]


def fold_batches(columns: LakeColumns, batches: Iterable[pa.RecordBatch]) -> pl.DataFrame:
    """The changes that the panes of a task make."""
    panes = _frame(columns, batches, (PANE_INDEX, pa.int64()), (RETRACTION, pa.bool_()))
    identity = columns.identity.names
    return folded_panes(panes, identity, columns.fold, index=PANE_INDEX, retraction=RETRACTION)


class LakeWriter(DataSourceStreamArrowWriter):
    """The writer of the sink: tasks fold, and the commit merges."""

    def __init__(self, merge: LakeMerge) -> None:
        self._merge = merge

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Fold the panes of a task."""
        progress: list[BucketProgress] = []
        changes = fold_batches(self._merge.columns, without_reports(iterator, progress))
        batches = changes.to_arrow(compat_level=pl.CompatLevel.oldest()).to_batches()
        return _TaskChanges(self._merge.commits.committer(), serialize_batches(batches), progress)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Merge the changes of all tasks."""
        written = [message for message in messages if isinstance(message, _TaskChanges)]
        if not written:
            return
        merge, committer = self._merge, written[0].committer
        identity = merge.commits.of(committer)
        stated = stated_completeness(merge.commits.claim, written)
        clock = batch_clock(one for message in written for one in message.progress)
        batch = BatchCommit(identity, batchId, committer, stated, clock)
        changes = changes_of(merge.columns, [message.payload for message in written])
        if not merge.target.merge(merge.columns, changes, batch):
            _log.warning(
                "batch %s of %s was already merged into %s; skipped", batchId, identity, merge.target.name
            )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Do nothing: nothing was written."""


def changes_of(columns: LakeColumns, payloads: Sequence[bytes | None]) -> pl.DataFrame:
    """The changes of a batch, from those of its tasks: a key and window has changes in one task only."""
    batches = (batch for payload in payloads for batch in deserialize_batches(payload))
    return _frame(columns, batches, (DELETED, pa.bool_()))


def _frame(
    columns: LakeColumns, batches: Iterable[pa.RecordBatch], *further: tuple[str, pa.DataType]
) -> pl.DataFrame:
    """The rows with the columns of the table and further ones, in the types of the table."""
    schema = pa.schema([*columns.schema, *further])
    parts = [pa.Table.from_batches([batch]).select(schema.names).cast(schema) for batch in batches]
    return pl.DataFrame(pl.from_arrow(pa.concat_tables(parts) if parts else schema.empty_table()))
