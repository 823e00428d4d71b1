"""HTTP source: Spark tasks send the requests of a unit, then the column types follow from all records.

Tasks persist every record as a line of JSON on disk, because the types are known only after the last record
of the unit. A failed request is reported as a row instead of an exception. On an exception Spark would run
the task again, repeat a request that the server has rejected, and log the error.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Final

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession, types
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from slackwater.ingest.jobfile.endpoints import ColumnSetting
from slackwater.ingest.sources.exact_casts import as_text
from slackwater.ingest.sources.http.http_errors import (
    HttpError,
    InvalidPagination,
    InvalidResponse,
    RequestFailed,
)
from slackwater.ingest.sources.http.record_reader import HttpReading, RangeRequest
from slackwater.ingest.sources.http.record_types import Seen, join, type_of

_STAGED: Final = "low long, high long, record string, summary string"
_STAGED_SCHEMA: Final = pa.schema(
    [("low", pa.int64()), ("high", pa.int64()), ("record", pa.string()), ("summary", pa.string())]
)
_FAILURES: Final[dict[str, Callable[[str], HttpError]]] = {
    kind.__name__: kind for kind in (RequestFailed, InvalidResponse, InvalidPagination)
}
_NESTED: Final = (types.ArrayType, types.MapType, types.StructType)
"""Types whose values are parsed; all others are text."""


def _task_function(reading: HttpReading) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function of a task: from indexes of requests to their records and a summary row."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for name in ("httpx", "httpcore"):  # they log whole URLs, secrets included
            logging.getLogger(name).setLevel(logging.WARNING)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _records_of(reading, reading.parts[number])

    return work


def _records_of(reading: HttpReading, part: RangeRequest) -> Iterator[pa.RecordBatch]:
    seen: Seen = {}
    rows = 0
    try:
        for page in reading.read(part, seen):
            rows += len(page)
            yield _record_batch(part, [*page])
    except HttpError as failure:
        message = reading.secrets.mask(failure.message)
        yield _record_batch(part, [None], {"failure": type(failure).__name__, "message": message})
    else:
        yield _record_batch(part, [None], {"rows": rows, "seen": {name: sorted(seen[name]) for name in seen}})


def _record_batch(part: RangeRequest, records: list[str | None], summary: Any = None) -> pa.RecordBatch:
    texts = [None if summary is None else json.dumps(summary)] * len(records)
    columns = [[part.low] * len(records), [part.high] * len(records), records, texts]
    arrays = [pa.array(each, kind) for each, kind in zip(columns, _STAGED_SCHEMA.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_STAGED_SCHEMA)


def read_http(
    spark: SparkSession,
    reading: HttpReading,
    columns: tuple[ColumnSetting, ...] | None,
    time_column: str | None,
    afterwards: ExitStack,
) -> DataFrame | None:
    """Send the requests now and return their records as a DataFrame; None if there are none.

    The persisted records are released by ``afterwards``. With ``columns`` only those are read, with all their
    values as text, ready to be cast.

    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> with ExitStack() as afterwards:
    ...     read_http(spark, HttpReading(()), None, None, afterwards) is None
    True
    """
    if not reading.parts:
        return None
    count = len(reading.parts)
    records = spark.range(0, count, 1, count).mapInArrow(_task_function(reading), _STAGED)
    staged = records.persist(StorageLevel.DISK_ONLY)
    afterwards.callback(staged.unpersist)
    summaries = [
        json.loads(row.summary) for row in staged.where("record IS NULL").select("summary").collect()
    ]
    for one in summaries:
        if "failure" in one:
            raise _FAILURES.get(one["failure"], HttpError)(one["message"])
    if not sum(one["rows"] for one in summaries):
        return None
    seen: Seen = {}
    for one in summaries:
        seen = join(seen, one["seen"])
    schema = _inferred(seen) if columns is None else _given(columns)
    # If an executor is lost, its requests are sent again, and may fail this time.
    broken = F.get_json_object("summary", "$.failure").isNotNull()
    whole = F.when(broken, F.raise_error(F.col("summary"))).otherwise(F.col("record").isNotNull())
    parsed = F.from_json("record", schema, {"mode": "FAILFAST"}).alias("record")
    frame = staged.where(whole.cast("boolean")).select("low", "high", parsed)
    if len(reading.parts) > 1 and time_column in schema.names:
        time = F.col("record").getField(str(time_column))
        at = F.unix_micros(time.try_cast("timestamp"))
        invalid = time.isNotNull() & at.isNull()  # reported later, with all of its row
        frame = frame.where(invalid | ((at >= F.col("low")) & (at < F.col("high"))))
    # a column that is all null fits a target column of any type, so it gets none here
    bare = {name for name, kinds in seen.items() if not kinds} if columns is None else set()
    fields = [F.lit(None) if name in bare else F.col("record").getField(name) for name in schema.names]
    return frame.select(*(field.alias(name) for field, name in zip(fields, schema.names, strict=True)))


def _inferred(seen: Seen) -> types.StructType:
    fix = "select columns with ms.schema"
    if not seen:
        raise InvalidResponse(
            "the records have no fields; set ms.source.http.records to the path of records with fields"
        )
    for name in seen:
        if not name or "`" in name:
            raise InvalidResponse(
                f"the records have a field {name!r}, which is not a valid column name; {fix}"
            )
    lower: dict[str, str] = {}
    for name in seen:
        other = lower.setdefault(name.lower(), name)
        if other != name:
            raise InvalidResponse(
                f"the records have fields {other!r} and {name!r}, the same column in Spark; {fix}"
            )
    schema = types.StructType()
    for name, kinds in seen.items():
        schema = schema.add(name, types.DataType.fromDDL(type_of(kinds)))
    return schema


def _given(columns: tuple[ColumnSetting, ...]) -> types.StructType:
    schema = types.StructType()
    for one in columns:
        kind = types.DataType.fromDDL(one.type)
        schema = schema.add(one.name, as_text(kind) if isinstance(kind, _NESTED) else types.StringType())
    return schema
