"""The HTTP client against a server on loopback: every record once, retries, and no secret in messages."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.utils import format_datetime
from typing import Any

import pytest

from slackwater.ingest.jobfile.http_keys import Authentication, Pagination
from slackwater.ingest.redaction import Secrets
from slackwater.ingest.sources.http.client import Client, Policy
from slackwater.ingest.sources.http.http_errors import (
    HttpError,
    InvalidPagination,
    InvalidResponse,
    RequestFailed,
)
from slackwater.ingest.sources.http.record_reader import HttpReading, RangeRequest
from slackwater.ingest.sources.http.record_types import type_of
from slackwater.ingest.sources.http.requests import Request, Template
from slackwater.ingest.sources.http.responses import ResponseFormat
from slackwater.time import instant, to_datetime
from tests.support.http_server import (
    Api,
    Fault,
    broken,
    dripping,
    dripping_headers,
    hung_up,
    serving,
    status,
    stuck,
)

ROWS = [
    {"id": number, "at": f"2020-01-{number:02}T00:00:00Z", "name": f"n{number}"} for number in range(1, 8)
]
NOW = instant("2020-01-01T00:00:00Z")


@pytest.fixture
def api() -> Iterator[Api]:
    with serving(ROWS) as running:
        yield running


@dataclass
class Virtual:
    """A clock that only sleeping moves, and a record of how long was slept."""

    at: float = 0.0
    sleeps: list[float] = field(default_factory=list)

    def clock(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.at += seconds

    def client(self, policy: Policy, secrets: Secrets) -> Client:
        return Client(
            policy, secrets, clock=self.clock, sleep=self.sleep, wall=lambda: NOW, chance=lambda: 1.0
        )


def read(
    request: Request | str,
    rule: dict[str, Any] | None = None,
    *,
    form: ResponseFormat | None = None,
    policy: Policy | None = None,
    time: Virtual | None = None,
    seen: dict[str, set[str]] | None = None,
) -> list[Any]:
    asked = Request("GET", request) if isinstance(request, str) else request
    pagination = None if rule is None else Pagination.model_validate(rule)
    reading = HttpReading(
        (RangeRequest(asked, 0, 1),), form or ResponseFormat(), pagination, policy or Policy()
    )
    known = {} if seen is None else seen
    pages = reading.read(reading.parts[0], known, (time or Virtual()).client)
    return [json.loads(record) for page in pages for record in page]


# ---- pages


@pytest.mark.parametrize(
    ("path", "rule", "form", "requests"),
    [
        ("page", {"type": "page"}, ResponseFormat(), 4),
        ("page", {"type": "page", "size_parameter": "limit", "size": 3, "end": "short"}, ResponseFormat(), 3),
        ("page?strict=1", {"type": "page", "end": "missing"}, ResponseFormat(), 4),
        ("offset", {"type": "offset", "size_parameter": "limit", "size": 2}, ResponseFormat(), 5),
        ("offset", {"type": "offset", "size_parameter": "limit", "size": 100}, ResponseFormat(), 4),
        ("cursor", {"type": "cursor", "cursor": "meta.next"}, ResponseFormat(path="data.items"), 3),
        ("link", {"type": "link"}, ResponseFormat(), 3),
        ("next?a=b", {"type": "link", "cursor": "@odata.nextLink"}, ResponseFormat(path="items"), 3),
        ("all", None, ResponseFormat(), 1),
        ("ndjson", None, ResponseFormat("ndjson"), 1),
    ],
)
def test_every_way_of_paging_gives_every_record_once(
    api: Api, path: str, rule: dict[str, Any] | None, form: ResponseFormat, requests: int
) -> None:
    assert read(f"{api.url}/{path}", rule, form=form) == ROWS
    assert len(api.requests) == requests


def test_parameters_of_pages_may_be_in_the_body(api: Api) -> None:
    request = Request("POST", f"{api.url}/body", (("Content-Type", "application/json"),), '{"a": "b"}')
    assert read(request, {"type": "offset", "parameter": "from.offset", "parameters_in": "body"}) == ROWS
    assert [json.loads(asked.body) for asked in api.requests] == [
        {"a": "b", "from": {"offset": start}} for start in (0, 3, 6, 7)
    ]


@pytest.mark.parametrize("path", ["page", "offset", "cursor", "link", "ndjson", "csv", "all"])
def test_an_empty_response_gives_no_records(api: Api, path: str) -> None:
    api.rows = []
    form = ResponseFormat(
        {"ndjson": "ndjson", "csv": "csv"}.get(path, "json"), "data.items" if path == "cursor" else None
    )
    rule = {"type": path} | ({"cursor": "meta.next"} if path == "cursor" else {})
    assert (
        read(f"{api.url}/{path}", rule if path in ("page", "offset", "cursor", "link") else None, form=form)
        == []
    )


def test_an_empty_page_with_a_cursor_is_not_the_end(api: Api) -> None:
    api.faults.append(status(200, {"data": {"items": []}, "meta": {"next": "0"}}))
    assert (
        read(
            f"{api.url}/cursor",
            {"type": "cursor", "cursor": "meta.next"},
            form=ResponseFormat(path="data.items"),
        )
        == ROWS
    )


def test_a_small_first_page_is_not_the_last_page(api: Api) -> None:
    rule = {"type": "page", "size_parameter": "limit", "size": 100, "end": "short"}
    with pytest.raises(InvalidPagination, match="has 3 records, fewer than 'size' = 100"):
        read(f"{api.url}/page", rule)


@pytest.mark.parametrize("rule", [{"type": "page", "parameter": "p"}, {"type": "offset", "parameter": "o"}])
def test_a_server_that_ignores_the_page_parameter_is_an_error(api: Api, rule: dict[str, Any]) -> None:
    with pytest.raises(InvalidPagination, match="the same page"):
        read(f"{api.url}/page", rule)
    assert len(api.requests) == 2


def test_a_repeated_cursor_or_link_is_an_error(api: Api) -> None:
    api.faults.extend([status(200, {"items": [1], "next": "x"})] * 9)
    with pytest.raises(InvalidPagination, match="the same cursor twice"):
        read(f"{api.url}/a", {"type": "cursor", "cursor": "next"}, form=ResponseFormat(path="items"))
    assert len(api.requests) == 2
    api.faults.clear()
    api.faults.extend(
        [status(200, [1], Link='<?a=1>; rel="next"'), status(200, [2], Link=f'<{api.url}/a>; rel="next"')]
    )
    with pytest.raises(InvalidPagination, match="the same link twice"):
        read(f"{api.url}/a", {"type": "link"})


def test_pages_that_repeat_in_turns_are_an_error(api: Api) -> None:
    api.faults.extend([status(200, [{"id": number % 2}]) for number in range(20)])
    with pytest.raises(InvalidPagination, match="returned the same 2 pages for page = 4 as before"):
        read(f"{api.url}/a", {"type": "page"})
    assert len(api.requests) == 4


def test_a_page_may_have_the_same_records_as_an_earlier_one(api: Api) -> None:
    api.faults.extend([status(200, [number]) for number in (1, 2, 1, 3, 1, 2)])
    api.faults.append(status(200, []))
    assert [record["value"] for record in read(f"{api.url}/a", {"type": "page"})] == [1, 2, 1, 3, 1, 2]


def test_pages_end_at_the_limit(api: Api) -> None:
    api.faults.extend([status(200, {"items": [1], "next": str(number)}) for number in range(9)])
    rule = {"type": "cursor", "cursor": "next", "limit": 3}
    with pytest.raises(InvalidPagination, match="has more than 3 pages; if that is right, raise 'limit'"):
        read(f"{api.url}/a", rule, form=ResponseFormat(path="items"))
    assert Pagination.model_validate({"type": "page"}).limit == 10_000


def test_a_cursor_has_a_longest_length(api: Api) -> None:
    api.faults.append(status(200, {"items": [1], "next": "x" * 70_000}))
    with pytest.raises(InvalidPagination, match="has 70000 characters at 'next'"):
        read(f"{api.url}/a", {"type": "cursor", "cursor": "next"}, form=ResponseFormat(path="items"))


@pytest.mark.parametrize("padding", [b"", b"\0" * 9])
def test_a_gzip_response_may_have_several_members(api: Api, padding: bytes) -> None:
    text = json.dumps(ROWS).encode()
    pieces = [text[:20], b"", text[20:50], text[50:]]
    body = b"".join(gzip.compress(piece) for piece in pieces) + padding
    api.faults.append(status(200, body, Content_Encoding="gzip"))
    assert read(f"{api.url}/all") == ROWS
    assert len(api.requests) == 1


def test_members_of_a_gzip_response_share_the_size_limit(api: Api) -> None:
    body = gzip.compress(b" " * 600_000) * 2
    api.faults.append(status(200, body, Content_Encoding="gzip"))
    with pytest.raises(InvalidResponse, match="larger than 1 megabytes"):
        read(f"{api.url}/all", policy=Policy(largest_megabytes=1))


@pytest.mark.parametrize("link", ["http://elsewhere.example/a", "//127.0.0.1:1/a", "https://127.0.0.1/a"])
def test_a_next_link_to_another_server_is_rejected(api: Api, link: str) -> None:
    api.faults.append(status(200, [1], Link=f'<{link}>; rel="next"'))
    with pytest.raises(
        InvalidPagination, match="next link to another server, to which credentials are not sent"
    ):
        read(f"{api.url}/a", {"type": "link"})


def test_a_key_in_the_query_goes_along_with_next_links(api: Api) -> None:
    who = Authentication.model_validate({"method": "query", "name": "key", "value": "s3cret"})
    request = Template("get", f"{api.url}/link", authentication=who).filled({})
    api.allowed = lambda asked: asked.query.get("key") == "s3cret"
    api.faults.append(status(200, ROWS[:3], Link='<?cursor=3>; rel="next"'))
    assert read(request, {"type": "link"}) == ROWS


# ---- patience


@pytest.mark.parametrize(
    ("fault", "wait"),
    [
        (status(429, retry_after="7"), 7.0),
        (status(429, retry_after=format_datetime(to_datetime(NOW + 9_000_000), usegmt=True)), 9.0),
        (status(429, retry_after=format_datetime(to_datetime(NOW - 9_000_000), usegmt=True)), 1.0),
        (status(429, retry_after="soon"), 1.0),
        (status(500), 1.0),
        (status(503, retry_after="0"), 1.0),
        (hung_up, 1.0),
        (broken(b"[1, 2", Content_Length="40"), 1.0),
        (broken(b"[1, 2]", Content_Length="3"), 1.0),
        (broken(b"[1, 2"), 1.0),
        (broken(b'["\xff"]'), 1.0),
        (broken(b"[NaN]"), 1.0),
        (broken(b""), 1.0),
        (broken(gzip.compress(b"[1, 2]")[:-9], Content_Encoding="gzip"), 1.0),
        (broken(b"no gzip", Content_Encoding="gzip"), 1.0),
        (broken(gzip.compress(b"[1, 2]") + b"more", Content_Encoding="gzip"), 1.0),
        (broken(gzip.compress(b"[1, ") + gzip.compress(b"2]")[:-9], Content_Encoding="gzip"), 1.0),
        (broken('["Ä"]'.encode(), Content_Type="application/json; charset=utf-16"), 1.0),
    ],
)
def test_temporary_errors_are_retried_after_a_wait(api: Api, fault: Fault, wait: float) -> None:
    api.faults.append(fault)
    time = Virtual()
    assert read(f"{api.url}/all", time=time) == ROWS
    assert time.sleeps == [wait]
    assert len(api.requests) == 2


@pytest.mark.search
@pytest.mark.parametrize("fault", [stuck, dripping, dripping_headers])
def test_a_response_that_takes_too_long_is_retried(api: Api, fault: Fault) -> None:
    api.faults.append(fault)
    sleeps: list[float] = []

    def client(policy: Policy, secrets: Secrets) -> Client:
        return Client(policy, secrets, sleep=sleeps.append)

    reading = HttpReading(
        (RangeRequest(Request("GET", f"{api.url}/all"), 0, 1),), policy=Policy(timeout_seconds=0.3)
    )
    end = threading.Timer(10, api.released.set)  # otherwise a request without a deadline would never end
    end.start()
    assert [len(page) for page in reading.read(reading.parts[0], {}, client)] == [7]
    end.cancel()
    assert not api.released.is_set()
    assert len(sleeps) == 1
    assert len(api.requests) == 2


def test_a_failed_page_is_retried_alone(api: Api) -> None:
    api.faults.extend([None, status(502), status(502), None])
    assert read(f"{api.url}/page", {"type": "page"}) == ROWS
    assert [asked.query["page"] for asked in api.requests] == ["1", "2", "2", "2", "3", "4"]


def test_waits_double_up_to_the_longest_until_attempts_run_out(api: Api) -> None:
    api.faults.extend([status(500, "out of order")] * 9)
    time = Virtual()
    with pytest.raises(
        RequestFailed, match=r"returned 500 Internal Server Error: out of order \(6 attempts\)"
    ) as failed:
        read(f"{api.url}/all", policy=Policy(attempts=6, longest_seconds=6), time=time)
    assert failed.value.status == 500
    assert time.sleeps == [1, 2, 4, 6, 6]


def test_jitter_removes_at_most_half_of_a_wait(api: Api) -> None:
    api.faults.append(status(500))
    sleeps: list[float] = []
    with Client(Policy(), sleep=sleeps.append, chance=lambda: 0.0) as client:
        client.send(Request("GET", f"{api.url}/all"), lambda answer: answer)
    assert sleeps == [0.5]


def test_a_retry_after_of_hours_fails_the_unit_at_once(api: Api) -> None:
    api.faults.append(status(429, retry_after="7200"))
    time = Virtual()
    with pytest.raises(
        RequestFailed,
        match=r"with a Retry-After of 7200 seconds, longer than longest_seconds = 300",
    ):
        read(f"{api.url}/all", time=time)
    assert time.sleeps == []


def test_a_refused_connection_is_retried_and_reported(api: Api) -> None:
    time = Virtual()
    with pytest.raises(RequestFailed, match=r"GET http://127.0.0.1:1/all failed: .* \(3 attempts\)"):
        read("http://127.0.0.1:1/all", policy=Policy(attempts=3), time=time)
    assert len(time.sleeps) == 2


@pytest.mark.parametrize("code", [400, 401, 403, 404, 409, 410, 422])
def test_a_client_error_fails_at_once_with_the_start_of_the_body(api: Api, code: int) -> None:
    api.faults.append(status(code, "no\n such \x1b thing " + "x" * 999))
    with pytest.raises(RequestFailed) as failed:
        read(f"{api.url}/all?key=s3cret")
    assert len(api.requests) == 1
    assert f"GET {api.url}/all returned {code}" in str(failed.value)
    assert ": no such thing xxx" in str(failed.value)
    assert len(str(failed.value)) < 400
    assert "s3cret" not in str(failed.value)


@pytest.mark.parametrize(
    ("who", "header"),
    [
        ({"method": "bearer", "token": "{{token}}"}, ("authorization", "Bearer s3cret-token")),
        (
            {"method": "basic", "user": "me", "password": "{{token}}"},
            ("authorization", "Basic bWU6czNjcmV0LXRva2Vu"),
        ),
        ({"method": "header", "name": "X-Key", "value": "{{token}}"}, ("x-key", "s3cret-token")),
    ],
)
def test_credentials_are_redacted_in_a_response_that_repeats_them(
    api: Api, who: dict[str, str], header: tuple[str, str]
) -> None:
    template = Template("get", f"{api.url}/all", authentication=Authentication.model_validate(who))
    request = template.filled({"token": "s3cret-token"})
    api.allowed = lambda asked: asked.headers.get(header[0]) == header[1]
    assert read(request) == ROWS
    api.allowed = lambda asked: False
    with pytest.raises(RequestFailed, match=r"401 Unauthorized.*check the credentials") as failed:
        read(request)
    for secret in ("s3cret-token", "bWU6czNjcmV0LXRva2Vu"):
        assert secret not in str(failed.value)
        assert secret not in repr(request) + repr(template)


def test_an_account_in_the_url_is_sent_as_a_header_and_never_shown(api: Api) -> None:
    account = {"Authorization": "none"}
    request = Template("get", api.url.replace("//", "//me:{{p}}@") + "/all", account).filled({"p": "s3cret"})
    assert "s3cret" not in request.url
    read(request)
    assert api.requests[0].headers["authorization"] == "Basic bWU6czNjcmV0"


def test_requests_respect_the_rate_limit(api: Api) -> None:
    time = Virtual()
    assert read(f"{api.url}/page", {"type": "page"}, policy=Policy(interval_seconds=2), time=time) == ROWS
    assert time.sleeps == [2, 2, 2]
    time, api.faults = Virtual(), api.faults
    api.faults.append(status(503))
    read(f"{api.url}/all", policy=Policy(interval_seconds=10), time=time)
    assert time.sleeps == [1, 9]


def test_redirects_are_followed_on_the_same_server_only(api: Api) -> None:
    api.faults.append(status(302, "", Location="/all"))
    assert read(f"{api.url}/old") == ROWS
    api.faults.append(status(307, "", Location="http://elsewhere.example/all"))
    with pytest.raises(
        InvalidPagination, match="redirected to another server, to which credentials are not sent"
    ):
        read(f"{api.url}/old")
    api.faults.append(status(303, "", Location="/all"))
    with pytest.raises(RequestFailed, match="303, which would turn it into a GET"):
        read(Request("POST", f"{api.url}/old", body="{}"))
    api.faults.extend([status(301, "", Location="/old")] * 9)
    with pytest.raises(RequestFailed, match="was redirected 5 times"):
        read(f"{api.url}/old")


def test_a_response_that_is_too_large_is_rejected(api: Api) -> None:
    api.faults.append(broken(gzip.compress(b"[" + b" " * 3_000_000 + b"1]"), Content_Encoding="gzip"))
    with pytest.raises(InvalidResponse, match="larger than 2 megabytes; request smaller pages"):
        read(f"{api.url}/all", policy=Policy(largest_megabytes=2))
    assert len(api.requests) == 1


# ---- records


def test_csv_has_text_and_nulls(api: Api) -> None:
    api.rows = [{"id": 1, "at": "", "name": "a;b"}]
    assert read(f"{api.url}/csv", form=ResponseFormat("csv", delimiter=";")) == [
        {"id": "1", "at": None, "name": "a;b"}
    ]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([], "string"),
        ([None, None], "string"),
        ([True, None], "boolean"),
        ([1, 2**63 - 1, -(2**63)], "bigint"),
        ([1, 2**63], "decimal(38,0)"),
        ([1, 10**38], "string"),
        ([1, 0.5], "double"),
        ([2**53 + 1, 0.5], "string"),
        ([1, "1"], "string"),
        ([1, True], "string"),
        ([{"a": 1}], "string"),
        ([[1]], "string"),
    ],
)
def test_a_column_has_the_narrowest_type_that_loses_nothing(api: Api, values: list[Any], kind: str) -> None:
    api.faults.append(status(200, [{"id": 0}, *({"v": value} for value in values)]))
    seen: dict[str, set[str]] = {"v": set()}
    read(f"{api.url}/all", seen=seen)
    assert type_of(seen["v"]) == kind


@pytest.mark.parametrize(
    ("body", "path", "problem"),
    [
        ({"items": [1], "n": 2}, None, r"is an object, not a list of records.*\(available: 'items'\)"),
        ({"items": [1]}, "data", r"has nothing at 'data'.*\(available: 'items'\)"),
        ({"data": {"rows": [1]}}, "data.items", r"\(available: 'rows'\)"),
        (7, None, "is a single value"),
        (None, None, "is null"),
    ],
)
def test_a_response_of_another_shape_fails_at_once_and_lists_its_fields(
    api: Api, body: Any, path: str | None, problem: str
) -> None:
    api.faults.append(status(200, body))
    with pytest.raises(InvalidResponse, match=problem):
        read(f"{api.url}/all", form=ResponseFormat(path=path))
    assert len(api.requests) == 1


def test_one_object_may_be_the_record(api: Api) -> None:
    api.faults.extend(
        [status(200, {"id": 1}), status(200, {"order": {"id": 2}}), status(200, {"order": None})]
    )
    assert read(f"{api.url}/1", form=ResponseFormat(path=".")) == [{"id": 1}]
    assert read(f"{api.url}/2", form=ResponseFormat(path="order")) == [{"id": 2}]
    assert read(f"{api.url}/3", form=ResponseFormat(path="order")) == []
    api.faults.append(status(200, {}))
    assert read(f"{api.url}/4", form=ResponseFormat(path="order?")) == []


def test_huge_numbers_and_lone_surrogates_arrive_as_text(api: Api) -> None:
    digits = "9" * 5000
    api.faults.append(status(200, f'[{{"a": 1e999, "b": {digits}, "c": "\\ud800"}}]'))
    assert read(f"{api.url}/all") == [{"a": "1e999", "b": digits, "c": "�"}]


def test_failures_have_one_base() -> None:
    kinds: list[Callable[[str], HttpError]] = [RequestFailed, InvalidResponse, InvalidPagination]
    assert all(isinstance(kind("x"), HttpError) for kind in kinds)
