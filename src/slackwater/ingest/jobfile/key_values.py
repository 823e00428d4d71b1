"""Validators for the values of job keys: integers, enumerated words, booleans, JSON and durations.

A properties file contains only text, YAML also numbers and lists. Both spellings of a value are accepted, and
nothing that merely resembles it: 1.5 and 3L are not integers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, PlainValidator, SecretStr
from pydantic_core import PydanticCustomError

from slackwater._suggestions import available
from slackwater.errors import InvalidArgument
from slackwater.time import DAY, duration

_WHOLE: Final = re.compile(r"[+-]?\d+", re.ASCII)
_PERIOD: Final = re.compile(r"P(?:\d+D)?(?:T(?:\d+H)?(?:\d+M)?(?:\d+(?:\.\d{1,6})?S)?)?", re.ASCII)
_LONGEST_PERIOD: Final = 36_500_000
"""Days: a hundred thousand years."""
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)

Value = TypeVar("Value")


class KeyModel(BaseModel):
    """Base of all models of key values: frozen, and unknown fields are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


def invalid(reason: str, fix: str) -> PydanticCustomError:
    """The error of a validator: the reason and the fix.

    >>> invalid("is negative", "write 0 or more").context
    {'reason': 'is negative', 'fix': 'write 0 or more'}
    """
    return PydanticCustomError("job", "{reason}", {"reason": reason, "fix": fix})


def text_parser(read: Callable[[str], Value]) -> Callable[[object], Value]:
    """A validator that accepts text only and parses it with ``read``; its errors name the key.

    >>> text_parser(len)("abc")
    3
    """

    def validate(value: object) -> Value:
        if not isinstance(value, str):
            raise invalid(f"is {_kind(value)}, not text", "write it as text, in quotes")
        try:
            return read(value.strip())
        except InvalidArgument as error:
            raise invalid(error.reason, error.fix or "correct it") from None

    return validate


def _kind(value: object) -> str:
    kinds = {bool: "a boolean", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return "empty" if value is None else kinds.get(type(value), f"of type {type(value).__name__}")


def integer(lowest: int, highest: int | None = None) -> PlainValidator:
    """A validator for an integer, given as a number or as text.

    >>> integer(0).func("5")
    5
    """
    bounds = f"of {lowest} or more" if highest is None else f"from {lowest} to {highest}"
    fix = f"write a whole number {bounds}"

    def validate(value: object) -> int:
        if isinstance(value, str) and _WHOLE.fullmatch(value.strip()) and len(value.strip()) < 20:
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise invalid("is not a whole number", fix)
        if value < lowest or (highest is not None and value > highest):
            raise invalid("is out of range", fix)
        return value

    return PlainValidator(validate)


def one_of(*words: str) -> BeforeValidator:
    """A validator for one of a set of words, in any case.

    >>> one_of("form", "partition").func("FORM")
    'form'
    """

    def validate(value: object) -> str:
        if isinstance(value, str) and value.strip().lower() in words:
            return value.strip().lower()
        raise invalid("is not a valid value", available(value, words, lead="use one of "))

    return BeforeValidator(validate)


def _truth(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in {"true", "false"}:
        return value.strip().lower() == "true"
    raise invalid("is not a boolean", "write true or false")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidArgument("name", twice, f"has the name {twice!r} twice", fix="remove one of them")
    return found


def read_json(text: str, what: str) -> Any:
    """Parse JSON; duplicate names, NaN and Infinity are errors.

    >>> read_json('{"a": [1]}', "an object")
    {'a': [1]}
    """

    def refuse(constant: str) -> None:
        raise InvalidArgument("number", constant, f"has {constant}, which is not JSON", fix="write a number")

    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=refuse)
    except InvalidArgument as error:
        raise invalid(error.reason, error.fix or "correct it") from None
    except (ValueError, RecursionError) as error:
        detail = error.msg.lower() if isinstance(error, json.JSONDecodeError) else "it is nested too deeply"
        raise invalid(f"is not JSON: {detail}", f"write {what} in JSON") from None


def json_list(value: object) -> list[Any]:
    """A list, or a JSON text that contains one.

    >>> json_list("[1]")
    [1]
    """
    found = read_json(value, "a list") if isinstance(value, str) else value
    if not isinstance(found, list):
        raise invalid("is not a list", "write a list, such as [{…}]")
    return found


def json_object(value: object) -> object:
    """An object, or a JSON text that contains one.

    >>> json_object('{"a": 1}')
    {'a': 1}
    """
    found = read_json(value, "an object") if isinstance(value, str) else value
    if not isinstance(found, dict):
        raise invalid("is not an object", 'write an object, such as {"name": "value"}')
    return found


def _period(text: str) -> int:
    fix = "write days and time like P3D, P3DT12H or PT90M"
    if not _PERIOD.fullmatch(text) or text[-1] in "PT":
        raise invalid("is not an ISO duration in days and time", fix)
    microseconds = duration(text)
    if microseconds > _LONGEST_PERIOD * DAY:
        raise invalid("is longer than 100,000 years", fix)
    return microseconds


def _secret(value: object) -> SecretStr:
    if not isinstance(value, str) or not value.strip():
        raise invalid("is not text", "write it as text")
    return SecretStr(value.strip())


def _not_blank(text: str) -> str:
    if not text.strip():
        raise invalid("is empty", "write a value, or remove it")
    return text


def _identifier(text: str) -> str:
    parts = text.split(".")
    if len(parts) > 2 or not all(_IDENTIFIER.fullmatch(part) for part in parts):
        raise invalid(
            "is not a valid table name", 'use letters, digits and _, like "orders" or "sales.orders"'
        )
    return text


Truth = Annotated[bool, PlainValidator(_truth)]
Period = Annotated[int, PlainValidator(text_parser(_period))]
Text = Annotated[str, AfterValidator(_not_blank)]
Identifier = Annotated[Text, AfterValidator(_identifier)]
Secret = Annotated[SecretStr, PlainValidator(_secret)]
Days = Annotated[int, integer(0, _LONGEST_PERIOD)]
AsList = BeforeValidator(json_list)
AsObject = BeforeValidator(json_object)
