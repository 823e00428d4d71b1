"""Extracted rows on their way to a target: a DataFrame, or partitions that a writing task reads directly.

Rows that one Python function reads and another one stages travel to the JVM and back in between, which takes
as long as reading them. If Spark would not change the rows, the staging function reads them itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from slackwater.ingest.sources.arrow_types import INSTANTS, in_utc
from slackwater.ingest.sources.exact_casts import fitted
from slackwater.ingest.sources.spark_columns import REJECTED, Columns, column, columns_of
from slackwater.spark.versions import from_arrow_schema, from_arrow_type

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class RowPartitions:
    """Rows in partitions, each of which a task reads by itself.

    >>> def read(number):
    ...     yield pa.record_batch({"id": pa.array([number])})
    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> RowPartitions(2, pa.schema([("id", pa.int64())]), read).frame(spark).collect()
    [Row(id=0), Row(id=1)]
    """

    count: int
    schema: pa.Schema
    read: Callable[[int], Batches]
    """Returns the rows of the partition with this index, in the schema."""

    def numbers(self, spark: SparkSession) -> DataFrame:
        """A DataFrame of the partition indexes, one per task."""
        return spark.range(0, self.count, 1, self.count)

    def batches(self, numbers: Batches) -> Batches:
        """The rows of the partitions with these indexes, read in a task."""
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from self.read(number)

    def frame(self, spark: SparkSession) -> DataFrame:
        """All rows as a DataFrame."""
        return self.numbers(spark).mapInArrow(self.batches, from_arrow_schema(self.schema))


@dataclass(frozen=True)
class Rows:
    """A DataFrame, built on demand, and its partitions if tasks can read them directly.

    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> Rows.of(spark.range(1)).columns
    {'id': DataType(int64)}
    """

    spark: SparkSession
    columns: Columns
    make: Callable[[], DataFrame]
    partitions: RowPartitions | None = None
    constants: Mapping[str, pa.Scalar] = field(default_factory=dict)
    """Columns that are not in the partitions, with the value that they have in all rows."""

    @classmethod
    def of(cls, frame: DataFrame, partitions: RowPartitions | None = None) -> Rows:
        """The rows of a DataFrame."""
        return cls(frame.sparkSession, columns_of(frame.schema), lambda: frame, partitions)

    @classmethod
    def of_partitions(cls, spark: SparkSession, partitions: RowPartitions) -> Rows:
        """The rows of all partitions; a DataFrame is built only if Spark has to change them."""
        return cls(
            spark,
            columns_of(from_arrow_schema(partitions.schema)),
            lambda: partitions.frame(spark),
            partitions,
        )

    @cached_property
    def frame(self) -> DataFrame:
        """All rows as a DataFrame."""
        return self.make()

    def changed(self, frame: DataFrame) -> Rows:
        """The same rows after a transformation by Spark."""
        return replace(self, columns=columns_of(frame.schema), make=lambda: frame)

    def without(self, names: Iterable[str]) -> Rows:
        """The rows without some columns, which may be absent.

        >>> from slackwater.spark.session import session
        >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
        >>> Rows.of(spark.range(1)).marked({"site": "7"}).without(["id"]).columns
        {'site': DataType(string)}
        """
        chosen = {name.lower() for name in names}  # Spark compares column names without case
        there = [name for name in self.columns if name.lower() in chosen]
        return self.changed(self.frame.drop(*there)) if there else self

    def marked(self, marks: Mapping[str, str | int | None]) -> Rows:
        """The rows with constant columns that identify them: texts or instants.

        >>> from slackwater.spark.session import session
        >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
        >>> Rows.of(spark.range(1)).marked({"site": "7"}).frame.collect()
        [Row(id=0, site='7')]
        """
        if not marks:
            return self
        new = {
            name: pa.scalar(value, INSTANTS if isinstance(value, int) else pa.string())
            for name, value in marks.items()
        }
        constants = {**self.constants, **new}
        if {name.lower() for name in marks} & {name.lower() for name in self.columns}:
            # Spark compares column names without case, and decides which one is left
            return replace(self.changed(_with_constants(self.frame, marks)), constants=constants)
        columns = {**self.columns, **{name: value.type for name, value in new.items()}}
        return replace(
            self, columns=columns, make=lambda: _with_constants(self.frame, marks), constants=constants
        )

    def fitted(self, wanted: Columns) -> Rows:
        """The rows with the wanted columns in their types; missing columns are null.

        A row with a value that its type cannot represent exactly gets a rejection; see `in_tasks`.

        >>> from slackwater.spark.session import session
        >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
        >>> Rows.of(spark.range(1)).fitted({"id": pa.string(), "name": pa.string()}).frame.collect()
        [Row(id='0', name=None)]
        """
        found = self.columns
        if list(found.items()) == list(wanted.items()):
            return self
        missing = {name: pa.scalar(None, kind) for name, kind in wanted.items() if name not in found}
        return replace(self.changed(fitted(self.frame, wanted)), constants={**self.constants, **missing})

    def in_tasks(self) -> tuple[DataFrame, Callable[[Batches], Batches]]:
        """A DataFrame for ``mapInArrow``, and the function that turns its batches into these rows.

        If values were cast, the batches have a last column `REJECTED`, which is null for accepted rows.
        """
        kinds = self.columns
        names = list(kinds)
        if self.partitions is not None and self._unchanged(self.partitions):
            partitions, constants = self.partitions, dict(self.constants)

            def read(numbers: Batches) -> Batches:
                for batch in partitions.batches(numbers):
                    yield _shaped(batch, kinds, constants)

            return partitions.numbers(self.spark), read

        frame = self.frame
        if REJECTED in frame.columns:
            frame = frame.select(*map(column, names), REJECTED)
            names.append(REJECTED)

        def given(batches: Batches) -> Batches:
            for batch in batches:
                yield in_utc(batch.rename_columns(names))

        # mapInArrow would read a dot in a column name as a field of a struct
        return frame.toDF(*(f"c{number}" for number in range(len(names)))), given

    def _unchanged(self, partitions: RowPartitions) -> bool:
        """Whether every column is constant or unchanged, so that Spark is not needed."""
        read = {one.name: one.type for one in partitions.schema}
        known = {**read, **{name: value.type for name, value in self.constants.items()}}
        return all(
            name in known and from_arrow_type(known[name]) == from_arrow_type(kind)
            for name, kind in self.columns.items()
        )


def _with_constants(frame: DataFrame, marks: Mapping[str, str | int | None]) -> DataFrame:
    for name, value in marks.items():
        text = F.lit(value).cast("string")
        frame = frame.withColumn(name, F.timestamp_micros(F.lit(value)) if isinstance(value, int) else text)
    return frame


def _shaped(batch: pa.RecordBatch, kinds: Columns, constants: Mapping[str, pa.Scalar]) -> pa.RecordBatch:
    count = batch.num_rows
    columns = [
        pa.repeat(constants[name], count) if name in constants else batch.column(name).cast(kind)
        for name, kind in kinds.items()
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(list(kinds.items())))
