"""Parameters: the values of ``{{name}}`` in a query, a path or a URL, from the range and the unit.

``{{low}}``, ``{{high}}`` and the fields of the unit are always defined, times in ISO 8601 and UTC. A
parameter gives one of them another name or another format. Patterns are Java date patterns, as in DIL job
files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, tzinfo
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, PlainValidator, ValidationInfo, field_validator, model_validator

from slackwater._suggestions import available
from slackwater.errors import InvalidArgument
from slackwater.ingest.axis.timezones import zone
from slackwater.ingest.jobfile.key_values import KeyModel, Text, invalid, one_of, text_parser
from slackwater.ingest.units import Unit, value_text
from slackwater.time import MILLISECOND, SECOND, format_instant, to_datetime

_NAME: Final = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")
_TOKEN: Final = re.compile(r"'(?:[^']|'')*'|([A-Za-z])\1*|[^A-Za-z']+")
_FORMATS: Final = ("datetime", "epoch-second", "epoch-millisecond")
_PAGES: Final = {"session", "pagestart", "pagesize", "pageno"}
_FIELDS: Final[dict[str, Callable[[datetime], int | str]]] = {
    "y": lambda at: at.year,
    "M": lambda at: at.month,
    "d": lambda at: at.day,
    "D": lambda at: at.timetuple().tm_yday,
    "H": lambda at: at.hour,
    "h": lambda at: (at.hour - 1) % 12 + 1,
    "m": lambda at: at.minute,
    "s": lambda at: at.second,
    "S": lambda at: f"{at.microsecond:06}",
    "a": lambda at: "AM" if at.hour < 12 else "PM",
    "Z": lambda at: at.strftime("%z")[:5],
    "X": lambda at: at.strftime("%z")[:5] if at.utcoffset() else "Z",
}
"""The values of pattern letters: a number, which is padded with zeros, or text."""


def _spelling(value: object) -> object:
    return value.replace("epoc-", "epoch-") if isinstance(value, str) else value


class Parameter(KeyModel):
    """One entry of ``ms.parameters``.

    >>> Parameter.model_validate({"name": "since", "type": "watermark", "value": "low"}).format
    'epoch-millisecond'
    """

    name: Text
    type: Literal["watermark", "unit", "list"] = "list"
    value: Any = Field(default=None, validate_default=True)
    watermark: Text | None = None
    format: Annotated[
        Literal["datetime", "epoch-second", "epoch-millisecond"],
        one_of(*_FORMATS),
        BeforeValidator(_spelling),
    ] = "epoch-millisecond"
    pattern: Text | None = None
    timezone: Annotated[tzinfo | None, PlainValidator(text_parser(zone))] = None

    @model_validator(mode="before")
    @classmethod
    def _pattern_means_datetime(cls, data: object) -> object:
        if isinstance(data, Mapping) and "pattern" in data and "format" not in data:
            return {**data, "format": "datetime"}
        return data

    @field_validator("type", mode="before")
    @classmethod
    def _known_type(cls, value: object) -> object:
        text = value.strip().lower() if isinstance(value, str) else value
        if isinstance(text, str) and text in _PAGES:
            raise invalid("is a pagination type", "set ms.source.http.pagination instead")
        if not isinstance(text, str) or text not in {"watermark", "unit", "list", "primitive"}:
            raise invalid("is not a valid parameter type", "use watermark, unit or list")
        return "list" if text == "primitive" else text

    @field_validator("value")
    @classmethod
    def _fitting_value(cls, value: object, info: ValidationInfo) -> object:
        match info.data.get("type"):
            case "watermark":
                if not isinstance(value, str) or value.strip().lower() not in {"low", "high"}:
                    raise invalid("is neither low nor high", "use low or high")
                return value.strip().lower()
            case "unit":
                if value is not None and not isinstance(value, str):
                    raise invalid("is not the name of a unit field", "write the name of a field")
                return value or info.data.get("name")
            case "list":
                if value is None or isinstance(value, (list, dict)):
                    raise invalid("is not text, a number or a boolean", "write the value of {{name}}")
        return value

    @field_validator("pattern")
    @classmethod
    def _readable_pattern(cls, pattern: str | None) -> str | None:
        if pattern is not None:
            try:
                format_pattern(pattern, to_datetime(0))
            except InvalidArgument as error:
                raise invalid(error.reason, error.fix or "correct it") from None
        return pattern


def format_pattern(pattern: str, at: datetime) -> str:
    """Format a time by a Java date pattern.

    >>> from datetime import UTC
    >>> format_pattern("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'", datetime(2020, 1, 31, 10, 30, 5, 250_000, UTC))
    '2020-01-31T10:30:05.250Z'
    """
    written = ""
    position = 0
    while position < len(pattern):
        token = _TOKEN.match(pattern, position)
        if token is None:
            raise InvalidArgument(
                "pattern", pattern, "has an unclosed quote", fix="write '' for a single quote"
            )
        text, letter = token[0], token[1]
        if letter is None:
            quoted = text.startswith("'")
            written += "'" if text == "''" else text[1:-1].replace("''", "'") if quoted else text
        elif letter not in _FIELDS:
            fix = f"use the letters {', '.join(_FIELDS)}, and put other text in single quotes"
            raise InvalidArgument("pattern", pattern, f"has an unsupported letter {letter!r}", fix=fix)
        else:
            field = _FIELDS[letter](at)
            if letter == "S":
                written += str(field).ljust(len(text), "0")[: len(text)]
            elif letter == "y" and len(text) == 2:
                written += f"{at.year % 100:02}"
            else:
                written += str(field).zfill(len(text)) if isinstance(field, int) else field
        position = token.end()
    return written


def parameter_values(
    parameters: Iterable[Parameter], low: int, high: int, unit: Unit, tz: tzinfo
) -> dict[str, str]:
    """The value of every name for one work unit.

    >>> since = Parameter(name="since", type="watermark", value="low", format="epoch-second")
    >>> from slackwater.ingest.units import unit_of
    >>> parameter_values([since], 0, 5_000_000, unit_of({"id": "a"}), zone("Z"))
    {'low': '1970-01-01T00:00:00Z', 'high': '1970-01-01T00:00:05Z', 'id': 'a', 'since': '0'}
    """
    fields = {name: value or "" for name, value in unit.values}
    values = {"low": format_instant(low), "high": format_instant(high), **fields}
    for parameter in parameters:
        if parameter.type == "watermark":
            at = low if parameter.value == "low" else high
            values[parameter.name] = _time_text(parameter, at, parameter.timezone or tz)
        elif parameter.type == "unit":
            values[parameter.name] = fields[parameter.value]
        else:
            values[parameter.name] = value_text(parameter.value) or ""
    return values


def _time_text(parameter: Parameter, at: int, tz: tzinfo) -> str:
    if parameter.format == "epoch-second":
        return str(at // SECOND)
    if parameter.format == "epoch-millisecond":
        return str(at // MILLISECOND)
    return format_pattern(parameter.pattern or "yyyy-MM-dd'T'HH:mm:ssX", to_datetime(at).astimezone(tz))


def fill_in(text: str, values: Mapping[str, str], *, quote: Callable[[str], str] = str) -> str:
    """Replace every ``{{name}}`` in ``text`` by its value, encoded by ``quote``.

    >>> fill_in("day={{ day }}/x", {"day": "2020"})
    'day=2020/x'
    >>> fill_in("{{dya}}", {"day": "2020"})
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: name = 'dya': unknown parameter; use one of day, or add it to \
ms.parameters. Did you mean 'day'?
    """

    def replace(found: re.Match[str]) -> str:
        if found[1] not in values:
            raise unknown_parameter("name", found[1], values)
        return quote(values[found[1]])

    return _NAME.sub(replace, text)


def unknown_parameter(key: str, name: str, known: Iterable[str]) -> InvalidArgument:
    """The error for a ``{{name}}`` that is not defined.

    >>> unknown_parameter("ms.source.path", "dya", ["day"]).fix
    "use one of day, or add it to ms.parameters. Did you mean 'day'?"
    """
    fix = available(name, known, lead="use one of ", tail=", or add it to ms.parameters")
    return InvalidArgument(key, name, "unknown parameter", fix=fix)


def names_in(text: str) -> set[str]:
    """The parameter names in ``text``.

    >>> names_in("{{low}} and {{low}}")
    {'low'}
    """
    return set(_NAME.findall(text))
