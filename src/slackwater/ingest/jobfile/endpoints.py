"""The keys of sources and targets, which a run needs and a plan does not.

They are validated with all others when the job is loaded, so that a mistake in the target does not show up
after an hour of reading. `slackwater.ingest.extraction` checks whether their combination is complete.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from slackwater.ingest.job_errors import Problem
from slackwater.ingest.jobfile.http_keys import HttpKeys
from slackwater.ingest.jobfile.key_values import (
    AsList,
    AsObject,
    Identifier,
    KeyModel,
    Secret,
    Text,
    integer,
    one_of,
)


class ColumnSetting(KeyModel):
    """A column of ``ms.schema``, with its Spark type."""

    name: Text
    type: Text


class EndpointKeys(HttpKeys):
    """``ms.source.*``, ``ms.target.*``, ``ms.schema*`` and the columns that carry time."""

    time_column: Text | None = Field(
        None,
        alias="ms.time.column",
        description=(
            "the time column: a unit reads and replaces the rows whose time is in its range; without it, a "
            "unit is replaced as a whole"
        ),
    )
    watermark_column: Text | None = Field(
        None,
        alias="ms.watermark.column",
        description="the column whose highest value becomes the high watermark, at most the planned end",
    )
    schema_columns: Annotated[tuple[ColumnSetting, ...] | None, AsList] = Field(
        None,
        alias="ms.schema",
        description=('the schema of the source, a JSON list of `{"name","type"}`; inferred by default'),
    )
    schema_drift: Annotated[Literal["fail", "add", "ignore"], one_of("fail", "add", "ignore")] = Field(
        "fail",
        alias="ms.schema.drift",
        description=(
            "the reaction to new, missing or changed columns: `fail`; `add` new columns and leave missing "
            "ones null; or `ignore` new columns and cast changed ones"
        ),
    )

    source_type: Annotated[Literal["sql", "files", "http"] | None, one_of("sql", "files", "http")] = Field(
        None, alias="ms.source.type", description="the type of the source: `sql`, `files` or `http`"
    )
    source_url: Secret | None = Field(
        None,
        alias="ms.source.url",
        description=(
            "the address of the database (`sqlite:///…`, `postgresql://…`, `jdbc:…`) or of the HTTP API; "
            "never shown"
        ),
    )
    source_jdbc_driver: Text | None = Field(
        None,
        alias="ms.source.jdbc.driver",
        description="the driver class for a `jdbc:` address, if the driver does not register itself",
    )
    source_jdbc_jars: Annotated[tuple[Text, ...], AsList] = Field(
        (),
        alias="ms.source.jdbc.jars",
        description="a JSON list of the jar files of the driver, unless they are on the class path of Spark",
    )
    source_jdbc_user: Text | None = Field(
        None, alias="ms.source.jdbc.user", description="the user for a `jdbc:` address"
    )
    source_jdbc_password: Secret | None = Field(
        None, alias="ms.source.jdbc.password", description="the password for a `jdbc:` address; never shown"
    )
    source_table: Identifier | None = Field(
        None, alias="ms.source.table", description="the table to read, optionally with its schema"
    )
    source_query: Text | None = Field(
        None,
        alias="ms.source.query",
        description="a query to read instead of a table; may contain `{{name}}`",
    )
    source_partitions: Annotated[int, integer(1, 1000)] = Field(
        1,
        alias="ms.source.partitions",
        description="the number of parts of a unit's range that are read in parallel",
    )
    source_path: Text | None = Field(
        None, alias="ms.source.path", description="the path of the files; may contain `{{name}}` and `*`"
    )
    source_format: Annotated[Literal["parquet", "csv", "json"] | None, one_of("parquet", "csv", "json")] = (
        Field(
            None, alias="ms.source.format", description="the format of the files: `parquet`, `csv` or `json`"
        )
    )
    source_options: Annotated[dict[str, Any], AsObject] = Field(
        default_factory=dict,
        alias="ms.source.options",
        description="a JSON object of options for the Spark reader",
    )
    source_files_by: Annotated[Literal["path", "modified"], one_of("path", "modified")] = Field(
        "path",
        alias="ms.source.files.by",
        description="how files are assigned to a range: by the date in their `path`, or when `modified`",
    )
    source_files_pattern: Text | None = Field(
        None,
        alias="ms.source.files.pattern",
        description="the Java pattern of the date in the path, such as `yyyy/MM/dd`",
    )

    target_type: Annotated[
        Literal["parquet", "json", "csv", "sql", "stream", "delta"] | None,
        one_of("parquet", "json", "csv", "sql", "stream", "delta"),
    ] = Field(
        None,
        alias="ms.target.type",
        description="the type of the target: `parquet`, `json`, `csv`, `sql`, `stream` or `delta`",
    )
    target_path: Text | None = Field(
        None,
        alias="ms.target.path",
        description=(
            "the folder of a `parquet`, `json`, `csv` or `delta` target, or of the events of a new stream; "
            "for `parquet` and `delta` also a URL such as `s3://bucket/folder`, without credentials"
        ),
    )
    target_layout: Annotated[Literal["links", "manifest"] | None, one_of("links", "manifest")] = Field(
        None,
        alias="ms.target.layout",
        description=(
            "how a folder is switched to its next version: by symbolic `links`, the default, or by a "
            "`manifest` (`parquet` only), as always on an object store"
        ),
    )
    target_url: Secret | None = Field(
        None, alias="ms.target.url", description="the address of a `sql` or `stream` target; never shown"
    )
    target_table: Identifier | None = Field(
        None, alias="ms.target.table", description="the table of a `sql` target"
    )
    target_stream: Text | None = Field(
        None, alias="ms.target.stream", description="the stream of a `stream` target, as scope/stream"
    )
    target_mode: Annotated[Literal["replace", "merge"], one_of("replace", "merge")] = Field(
        "replace",
        alias="ms.target.mode",
        description="`replace` the rows of the range, or `merge` rows by `ms.target.key` (`sql` only)",
    )
    target_key: Annotated[tuple[Text, ...], AsList] = Field(
        (),
        alias="ms.target.key",
        description=(
            "a JSON list of the key columns for `merge`, or the one column that is the routing key of the "
            "events of a stream"
        ),
    )
    target_on_error: Annotated[Literal["fail", "emit"], one_of("fail", "emit")] = Field(
        "fail",
        alias="ms.target.on.error",
        description=(
            "rows that the target cannot store `fail` their unit, or are stored as dead letters with the "
            "reason (`emit`); not for a stream"
        ),
    )
    run_concurrency: Annotated[int, integer(1, 1000)] = Field(
        4, alias="ms.run.concurrency", description="the number of units that run in parallel"
    )


def division_problems(keys: EndpointKeys) -> list[Problem]:
    """The problem of a range that is to be divided and has no time column."""
    if keys.source_partitions == 1 or keys.time_column is not None:
        return []
    reason = "needs a time column to divide the range"
    return [Problem("ms.source.partitions", str(keys.source_partitions), reason, "set ms.time.column")]
