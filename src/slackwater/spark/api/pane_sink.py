"""What the sinks of panes have in common: under which identity they commit, and how Spark finds them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from slackwater.errors import InvalidArgument
from slackwater.spark.internals import register_source
from slackwater.spark.runtime.query_identity import running_query
from slackwater.spark.runtime.sink_progress import CompletenessClaim
from slackwater.spark.versions import DataSourceStreamArrowWriter
from slackwater.sql.commit_owner import Committer


@dataclass(frozen=True)
class SinkIdentity:
    """Under which identity the batches of a query are recorded, and what its commits state.

    >>> SinkIdentity(None, "5f1c", None)
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: takeover_from = '5f1c': has no effect without identity=; pass the \
identity that this query takes over
    """

    name: str | None
    """The name under which batches are recorded; None for the id of the query."""
    takeover_from: str | None
    """The id of the query whose identity this query takes over."""
    claim: CompletenessClaim | None
    """How the completeness of the table follows from the reports of buckets; None if nothing is stated."""

    def __post_init__(self) -> None:
        if self.takeover_from is not None and self.name is None:
            raise InvalidArgument(
                "takeover_from", self.takeover_from, "has no effect without identity=",
                fix="pass the identity that this query takes over",
            )  # fmt: skip

    def committer(self) -> Committer:
        """The query that this task belongs to; for a worker."""
        return replace(running_query(), takeover_from=self.takeover_from)

    def of(self, committer: Committer) -> str:
        """The identity of a query.

        >>> SinkIdentity(None, None, None).of(Committer("5f1c"))
        'query 5f1c'
        """
        return self.name or f"query {committer.query}"


def register_sink(
    spark: SparkSession,
    kind: str,
    configuration: object,
    *,
    stream_writer: Callable[[], DataSourceStreamArrowWriter] | None = None,
    batch_writer: Callable[[], DataSourceArrowWriter] | None = None,
) -> str:
    """Register a sink with a session, and return the name of its format.

    The configuration travels inside the class, so that no query plan shows a password in an address.

    Args:
        spark: The session.
        kind: What the sink does, as a part of the name.
        configuration: What distinguishes the sink from others of its kind.
        stream_writer: Makes the writer of a streaming query.
        batch_writer: Makes the writer of a batch job.
    """
    registered = f"slackwater_{kind}_{hashlib.sha256(repr(configuration).encode()).hexdigest()[:16]}"

    class Sink(DataSource):
        @classmethod
        def name(cls) -> str:
            return registered

        def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
            return super().streamWriter(schema, overwrite) if stream_writer is None else stream_writer()

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
            return super().writer(schema, overwrite) if batch_writer is None else batch_writer()

    register_source(spark, Sink)
    return registered
