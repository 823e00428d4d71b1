"""A job: its validated keys and the contents of its secondary inputs.

Loading a job is the only step that opens files and reads environment variables. The result is a value from
which plans are made without further input.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from slackwater._suggestions import nearest
from slackwater.ingest.job_errors import InvalidJob, Problem
from slackwater.ingest.jobfile.dil_keys import DIL_KEYS
from slackwater.ingest.jobfile.job_files import read_job_file
from slackwater.ingest.jobfile.job_keys import KEYS, Settings
from slackwater.ingest.jobfile.key_values import json_list
from slackwater.ingest.jobfile.references import resolve
from slackwater.ingest.jobfile.secondary_inputs import SecondaryInputs, read_inputs
from slackwater.ingest.redaction import (
    SHORTEST_SECRET,
    Secrets,
    hide,
    resembles_secret,
    url_secrets,
    without_credentials,
)
from slackwater.ingest.units import WHOLE, Unit

_PREFIX: Final = "ms."
_WATERMARK: Final = "ms.watermark"
_INPUT: Final = "ms.secondary.input"
_UNITS_TWICE: Final = ("lists units, and so does ms.watermark", "list them in one of the two")
_LONGEST_VALUE: Final = 200
_TAGS: Final = ("datetime", "unit")
_NEVER_SHOWN: Final = {
    "ms.source.url", "ms.target.url", "ms.source.http.headers", "ms.source.http.body",
    "ms.source.http.query", "ms.source.http.authentication", "ms.source.jdbc.password",
}  # fmt: skip
_HIDDEN: Final = "'…'"


@dataclass(frozen=True)
class Job:
    """A job that can be planned. Its representation does not contain the values of its keys.

    >>> from slackwater.ingest import parse_job
    >>> parse_job({"ms.backfill": "true"})
    Job(settings=Settings(ms.backfill, ms.job.name), units=1)
    """

    settings: Settings
    inputs: SecondaryInputs = field(default_factory=SecondaryInputs)
    secrets: Secrets = field(default_factory=Secrets)

    @property
    def units(self) -> tuple[Unit, ...]:
        """The units in order: from the job file or its secondary inputs, otherwise only `WHOLE`."""
        listed = self.settings.listed_units
        found = self.inputs.units if listed is None else listed
        return (WHOLE,) if found is None else found

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that every unit has.

        >>> from slackwater.ingest import parse_job
        >>> units = [{"site": "a", "table": "t"}, {"site": "b"}]
        >>> parse_job({"ms.watermark": [{"name": "id", "type": "unit", "units": units}]}).fields
        ('site',)
        """
        first, *others = dict.fromkeys(tuple(unit.as_dict()) for unit in self.units) or [()]
        return tuple(name for name in first if all(name in other for other in others))

    @property
    def names(self) -> tuple[str, ...]:
        """The names that ``{{name}}`` can refer to in every unit.

        >>> from slackwater.ingest import parse_job
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
    """Load a job file, its references and its secondary inputs.

    Args:
        path: The job file, as properties or YAML.
        settings: Values for references and keys, as given with ``--set``; they override keys of the file.
        environment: The environment variables for ``${env:NAME}``; by default those of the process.

    Returns:
        The job.

    Raises:
        InvalidJob: The job has problems; the error contains all of them.

    >>> from slackwater.ingest import load_job
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
    """Make a job from its keys and values.

    Args:
        keys: Values by key, as text or as YAML would give them.
        name: The name of the job, unless ``ms.job.name`` sets it.
        folder: The folder for relative paths of secondary inputs; by default the current one.
        settings: Values for references and keys; they override ``keys``.
        environment: The environment variables for ``${env:NAME}``; by default those of the process.

    Returns:
        The job.

    Raises:
        InvalidJob: The job has problems; the error contains all of them.

    >>> from slackwater.ingest import parse_job
    >>> parse_job({"ms.grace.period.days": -1, "ms.backfil": "true"})
    Traceback (most recent call last):
    slackwater.ingest.job_errors.InvalidJob: job has 2 problems:
      ms.backfil = 'true': unknown key; did you mean ms.backfill?
      ms.grace.period.days = -1: is out of range; write a whole number from 0 to 36500000
    """
    known = os.environ if environment is None else environment
    resolved = resolve(keys, settings or {}, known)
    secrets = resolved.secrets
    problems = list(resolved.problems)
    broken = {problem.key for problem in problems}
    given = {key: value for key, value in resolved.values.items() if key.startswith(_PREFIX)}
    problems += [_unknown(key, value, secrets) for key, value in given.items() if key not in KEYS]
    empty = [key for key, value in given.items() if key in KEYS and _is_empty(value)]
    problems += [Problem(key, None, "is empty", "write a value, or remove the key") for key in empty]
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
        if text is not None and len(text) >= SHORTEST_SECRET
    )
    job = Job(read, inputs, secrets)
    if not {problem.key.split("[")[0] for problem in problems} & {_WATERMARK, _INPUT}:
        problems += _unknown_fields(job)
    if problems:
        hidden = _literal_secrets(resolved.values)
        raise InvalidJob([_redacted(problem, hidden) for problem in problems], source=name)
    return job


def _validated(given: Mapping[str, object], secrets: Secrets) -> tuple[Settings, list[Problem]]:
    """The settings and all problems; invalid keys are left out, so that the others are checked too."""
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
    """Problems with a second time axis or a second list of units."""
    try:
        items = json_list(value)
    except PydanticCustomError:
        return
    seen = set()
    for number, item in enumerate(items):
        kind = item.get("type") if isinstance(item, dict) else None
        if kind in _TAGS and kind in seen:
            shown, fix = _shown(_WATERMARK, item, secrets), f"keep one item of type {kind}"
            yield Problem(f"{_WATERMARK}[{number}]", shown, f"is a second item of type {kind}", fix)
        elif kind in _TAGS:
            seen.add(kind)


def _unknown_fields(job: Job) -> Iterator[Problem]:
    """Problems with parameters that refer to a field that some unit does not have."""
    if not job.units:
        return
    for number, parameter in enumerate(job.settings.parameters):
        if parameter.type == "unit" and parameter.value not in job.fields:
            fix = f"use one of {', '.join(job.fields)}" if job.fields else "add it to every unit"
            key = f"ms.parameters[{number}].value"
            yield _masked(
                Problem(key, repr(parameter.value), "is not a field of every unit", fix), job.secrets
            )


def _is_empty(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _unknown(key: str, value: object, secrets: Secrets) -> Problem:
    fix = f"write {DIL_KEYS[key]}" if key in DIL_KEYS else f"did you mean {nearest(key, KEYS)}?"
    return Problem(key, _shown(key, value, secrets), "unknown key", fix)


def _problem(detail: ErrorDetails, given: Mapping[str, object], secrets: Secrets) -> Problem:
    key, *path = detail["loc"]
    if len(path) > 1 and path[1] in _TAGS:  # the type of an item of ms.watermark is not part of the path
        del path[1]
    reason, fix, value = _worded(detail, path, given[str(key)])
    location = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return _masked(Problem(f"{key}{location}", _shown(str(key), value, secrets), reason, fix), secrets)


def _worded(detail: ErrorDetails, path: list[int | str], whole: object) -> tuple[str, str, object]:
    """Reason, fix and value of a validation error; removes a missing last name from ``path``."""
    context: dict[str, Any] = detail.get("ctx", {})
    match detail["type"]:
        case "job":
            return context["reason"], context["fix"], detail["input"] if path else whole
        case "missing":
            name = path.pop()
            return f"has no {name!r}", f"add {name!r}", detail["input"]
        case "extra_forbidden":
            return "unknown field", "correct its name, or remove it", detail["input"]
        case "union_tag_not_found":
            return "has no 'type'", 'add "type": "datetime" or "type": "unit"', detail["input"]
        case "union_tag_invalid":
            return "has an unknown 'type'", 'write "type": "datetime" or "type": "unit"', detail["input"]
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


def _is_secret(key: str) -> bool:
    """Whether values of a key, or of a field of it, are never shown."""
    return key.startswith(tuple(_NEVER_SHOWN)) or resembles_secret(key)


def _literal_secrets(values: Mapping[str, object]) -> list[str]:
    """The secrets that are written in the job file itself; messages may repeat them under other keys."""
    secret = (value for key, value in values.items() if isinstance(value, str) and _is_secret(key))
    found = (part for value in secret for part in (value, *url_secrets(value)))
    return [part for part in found if len(part) >= SHORTEST_SECRET]


def _redacted(problem: Problem, hidden: list[str]) -> Problem:
    """A problem without secrets: values of secret keys, credentials by their form, and ``hidden`` texts."""
    value = problem.value
    if value is not None:
        value = _HIDDEN if _is_secret(problem.key) else hide(without_credentials(value), hidden)
    reason, fix = (hide(without_credentials(text), hidden) for text in (problem.reason, problem.fix))
    return Problem(problem.key, value, reason, fix)


def _masked(problem: Problem, secrets: Secrets) -> Problem:
    if not secrets:
        return problem
    value = None if problem.value is None else secrets.mask(problem.value)
    reason, fix = secrets.mask_reason(problem.reason), secrets.mask_reason(problem.fix)
    return Problem(secrets.mask(problem.key), value, reason, fix)
