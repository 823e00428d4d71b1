"""Arguments and options that `plan` and `ingest` share, and their parsing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slackwater.errors import InvalidArgument
from slackwater.ingest import Job
from slackwater.ingest.axis.bounds import read_fixed
from slackwater.ingest.redaction import resembles_secret
from slackwater.time import now

JobFile = Annotated[Path, typer.Argument(metavar="JOB", help="The job file (.properties or .yaml).")]
Now = Annotated[
    str | None,
    typer.Option(
        "--now",
        metavar="TIME",
        help="Use this as the current time, for example 2020-01-31T10:00:00Z. "
        "A time without an offset is in the timezone of the job.",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="Set the variable ${NAME} or a key of the job; may be repeated."
    ),
]


def parse_settings(given: list[str] | None, option: str = "--set") -> dict[str, str]:
    """Parse the NAME=VALUE pairs of a repeated option.

    >>> parse_settings(["days=3"])
    {'days': '3'}
    """
    settings: dict[str, str] = {}
    for text in given or []:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            fix = f"write {option} NAME=VALUE"
            shown = "…" if resembles_secret(text) else text
            raise InvalidArgument(option, shown, "is not of the form NAME=VALUE", fix=fix)
        settings[name.strip()] = value
    return settings


def parse_now(text: str | None, job: Job) -> int:
    """Parse ``--now``; without it, return the current time.

    >>> from slackwater.ingest import parse_job
    >>> parse_now("1970-01-01 00:00:01", parse_job({}))
    1000000
    """
    return now() if text is None else parse_time(text, job, "--now")


def parse_time(text: str, job: Job, option: str) -> int:
    """Parse the time given with an option; without an offset it is in the timezone of the job.

    >>> from slackwater.ingest import parse_job
    >>> parse_time("1970-01-01 00:00:01", parse_job({}), "--since")
    1000000
    """
    try:
        return read_fixed(text).resolve(0, job.settings.timezone)
    except InvalidArgument as error:
        raise InvalidArgument(option, text, error.reason, fix=error.fix) from None
