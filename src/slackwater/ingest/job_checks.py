"""Checks of a job before a run: whether its keys describe a complete source and target.

Loading a job validates each key; this module validates their combination, and reports all problems at once.
"""

from __future__ import annotations

from typing import Final

from slackwater.errors import InvalidArgument
from slackwater.ingest.job_errors import InvalidJob, Problem
from slackwater.ingest.jobfile.endpoints import division_problems
from slackwater.ingest.jobfile.job import Job
from slackwater.ingest.jobfile.parameters import names_in, parameter_values, unknown_parameter
from slackwater.ingest.sources.file_source import DateInPath
from slackwater.ingest.sources.globs import fill_path, local_folder
from slackwater.ingest.sources.jdbc_source import PREFIX, jdbc_problems
from slackwater.ingest.targets.folder_names import check_folder_values
from slackwater.sql.database import database_url
from slackwater.streams.arguments import scope_and_name
from slackwater.tables.object_store import object_store, shown_url

_NEEDED: Final = {
    "sql": ("source_url",),
    "files": ("source_path", "source_format"),
    "http": ("source_url",),
}
_RANGE: Final = ("low", "high")
_FOLDERS: Final = ("parquet", "json", "csv")
_OBJECTS: Final = ("parquet", "delta")
"""The targets that can be on an object store."""
_TARGETS: Final = {
    "sql": ("target_url", "target_table"),
    "stream": ("target_url", "target_stream"),
    **dict.fromkeys((*_FOLDERS, "delta"), ("target_path",)),
}


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
        from slackwater.ingest.sources.http.http_job import http_problems  # only here: it imports a client

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
        problems += division_problems(settings)
        units = {name for unit in job.units for name, _ in unit.values}
        if settings.source_query is None and units:
            fix = f"use ms.source.query with {{{{{min(units)}}}}}"
            problems.append(Problem("ms.source.table", None, "reads the same rows for all units", fix))
    else:
        problems += _file_problems(job)
    text = settings.source_query if kind == "sql" else settings.source_path
    unknown = sorted(names_in(text or "") - set(job.names)) if job.units else []
    key = "ms.source.query" if kind == "sql" else "ms.source.path"
    return problems + [Problem.from_error(unknown_parameter(key, name, job.names)) for name in unknown]


def _file_problems(job: Job) -> list[Problem]:
    settings = job.settings
    problems = []
    if settings.source_files_pattern is not None:
        try:
            DateInPath(settings.source_files_pattern)
        except InvalidArgument as error:
            problems.append(Problem.from_error(error))
    if settings.source_path is not None and not names_in(settings.source_path) - set(job.names):
        for unit in job.units:
            values = parameter_values(settings.parameters, 0, 0, unit, settings.timezone)
            try:
                fill_path(settings.source_path, values)
            except InvalidArgument as error:
                problems.append(Problem.from_error(error))
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
        if settings.target_on_error == "emit":
            reason, fix = "does not work with a stream", "remove it, or write to a table or a folder"
            problems.append(Problem("ms.target.on.error", "'emit'", reason, fix))
    elif settings.target_path is not None:
        problems += _path_problems(kind, settings.target_path, settings.target_layout)
    if kind in _FOLDERS:
        problems += _folder_problems(job)
    if settings.target_mode == "merge" and (kind != "sql" or not settings.target_key):
        fix = "use a sql target and set ms.target.key"
        problems.append(Problem("ms.target.mode", "'merge'", "needs a sql target and a key", fix))
    return problems


def _path_problems(kind: str, path: str, layout: str | None) -> list[Problem]:
    remote = local_folder(path) is None
    if remote and kind not in _OBJECTS and kind in _FOLDERS:
        fix = "use a parquet or delta target, or a folder that the driver and the executors share"
        return [
            Problem("ms.target.path", repr(shown_url(path)), f"is not a local path, as {kind} requires", fix)
        ]
    problems = []
    if remote:
        try:
            object_store(path)
        except InvalidArgument as error:
            problems.append(Problem.from_error(error, key="ms.target.path"))
    if layout == "manifest" and kind != "parquet":
        fix = "remove it" if kind == "delta" else "remove it, or use a parquet target"
        problems.append(Problem("ms.target.layout", "'manifest'", f"does not work with {kind}", fix))
    if layout == "links" and remote:
        reason, fix = "does not work on an object store, which has no symbolic links", "remove it"
        problems.append(Problem("ms.target.layout", "'links'", reason, fix))
    return problems


def _folder_problems(job: Job) -> list[Problem]:
    """Problems with unit values that Spark would read back from folder names as null."""
    problems = []
    for unit in job.units:
        try:
            check_folder_values(unit.as_dict())
        except InvalidArgument as error:
            problems.append(Problem.from_error(error))
    return problems


def _stream_problems(job: Job) -> list[Problem]:
    settings = job.settings
    problems = []
    if settings.target_stream is not None:
        try:
            scope_and_name(settings.target_stream)
        except InvalidArgument as error:
            problems.append(Problem.from_error(error, key="ms.target.stream"))
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
        return [Problem.from_error(error, key=key, show_value=False)]
    return []
