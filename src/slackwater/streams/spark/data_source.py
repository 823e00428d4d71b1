"""The data source ``slackwater``: its registration, and the readers and writers that Spark asks it for."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, MutableMapping
from typing import ClassVar, Final

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
from slackwater.spark.internals import register_source
from slackwater.spark.runtime.sink_progress import CompletenessClaim
from slackwater.spark.versions import needs, read_in_one_batch, stream_reader
from slackwater.sql.database import database_url, has_password, redacted_url, resolved_address
from slackwater.streams.spark.format_options import REGISTERED, FormatOptions
from slackwater.streams.spark.stream_columns import spark_schema
from slackwater.streams.spark.stream_sink import StreamAppend, StreamSink
from slackwater.streams.spark.stream_source import StreamRange, StreamSource

FORMAT: Final = "slackwater"


class SlackwaterFormat(DataSource):
    """The data source behind ``format("slackwater")``, for reads and writes, streaming and batch."""

    stores: ClassVar[Mapping[str, str]] = {}
    """The addresses of registered stores by name. They are in the class, so that no query plan shows them."""

    claim: ClassVar[CompletenessClaim | None] = None
    """How the time that a sink notes follows from the reports of buckets; None if there are none."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._options = FormatOptions.of(dict(options), self.stores)

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
        if self._options.max_events is not None:
            needs("max_events", "4.2", fix="omit it")
        return stream_reader(StreamSource(self._options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer for ``df.write``."""
        _only_append(overwrite)
        return StreamAppend(self._options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """The writer for ``df.writeStream``."""
        _only_append(overwrite)
        return StreamSink(self._options, self.claim)


def _only_append(overwrite: bool) -> None:
    if overwrite:
        fix = 'write .mode("append"), or .outputMode("append")'
        raise InvalidArgument("mode", "overwrite", "is not supported: streams are append-only", fix=fix)


_registered: Final[dict[str, str]] = {}


def register(spark: SparkSession, stores: Mapping[str, str] | None = None) -> None:
    """Register the data source ``slackwater`` with a Spark session.

    Args:
        spark: The session. Afterwards ``spark.readStream.format("slackwater")`` works in it.
        stores: Addresses of stores by name: ``option("store", "registered:main")`` then stands for the
            address that is registered as ``main``. Spark shows options in query plans and error messages, so
            an address with a password cannot be an option. An address may also be ``env:NAME`` or
            ``file:PATH``.

    Raises:
        InvalidArgument: An address cannot be looked up.
    """
    for name, address in (stores or {}).items():
        _registered[name] = resolved_address(address)
    known = dict(_registered)

    class RegisteredFormat(SlackwaterFormat):
        stores = known

    read_in_one_batch(spark)
    register_source(spark, RegisteredFormat)


def format_options(given: Mapping[str, str]) -> FormatOptions:
    """Validate options of the data source, with the stores that were registered in this process."""
    return FormatOptions.of(given, _registered)


def register_noting(spark: SparkSession, claim: CompletenessClaim) -> str:
    """Register the data source for a query whose commits note its watermark; returns the format."""
    registered = f"{FORMAT}_{hashlib.sha256(repr(claim).encode()).hexdigest()[:16]}"
    known, wanted = dict(_registered), claim

    class NotingFormat(SlackwaterFormat):
        stores = known
        claim = wanted

        @classmethod
        def name(cls) -> str:
            return registered

    register_source(spark, NotingFormat)
    return registered


def store_option(spark: SparkSession, store: str) -> str:
    """Register the data source, and return what to pass as its option ``store``: never a password.

    Args:
        spark: The session.
        store: The address of the store, or a reference to it.

    Raises:
        InvalidArgument: The address cannot be parsed or looked up.
    """
    if store.startswith(REGISTERED):
        register(spark)
        return store
    address = resolved_address(store)
    if not has_password(address):
        register(spark)
        return address
    # the same name for another password: a rotated one replaces it
    name = hashlib.sha256(redacted_url(database_url(address)).encode()).hexdigest()[:12]
    register(spark, {name: address})
    return f"{REGISTERED}{name}"
