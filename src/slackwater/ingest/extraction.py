"""The extraction of units: reads from the source and writes to the target that the keys of a job describe.

All problems with the combination of keys are reported when an `Extraction` is made, before anything is read.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

from pyspark.sql import DataFrame, Observation, SparkSession, types
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from slackwater._suggestions import available
from slackwater.errors import InvalidArgument
from slackwater.ingest.axis.partitions import divide
from slackwater.ingest.job_checks import check_runnable
from slackwater.ingest.jobfile.job import Job
from slackwater.ingest.jobfile.parameters import names_in, parameter_values
from slackwater.ingest.plan.plan_completeness import PlanCompleteness
from slackwater.ingest.plan.planner import Plan, WorkUnit
from slackwater.ingest.sources.adbc_source import (
    DatabaseReading,
    RangeStatement,
    check_file,
    check_times,
    read_database,
)
from slackwater.ingest.sources.exact_casts import cast_exactly, not_a_time, readable_type
from slackwater.ingest.sources.extracted_rows import Rows
from slackwater.ingest.sources.file_source import files_of, read_files
from slackwater.ingest.sources.globs import fill_path, home_of, local_folder
from slackwater.ingest.sources.http.http_job import reading_of
from slackwater.ingest.sources.http_source import read_http
from slackwater.ingest.sources.jdbc_source import PREFIX, jdbc_reading, read_jdbc
from slackwater.ingest.sources.spark_columns import REJECTED, column
from slackwater.ingest.sources.sql_statements import (
    ParameterValue,
    Statement,
    bind,
    posix_zone,
    range_of_table,
    time_value,
    widened,
    zone_name,
)
from slackwater.ingest.targets.delta_objects_target import DeltaObjectsTarget
from slackwater.ingest.targets.delta_target import DeltaTarget
from slackwater.ingest.targets.folder_target import FolderTarget
from slackwater.ingest.targets.manifest_target import ManifestTarget
from slackwater.ingest.targets.replacement import ApproveWrite, ReplacingTarget, Slice, Target, Written
from slackwater.ingest.targets.stream_target import StreamTarget
from slackwater.ingest.targets.table_target import TableTarget
from slackwater.ingest.units import Unit
from slackwater.sql.adbc import adbc_address
from slackwater.sql.database import database_url
from slackwater.tables.object_store import object_store


class _Shared(TypedDict):
    """The arguments that all targets except streams have in common."""

    time_column: str | None
    watermark_column: str | None
    zone: str
    drift: str
    job: str
    on_error: str


class Extraction:
    """Reads and writes the units of a job, in a Spark session of its own with the timezone of the job."""

    def __init__(self, job: Job, spark: SparkSession) -> None:
        self._job = job
        self._settings = job.settings
        check_runnable(job)
        self._zone = zone_name(job.settings.timezone)
        self._spark = spark.newSession()
        self._spark.conf.set("spark.sql.session.timeZone", self._zone)
        self._spark.conf.set("spark.sql.ansi.enabled", "true")  # an invalid value is an error, not null
        self._target = self._made_target()

    def fence(self, token: int) -> None:
        """Let the target reject earlier runs; a stream does that itself, by the session of its writer."""
        if isinstance(self._target, ReplacingTarget):
            self._target.fence(token)

    def last_number(self) -> int | None:
        """The number of the last commit to a stream; None for targets that can replace rows."""
        return self._target.last_number() if isinstance(self._target, StreamTarget) else None

    def expect(self, made: Plan) -> None:
        """Receive the plan, so that the target can state the time up to which all units are complete."""
        if isinstance(self._target, (StreamTarget, ReplacingTarget)):
            self._target.expect(PlanCompleteness(made))

    def __call__(self, work: WorkUnit, approve: ApproveWrite) -> Written:
        """Read the range of a unit and write it to the target; calls ``approve`` in between.

        Without a time column the whole partition is replaced, so it is read from its start.
        """
        low = work.start if self._settings.time_column is None else work.low
        untimed = Observation()
        with ExitStack() as afterwards:
            rows = self._read(work, low, afterwards, untimed)
            written = self._target.replace(rows, Slice(work.unit, work.start, low, work.high), approve)
            if rows is None or rows.partitions is not None or self._settings.time_column is None:
                return written
            return replace(written, without_time=untimed.get["rows"])

    def _read(self, work: WorkUnit, low: int, afterwards: ExitStack, untimed: Observation) -> Rows | None:
        rows = self._read_source(work, low, afterwards)
        if rows is None:
            return None
        _check_names(rows, work.unit)
        at, columns = self._settings.time_column, self._settings.schema_columns
        if columns is None and rows.partitions is not None:
            return rows  # rows that tasks read directly are already filtered
        frame = rows.frame
        if columns is not None:
            there = {name.lower() for name in frame.columns}  # Spark compares column names without case
            absent = [one.name for one in columns if one.name.lower() not in there]
            if absent:
                fix = available(absent[0], frame.columns, lead="use one of ")
                raise InvalidArgument("ms.schema", absent[0], "column not found", fix=fix)
            named = frame.select(*(column(one.name).alias(one.name) for one in columns))
            frame = cast_exactly(named, {one.name: types.DataType.fromDDL(one.type) for one in columns})
        if at is None:
            return Rows.of(frame)
        if at not in frame.columns:
            fix = available(at, frame.columns, lead="use one of ")
            raise InvalidArgument("ms.time.column", at, "column not found", fix=fix)
        kind = frame.schema[at].dataType
        if isinstance(kind, types.NumericType):
            error = not_a_time(at, kind)
            raise InvalidArgument("ms.time.column", at, error.reason, fix=error.fix)
        missing = F.isnull(column(at))
        if REJECTED in frame.columns:
            missing = missing & F.isnull(REJECTED)
        counted = frame.observe(untimed, F.count_if(missing).alias("rows"))
        timed = cast_exactly(counted, {at: types.TimestampType()})
        micros = F.unix_micros(column(at))
        chosen = (micros >= low) & (micros < work.high)
        if REJECTED in timed.columns:  # a row whose time is not known may belong to the range
            chosen = chosen | (F.isnull(column(at)) & F.isnotnull(REJECTED))
        return Rows.of(timed.where(chosen))

    # ---- sources

    def _read_source(self, work: WorkUnit, low: int, afterwards: ExitStack) -> Rows | None:
        if self._settings.source_type == "sql":
            return self._read_sql(work, low)
        if self._settings.source_type == "http":
            reading = reading_of(self._job, work, low)
            columns, at = self._settings.schema_columns, self._settings.time_column
            frame = read_http(self._spark, reading, columns, at, afterwards)
        else:
            frame = self._read_files(work, low)
        return None if frame is None else Rows.of(frame)

    def _read_sql(self, work: WorkUnit, low: int) -> Rows:
        settings = self._settings
        assert settings.source_url is not None  # noqa: S101 - it was checked
        if settings.source_url.get_secret_value().startswith(PREFIX):
            return Rows.of(read_jdbc(self._spark, jdbc_reading(self._job, work, low)))
        url = database_url(settings.source_url.get_secret_value())
        check_file(url)
        address, backend = adbc_address(url), url.get_backend_name()
        if backend == "sqlite" and settings.source_query is None and settings.time_column is not None:
            check_times(address, str(settings.source_table), settings.time_column)
        parts = tuple(
            RangeStatement(self._statement(work, start, end, backend), start, end)
            for start, end in divide(low, work.high, settings.source_partitions)
        )
        zones = (self._zone, posix_zone(settings.timezone))
        named = {parameter.name for parameter in settings.parameters}
        on_clocks = backend == "sqlite" and bool(
            names_in(settings.source_query or "") & ({"low", "high"} - named)
        )
        reading = DatabaseReading(
            address, backend, *zones, settings.time_column, parts, settings.source_table, on_clocks
        )
        return read_database(self._spark, reading)

    def _statement(self, work: WorkUnit, low: int, high: int, backend: str) -> Statement:
        settings = self._settings
        first, last = low, high
        if settings.time_column is not None:  # the rows outside the range are filtered out afterwards
            first, last = widened(low, high, settings.timezone)
        if settings.source_query is None:
            table = str(settings.source_table)
            return range_of_table(table, settings.time_column, first, last, backend)
        texts = parameter_values(settings.parameters, low, high, work.unit, settings.timezone)
        named = {parameter.name for parameter in settings.parameters}
        times: dict[str, ParameterValue] = {
            name: time_value(at, backend, settings.timezone)
            for name, at in (("low", first), ("high", last))
            if name not in named
        }
        return bind(settings.source_query, {**texts, **times})

    def _read_files(self, work: WorkUnit, low: int) -> DataFrame | None:
        settings = self._settings
        values = parameter_values(settings.parameters, low, work.high, work.unit, settings.timezone)
        names = files_of(
            self._spark,
            fill_path(str(settings.source_path), values),
            low,
            work.high,
            by=settings.source_files_by,
            pattern=settings.source_files_pattern,
            tz=settings.timezone,
            overlapping=settings.time_column is not None,
            home=home_of(str(settings.source_path)),
            options=settings.source_options,
        )
        columns = settings.schema_columns
        form, options = str(settings.source_format), settings.source_options
        schema = None
        if columns is not None:
            kinds = (readable_type(types.DataType.fromDDL(one.type), form, options) for one in columns)
            fields = zip((one.name for one in columns), kinds, strict=True)
            schema = types.StructType([types.StructField(*field) for field in fields])
        return read_files(self._spark, names, form, options, schema)

    # ---- targets

    def _made_target(self) -> Target:
        settings = self._settings
        shared: _Shared = {
            "time_column": settings.time_column,
            "watermark_column": settings.watermark_column,
            "zone": self._zone,
            "drift": settings.schema_drift,
            "job": settings.name,
            "on_error": settings.target_on_error,
        }
        if settings.target_type == "stream":
            return self._made_stream()
        if settings.target_type != "sql":
            path = str(settings.target_path)
            folder = local_folder(path)
            if folder is None or settings.target_layout == "manifest":
                store = object_store(path if folder is None else folder.as_uri())
                if settings.target_type == "delta":
                    return DeltaObjectsTarget(store, **shared)
                return ManifestTarget(store, **shared)
            if settings.target_type == "delta":
                return DeltaTarget(folder, **shared)
            return FolderTarget(folder, str(settings.target_type), **shared)
        assert settings.target_url is not None  # noqa: S101 - it was checked
        url = database_url(settings.target_url.get_secret_value())
        key = settings.target_key if settings.target_mode == "merge" else ()
        return TableTarget(url, str(settings.target_table), key=key, **shared)

    def _made_stream(self) -> StreamTarget:
        settings = self._settings
        assert settings.target_url is not None  # noqa: S101 - it was checked
        data = settings.target_path
        if data is not None and "://" not in data:
            data = str(Path(data).absolute())
        return StreamTarget(
            settings.target_url.get_secret_value(),
            str(settings.target_stream),
            settings.name,
            key=next(iter(settings.target_key), None),
            data=data,
            drift=settings.schema_drift,
        )


def _check_names(rows: Rows, unit: Unit) -> None:
    """Raise `InvalidArgument` if a column differs from a field of the units only in case."""
    fields = {name.lower(): name for name in unit.as_dict()}
    for name in rows.columns:
        field = fields.get(name.lower(), name)
        if field != name:
            reason = f"is a column with the same name in Spark as the field {field!r} of the units"
            raise InvalidArgument("ms.watermark", name, reason, fix="rename one of them")
