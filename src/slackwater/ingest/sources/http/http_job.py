"""From the keys of a job to what is asked of an HTTP API, with everything that is wrong with them at once."""

from __future__ import annotations

from itertools import pairwise

from slackwater.errors import InvalidArgument
from slackwater.ingest.job_errors import Problem
from slackwater.ingest.jobfile.job import Job
from slackwater.ingest.jobfile.parameters import parameter_values
from slackwater.ingest.jobfile.references import Secrets
from slackwater.ingest.plan.planner import WorkUnit
from slackwater.ingest.sources.http.client import Policy
from slackwater.ingest.sources.http.record_reader import HttpReading, Part
from slackwater.ingest.sources.http.requests import Template
from slackwater.ingest.sources.http.responses import Form

_MINUTE = 60
_OPTIONS = {"delimiter"}


def template_of(job: Job) -> Template:
    """The request of a job, before a unit's values are in it.

    >>> from slackwater.ingest.jobfile.job import parse_job
    >>> template_of(parse_job({"ms.source.url": "https://api.example.com/orders"}))
    Template(method='get')
    """
    settings = job.settings
    url = "" if settings.source_url is None else settings.source_url.get_secret_value()
    return Template(
        settings.http_method,
        url,
        settings.http_headers,
        settings.http_query,
        settings.http_body,
        settings.http_authentication,
    )


def reading_of(job: Job, work: WorkUnit, low: int) -> HttpReading:
    """What is asked for one unit, in ``ms.source.partitions`` parts of its range.

    >>> from slackwater.ingest.jobfile.job import parse_job
    >>> from slackwater.ingest.units import WHOLE
    >>> job = parse_job({"ms.source.url": "https://api.example.com/orders?since={{low}}"})
    >>> [part.request for part in reading_of(job, WorkUnit(0, 10, WHOLE, 0), 0).parts]
    [Request(GET https://api.example.com/orders)]
    """
    settings = job.settings
    template = template_of(job)
    count = settings.source_partitions
    cuts = [low + (work.high - low) * number // count for number in range(count + 1)]
    parts = tuple(
        Part(template.filled(_values(job, work, start, end)), start, end)
        for start, end in pairwise(cuts)
        if start < end
    )
    form = Form(
        settings.http_format, settings.http_records, str(settings.source_options.get("delimiter", ","))
    )
    return HttpReading(parts, form, settings.http_pagination, _policy(job), _secrets(job))


def http_problems(job: Job) -> list[Problem]:
    """What keeps a job from being read over HTTP, apart from a missing URL.

    >>> from slackwater.ingest.jobfile.job import parse_job
    >>> job = parse_job({"ms.source.url": "https://api.example.com/{{custommer}}"})
    >>> print(*http_problems(job))
    ms.source.url = 'custommer': nothing is called so; use one of low, high, or add it to ms.parameters
    """
    settings = job.settings
    template = template_of(job)
    problems = []
    if settings.source_url is not None:
        try:
            template.check()
        except InvalidArgument as error:
            problems.append(Problem(error.name, None, error.reason, error.fix or ""))
    asked = template.names()
    token = job.inputs.authentication
    if job.units:
        known = dict.fromkeys([*token, *job.names])
        fix = f"use one of {', '.join(known)}, or add it to ms.parameters"
        problems += [
            Problem(key, repr(name), "nothing is called so", fix)
            for key, names in asked.items()
            for name in sorted(names - known.keys())
        ]
    used = set().union(*asked.values())
    if token and not used & token.keys():
        reason = "nothing of the authentication record is used"
        fix = f"write ms.source.http.authentication, with {{{{{min(token)}}}}}"
        problems.append(Problem("ms.secondary.input", None, reason, fix))
    fields = {name for unit in job.units for name, _ in unit.values}
    if both := sorted(fields & token.keys()):
        reason = "is a field of the units and of the authentication record"
        problems.append(Problem("ms.secondary.input", repr(both[0]), reason, "rename one of them"))
    derived = {one.name for one in settings.parameters if one.type == "unit"}
    if fields and not used & (fields | derived):
        fix = f"write {{{{{min(fields)}}}}} into it, or into the query"
        problems.append(Problem("ms.source.url", None, "does not tell units apart", fix))
    return problems + _form_problems(job)


def _form_problems(job: Job) -> list[Problem]:
    settings = job.settings
    form, pagination = settings.http_format, settings.http_pagination
    problems = []
    if form != "json" and settings.http_records is not None:
        reason, fix = f"{form} has records and nothing else", "leave it out"
        problems.append(Problem("ms.source.http.records", repr(settings.http_records), reason, fix))
    if form != "json" and pagination is not None and pagination.cursor is not None:
        reason, fix = f"an answer in {form} has no cursor", "use page, offset, or a link in the header"
        problems.append(Problem("ms.source.http.pagination", None, reason, fix))
    if pagination is not None and pagination.place == "body" and template_of(job).body_kind != "json":
        reason, fix = "needs a body of JSON for its parameters", "write ms.source.http.body, such as {}"
        problems.append(Problem("ms.source.http.pagination", None, reason, fix))
    if settings.source_partitions > 1 and settings.time_column is None:
        reason = "needs a time column, by which the range is divided"
        shown = str(settings.source_partitions)
        problems.append(Problem("ms.source.partitions", shown, reason, "set ms.time.column"))
    known = _OPTIONS if form == "csv" else set()
    problems += [
        Problem("ms.source.options", repr(name), "is not known here", "leave it out")
        for name in sorted(settings.source_options.keys() - known)
    ]
    delimiter = str(settings.source_options.get("delimiter", ","))
    if form == "csv" and (len(delimiter) != 1 or delimiter in '"\r\n'):
        reason, fix = "is no delimiter", 'write one character, such as {"delimiter": ";"}'
        problems.append(Problem("ms.source.options", repr(delimiter), reason, fix))
    return problems


def _values(job: Job, work: WorkUnit, low: int, high: int) -> dict[str, str]:
    settings = job.settings
    values = parameter_values(settings.parameters, low, high, work.unit, settings.timezone)
    return {**{name: text or "" for name, text in job.inputs.authentication.items()}, **values}


def _policy(job: Job) -> Policy:
    """The patience of one part: the pace of the job, divided by how many parts are read side by side."""
    settings = job.settings
    retry = settings.http_retry
    units = settings.run_concurrency
    if settings.partition.kind == "none":
        units = max(1, min(units, len(job.units)))
    interval = 0.0 if settings.http_rate is None else _MINUTE / settings.http_rate
    return Policy(
        retry.attempts,
        retry.wait_seconds,
        retry.longest_seconds,
        retry.statuses,
        settings.http_timeout,
        interval * units * settings.source_partitions,
        settings.http_largest,
    )


def _secrets(job: Job) -> Secrets:
    """What must not be shown: the secrets of the job, and what is written into its keys to authenticate."""
    who = job.settings.http_authentication
    written = [] if who is None else [text for text in who.texts if "{{" not in text]
    return Secrets({**{f"(secret {n})": text for n, text in enumerate(written)}, **job.secrets.values})
