"""JDBC source: reads a range from any database with a JDBC driver, through Spark's JDBC reader.

SQLite and PostgreSQL are read faster through ADBC; this source is for other databases. The reader takes no
parameters, so values are written as SQL literals, and values without a portable literal are rejected.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from slackwater.errors import InvalidArgument, SlackwaterError
from slackwater.ingest.job_errors import Problem
from slackwater.ingest.jobfile.job import Job
from slackwater.ingest.jobfile.job_keys import Settings
from slackwater.ingest.jobfile.parameters import parameter_values
from slackwater.ingest.plan.planner import WorkUnit
from slackwater.ingest.redaction import hide
from slackwater.ingest.sources.sql_literals import Literal, plain_name, range_conditions, render
from slackwater.ingest.sources.sql_statements import posix_zone
from slackwater.spark.internals import java_causes

PREFIX: Final = "jdbc:"
_FETCHED_ROWS: Final = 10_000
_NO_DRIVER: Final = re.compile(r"No suitable driver|ClassNotFound")
_OWN_OPTIONS: Final = {"url", "dbtable", "query", "user", "password", "driver", "preferTimestampNTZ"}


class SourceRefused(SlackwaterError):
    """A database or its driver rejected a query."""


@dataclass(frozen=True)
class JdbcReading:
    """A table or query and its conditions; the representation shows neither the address nor the password."""

    url: str = field(repr=False)
    table: str
    """A table name, or a query in parentheses with an alias."""
    conditions: tuple[str, ...]
    options: dict[str, str] = field(repr=False)


def jdbc_reading(job: Job, work: WorkUnit, low: int) -> JdbcReading:
    """The reading of a unit, from ``low`` to its end.

    >>> from slackwater.ingest.jobfile.job import parse_job
    >>> from slackwater.ingest.units import WHOLE
    >>> job = parse_job({"ms.source.url": "jdbc:derby:shop", "ms.source.table": "orders"})
    >>> jdbc_reading(job, WorkUnit(0, 10, WHOLE, 0), 0)
    JdbcReading(table='orders', conditions=())
    """
    settings = job.settings
    assert settings.source_url is not None  # noqa: S101 - the caller has checked it
    table = str(settings.source_table)
    if settings.source_query is not None:
        table = f"({_rendered(settings, work, low)}) slackwater"
    conditions: list[str] = []
    if settings.time_column is not None:
        count = settings.source_partitions
        conditions = range_conditions(settings.time_column, low, work.high, count, settings.timezone)
    return JdbcReading(settings.source_url.get_secret_value(), table, tuple(conditions), _options(settings))


def read_jdbc(spark: SparkSession, reading: JdbcReading) -> DataFrame:
    """A DataFrame of a reading; the schema is determined now, the rows are read when it runs.

    >>> from slackwater.spark.session import session
    >>> spark = session(master="local[2]", partitions=2, config={"spark.ui.enabled": "false"})
    >>> read_jdbc(spark, JdbcReading("jdbc:unknown:shop", "orders", (), {}))
    Traceback (most recent call last):
    slackwater.ingest.sources.jdbc_source.SourceRefused: no JDBC driver found for ms.source.url; \
set its class in ms.source.jdbc.driver and its jar files in ms.source.jdbc.jars, or add them to the class \
path of Spark
    """
    try:
        if reading.conditions:
            return spark.read.jdbc(
                reading.url, reading.table, predicates=list(reading.conditions), properties=reading.options
            )
        return spark.read.jdbc(reading.url, reading.table, properties=reading.options)
    except Exception as error:  # from Py4J or from Spark
        raise SourceRefused(_driver_message(error, reading)) from None


def jdbc_problems(job: Job) -> list[Problem]:
    """All problems with the keys of a JDBC source.

    >>> from slackwater.ingest.jobfile.job import parse_job
    >>> keys = {"ms.source.url": "sqlite:///a.db", "ms.source.jdbc.driver": "org.example.Driver"}
    >>> print(*jdbc_problems(parse_job(keys)))
    ms.source.jdbc.driver: applies only to a jdbc: address; remove it, or correct ms.source.url
    """
    settings = job.settings
    if settings.source_url is None or not settings.source_url.get_secret_value().startswith(PREFIX):
        fields = [name for name in sorted(settings.model_fields_set) if name.startswith("source_jdbc_")]
        reason, fix = "applies only to a jdbc: address", "remove it, or correct ms.source.url"
        return [Problem(str(Settings.model_fields[name].alias), None, reason, fix) for name in fields]
    problems = []
    if own := sorted(_OWN_OPTIONS & settings.source_options.keys()):
        reason = "cannot be set as an option of the reader"
        fix = "set ms.source.url, ms.source.table, ms.source.query or a key under ms.source.jdbc"
        problems.append(Problem("ms.source.options", repr(own[0]), reason, fix))
    try:
        if settings.time_column is not None:
            plain_name(settings.time_column, "ms.time.column")
        for unit in job.units if settings.source_query is not None else ():
            _rendered(settings, WorkUnit(0, 0, unit, 0), 0)
    except InvalidArgument as error:
        problems.append(Problem.from_error(error))
    return problems


def jar_settings(job: Job) -> dict[str, str]:
    """The Spark settings that load the driver of a job.

    >>> from slackwater.ingest.jobfile.job import parse_job
    >>> jar_settings(parse_job({"ms.source.jdbc.jars": ["a.jar", "b.jar"]}))
    {'spark.jars': 'a.jar,b.jar'}
    """
    jars = job.settings.source_jdbc_jars
    return {"spark.jars": ",".join(jars)} if jars else {}


def _rendered(settings: Settings, work: WorkUnit, low: int) -> str:
    texts = parameter_values(settings.parameters, low, work.high, work.unit, settings.timezone)
    named = {parameter.name for parameter in settings.parameters}
    times: dict[str, Literal] = {
        name: at for name, at in (("low", low), ("high", work.high)) if name not in named
    }
    return render(str(settings.source_query), {**texts, **times}, settings.timezone)


def _options(settings: Settings) -> dict[str, str]:
    options = {"fetchsize": str(_FETCHED_ROWS)}
    options |= {name: str(value) for name, value in settings.source_options.items()}
    # a time without a timezone is in the timezone of the job, not in that of the JVM
    options["preferTimestampNTZ"] = "true"
    if settings.source_url and settings.source_url.get_secret_value().startswith("jdbc:postgresql:"):
        options["sessionInitStatement"] = f"SET TIME ZONE '{posix_zone(settings.timezone)}'"
    password = settings.source_jdbc_password
    given = {
        "driver": settings.source_jdbc_driver,
        "user": settings.source_jdbc_user,
        "password": None if password is None else password.get_secret_value(),
    }
    return options | {name: value for name, value in given.items() if value is not None}


def _driver_message(error: Exception, reading: JdbcReading) -> str:
    """The message of the database or its driver, without the trace, the address and the password."""
    causes = list(java_causes(error)) or [str(error)]
    of_driver = [text for text in causes if "SQL" in text.split(":")[0]]
    line = [*(of_driver or causes)[0].strip().splitlines(), type(error).__name__][0]
    if _NO_DRIVER.search(line):
        return (
            "no JDBC driver found for ms.source.url; set its class in ms.source.jdbc.driver and its jar "
            "files in ms.source.jdbc.jars, or add them to the class path of Spark"
        )
    return hide(line, (reading.url, reading.options.get("password")))
