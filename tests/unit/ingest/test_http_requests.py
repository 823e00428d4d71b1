"""HTTP requests: built from the job with any unit values; problems are reported before a run."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.errors import InvalidArgument
from slackwater.ingest import InvalidJob, WorkUnit, parse_job, unit_of
from slackwater.ingest.jobfile.http_keys import Pagination
from slackwater.ingest.sources.http.http_job import http_problems, reading_of
from slackwater.ingest.sources.http.requests import Template
from slackwater.time import instant

URL = "https://api.example.com/orders"
UNITS = [{"name": "shop", "type": "unit", "units": ["a", "b"]}]
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(texts.filter(lambda text: text not in (".", "..")))
def test_no_value_changes_the_structure_of_a_url(value: str) -> None:
    template = Template("get", f"{URL}/{{{{v}}}}/x?a={{{{v}}}}&b=1", query={"c": ("{{v}}", "2")})
    found = urlsplit(template.filled({"v": value}).url)
    assert (found.scheme, found.netloc) == ("https", "api.example.com")
    assert [unquote(part) for part in found.path.split("/")] == ["", "orders", value, "x"]
    assert parse_qsl(found.query, keep_blank_values=True) == [
        ("a", value),
        ("b", "1"),
        ("c", value),
        ("c", "2"),
    ]


@given(texts)
def test_no_value_changes_the_structure_of_a_body(value: str) -> None:
    body = '{"{{v}}": ["x {{v}}", "\\"{{ v }}"], "n": {{n}}}'
    made = Template("post", URL, body=body).filled({"v": value, "n": "-1.5e3"})
    assert json.loads(str(made.body)) == {value: [f"x {value}", f'"{value}'], "n": -1500.0}
    assert ("Content-Type", "application/json") in made.headers
    form = Template("post", URL, body="a={{v}}&b=1").filled({"v": value})
    assert parse_qsl(str(form.body), keep_blank_values=True) == [("a", value), ("b", "1")]
    assert ("Content-Type", "application/x-www-form-urlencoded") in form.headers


@given(texts)
def test_no_value_terminates_a_header(value: str) -> None:
    template = Template("get", URL, headers={"X-Shop": "{{v}}"})
    if value.isascii() and value.replace("\t", "").isprintable():
        assert template.filled({"v": value}).headers == (("X-Shop", value),)
    else:
        with pytest.raises(InvalidArgument, match="'X-Shop': has a value that is not valid in a header"):
            template.filled({"v": value})


@pytest.mark.parametrize(
    ("template", "values", "problem"),
    [
        (Template("get", "https://h/{{v}}/x"), "..", r"'\{\{v\}\}': becomes '..', which changes the path"),
        (Template("get", "https://{{v}}.h/"), "evil.example/", "is not valid in a host name"),
        (Template("get", "https://{{v}}/"), "evil.example", "is not valid in a host name"),
        (Template("post", URL, body='{"n": {{v}}}'), '1, "a": 2', "is neither quoted nor a number"),
        (Template("post", URL, body='{"n": {{v}}}'), "01", "is neither quoted nor a number"),
    ],
)
def test_a_value_that_would_change_the_request_is_rejected(
    template: Template, values: str, problem: str
) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        template.filled({"v": values})


def problems(keys: dict[str, Any]) -> list[str]:
    job = parse_job({"ms.source.type": "http", "ms.source.url": URL, **keys})
    return [str(problem) for problem in http_problems(job)]


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"ms.source.url": "ftp://h/"}, "ms.source.url: is not the address of an HTTP API"),
        ({"ms.source.url": "https:///orders"}, "ms.source.url: is not the address of an HTTP API"),
        ({"ms.source.http.query": {"since": "{{lo}}"}}, "ms.source.http.query = 'lo': unknown parameter"),
        ({"ms.source.http.headers": {"X": "{{a}}"}}, "ms.source.http.headers = 'a': unknown parameter"),
        ({"ms.source.http.body": "{'a': 1}"}, "ms.source.http.body: is not JSON"),
        (
            {"ms.source.http.body": "<a>{{low}}</a>", "ms.source.http.headers": {"content-type": "text/xml"}},
            "ms.source.http.body: values cannot be escaped in a body of this type",
        ),
        ({"ms.watermark": UNITS}, "ms.source.url: is the same for all units; add {{shop}} to it"),
        (
            {"ms.source.http.format": "csv", "ms.source.http.records": "a"},
            "ms.source.http.records = 'a': does not apply to csv, which contains only records; remove it",
        ),
        (
            {"ms.source.http.format": "csv", "ms.source.http.pagination": {"type": "cursor", "cursor": "a"}},
            "ms.source.http.pagination: a response in csv has no cursor",
        ),
        (
            {"ms.source.http.pagination": {"type": "page", "parameters_in": "body"}},
            "ms.source.http.pagination: needs a JSON body",
        ),
        ({"ms.source.partitions": 2}, "ms.source.partitions = 2: needs a time column"),
        ({"ms.source.options": {"sep": ";"}}, "ms.source.options = 'sep': is not an option for json"),
        (
            {"ms.source.http.format": "csv", "ms.source.options": {"delimiter": "--"}},
            "ms.source.options = '--': is not a valid delimiter",
        ),
    ],
)
def test_keys_that_do_not_fit_together_are_reported_before_a_run(keys: dict[str, Any], problem: str) -> None:
    (only,) = problems(keys)
    assert only.startswith(problem)


def test_an_earlier_name_of_a_pagination_field_still_works() -> None:
    with pytest.warns(DeprecationWarning, match="use 'parameters_in'"):
        assert Pagination.model_validate({"type": "page", "place": "body"}).parameters_in == "body"


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("pagination", {"type": "pages"}, "is not a valid value; use one of page, offset, cursor, link"),
        ("pagination", {"type": "cursor"}, "has no 'cursor'"),
        ("pagination", {"type": "page", "cursor": "a"}, "'cursor' does not apply to page"),
        ("pagination", {"type": "link", "parameter": "a"}, "'parameter' does not apply to link"),
        ("pagination", {"type": "link", "end": "short"}, "'first' and 'end' do not apply to link"),
        ("pagination", {"type": "page", "end": "short"}, "has no 'size'"),
        ("pagination", {"type": "page", "size_parameter": "limit"}, "has no 'size'"),
        (
            "authentication",
            {"method": "magic", "token": "s3cret"},
            "is not a valid value; use one of bearer, basic, header, query",
        ),
        ("authentication", {"method": "basic", "user": "s3cret"}, "has no 'password'"),
        (
            "authentication",
            {"method": "bearer", "token": "s3cret", "user": "a"},
            "'user' does not apply to bearer",
        ),
        (
            "authentication",
            {"method": "header", "name": "a b", "value": "s3cret"},
            "is not a valid header name",
        ),
        ("headers", {"a b": "s3cret"}, "is not a valid header name"),
        ("query", {"a": {"b": "s3cret"}}, "has a value that is not text, a number or a boolean"),
        ("retry", {"statuses": [200]}, "is out of range; write a whole number from 400 to 599"),
        ("retry", {"attempts": 0}, "is out of range; write a whole number from 1 to 100"),
        ("format", "xml", "is not a valid value; use one of json, ndjson, csv"),
    ],
)
def test_an_invalid_value_is_reported_without_secrets(key: str, value: object, problem: str) -> None:
    with pytest.raises(InvalidJob, match=problem) as raised:
        parse_job({f"ms.source.http.{key}": value})
    assert f"ms.source.http.{key}" in str(raised.value)
    assert "s3cret" not in str(raised.value)


def test_a_unit_is_requested_in_parts_of_its_range() -> None:
    job = parse_job(
        {
            "ms.source.url": f"{URL}/{{{{shop}}}}", "ms.watermark": UNITS, "ms.source.partitions": 2,
            "ms.time.column": "at", "ms.source.http.query": {"since": "{{from}}", "until": "{{high}}"},
            "ms.parameters": [
                {"name": "from", "type": "watermark", "value": "low", "format": "epoch-second"}
            ],
        }
    )  # fmt: skip
    low, high = instant("2020-01-01T00:00:00Z"), instant("2020-01-03T00:00:00Z")
    reading = reading_of(job, WorkUnit(low, high, unit_of({"shop": "a b"}), low), low)
    assert [part.request.url for part in reading.parts] == [
        f"{URL}/a%20b?since=1577836800&until=2020-01-02T00%3A00%3A00Z",
        f"{URL}/a%20b?since=1577923200&until=2020-01-03T00%3A00%3A00Z",
    ]


@pytest.mark.parametrize(
    ("keys", "interval"),
    [
        ({}, 2.0),  # the one unit that there is
        ({"ms.watermark": UNITS}, 4.0),
        ({"ms.watermark": UNITS, "ms.run.concurrency": 1}, 2.0),
        ({"ms.work.unit.partition": "daily"}, 8.0),
        ({"ms.source.partitions": 3}, 6.0),
    ],
)
def test_the_rate_limit_is_divided_among_concurrent_readers(keys: dict[str, Any], interval: float) -> None:
    job = parse_job({"ms.source.url": URL, "ms.source.http.requests.per.minute": 30, **keys})
    policy = reading_of(job, WorkUnit(0, 9, job.units[0], 0), 0).policy
    assert policy.interval_seconds == interval


def test_an_unused_authentication_record_is_a_problem(tmp_path: Any) -> None:
    (tmp_path / "token.json").write_text('{"token": "s3cret", "user": "me"}', encoding="utf-8")
    record = [{"path": f"{tmp_path}/token.json", "category": "authentication"}]
    (only,) = problems({"ms.secondary.input": record})
    assert "the authentication record is used; write ms.source.http.authentication, with {{token}}" in only
    used = {"method": "basic", "user": "{{user}}", "password": "{{token}}"}
    assert problems({"ms.secondary.input": record, "ms.source.http.authentication": used}) == []
