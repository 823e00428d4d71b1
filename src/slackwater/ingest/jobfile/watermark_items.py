"""The items of ``ms.watermark``: the time axis of a job, and the units that the job file lists itself."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, PlainValidator, ValidationInfo, field_validator

from slackwater.errors import InvalidArgument
from slackwater.ingest.axis.bounds import Bound, read_bound
from slackwater.ingest.jobfile.key_values import Part, Text, read_json, reading, wrong
from slackwater.ingest.units import Unit, distinct, unit_of

_UNITS_FIX: Final = 'write "a,b", ["a", "b"] or [{"id": "a"}, {"id": "b"}]'


class AxisRange(Part):
    """Where the time axis of a job begins and ends."""

    start: Annotated[Bound, PlainValidator(reading(read_bound))] = Field(alias="from")
    end: Annotated[Bound, PlainValidator(reading(lambda text: read_bound(text, open_end=True)))] = Field(
        alias="to"
    )


class DatetimeWatermark(Part):
    """The time axis."""

    name: Text
    type: Literal["datetime"]
    range: AxisRange

    @property
    def start(self) -> Bound:
        """Where the axis begins."""
        return self.range.start

    @property
    def end(self) -> Bound:
        """Where the axis ends."""
        return self.range.end


class UnitWatermark(Part):
    """Units that the job file lists itself."""

    name: Text
    type: Literal["unit"]
    units: tuple[Unit, ...]

    @field_validator("units", mode="plain")
    @classmethod
    def _read_units(cls, value: object, info: ValidationInfo) -> tuple[Unit, ...]:
        return read_units(value, info.data.get("name", "unit"))


def read_units(value: object, name: str) -> tuple[Unit, ...]:
    """The units that ``value`` lists, each once: words become values of ``name``.

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
        raise wrong("is not a list of units", _UNITS_FIX)
    if not value:
        raise wrong("lists no unit", _UNITS_FIX)
    if all(isinstance(item, str) for item in value):
        if not all(item.strip() for item in value):
            raise wrong("has a unit without a name", _UNITS_FIX)
        return distinct(unit_of({name: item}) for item in value)
    if not all(isinstance(item, dict) and item for item in value):
        raise wrong("does not list only texts, or only objects with fields", _UNITS_FIX)
    try:
        return distinct(unit_of(item) for item in value)
    except InvalidArgument as error:
        raise wrong(f"has a unit with a value that {error.reason}", error.fix or _UNITS_FIX) from None


Watermark = Annotated[DatetimeWatermark | UnitWatermark, Field(discriminator="type")]

DEFAULT_AXIS: Final = DatetimeWatermark.model_validate(
    {"name": "system", "type": "datetime", "range": {"from": "2019-01-01", "to": "-"}}
)
"""The axis of a job that names none."""
