"""How the rows that the buckets of a task emit leave it: as buffers, or as rows of the output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import msgspec
import pandas as pd  # type: ignore[import-untyped]  # its stubs are a package of their own
import polars as pl
from pyspark.sql.types import StructType

from slackwater.spark.wire.buffers import EMITTED, NO_HEADER, pack, write_header
from slackwater.spark.wire.row_codec import RowCodec

if TYPE_CHECKING:
    from slackwater.spark.runtime.bucket import BucketOutput


class TaskOutput(Protocol):
    """The output of the buckets of one task."""

    @property
    def schema(self) -> StructType:
        """The columns of the frames, among them ``report``."""

    def encode(
        self, bucket: int, rows: pl.DataFrame | None, output: BucketOutput | None
    ) -> pd.DataFrame | None:
        """A frame for Spark with a piece of the rows of a bucket, if there is something to send.

        Args:
            bucket: The id of the bucket.
            rows: The rows; None if there are none.
            output: The rest of the output, with the last piece of the bucket.
        """

    def close(self) -> None:
        """Called after the last bucket of the task."""

    def abort(self) -> None:
        """Called if the task fails."""


@dataclass(frozen=True)
class BufferOutput:
    """Rows as payloads of buffers, for the next operator or a second Python process."""

    @property
    def schema(self) -> StructType:
        """A buffer, with the report of its bucket."""
        return EMITTED

    def encode(self, bucket: int, rows: pl.DataFrame | None, output: BucketOutput | None) -> pd.DataFrame:
        """A buffer."""
        return pd.DataFrame(
            {
                "bucket": pd.Series([bucket], dtype="int32"),
                "header": [NO_HEADER if output is None else write_header(output.header)],
                "payload": [None if rows is None else pack(rows)],
                "report": [report_text(output)],
            }
        )

    def close(self) -> None:
        """Do nothing."""

    def abort(self) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class RowOutput:
    """Rows as plain columns, which the JVM decodes."""

    codec: RowCodec

    @property
    def schema(self) -> StructType:
        """The columns of the codec."""
        return self.codec.wire_schema

    def encode(self, bucket: int, rows: pl.DataFrame | None, output: BucketOutput | None) -> pd.DataFrame:
        """The encoded rows."""
        return self.codec.encode(bucket, report_text(output), rows)

    def close(self) -> None:
        """Do nothing."""

    def abort(self) -> None:
        """Do nothing."""


def report_text(output: BucketOutput | None) -> str | None:
    """The report of a bucket as JSON; None unless this is its last piece."""
    return None if output is None else msgspec.json.encode(output.report).decode()
