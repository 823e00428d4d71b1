"""The items of ``ms.watermark``: the time axis of a job, and the units listed in the job file."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, PlainValidator, ValidationInfo, field_validator

from slackwater.errors import InvalidArgument
from slackwater.ingest.axis.bounds import Bound, read_bound
from slackwater.ingest.jobfile.key_values import KeyModel, Text, invalid, read_json, text_parser
from slackwater.ingest.units import Unit, distinct, unit_of

_UNITS_FIX: Final = 'write "a,b", ["a", "b"] or [{"id": "a"}, {"id": "b"}]'


class AxisRange(KeyModel):
    """The bounds of the time axis."""

    start: Annotated[Bound, PlainValidator(text_parser(read_bound))] = Field(alias="from")
    end: Annotated[Bound, PlainValidator(text_parser(lambda text: read_bound(text, open_end=True)))] = Field(
        alias="to"
    )


class DatetimeWatermark(KeyModel):
    """The time axis of a job."""

    name: Text
    type: Literal["datetime"]
    range: AxisRange

    @property
    def start(self) -> Bound:
        """The start of the axis."""
        return self.range.start

    @property
    def end(self) -> Bound:
        """The end of the axis."""
        return self.range.end


class UnitWatermark(KeyModel):
    """The units listed in the job file."""

    name: Text
    type: Literal["unit"]
    units: tuple[Unit, ...]

    @field_validator("units", mode="plain")
    @classmethod
    def _read_units(cls, value: object, info: ValidationInfo) -> tuple[Unit, ...]:
        return read_units(value, info.data.get("name", "unit"))


def read_units(value: object, name: str) -> tuple[Unit, ...]:
    """Parse a list of units and remove duplicates; plain words become values of the field ``name``.

    >>> [unit.key for unit in read_units("a, b,a", "id")]
    ['{"id":"a"}', '{"id":"b"}']
    """
    if isinstance(value, str):
        text = value.strip()
        value = (
            read_json(text, "a list")
            if text[:1] in {"[", "{"}
            else [item.strip() for item in text.split(",")]
        )
    if not isinstance(value, list):
        raise invalid("is not a list of units", _UNITS_FIX)
    if not value:
        raise invalid("is an empty list of units", _UNITS_FIX)
    if all(isinstance(item, str) for item in value):
        if not all(item.strip() for item in value):
            raise invalid("has a unit without a name", _UNITS_FIX)
        return distinct(unit_of({name: item}) for item in value)
    if not all(isinstance(item, dict) and item for item in value):
        raise invalid("mixes texts, objects or other values", _UNITS_FIX)
    try:
        return distinct(unit_of(item) for item in value)
    except InvalidArgument as error:
        raise invalid(f"has a unit with a value that {error.reason}", error.fix or _UNITS_FIX) from None


Watermark = Annotated[DatetimeWatermark | UnitWatermark, Field(discriminator="type")]

DEFAULT_AXIS: Final = DatetimeWatermark.model_validate(
    {"name": "system", "type": "datetime", "range": {"from": "2019-01-01", "to": "-"}}
)
"""The axis of a job without a datetime item."""
