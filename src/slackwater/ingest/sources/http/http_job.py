"""The HTTP requests of a job, built from its keys, and all problems with those keys."""

from __future__ import annotations

from slackwater.errors import InvalidArgument
from slackwater.ingest.axis.partitions import divide
from slackwater.ingest.job_errors import Problem
from slackwater.ingest.jobfile.endpoints import division_problems
from slackwater.ingest.jobfile.job import Job
from slackwater.ingest.jobfile.job_secrets import http_secrets
from slackwater.ingest.jobfile.parameters import parameter_values, unknown_parameter
from slackwater.ingest.plan.planner import WorkUnit
from slackwater.ingest.sources.http.client import Policy
from slackwater.ingest.sources.http.record_reader import HttpReading, RangeRequest
from slackwater.ingest.sources.http.requests import Template
from slackwater.ingest.sources.http.responses import ResponseFormat

_MINUTE = 60
_OPTIONS = {"delimiter"}


def template_of(job: Job) -> Template:
    """The request template of a job.

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
    """The requests of one unit, for ``ms.source.partitions`` parts of its range.

    >>> from slackwater.ingest.jobfile.job import parse_job
    >>> from slackwater.ingest.units import WHOLE
    >>> job = parse_job({"ms.source.url": "https://api.example.com/orders?since={{low}}"})
    >>> [part.request for part in reading_of(job, WorkUnit(0, 10, WHOLE, 0), 0).parts]
    [Request(GET https://api.example.com/orders)]
    """
    settings = job.settings
    template = template_of(job)
    parts = tuple(
        RangeRequest(template.filled(_values(job, work, start, end)), start, end)
        for start, end in divide(low, work.high, settings.source_partitions)
    )
    form = ResponseFormat(
        settings.http_format, settings.http_records, str(settings.source_options.get("delimiter", ","))
    )
    return HttpReading(parts, form, settings.http_pagination, _policy(job), http_secrets(job))


def http_problems(job: Job) -> list[Problem]:
    """All problems that prevent a job from being read over HTTP, except for a missing URL.

    >>> from slackwater.ingest.jobfile.job import parse_job
    >>> job = parse_job({"ms.source.url": "https://api.example.com/{{custommer}}"})
    >>> print(*http_problems(job))
    ms.source.url = 'custommer': unknown parameter; use one of low, high, or add it to ms.parameters
    """
    settings = job.settings
    template = template_of(job)
    problems = []
    if settings.source_url is not None:
        try:
            template.check()
        except InvalidArgument as error:
            problems.append(Problem.from_error(error, show_value=False))
    asked = template.names()
    token = job.inputs.authentication
    if job.units:
        known = dict.fromkeys([*token, *job.names])
        problems += [
            Problem.from_error(unknown_parameter(key, name, known))
            for key, names in asked.items()
            for name in sorted(names - known.keys())
        ]
    used = set().union(*asked.values())
    if token and not used & token.keys():
        reason = "no field of the authentication record is used"
        fix = f"write ms.source.http.authentication, with {{{{{min(token)}}}}}"
        problems.append(Problem("ms.secondary.input", None, reason, fix))
    fields = {name for unit in job.units for name, _ in unit.values}
    if both := sorted(fields & token.keys()):
        reason = "is a field of both the units and the authentication record"
        problems.append(Problem("ms.secondary.input", repr(both[0]), reason, "rename one of them"))
    derived = {one.name for one in settings.parameters if one.type == "unit"}
    if fields and not used & (fields | derived):
        fix = f"add {{{{{min(fields)}}}}} to it, or to ms.source.http.query"
        problems.append(Problem("ms.source.url", None, "is the same for all units", fix))
    return problems + _form_problems(job)


def _form_problems(job: Job) -> list[Problem]:
    settings = job.settings
    form, pagination = settings.http_format, settings.http_pagination
    problems = []
    if form != "json" and settings.http_records is not None:
        reason, fix = f"does not apply to {form}, which contains only records", "remove it"
        problems.append(Problem("ms.source.http.records", repr(settings.http_records), reason, fix))
    if form != "json" and pagination is not None and pagination.cursor is not None:
        reason, fix = f"a response in {form} has no cursor", "use page, offset, or a link in the header"
        problems.append(Problem("ms.source.http.pagination", None, reason, fix))
    if pagination is not None and pagination.parameters_in == "body" and template_of(job).body_kind != "json":
        reason, fix = "needs a JSON body for its parameters", "set ms.source.http.body, for example to {}"
        problems.append(Problem("ms.source.http.pagination", None, reason, fix))
    problems += division_problems(settings)
    known = _OPTIONS if form == "csv" else set()
    problems += [
        Problem("ms.source.options", repr(name), f"is not an option for {form}", "remove it")
        for name in sorted(settings.source_options.keys() - known)
    ]
    delimiter = str(settings.source_options.get("delimiter", ","))
    if form == "csv" and (len(delimiter) != 1 or delimiter in '"\r\n'):
        reason, fix = "is not a valid delimiter", 'use one character, such as {"delimiter": ";"}'
        problems.append(Problem("ms.source.options", repr(delimiter), reason, fix))
    return problems


def _values(job: Job, work: WorkUnit, low: int, high: int) -> dict[str, str]:
    settings = job.settings
    values = parameter_values(settings.parameters, low, high, work.unit, settings.timezone)
    return {**{name: text or "" for name, text in job.inputs.authentication.items()}, **values}


def _policy(job: Job) -> Policy:
    """The policy of one request: its share of the rate limit among all concurrent requests of the job."""
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
