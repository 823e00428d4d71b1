"""Parameters: the values of `{{name}}`."""

from __future__ import annotations

from typing import Any

import pytest

from slackwater.errors import InvalidArgument
from slackwater.ingest import InvalidJob, parse_job
from slackwater.ingest.axis.timezones import zone
from slackwater.ingest.jobfile.parameters import fill_in, format_pattern, names_in, parameter_values
from slackwater.ingest.units import unit_of
from slackwater.time import instant, to_datetime

LOW, HIGH = instant("2020-01-31T22:05:09.123456Z"), instant("2020-02-01T00:00:00Z")


def values(
    *parameters: dict[str, Any], timezone: str = "UTC", unit: dict[str, Any] | None = None
) -> dict[str, str]:
    units = [] if unit is None else [{"name": "id", "type": "unit", "units": [unit]}]
    keys = {"ms.parameters": list(parameters), "ms.timezone": timezone, "ms.watermark": units}
    job = parse_job(keys, environment={})
    return parameter_values(job.settings.parameters, LOW, HIGH, unit_of(unit or {}), job.settings.timezone)


@pytest.mark.parametrize(
    ("parameter", "expected"),
    [
        ({"type": "watermark", "value": "low"}, "1580508309123"),
        ({"type": "watermark", "value": "HIGH", "format": "epoch-second"}, "1580515200"),
        ({"type": "watermark", "value": "high", "format": "epoc-second"}, "1580515200"),
        ({"type": "watermark", "value": "low", "format": "datetime"}, "2020-01-31T22:05:09Z"),
        ({"type": "watermark", "value": "low", "pattern": "yyyy/MM/dd"}, "2020/01/31"),
        ({"type": "watermark", "value": "low", "pattern": "dd", "timezone": "Asia/Tokyo"}, "01"),
        (
            {"type": "watermark", "watermark": "system", "value": "low", "pattern": "yy-M-d h:mm a"},
            "20-1-31 10:05 PM",
        ),
        ({"type": "watermark", "value": "low", "pattern": "HH:mm:ss.SSSZ"}, "22:05:09.123+0000"),
        ({"type": "watermark", "value": "low", "pattern": "SSSSSSSSS 'at' ''DDD''"}, "123456000 at '031'"),
        ({"type": "unit", "value": "id"}, "a"),
        ({"type": "list", "value": "constant"}, "constant"),
        ({"value": 5}, "5"),
        ({"type": "primitive", "value": True}, "true"),
    ],
)
def test_what_a_parameter_becomes(parameter: dict[str, Any], expected: str) -> None:
    assert values({"name": "x", **parameter}, unit={"id": "a"})["x"] == expected


def test_dates_are_those_of_the_timezone_of_the_job() -> None:
    parameter = {"name": "day", "type": "watermark", "value": "low", "pattern": "yyyy-MM-dd"}
    assert values(parameter, timezone="Asia/Tokyo")["day"] == "2020-02-01"


def test_low_high_and_the_unit_are_always_there() -> None:
    assert values(unit={"id": "a", "site": None}) == {
        "low": "2020-01-31T22:05:09.123456Z",
        "high": "2020-02-01T00:00:00Z",
        "id": "a",
        "site": "",
    }


@pytest.mark.parametrize(
    "parameter",
    [
        {},
        {"name": ""},
        {"name": "x"},
        {"name": "x", "value": ["a"]},
        {"name": "x", "type": "watermark"},
        {"name": "x", "type": "watermark", "value": "middle"},
        {"name": "x", "type": "watermark", "value": "low", "format": "julian"},
        {"name": "x", "type": "watermark", "value": "low", "pattern": "QQ"},
        {"name": "x", "type": "watermark", "value": "low", "pattern": "yyyy 'at"},
        {"name": "x", "type": "watermark", "value": "low", "timezone": "Mars"},
        {"name": "x", "type": "watermark", "value": "low", "watermark": "other"},
        {"name": "x", "type": "session"},
        {"name": "x", "type": ["watermark"], "value": "low"},
        {"name": "x", "type": {}, "value": "low"},
        {"name": "x", "value": "a", "vlaue": "b"},
    ],
)
def test_invalid_parameters_are_rejected(parameter: dict[str, Any]) -> None:
    with pytest.raises(InvalidJob, match=r"ms\.parameters"):
        values(parameter)


def test_a_name_is_given_once() -> None:
    with pytest.raises(InvalidJob, match="two parameters named"):
        values({"name": "x", "value": "1"}, {"name": "x", "value": "2"})


@pytest.mark.parametrize(
    ("units", "fix"),
    [
        ([], "add it to every unit"),
        ([{"id": "a"}], "use one of id"),
        ([{"id": "a", "idd": "b"}, {"id": "c"}], "use one of id"),
    ],
)
def test_a_field_missing_in_some_unit_is_reported_with_all_other_problems(
    units: list[dict[str, str]], fix: str
) -> None:
    watermark = [{"name": "id", "type": "unit", "units": units}] if units else []
    parameters = [{"name": "w", "value": 1}, {"name": "x", "type": "unit", "value": "idd"}]
    with pytest.raises(InvalidJob) as caught:
        parse_job({"ms.watermark": watermark, "ms.parameters": parameters, "ms.backfill": "x"})
    assert [problem.key for problem in caught.value.problems] == ["ms.backfill", "ms.parameters[1].value"]
    assert caught.value.problems[1].fix == fix


def test_filling_in_quotes_values_and_leaves_the_rest() -> None:
    text = "where day = {{ day }} and x = '{day}' and {{day}}"
    assert fill_in(text, {"day": "a'b"}, quote=lambda value: value.replace("'", "''")) == (
        "where day = a''b and x = '{day}' and a''b"
    )
    assert names_in(text) == {"day"}
    with pytest.raises(InvalidArgument, match="unknown parameter"):
        fill_in("{{other}}", {"day": "x"})


def test_a_value_is_not_filled_in_again() -> None:
    assert fill_in("{{a}}", {"a": "{{b}}", "b": "x"}) == "{{b}}"


def test_midnight_and_noon_on_a_clock_of_twelve_hours() -> None:
    for text, expected in (("2020-01-01T00:30:00Z", "12 AM"), ("2020-01-01T12:30:00Z", "12 PM")):
        assert format_pattern("h a", to_datetime(instant(text)).astimezone(zone("Z"))) == expected
