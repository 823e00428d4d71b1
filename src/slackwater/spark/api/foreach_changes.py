"""The changes that panes make, batch by batch, for a user's function; see `Panes.foreach_batch`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import polars as pl
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import BooleanType, StructField, StructType

from slackwater.errors import InvalidArgument
from slackwater.spark.api.lake_merge import fold_batches, lake_columns
from slackwater.spark.api.upsert import Folding, Mode, pane_columns, result_rows
from slackwater.spark.versions import output_arrow_schema
from slackwater.sql.pane_merge import PANE_INDEX, RETRACTION
from slackwater.sql.pane_table import check_columns
from slackwater.tables.lake_table import LakeColumns
from slackwater.tables.pane_fold import DELETED


def foreach_changes(
    frame: DataFrame,
    function: Callable[[DataFrame, int], None],
    *,
    key: Sequence[str],
    windows: bool,
    mode: Mode | None,
    fold: Folding | None,
) -> DataStreamWriter:
    """Build a stream writer that calls a function with the changes of each batch.

    Args:
        frame: A streaming DataFrame with the schema of panes.
        function: Called with the changes and the number of the batch.
        key: The key columns of the panes.
        windows: Whether a row of the table stands for a key and window, or for a key.
        mode: The accumulation mode of the panes.
        fold: How deltas are combined.

    Raises:
        InvalidArgument: An argument is invalid.
    """
    if not frame.isStreaming:
        raise InvalidArgument(
            "foreach_batch", "a batch DataFrame", "is not streaming", fix="call to_df() and use its rows"
        )
    if not callable(function):
        raise InvalidArgument(
            "function", function, "is not a function", fix="pass a function of a DataFrame and a number"
        )
    _check_parameters(function)
    columns = pane_columns(frame, key, windows=windows, mode=mode, fold=fold)
    check_columns(columns.identity, columns.values, columns.fold)
    lake = lake_columns(result_rows(frame, columns), columns)

    def call(batch: DataFrame, number: int) -> None:
        rows = result_rows(batch, columns)
        kept = [field for field in rows.schema.fields if field.name not in (PANE_INDEX, RETRACTION)]
        schema = StructType([*kept, StructField(DELETED, BooleanType())])
        changes = rows.mapInArrow(ChangeFolder(lake, schema), schema).persist()
        try:
            function(changes, number)
        finally:
            changes.unpersist()

    return frame.writeStream.foreachBatch(call).outputMode("append")


def _check_parameters(function: Callable[..., None]) -> None:
    """Raise if a function cannot be called with a DataFrame and a number, as far as that is known."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a function of C without a signature
        return
    try:
        signature.bind(None, 0)
    except TypeError as error:
        name = getattr(function, "__name__", repr(function))
        raise InvalidArgument(
            "function", f"{name}{signature}", f"cannot be called with two arguments: {error}",
            fix="pass a function of a DataFrame and a number",
        ) from error  # fmt: skip


@dataclass(frozen=True)
class ChangeFolder:
    """Folds the panes of a task into changes; for `mapInArrow`."""

    columns: LakeColumns
    schema: StructType
    """The columns of the changes."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The changes of a task: all panes of a key and window are in one."""
        changes = fold_batches(self.columns, batches)
        target = output_arrow_schema(self.schema)
        table = changes.to_arrow(compat_level=pl.CompatLevel.oldest())
        yield from table.select(target.names).cast(target).to_batches()
