"""The keys of a job file: their types, defaults and meanings, in one model.

Each field is a key (its alias), and the reference page of keys is generated from them. A validator can read
the keys before its own, so keys that exclude each other are reported together with all other problems.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from datetime import tzinfo
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, PlainValidator, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from slackwater.errors import InvalidArgument
from slackwater.ingest.axis.bounds import NOW, read_fixed
from slackwater.ingest.axis.partitions import KINDS, Partitioning, SubRange
from slackwater.ingest.axis.timezones import zone
from slackwater.ingest.jobfile.endpoints import EndpointKeys
from slackwater.ingest.jobfile.key_values import (
    AsList,
    Days,
    KeyModel,
    Period,
    Text,
    Truth,
    integer,
    invalid,
    one_of,
    read_json,
    text_parser,
)  # fmt: skip
from slackwater.ingest.jobfile.parameters import Parameter
from slackwater.ingest.jobfile.watermark_items import DEFAULT_AXIS, DatetimeWatermark, Watermark
from slackwater.ingest.units import Unit
from slackwater.time import DAY, END_OF_TIME

_PARTITION_FIX: Final = (
    f"write one of {', '.join(KINDS)}, or "
    '{"monthly": ["2020-01-01", "2020-06-01"], "daily": ["2020-06-01", "-"]}'
)
_UTC: Final = zone("Z")
_LONGEST_NAME: Final = 80
"""The longest name of a job in bytes; percent-encoded, it is still a valid name of a folder."""


# ---- ms.work.unit.partition


def _read_partitioning(value: object, tz: tzinfo) -> Partitioning:
    if isinstance(value, str):
        text = value.strip()
        if text.lower() in KINDS:
            return Partitioning(text.lower())  # type: ignore[arg-type]  # it is one of the words
        if not text.startswith("{"):
            raise invalid("is not a valid partition type", _PARTITION_FIX)
        value = read_json(text, "an object")
    if not isinstance(value, Mapping) or not value:
        raise invalid("is neither a partition type nor an object of sub-ranges", _PARTITION_FIX)
    parts = _read_sub_ranges(value)
    _reject_overlaps(parts, tz)
    return Partitioning(None, parts)


def _read_sub_ranges(value: Mapping[object, object]) -> tuple[SubRange, ...]:
    parts, problems = [], []
    for kind, bounds in value.items():
        try:
            parts.append(_read_sub_range(str(kind), bounds))
        except PydanticCustomError as error:
            problems.append(error.context or {})
    if problems:
        fixes = dict.fromkeys(each["fix"] for each in problems)
        raise invalid("; ".join(each["reason"] for each in problems), "; ".join(fixes))
    return tuple(parts)


def _read_sub_range(word: str, bounds: object) -> SubRange:
    kind = word.strip().lower()
    if kind not in KINDS:
        raise invalid(f"{word!r} is not a valid partition type", _PARTITION_FIX)
    if not isinstance(bounds, list) or len(bounds) != 2 or not all(isinstance(text, str) for text in bounds):
        raise invalid(f"{word!r} does not have exactly two dates", _PARTITION_FIX)
    start, end = (text.strip() for text in bounds)
    try:
        return SubRange(kind, read_fixed(start), NOW if end == "-" else read_fixed(end))  # type: ignore[arg-type]  # it is one of the words
    except InvalidArgument as error:
        raise invalid(f"{word!r}: {error.value!r} {error.reason}", error.fix or _PARTITION_FIX) from None


def _reject_overlaps(parts: tuple[SubRange, ...], tz: tzinfo) -> None:
    reached, last = None, ""
    spans = [
        (
            part.start.resolve(0, tz),
            END_OF_TIME if part.end == NOW else part.end.resolve(0, tz),
            part.kind,
        )
        for part in parts
    ]
    for start, end, kind in sorted(span for span in spans if span[0] < span[1]):
        if reached is not None and start < reached:
            raise invalid(f"the sub-ranges {last} and {kind} overlap", "end one where the other starts")
        reached, last = end, kind


# ---- ms.secondary.input


def _read_filters(value: object) -> dict[str, re.Pattern[str]]:
    if not isinstance(value, Mapping):
        raise invalid(
            "is not an object",
            'write an object of fields and regular expressions, like {"state": "done|failed"}',
        )
    filters = {}
    for name, expression in value.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about syntax that may change in a later Python
                filters[str(name)] = re.compile(expression)
        except (re.error, TypeError, OverflowError, RecursionError):
            raise invalid(
                f"{expression!r} is not a valid regular expression", "correct or escape it"
            ) from None
    return filters


class SecondaryInput(KeyModel):
    """An item of ``ms.secondary.input``: a file of units, or of the record that authenticates requests."""

    path: Text
    fields: tuple[Text, ...] = ()
    filters: Annotated[dict[str, re.Pattern[str]], PlainValidator(_read_filters)] = Field(
        default_factory=dict
    )
    category: Annotated[Literal["activation", "authentication"], one_of("activation", "authentication")] = (
        "activation"
    )


# ---- all keys


def _job_name(name: str) -> str:
    if name.strip(" .") == "" or name != name.strip() or not name.isprintable():
        raise invalid("is not a valid name", "use letters, digits, - and _, like orders_daily")
    if len(name.encode()) > _LONGEST_NAME:
        raise invalid("is too long", f"use at most {_LONGEST_NAME} bytes")
    return name


class Settings(EndpointKeys):
    """The validated keys of a job. Its representation shows the keys that are set, without their values.

    >>> Settings.model_validate({"ms.grace.period.days": "3"})
    Settings(ms.grace.period.days)
    >>> Settings.model_validate({"ms.grace.period.days": "3"}).grace == 3 * DAY
    True
    """

    name: Annotated[Text, AfterValidator(_job_name)] = Field(
        "job",
        alias="ms.job.name",
        description="the name under which the history is kept",
    )
    timezone: Annotated[tzinfo, PlainValidator(text_parser(zone))] = Field(
        _UTC, alias="ms.timezone", description="the timezone of dates, days and partitions"
    )
    watermark: Annotated[tuple[Watermark, ...], AsList] = Field(
        (),
        alias="ms.watermark",
        description=(
            'a JSON list: `{"name","type":"datetime","range":{"from","to"}}` and/or '
            '`{"name","type":"unit","units":…}`, at most one of each type'
        ),
    )
    grace_days: Days | None = Field(
        None,
        alias="ms.grace.period.days",
        description="days of 24 hours before the high watermark that are read again",
    )
    grace_period: Period | None = Field(
        None,
        alias="ms.grace.period",
        description="the same as an ISO duration in days and time, such as `P3DT12H`",
    )
    abstinent_days: Days | None = Field(
        None,
        alias="ms.abstinent.period.days",
        description="days of 24 hours after its high watermark in which a unit is not read",
    )
    abstinent_period: Period | None = Field(
        None, alias="ms.abstinent.period", description="the same as an ISO duration in days and time"
    )
    abstinent_mode: Annotated[Literal["reduce", "wait"], one_of("reduce", "wait")] = Field(
        "reduce",
        alias="ms.abstinent.mode",
        description=(
            "`reduce`: the range starts at the cut-off, and the plan shows what it leaves out; `wait`: "
            "the unit waits, then reads everything since its high watermark"
        ),
    )
    rounding: Annotated[Literal["form", "partition"], one_of("form", "partition")] = Field(
        "form",
        alias="ms.watermark.rounding",
        description=(
            "`form`: a duration in `from`/`to` is floored by the form of its text; `partition`: only "
            "when the partition is weekly, monthly or yearly, otherwise hours and minutes stay"
        ),
    )
    partition: Partitioning = Field(
        Partitioning(),
        alias="ms.work.unit.partition",
        description="`none`, `hourly`, `daily`, `weekly`, `monthly`, `yearly`, or a composite of them",
    )
    partial_partition: Truth = Field(
        default=True,
        alias="ms.work.unit.partial.partition",
        description="also read the incomplete last partition",
    )
    secondary_input: Annotated[tuple[SecondaryInput, ...], AsList] = Field(
        (),
        alias="ms.secondary.input",
        description=(
            'a JSON list of `{"path","fields","filters","category"}`: records that are units '
            "(`activation`), or the one record that authenticates (`authentication`)"
        ),
    )
    parallelism: Annotated[int, integer(-1, 5000)] = Field(
        -1,
        alias="ms.work.unit.parallelism.max",
        description="most units planned in one run, oldest first; 0 is 500, −1 is unlimited",
    )
    min_units: Annotated[int, integer(0)] = Field(
        0, alias="ms.work.unit.min.units", description="the job fails if fewer units are planned"
    )
    min_records: Annotated[int, integer(0)] = Field(
        0, alias="ms.work.unit.min.records", description="a unit fails if it has fewer records"
    )
    pacing_seconds: Annotated[int, integer(0, 31_536_000)] = Field(
        0,
        alias="ms.work.unit.pacing.seconds",
        description="unit i starts no earlier than i times this after the plan",
    )
    backfill: Truth = Field(
        default=False, alias="ms.backfill", description="ignore history: read everything again"
    )
    parameters: Annotated[tuple[Parameter, ...], AsList] = Field(
        (),
        alias="ms.parameters",
        description="a JSON list that defines `{{name}}` in a query, path or URL",
    )

    @field_validator("partition", mode="plain")
    @classmethod
    def _partitioning(cls, value: object, info: ValidationInfo) -> Partitioning:
        return _read_partitioning(value, info.data.get("timezone", _UTC))

    @field_validator("grace_period", "abstinent_period")
    @classmethod
    def _one_form(cls, value: int, info: ValidationInfo) -> int:
        days = f"{info.field_name}".replace("period", "days")
        if info.data.get(days) is not None:
            key = cls.model_fields[days].alias
            raise invalid(f"{key} is set as well", "set only one of them")
        return value

    @field_validator("parameters")
    @classmethod
    def _known_watermarks(cls, value: tuple[Parameter, ...], info: ValidationInfo) -> tuple[Parameter, ...]:
        names = [item.name for item in info.data.get("watermark", ()) if item.type == "datetime"] or [
            "system"
        ]
        for parameter in value:
            if (
                parameter.watermark is not None
                and parameter.watermark not in names
                and "watermark" in info.data
            ):
                raise invalid(f"unknown datetime watermark {parameter.watermark!r}", f"use {names[0]}")
        twice = [one.name for one in value if sum(each.name == one.name for each in value) > 1]
        if twice:
            raise invalid(f"has two parameters named {twice[0]!r}", "remove or rename one of them")
        return value

    @property
    def axis(self) -> DatetimeWatermark:
        """The time axis."""
        return next((item for item in self.watermark if item.type == "datetime"), DEFAULT_AXIS)

    @property
    def listed_units(self) -> tuple[Unit, ...] | None:
        """The units listed in the job file; None without a unit item."""
        return next((item.units for item in self.watermark if item.type == "unit"), None)

    @property
    def grace(self) -> int:
        """The grace period in microseconds."""
        return self.grace_period if self.grace_period is not None else (self.grace_days or 0) * DAY

    @property
    def abstinent(self) -> int:
        """The abstinent period in microseconds."""
        return (
            self.abstinent_period if self.abstinent_period is not None else (self.abstinent_days or 0) * DAY
        )

    @property
    def replaces_partitions(self) -> bool:
        """Whether whole partitions are replaced in the target, which it identifies by their start."""
        replacing = self.target_type not in (None, "stream") and self.target_mode == "replace"
        return self.time_column is None and replacing

    @property
    def most_units(self) -> int | None:
        """The largest number of units in a run; None means unlimited."""
        return {-1: None, 0: 500}.get(self.parallelism, self.parallelism)

    def __repr__(self) -> str:
        given = (str(type(self).model_fields[name].alias) for name in sorted(self.model_fields_set))
        return f"Settings({', '.join(given)})"

    __str__ = __repr__


_DEFAULTS_IN_WORDS: Final = {
    "ms.job.name": "the name of the file",
    "ms.timezone": "`UTC`",
    "ms.work.unit.partition": "`none`",
    "ms.grace.period.days": "`0`",
    "ms.abstinent.period.days": "`0`",
}

KEYS: Final = {str(field.alias): field for field in Settings.model_fields.values()}
"""All keys, with the model field of each."""


def keys_table() -> str:
    """The reference page of keys: a Markdown table of every key, its meaning and its default.

    >>> keys_table().splitlines()[0]
    '| key | meaning | default |'
    """
    lines = ["| key | meaning | default |", "|---|---|---|"]
    for key in sorted(KEYS):
        field = KEYS[key]
        lines.append(f"| `{key}` | {field.description} | {_default_text(key, field.default)} |")
    return "\n".join(lines) + "\n"


def _default_text(key: str, default: object) -> str:
    if key in _DEFAULTS_IN_WORDS:
        return _DEFAULTS_IN_WORDS[key]
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default}`" if isinstance(default, (int, str)) else ""
