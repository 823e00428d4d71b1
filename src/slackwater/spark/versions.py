"""The differences between the supported versions of PySpark, all of them in this module.

The rest of the package is written against the newest version. What an older version names differently or
does not have is translated here; what it cannot do at all raises `NeedsNewerSpark`. The features of each
version are in docs/operations/compatibility.md, which `make matrix` writes.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
)
from pyspark.sql.pandas import types as arrow_types
from pyspark.sql.types import DataType, StructType

from slackwater._arrow_types import nullable_schema
from slackwater.errors import NeedsNewerSpark

__all__ = [
    "FILE_SYSTEM_CHECKPOINTS",
    "PYSPARK",
    "SETTINGS",
    "DataSourceStreamArrowWriter",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "from_arrow_schema",
    "from_arrow_type",
    "needs",
    "parse_offset",
    "prepare_batch_state",
    "read_in_one_batch",
    "stream_reader",
    "to_arrow_schema",
    "version_of",
]


def version_of(text: str) -> tuple[int, int]:
    """The major and minor number of a version of PySpark.

    >>> version_of("4.0.5"), version_of("4.3.0.dev1")
    ((4, 0), (4, 3))
    """
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


PYSPARK: Final = version_of(pyspark.__version__)
"""The major and minor number of the installed version."""


def needs(feature: str, since: str, *, fix: str | None = None) -> None:
    """Raise if the installed PySpark is older than the first version that has a feature.

    Args:
        feature: What the caller asked for, as the subject of a sentence.
        since: The first version that has it, such as ``"4.2"``.
        fix: What to do without an upgrade.

    Raises:
        NeedsNewerSpark: The installed version is older.

    >>> needs("A clock", "4.0")
    >>> needs("Teleportation", "99.0", fix="walk")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    slackwater.errors.NeedsNewerSpark: Teleportation needs PySpark 99.0 or newer; this is 4...
    """
    if version_of(since) > PYSPARK:
        raise NeedsNewerSpark(feature, since, pyspark.__version__, fix=fix)


if TYPE_CHECKING or PYSPARK >= (4, 1):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter

    FILE_SYSTEM_CHECKPOINTS: Final = (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    )
else:
    FILE_SYSTEM_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager"

    class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):
        """A writer of micro-batches that gets Arrow: version 4.0 only checks for the class of batch jobs."""


if TYPE_CHECKING or PYSPARK >= (4, 2):
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit:
        """How much the next micro-batch may read."""

    @dataclass
    class ReadAllAvailable(ReadLimit):
        """No limit."""

    @dataclass
    class ReadMaxRows(ReadLimit):
        """A number of rows."""

        max_rows: int

    class SupportsTriggerAvailableNow:
        """A source that ends by itself with ``availableNow``, in several batches."""


_WRAPPER: Final = "spark.sql.streaming.triggerAvailableNowWrapper.enabled"
SETTINGS: Final[dict[str, str]] = (
    {}
    if PYSPARK >= (4, 2)
    # A source in Python cannot take part in `availableNow`. By default Spark then reads everything in one
    # batch; this way the other sources keep their limits.
    else {_WRAPPER: "true"}
)
"""Settings of a session that only some versions need."""


def read_in_one_batch(spark: SparkSession) -> None:
    """Make a run with ``availableNow`` one batch, in versions before 4.2.

    For sources that number their batches. If a run has several batches, those versions ask a source for the
    end of the run before they name the last offset of the checkpoint, so a source cannot continue to count.
    """
    if PYSPARK < (4, 2):
        spark.conf.set(_WRAPPER, "false")


class _ReaderWithoutStart(DataSourceStreamReader):
    """A reader for versions before 4.2, which ask for the latest offset without naming the last one.

    Spark plans every batch through `partitions`, also the one that it repeats after a restart, and passes
    the newest offset of a checkpoint to it before it asks for the next. So the last end is known here. In a
    run with ``availableNow`` that has several batches, Spark asks first, once, for the end of the whole run.
    """

    def __init__(self, reader: DataSourceStreamReader, unknown_start: dict[str, Any] | None) -> None:
        self._reader = reader
        self._unknown_start = unknown_start
        self._last: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return self._reader.initialOffset()

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802 - before 4.2
        start = self._last or self._unknown_start or self.initialOffset()
        return self._reader.latestOffset(start, self._reader.getDefaultReadLimit())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._last = end
        return self._reader.partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return cast(Iterator[Any], self._reader.read(partition))

    def commit(self, end: dict[str, Any]) -> None:
        self._reader.commit(end)

    def stop(self) -> None:
        self._reader.stop()


def stream_reader(
    reader: DataSourceStreamReader, *, unknown_start: dict[str, Any] | None = None
) -> DataSourceStreamReader:
    """A reader that is written for the newest PySpark, as the installed one can call it.

    Before 4.2 a run with ``trigger(availableNow=True)`` asks it once, for the first batch.

    Args:
        reader: The reader.
        unknown_start: The offset from which to continue if Spark has not named the last one, which may be
            that of an earlier run; the initial offset if omitted.
    """
    return reader if PYSPARK >= (4, 2) else _ReaderWithoutStart(reader, unknown_start)


def parse_offset(text: str | None) -> object:
    """The offset of a source in the progress of a query; None if it cannot be parsed.

    It is JSON. On Spark Connect, versions before 4.2 convert it to a Python object and that to text.

    >>> parse_offset('{"end": false}'), parse_offset("{'end': False}"), parse_offset("-1 of x")
    ({'end': False}, {'end': False}, None)
    """
    for parse in (json.loads, ast.literal_eval):
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            return cast(object, parse(text or "null"))
    return None


def to_arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema in which Spark sends and expects rows; timestamps are in UTC.

    >>> to_arrow_schema(StructType().add("at", "timestamp")).field("at").type
    TimestampType(timestamp[us, tz=UTC])
    """
    if PYSPARK >= (4, 2):
        return arrow_types.to_arrow_schema(schema, timezone="UTC")
    return arrow_types.to_arrow_schema(schema)  # in UTC by default


def output_arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema of rows that an operator emits: that of `to_arrow_schema`, with nullable fields.

    In unmatched rows of an outer join, fields are null that the schema declares as not nullable.

    >>> output_arrow_schema(StructType().add("n", "long", nullable=False)).field("n").nullable
    True
    """
    return nullable_schema(to_arrow_schema(schema))


def from_arrow_schema(schema: pa.Schema) -> StructType:
    """The Spark schema of an Arrow schema.

    >>> from_arrow_schema(pa.schema([("n", pa.int64())])).simpleString()
    'struct<n:bigint>'
    """
    return arrow_types.from_arrow_schema(schema, prefer_timestamp_ntz=True)


def from_arrow_type(kind: pa.DataType) -> DataType:
    """The Spark type of an Arrow type; a timestamp without a time zone has none in Spark either.

    >>> from_arrow_type(pa.timestamp("us"))
    TimestampNTZType()
    """
    return arrow_types.from_arrow_type(kind, prefer_timestamp_ntz=True)


def prepare_batch_state(spark: SparkSession) -> None:
    """Make a session ready for stateful operators in a batch job.

    In 4.1 and 4.2 the tasks of such a job report to an endpoint that Spark creates with the first streaming
    query of the session. They fail with ``Cannot find endpoint: StateStoreCoordinator`` if there was none.
    """
    if (4, 1) <= version_of(spark.version) <= (4, 2):
        _ = spark.streams.active
