"""The data source ``slackwater``, and streams read by it straight into event time."""

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
from slackwater.streams.spark.stream_columns import spark_schema
from slackwater.streams.spark.stream_location import Options
from slackwater.streams.spark.stream_sink import StreamAppend, StreamSink
from slackwater.streams.spark.stream_source import StreamRange, StreamSource

FORMAT: Final = "slackwater"


class SlackwaterFormat(DataSource):
    """What Spark asks when somebody reads or writes the format ``slackwater``."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._options = Options.of(dict(options))

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns of the stream."""
        return spark_schema(self._options.open().columns, headers=self._options.headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For ``spark.read``."""
        return StreamRange(self._options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """For ``spark.readStream``."""
        return StreamSource(self._options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For ``df.write``."""
        _only_append(overwrite)
        return StreamAppend(self._options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """For ``df.writeStream``."""
        _only_append(overwrite)
        return StreamSink(self._options)


def _only_append(overwrite: bool) -> None:
    if overwrite:
        fix = 'write .mode("append"), or .outputMode("append")'
        raise InvalidArgument("mode", "overwrite", "would replace a log that others read", fix=fix)


def register(spark: SparkSession) -> None:
    """Makes the format ``slackwater`` known to a session."""
    spark.dataSource.register(SlackwaterFormat)
