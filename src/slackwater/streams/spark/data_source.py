"""The data source ``slackwater``: its registration, and the readers and writers that Spark asks it for."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from slackwater.errors import InvalidArgument
from slackwater.streams.spark.format_options import FormatOptions
from slackwater.streams.spark.stream_columns import spark_schema
from slackwater.streams.spark.stream_sink import StreamAppend, StreamSink
from slackwater.streams.spark.stream_source import StreamRange, StreamSource

FORMAT: Final = "slackwater"


class SlackwaterFormat(DataSource):
    """The data source behind ``format("slackwater")``, for reads and writes, streaming and batch."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._options = FormatOptions.of(dict(options))

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns of the stream, as Spark types."""
        return spark_schema(self._options.open().columns, headers=self._options.headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader for ``spark.read``."""
        return StreamRange(self._options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """The reader for ``spark.readStream``."""
        return StreamSource(self._options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer for ``df.write``."""
        _only_append(overwrite)
        return StreamAppend(self._options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """The writer for ``df.writeStream``."""
        _only_append(overwrite)
        return StreamSink(self._options)


def _only_append(overwrite: bool) -> None:
    if overwrite:
        fix = 'write .mode("append"), or .outputMode("append")'
        raise InvalidArgument("mode", "overwrite", "is not supported: a stream only takes appends", fix=fix)


def register(spark: SparkSession) -> None:
    """Register the data source ``slackwater`` with a Spark session.

    Args:
        spark: The session. Afterwards ``spark.readStream.format("slackwater")`` works in it.
    """
    spark.dataSource.register(SlackwaterFormat)
