"""The extraction of units: reads from the source and writes to the target that the keys of a job describe.

All problems with the combination of keys are reported when an `Extraction` is made, before anything is read.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Final, TypedDict

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from slackwater.errors import InvalidArgument
from slackwater.ingest.job_errors import InvalidJob, Problem
from slackwater.ingest.jobfile.job import Job
from slackwater.ingest.jobfile.parameters import fill_in, names_in, parameter_values
from slackwater.ingest.plan.completeness import Completeness
from slackwater.ingest.plan.planner import Plan, WorkUnit
from slackwater.ingest.sources.adbc_source import (
    DatabaseReading,
    RangeStatement,
    check_file,
    check_times,
    read_database,
)
from slackwater.ingest.sources.extracted_rows import Rows
from slackwater.ingest.sources.file_source import DateInPath, files_of, read_files
from slackwater.ingest.sources.globs import escaped, home_of, local_folder
from slackwater.ingest.sources.http.http_job import http_problems, reading_of
from slackwater.ingest.sources.http_source import read_http
from slackwater.ingest.sources.jdbc_source import PREFIX, jdbc_problems, jdbc_reading, read_jdbc
from slackwater.ingest.sources.queries import (
    ParameterValue,
    Statement,
    bind,
    posix_zone,
    range_of_table,
    time_value,
    widened,
    zone_name,
)
from slackwater.ingest.targets.delta_target import DeltaTarget
from slackwater.ingest.targets.folder_target import FolderTarget
from slackwater.ingest.targets.replacement import Approve, Slice, Target, Written
from slackwater.ingest.targets.schema_drift import column
from slackwater.ingest.targets.stream_target import StreamTarget
from slackwater.ingest.targets.table_target import TableTarget
from slackwater.ingest.units import Unit
from slackwater.sql.adbc import adbc_address
from slackwater.sql.database import database_url
from slackwater.streams.arguments import scope_and_name

_NEEDED: Final = {
    "sql": ("source_url",),
    "files": ("source_path", "source_format"),
    "http": ("source_url",),
}
_RANGE: Final = ("low", "high")
_FOLDERS: Final = ("parquet", "json", "csv")
_TARGETS: Final = {
    "sql": ("target_url", "target_table"),
    "stream": ("target_url", "target_stream"),
    **dict.fromkeys((*_FOLDERS, "delta"), ("target_path",)),
}


class _Shared(TypedDict):
    """The arguments that all targets except streams have in common."""

    time_column: str | None
    watermark_column: str | None
    zone: str
    drift: str
    job: str


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

    def last_number(self) -> int | None:
        """The number of the last commit to a stream; None for targets that can replace rows."""
        return self._target.last_number() if isinstance(self._target, StreamTarget) else None

    def expect(self, made: Plan) -> None:
        """Receive the plan, so that a stream target can note the time up to which all units are complete."""
        if isinstance(self._target, StreamTarget):
            self._target.expect(Completeness(made))

    def __call__(self, work: WorkUnit, approve: Approve) -> Written:
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
                known = ", ".join(frame.columns)
                raise InvalidArgument("ms.schema", absent[0], "column not found", fix=f"use one of {known}")
            casts = (column(one.name).cast(one.type).alias(one.name) for one in columns)
            frame = frame.select(*casts)
        if at is None:
            return Rows.of(frame)
        if at not in frame.columns:
            known = ", ".join(frame.columns)
            raise InvalidArgument("ms.time.column", at, "column not found", fix=f"use one of {known}")
        time = column(at).cast("timestamp")
        micros = F.unix_micros(time)
        timed = frame.observe(untimed, F.count_if(F.isnull(time)).alias("rows")).withColumn(at, time)
        return Rows.of(timed.where((micros >= low) & (micros < work.high)))

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
        count = settings.source_partitions
        cuts = [low + (work.high - low) * number // count for number in range(count + 1)]
        parts = tuple(
            RangeStatement(self._statement(work, start, end, backend), start, end)
            for start, end in pairwise(cuts)
            if start < end
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
            fill_in(str(settings.source_path), values, quote=escaped),
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
        given = None if columns is None else ", ".join(f"`{one.name}` {one.type}" for one in columns)
        return read_files(self._spark, names, str(settings.source_format), settings.source_options, given)

    # ---- targets

    def _made_target(self) -> Target:
        settings = self._settings
        shared: _Shared = {
            "time_column": settings.time_column,
            "watermark_column": settings.watermark_column,
            "zone": self._zone,
            "drift": settings.schema_drift,
            "job": settings.name,
        }
        if settings.target_type == "stream":
            return self._made_stream()
        if settings.target_type != "sql":
            folder = local_folder(str(settings.target_path)) or Path()
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


def check_runnable(job: Job) -> None:
    """Check that a job has all keys that a run needs, and raise `InvalidJob` with all problems if not.

    >>> from slackwater.ingest.jobfile.job import parse_job
    >>> check_runnable(parse_job({"ms.source.type": "sql", "ms.target.type": "parquet"}))
    Traceback (most recent call last):
    slackwater.ingest.job_errors.InvalidJob: job has 3 problems:
      ms.source.url: is missing; a sql source requires it
      ms.source.table: is missing; set it, or set ms.source.query
      ms.target.path: is missing; a parquet target requires it
    """
    problems = [*_source_problems(job), *_target_problems(job), *_unit_problems(job)]
    if problems:
        raise InvalidJob(problems, source=job.settings.name)


def _source_problems(job: Job) -> list[Problem]:
    settings = job.settings
    kind = settings.source_type
    if kind is None:
        return [Problem("ms.source.type", None, "is missing", f"use one of {', '.join(_NEEDED)}")]
    problems = _missing(job, _NEEDED[kind], f"a {kind} source requires it")
    if kind == "http":
        return problems + http_problems(job)
    if kind == "sql":
        problems += jdbc_problems(job)
        if settings.source_url is not None and not settings.source_url.get_secret_value().startswith(PREFIX):
            problems += _address_problem("ms.source.url", settings.source_url.get_secret_value())
        if settings.source_table is None and settings.source_query is None:
            fix = "set it, or set ms.source.query"
            problems.append(Problem("ms.source.table", None, "is missing", fix))
        if settings.source_table is not None and settings.source_query is not None:
            fix = "set only one of them"
            problems.append(Problem("ms.source.query", None, "ms.source.table is set as well", fix))
        if settings.source_partitions > 1 and settings.time_column is None:
            reason = "needs a time column to divide the range"
            problems.append(
                Problem("ms.source.partitions", str(settings.source_partitions), reason, "set ms.time.column")
            )
        units = {name for unit in job.units for name, _ in unit.values}
        if settings.source_query is None and units:
            fix = f"use ms.source.query with {{{{{min(units)}}}}}"
            problems.append(Problem("ms.source.table", None, "reads the same rows for all units", fix))
    else:
        problems += _file_problems(job)
    text = settings.source_query if kind == "sql" else settings.source_path
    unknown = sorted(names_in(text or "") - set(job.names)) if job.units else []
    key = "ms.source.query" if kind == "sql" else "ms.source.path"
    fix = f"use one of {', '.join(job.names)}, or add it to ms.parameters"
    return problems + [Problem(key, repr(name), "unknown parameter", fix) for name in unknown]


def _file_problems(job: Job) -> list[Problem]:
    settings = job.settings
    problems = []
    if settings.source_files_pattern is not None:
        try:
            DateInPath(settings.source_files_pattern)
        except InvalidArgument as error:
            problems.append(Problem(error.name, repr(error.value), error.reason, error.fix or ""))
    if settings.source_files_by == "modified" and settings.time_column is not None:
        reason = "files are selected by modification time, so rows of other times would be lost"
        fix = "remove it: all rows of a file belong to the range in which it was modified"
        problems.append(Problem("ms.time.column", repr(settings.time_column), reason, fix))
    return problems


def _unit_problems(job: Job) -> list[Problem]:
    """Problems with unit fields whose names are taken: each is a column of the target and a parameter."""
    at = job.settings.time_column
    problems = []
    for name in sorted({name for unit in job.units for name, _ in unit.values}):
        if name in _RANGE:
            reason = "is a field of the units, but reserved for the bounds of the range"
            problems.append(Problem("ms.watermark", repr(name), reason, "rename the field"))
        if at is not None and name.lower() == at.lower():
            reason = "is a field of the units as well"
            problems.append(Problem("ms.time.column", repr(at), reason, "rename one of them"))
    return problems


def _target_problems(job: Job) -> list[Problem]:
    settings = job.settings
    kind = settings.target_type
    if kind is None:
        return [Problem("ms.target.type", None, "is missing", f"use one of {', '.join(_TARGETS)}")]
    problems = _missing(job, _TARGETS[kind], f"a {kind} target requires it")
    if settings.target_url is not None:
        problems += _address_problem("ms.target.url", settings.target_url.get_secret_value())
    if kind == "stream":
        problems += _stream_problems(job)
    elif settings.target_path is not None and local_folder(settings.target_path) is None:
        fix = "use a folder that the driver and the executors share"
        problems.append(Problem("ms.target.path", repr(settings.target_path), "is not a local path", fix))
    elif kind in _FOLDERS:
        problems += _folder_problems(job)
    if settings.target_mode == "merge" and (kind != "sql" or not settings.target_key):
        fix = "use a sql target and set ms.target.key"
        problems.append(Problem("ms.target.mode", "'merge'", "needs a sql target and a key", fix))
    return problems


def _folder_problems(job: Job) -> list[Problem]:
    """Problems with empty unit values, which Spark would read back from folder names as null."""
    fix = "use null, filter such units out, or use a sql or delta target"
    reason = "has an empty value, which Spark would read back from a folder name as null"
    empty = [unit.as_dict() for unit in job.units if "" in unit.as_dict().values()]
    return [Problem("ms.target.path", repr(one), reason, fix) for one in empty]


def _stream_problems(job: Job) -> list[Problem]:
    settings = job.settings
    problems = []
    if settings.target_stream is not None:
        try:
            scope_and_name(settings.target_stream)
        except InvalidArgument as error:
            shown = repr(settings.target_stream)
            problems.append(Problem("ms.target.stream", shown, error.reason, error.fix or ""))
    if len(settings.target_key) > 1:
        fix = "set one column, the routing key of the events"
        problems.append(Problem("ms.target.key", repr(list(settings.target_key)), "has several columns", fix))
    if settings.watermark_column is not None:
        reason = "does not work with a stream: every run would append the last row again"
        shown = repr(settings.watermark_column)
        problems.append(Problem("ms.watermark.column", shown, reason, "remove it, or write to a table"))
    return problems


def _missing(job: Job, fields: tuple[str, ...], fix: str) -> list[Problem]:
    keys = type(job.settings).model_fields
    absent = [name for name in fields if getattr(job.settings, name) is None]
    return [Problem(str(keys[name].alias), None, "is missing", fix) for name in absent]


def _address_problem(key: str, text: str) -> list[Problem]:
    try:
        database_url(text)
    except InvalidArgument as error:
        return [Problem(key, None, error.reason, error.fix or "")]
    return []
