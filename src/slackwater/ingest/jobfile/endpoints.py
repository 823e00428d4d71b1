"""The keys that say what a job reads and where it writes. A plan needs none of them.

They are checked with all others when the job is read, so that a mistake in the target is not found after
an hour of reading. Whether a combination is complete depends on what is to be done, and is checked there.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from slackwater.ingest.jobfile.http_keys import HttpKeys
from slackwater.ingest.jobfile.key_values import AsList, AsObject, Identifier, Part, Secret, Text, whole, word


class Column(Part):
    """A column of a given schema, with its type as Spark writes it."""

    name: Text
    type: Text


class EndpointKeys(HttpKeys):
    """``ms.source.*``, ``ms.target.*``, ``ms.schema*`` and the columns that carry time."""

    time_column: Text | None = Field(
        None,
        alias="ms.time.column",
        description=(
            "the column whose time a unit's range selects and replaces; without it a unit is replaced "
            "as a whole"
        ),
    )
    watermark_column: Text | None = Field(
        None,
        alias="ms.watermark.column",
        description="the column whose highest value seen becomes the high watermark, at most the planned end",
    )
    schema_columns: Annotated[tuple[Column, ...] | None, AsList] = Field(
        None,
        alias="ms.schema",
        description=(
            'the schema of what is read, a JSON list of `{"name","type"}`; without it, it is inferred'
        ),
    )
    schema_drift: Annotated[Literal["fail", "add", "ignore"], word("fail", "add", "ignore")] = Field(
        "fail",
        alias="ms.schema.drift",
        description=(
            "what happens when columns are new, missing or changed: `fail`; `add` new ones and leave missing "
            "ones empty; or `ignore` new ones and cast changed ones"
        ),
    )

    source_type: Annotated[Literal["sql", "files", "http"] | None, word("sql", "files", "http")] = Field(
        None, alias="ms.source.type", description="what is read: `sql`, `files` or `http`"
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
        description="the class of the driver for a `jdbc:` address, if that does not announce itself",
    )
    source_jdbc_jars: Annotated[tuple[Text, ...], AsList] = Field(
        (),
        alias="ms.source.jdbc.jars",
        description="a JSON list of the jar files of the driver, where Spark does not have them already",
    )
    source_jdbc_user: Text | None = Field(
        None, alias="ms.source.jdbc.user", description="the user of a `jdbc:` address"
    )
    source_jdbc_password: Secret | None = Field(
        None, alias="ms.source.jdbc.password", description="the password of a `jdbc:` address; never shown"
    )
    source_table: Identifier | None = Field(
        None, alias="ms.source.table", description="the table to read, with its schema if need be"
    )
    source_query: Text | None = Field(
        None, alias="ms.source.query", description="the query to read instead of a table, with `{{name}}`"
    )
    source_partitions: Annotated[int, whole(1, 1000)] = Field(
        1, alias="ms.source.partitions", description="in how many parts a unit's range is read side by side"
    )
    source_path: Text | None = Field(
        None, alias="ms.source.path", description="the path of the files, with `{{name}}` and `*`"
    )
    source_format: Annotated[Literal["parquet", "csv", "json"] | None, word("parquet", "csv", "json")] = (
        Field(
            None, alias="ms.source.format", description="the format of the files: `parquet`, `csv` or `json`"
        )
    )
    source_options: Annotated[dict[str, Any], AsObject] = Field(
        default_factory=dict, alias="ms.source.options", description="a JSON object of options for the reader"
    )
    source_files_by: Annotated[Literal["path", "modified"], word("path", "modified")] = Field(
        "path",
        alias="ms.source.files.by",
        description="by what files belong to a range: the date in their `path`, or when they were `modified`",
    )
    source_files_pattern: Text | None = Field(
        None,
        alias="ms.source.files.pattern",
        description="how the date stands in the path, a Java pattern such as `yyyy/MM/dd`",
    )

    target_type: Annotated[
        Literal["parquet", "json", "csv", "sql", "stream", "delta"] | None,
        word("parquet", "json", "csv", "sql", "stream", "delta"),
    ] = Field(
        None,
        alias="ms.target.type",
        description="what is written: `parquet`, `json`, `csv`, `sql`, `stream` or `delta`",
    )
    target_path: Text | None = Field(
        None,
        alias="ms.target.path",
        description=(
            "the folder of a `parquet`, `json`, `csv` or `delta` target, or for the events of a new stream"
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
    target_mode: Annotated[Literal["replace", "merge"], word("replace", "merge")] = Field(
        "replace",
        alias="ms.target.mode",
        description="`replace` the rows of the range, or `merge` rows by `ms.target.key` (only `sql`)",
    )
    target_key: Annotated[tuple[Text, ...], AsList] = Field(
        (),
        alias="ms.target.key",
        description=(
            "a JSON list of the columns by which rows are merged, or the one by which events of a stream "
            "keep their order"
        ),
    )
    run_concurrency: Annotated[int, whole(1, 1000)] = Field(
        4, alias="ms.run.concurrency", description="how many units run side by side"
    )
