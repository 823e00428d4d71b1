"""Rows on their way to a target: a frame of Spark, and how a task reads them itself where that is the same.

Rows that one Python function reads and another one puts aside go to the JVM and back in between, which takes
as long as reading them. Where Spark would not change them, the function that puts them aside reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from slackwater.ingest.sources.arrow_types import INSTANTS, in_utc
from slackwater.ingest.targets.schema_drift import Columns, columns_of, fitted
from slackwater.spark.internals import from_arrow_schema, from_arrow_type

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class Parts:
    """Rows that tasks read by themselves, a part each.

    >>> def read(number):
    ...     yield pa.record_batch({"id": pa.array([number])})
    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> Parts(2, pa.schema([("id", pa.int64())]), read).frame(spark).collect()
    [Row(id=0), Row(id=1)]
    """

    count: int
    schema: pa.Schema
    read: Callable[[int], Batches]
    """The rows of the part with this number, from 0 on, as the schema says."""

    def numbers(self, spark: SparkSession) -> DataFrame:
        """The numbers of the parts, one to a task."""
        return spark.range(0, self.count, 1, self.count)

    def batches(self, numbers: Batches) -> Batches:
        """What a task reads that is given these numbers."""
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from self.read(number)

    def frame(self, spark: SparkSession) -> DataFrame:
        """All of it, by way of Spark."""
        return self.numbers(spark).mapInArrow(self.batches, from_arrow_schema(self.schema))


@dataclass(frozen=True)
class Rows:
    """A frame, which is made when it is asked for, and the parts that it has, if tasks can read them.

    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> Rows.of(spark.range(1)).columns
    {'id': DataType(int64)}
    """

    spark: SparkSession
    columns: Columns
    make: Callable[[], DataFrame]
    parts: Parts | None = None
    constants: Mapping[str, pa.Scalar] = field(default_factory=dict)
    """The columns of the frame that no part has, with the value that they have in all rows."""

    @classmethod
    def of(cls, frame: DataFrame, parts: Parts | None = None) -> Rows:
        """The rows of a frame."""
        return cls(frame.sparkSession, columns_of(frame.schema), lambda: frame, parts)

    @classmethod
    def of_parts(cls, spark: SparkSession, parts: Parts) -> Rows:
        """The rows of all parts, of which a frame is made only if Spark has something to do with them."""
        return cls(spark, columns_of(from_arrow_schema(parts.schema)), lambda: parts.frame(spark), parts)

    @cached_property
    def frame(self) -> DataFrame:
        """All of it, by way of Spark."""
        return self.make()

    def changed(self, frame: DataFrame) -> Rows:
        """What Spark made of the rows."""
        return replace(self, columns=columns_of(frame.schema), make=lambda: frame)

    def without(self, names: Iterable[str]) -> Rows:
        """The rows without some columns, of which there need not be any.

        >>> from slackwater.spark.session import session
        >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
        >>> Rows.of(spark.range(1)).marked({"site": "7"}).without(["id"]).columns
        {'site': DataType(string)}
        """
        chosen = {name.lower() for name in names}  # to Spark, capital letters are the same
        there = [name for name in self.columns if name.lower() in chosen]
        return self.changed(self.frame.drop(*there)) if there else self

    def marked(self, marks: Mapping[str, str | int | None]) -> Rows:
        """The rows with columns by which they are known: a text, or an instant.

        >>> from slackwater.spark.session import session
        >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
        >>> Rows.of(spark.range(1)).marked({"site": "7"}).frame.collect()
        [Row(id=0, site='7')]
        """
        if not marks:
            return self
        frame = self.frame
        for name, value in marks.items():
            text = F.lit(value).cast("string")
            frame = frame.withColumn(
                name, F.timestamp_micros(F.lit(value)) if isinstance(value, int) else text
            )
        new = {
            name: pa.scalar(value, INSTANTS if isinstance(value, int) else pa.string())
            for name, value in marks.items()
        }
        return replace(self.changed(frame), constants={**self.constants, **new})

    def fitted(self, wanted: Columns) -> Rows:
        """The rows with the columns that are wanted, in their types; those that there are not are null.

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
        """A frame for ``mapInArrow``, and what makes these rows of the batches that a task is given."""
        kinds = self.columns
        names = list(kinds)
        if self.parts is not None and self._unchanged(self.parts):
            parts, constants = self.parts, dict(self.constants)

            def read(numbers: Batches) -> Batches:
                for batch in parts.batches(numbers):
                    yield _shaped(batch, kinds, constants)

            return parts.numbers(self.spark), read

        def given(batches: Batches) -> Batches:
            for batch in batches:
                yield in_utc(batch.rename_columns(names))

        # mapInArrow takes a dot in the name of a column for a field of a struct
        return self.frame.toDF(*(f"c{number}" for number in range(len(names)))), given

    def _unchanged(self, parts: Parts) -> bool:
        """Whether every column of the frame is a constant or as it is read: nothing is left to Spark."""
        read = {one.name: one.type for one in parts.schema}
        known = {**read, **{name: value.type for name, value in self.constants.items()}}
        return all(
            name in known and from_arrow_type(known[name]) == from_arrow_type(kind)
            for name, kind in self.columns.items()
        )


def _shaped(batch: pa.RecordBatch, kinds: Columns, constants: Mapping[str, pa.Scalar]) -> pa.RecordBatch:
    count = batch.num_rows
    columns = [
        pa.repeat(constants[name], count) if name in constants else batch.column(name).cast(kind)
        for name, kind in kinds.items()
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(list(kinds.items())))
