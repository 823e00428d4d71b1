"""Deduplication of a stream: the first row per key within a time bound."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import polars as pl
from pyspark.sql.types import StringType, StructField, StructType

from slackwater.errors import InvalidArgument
from slackwater.spark.api.dataflow import Keep
from slackwater.spark.api.joins import further_keys
from slackwater.spark.api.row_output import RETRACTION_FIELD, RowDataflow, check_marks, failure_marks
from slackwater.spark.api.stream_inputs import StreamInputs
from slackwater.spark.runtime.hosts import DeduplicateHost
from slackwater.spark.wire.pane_schema import empty_frame
from slackwater.spark.wire.wire_columns import KIND, RETRACTION, TIME, time_column
from slackwater.windows import DeduplicateSpec, Global

LATE_FIELD: Final = StructField(KIND, StringType())
"""The column that distinguishes late rows from others; only with ``late="emit"``."""


@dataclass(frozen=True)
class DeduplicateDataflow(RowDataflow):
    """A deduplication with its inputs."""

    host: DeduplicateHost

    @property
    def spec(self) -> DeduplicateSpec:
        """The specification of the deduplication."""
        return self.host.spec

    @property
    def times(self) -> dict[str, tuple[str, ...]]:
        """The event times of the rows by watermark key."""
        further = {key: (time_column(key),) for key in self.spec.further_keys}
        return {self.spec.watermark_key: (TIME,), **further}

    @property
    def late(self) -> Keep:
        """Whether late rows are emitted."""
        return self.spec.late

    @property
    def default_key(self) -> str:
        """The watermark key of the input."""
        return self.spec.watermark_key

    @property
    def sent_keys(self) -> tuple[str, ...]:
        """All watermark keys."""
        return tuple(self.times)

    @property
    def lateness(self) -> int | None:
        """The lateness of the input: the watermark is forwarded unchanged."""
        return self.spec.lateness


def deduplicated(inputs: StreamInputs, spec: DeduplicateSpec) -> DeduplicateDataflow:
    """Drop duplicates of the rows of a keyed stream; the implementation of `Stream.deduplicate`."""
    if any(isinstance(window, Global) for source in inputs.sources for window in source.windows):
        raise InvalidArgument(
            "deduplicate",
            "panes of a global window",
            "have the end of time as their timestamp",
            fix="use a window that ends upstream, such as fixed",
        )
    found = [inputs.field("deduplicate", name) for name in inputs.sources[0].schema.names]
    # All columns are null in the rows that carry headers to the next operator.
    fields = [StructField(field.name, field.dataType) for field in found]
    marks = [RETRACTION_FIELD] if inputs.retracts else []
    marks += [LATE_FIELD] if spec.late == "emit" else []
    marks += failure_marks(inputs)
    check_marks("deduplicate", marks, fields)
    further = further_keys(inputs)
    complete = replace(
        spec,
        watermark_key=inputs.watermark_key,
        further_keys=tuple(key for key, _ in further),
        further_times=tuple(column for _, column in further),
        retractions=RETRACTION if inputs.retracts else None,
        lateness=inputs.lateness,
    )
    driving = {
        **dict.fromkeys([TIME, *complete.further_times], pl.Int64()),
        **dict.fromkeys([RETRACTION] if inputs.retracts else [], pl.Boolean()),
    }
    host = DeduplicateHost(complete, schema={**driving, **empty_frame(StructType(fields)).schema})
    host.operator  # noqa: B018 - raises here and not in a worker if a column cannot be a key
    return DeduplicateDataflow(
        sources=inputs.sources,
        buckets=inputs.buckets,
        key=inputs.key,
        host=host,
        columns=(tuple(field.name for field in fields),) * len(inputs.sources),
        schema=StructType([*fields, *marks]),
        invalid="count",
        further_keys=(complete.further_keys,) * len(inputs.sources),
    )
