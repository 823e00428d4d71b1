"""A job: its keys, read and checked, and what its secondary inputs hold.

Reading a job is the one place where files are opened and the environment is looked at; what comes out is
a value, from which plans are made without asking anybody again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from slackwater.ingest.job_errors import InvalidJob, Problem
from slackwater.ingest.jobfile.job_files import read_job_file
from slackwater.ingest.jobfile.job_keys import KEYS, Settings
from slackwater.ingest.jobfile.key_values import json_list, nearest
from slackwater.ingest.jobfile.references import Secrets, resolve
from slackwater.ingest.jobfile.secondary_inputs import Inputs, read_inputs
from slackwater.ingest.units import WHOLE, Unit

_PREFIX: Final = "ms."
_WATERMARK: Final = "ms.watermark"
_INPUT: Final = "ms.secondary.input"
_UNITS_TWICE: Final = ("has units, and ms.watermark has units, too", "keep one of the two")
_LONGEST_VALUE: Final = 200
_TAGS: Final = ("datetime", "unit")
_NEVER_SHOWN: Final = {
    "ms.source.url", "ms.target.url", "ms.source.http.headers", "ms.source.http.body",
    "ms.source.http.query", "ms.source.http.authentication", "ms.source.jdbc.password",
}  # fmt: skip
_HIDDEN: Final = "'…'"
_SHORTEST_SECRET: Final = 4
"""A shorter field of the authentication record says what it is, such as `v1`, not who asks."""


@dataclass(frozen=True)
class Job:
    """A job that can be planned. Its representation has no value of a key in it.

    >>> parse_job({"ms.backfill": "true"})
    Job(settings=Settings(ms.backfill, ms.job.name), units=1)
    """

    settings: Settings
    inputs: Inputs = field(default_factory=Inputs)
    secrets: Secrets = field(default_factory=Secrets)

    @property
    def units(self) -> tuple[Unit, ...]:
        """The units, in their order: listed in the file, or records of secondary inputs, or the one unit."""
        listed = self.settings.listed_units
        found = self.inputs.units if listed is None else listed
        return (WHOLE,) if found is None else found

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that every unit has.

        >>> units = [{"site": "a", "table": "t"}, {"site": "b"}]
        >>> parse_job({"ms.watermark": [{"name": "id", "type": "unit", "units": units}]}).fields
        ('site',)
        """
        first, *others = dict.fromkeys(tuple(unit.as_dict()) for unit in self.units) or [()]
        return tuple(name for name in first if all(name in other for other in others))

    @property
    def names(self) -> tuple[str, ...]:
        """What ``{{name}}`` can stand for in every unit.

        >>> parse_job({}).names
        ('low', 'high')
        """
        given = ("low", "high", *self.fields, *(parameter.name for parameter in self.settings.parameters))
        return tuple(dict.fromkeys(given))

    def __repr__(self) -> str:
        return f"Job(settings={self.settings!r}, units={len(self.units)})"


def load_job(
    path: str | Path,
    *,
    settings: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Job:
    """Read a job file, everything it refers to, and its secondary inputs.

    ``settings`` are what the command line gives with ``--set``; they win over keys of the file. Without
    ``environment``, that of the process is used. All problems are raised together, as `InvalidJob`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "orders.yaml"
    ...     _ = file.write_text("ms.grace.period.days: ${days}", encoding="utf-8")
    ...     job = load_job(file, settings={"days": "3"})
    >>> job.settings.name, job.settings.grace_days
    ('orders', 3)
    """
    file = Path(path)
    return parse_job(
        read_job_file(file), name=file.stem, folder=file.parent, settings=settings, environment=environment
    )


def parse_job(
    keys: Mapping[str, object],
    *,
    name: str = "job",
    folder: Path | None = None,
    settings: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Job:
    """The same from keys and values; paths of secondary inputs begin at ``folder``.

    >>> parse_job({"ms.grace.period.days": -1, "ms.backfil": "true"})
    Traceback (most recent call last):
    slackwater.ingest.job_errors.InvalidJob: job has 2 problems:
      ms.backfil = 'true': is not a known key; did you mean ms.backfill?
      ms.grace.period.days = -1: is not from 0 to 36500000; write a whole number, from 0 to 36500000
    """
    known = os.environ if environment is None else environment
    resolved = resolve(keys, settings or {}, known)
    secrets = resolved.secrets
    problems = list(resolved.problems)
    broken = {problem.key for problem in problems}
    given = {key: value for key, value in resolved.values.items() if key.startswith(_PREFIX)}
    problems += [_unknown(key, value, secrets) for key, value in given.items() if key not in KEYS]
    empty = [key for key, value in given.items() if key in KEYS and _is_empty(value)]
    problems += [Problem(key, None, "is empty", "write a value, or leave the key out") for key in empty]
    broken.update(empty)
    usable = {key: value for key, value in given.items() if key in KEYS and key not in broken}
    read, wrong_values = _validated({"ms.job.name": name, **usable}, secrets)
    problems += wrong_values
    problems += _second_items(usable.get(_WATERMARK), secrets)
    inputs, wrong_inputs = read_inputs(read.secondary_input, folder or Path())
    if inputs.units is not None and read.listed_units is not None:
        shown = _shown(_INPUT, usable[_INPUT], secrets)
        problems.append(Problem(_INPUT, shown, *_UNITS_TWICE))
    problems += [_masked(problem, secrets) for problem in wrong_inputs]
    secrets.values.update(
        (f"{{{{{name}}}}}", text)
        for name, text in inputs.authentication.items()
        if text is not None and len(text) >= _SHORTEST_SECRET
    )
    job = Job(read, inputs, secrets)
    if not {problem.key.split("[")[0] for problem in problems} & {_WATERMARK, _INPUT}:
        problems += _unknown_fields(job)
    if problems:
        raise InvalidJob(problems, source=name)
    return job


def _validated(given: Mapping[str, object], secrets: Secrets) -> tuple[Settings, list[Problem]]:
    """The settings; where values are wrong, those of the other keys, so that these can be looked at, too."""
    try:
        return Settings.model_validate(given), []
    except ValidationError as error:
        details = error.errors(include_url=False)
        problems = [_problem(detail, given, secrets) for detail in details]
        wrong_keys = {detail["loc"][0] for detail in details}
    rest = {key: value for key, value in given.items() if key not in wrong_keys}
    settings, more = _validated(rest, secrets)
    return settings, problems + more


def _second_items(value: object, secrets: Secrets) -> Iterator[Problem]:
    """There is one time axis, and one list of units."""
    try:
        items = json_list(value)
    except PydanticCustomError:
        return
    seen = set()
    for number, item in enumerate(items):
        kind = item.get("type") if isinstance(item, dict) else None
        if kind in _TAGS and kind in seen:
            shown, fix = _shown(_WATERMARK, item, secrets), f"keep one item of type {kind}"
            yield Problem(f"{_WATERMARK}[{number}]", shown, f"is another item of type {kind}", fix)
        elif kind in _TAGS:
            seen.add(kind)


def _unknown_fields(job: Job) -> Iterator[Problem]:
    """A parameter that stands for a field of the unit stands for it in every unit."""
    if not job.units:
        return
    for number, parameter in enumerate(job.settings.parameters):
        if parameter.type == "unit" and parameter.value not in job.fields:
            fix = f"use one of {', '.join(job.fields)}" if job.fields else "list units that have it"
            place = f"ms.parameters[{number}].value"
            yield _masked(
                Problem(place, repr(parameter.value), "is not a field of every unit", fix), job.secrets
            )


def _is_empty(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _unknown(key: str, value: object, secrets: Secrets) -> Problem:
    return Problem(
        key, _shown(key, value, secrets), "is not a known key", f"did you mean {nearest(key, KEYS)}?"
    )


def _problem(detail: ErrorDetails, given: Mapping[str, object], secrets: Secrets) -> Problem:
    key, *path = detail["loc"]
    if len(path) > 1 and path[1] in _TAGS:  # the kind of an item of ms.watermark is no part of the path
        del path[1]
    reason, fix, value = _worded(detail, path, given[str(key)])
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return _masked(Problem(f"{key}{place}", _shown(str(key), value, secrets), reason, fix), secrets)


def _worded(detail: ErrorDetails, path: list[int | str], whole: object) -> tuple[str, str, object]:
    """Reason, fix and offending value of a complaint; ``path`` loses a last part that does not exist."""
    context: dict[str, Any] = detail.get("ctx", {})
    match detail["type"]:
        case "job":
            return context["reason"], context["fix"], detail["input"] if path else whole
        case "missing":
            name = path.pop()
            return f"has no {name!r}", f"add {name!r}", detail["input"]
        case "extra_forbidden":
            return "is not known here", "correct its name, or leave it out", detail["input"]
        case "union_tag_not_found":
            return "has no 'type'", 'add "type": "datetime" or "type": "unit"', detail["input"]
        case "union_tag_invalid":
            return "has an unknown type", 'write "type": "datetime" or "type": "unit"', detail["input"]
        case "string_type":
            return "is not text", "write it as text, in quotes", detail["input"]
        case "model_type" | "model_attributes_type" | "dict_type":
            return "is not an object", 'write an object, such as {"name": "value"}', detail["input"]
        case "tuple_type" | "list_type":
            return "is not a list", "write a list, such as [1, 2]", detail["input"]
        case _:
            return detail["msg"][:1].lower() + detail["msg"][1:], "correct it", detail["input"]


def _shown(key: str, value: object, secrets: Secrets) -> str:
    if key in _NEVER_SHOWN:
        return _HIDDEN
    text = secrets.show(value)
    return text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + "…"


def _masked(problem: Problem, secrets: Secrets) -> Problem:
    if not secrets:
        return problem
    value = None if problem.value is None else secrets.mask(problem.value)
    reason, fix = secrets.mask_reason(problem.reason), secrets.mask_reason(problem.fix)
    return Problem(secrets.mask(problem.key), value, reason, fix)
