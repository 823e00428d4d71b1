"""Count the records of each Kafka partition per minute, and write the counts to Parquet."""

from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.transforms.window import FixedWindows, TimestampedValue

SCHEMA = pa.schema({"partition": pa.int32(), "window_start": pa.float64(), "records": pa.int64()})


def row(item: tuple[int, int], window: Any = beam.DoFn.WindowParam) -> dict[str, Any]:
    return {"partition": item[0], "window_start": float(window.start), "records": item[1]}


def pipeline(kafka: "beam.PCollection[dict[str, Any]]", folder: str) -> None:
    timed = kafka | beam.Map(
        lambda record: TimestampedValue(record["partition"], record["timestamp"].timestamp())
    )
    counts = timed | beam.WindowInto(FixedWindows(60)) | beam.combiners.Count.PerElement() | beam.Map(row)
    counts | beam.io.WriteToParquet(f"{folder}/counts", SCHEMA)
