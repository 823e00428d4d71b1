"""The keys of an HTTP source: requests, pagination, retries and authentication."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, model_validator

from slackwater.ingest.jobfile.key_values import AsObject, KeyModel, Text, integer, invalid, one_of

_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)
_NEEDED: Final = {
    "bearer": ("token",),
    "basic": ("user", "password"),
    "header": ("name", "value"),
    "query": ("name", "value"),
}


class Pagination(KeyModel):
    """The pagination of an HTTP API: by page number, by offset, by a cursor in the response, or by a link."""

    type: Annotated[Literal["page", "offset", "cursor", "link"], one_of("page", "offset", "cursor", "link")]
    parameter: Text | None = None
    """The name of the page, offset or cursor parameter; by default the type."""
    parameters_in: Annotated[Literal["query", "body"], one_of("query", "body")] = "query"
    """Where the parameters go: into the query, or into a JSON body."""
    size_parameter: Text | None = None
    size: Annotated[int | None, integer(1)] = None
    first: Annotated[int | None, integer(0)] = None
    """The number of the first page (1), or the first offset (0)."""
    cursor: Text | None = None
    """The dotted path of the next cursor or link in the response."""
    end: Annotated[Literal["empty", "short", "missing"], one_of("empty", "short", "missing")] = "empty"
    """The last page precedes an empty page, has fewer records than ``size``, or precedes a 404."""
    limit: Annotated[int, integer(1)] = 10_000
    """Most pages of a unit; a unit with more fails, so that an API cannot send pages endlessly."""

    @model_validator(mode="before")
    @classmethod
    def _renamed(cls, given: object) -> object:
        """Accept ``place``, an earlier name of ``parameters_in``."""
        if not isinstance(given, Mapping) or "place" not in given or "parameters_in" in given:
            return given
        warnings.warn(
            "'place' in ms.source.http.pagination is deprecated; use 'parameters_in'",
            DeprecationWarning,
            stacklevel=2,
        )
        return {"parameters_in" if name == "place" else name: value for name, value in given.items()}

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        numbered = self.type in ("page", "offset")
        if self.type == "cursor" and self.cursor is None:
            raise invalid(
                "has no 'cursor'", "add the path of the next cursor in the response, such as meta.next"
            )
        if numbered and self.cursor is not None:
            raise invalid(f"'cursor' does not apply to {self.type}", 'remove it, or write "type": "cursor"')
        if not numbered and (self.first is not None or self.end != "empty"):
            raise invalid(f"'first' and 'end' do not apply to {self.type}", "remove them")
        given = {"parameter", "size", "size_parameter", "parameters_in"} & self.model_fields_set
        if self.type == "link" and given:
            raise invalid(f"{min(given)!r} does not apply to link", "remove it: a link is followed as it is")
        if self.size_parameter is not None and self.size is None:
            raise invalid("has no 'size'", "add the number of records of a page, or remove 'size_parameter'")
        if self.end == "short" and self.size is None:
            raise invalid("has no 'size'", "add the number of records of a full page")
        return self

    @property
    def name(self) -> str:
        """The name of the parameter."""
        return self.parameter or self.type


class HttpRetry(KeyModel):
    """Attempts of a request, and the waits between them, which double each time."""

    attempts: Annotated[int, integer(1, 100)] = 5
    wait_seconds: Annotated[int, integer(0, 3600)] = 1
    longest_seconds: Annotated[int, integer(1, 86_400)] = 300
    """The longest wait; a unit fails at once if the server asks for a longer one."""
    statuses: tuple[Annotated[int, integer(400, 599)], ...] = (408, 429, 500, 502, 503, 504)


class Authentication(KeyModel):
    """The credentials of a request; ``{{name}}`` is a field of the authentication record."""

    method: Annotated[Literal["bearer", "basic", "header", "query"], one_of(*_NEEDED)]
    token: Text | None = Field(None, repr=False)
    user: Text | None = Field(None, repr=False)
    password: str | None = Field(None, repr=False)
    name: Text | None = None
    value: Text | None = Field(None, repr=False)

    @model_validator(mode="after")
    def _complete(self) -> Self:
        needed = _NEEDED[self.method]
        given = [name for name in ("token", "user", "password", "name", "value") if getattr(self, name)]
        missing = [name for name in needed if getattr(self, name) is None]
        if missing:
            raise invalid(f"has no {missing[0]!r}", f"{self.method} needs {' and '.join(needed)}")
        if other := [name for name in given if name not in needed]:
            raise invalid(f"{other[0]!r} does not apply to {self.method}", f"use only {' and '.join(needed)}")
        if self.method == "header":
            _header_name(str(self.name))
        return self

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts that may contain ``{{name}}``."""
        return tuple(text for text in (self.token, self.user, self.password, self.value) if text)


def _header_name(name: str) -> str:
    if not _TOKEN.fullmatch(name):
        raise invalid(f"{name!r} is not a valid header name", "use letters, digits and -")
    return name


def _query(value: object) -> dict[str, tuple[str, ...]]:
    """The parameters of a query, each with its values: text, numbers, booleans, or a list of them."""

    def text(item: object) -> str:
        if isinstance(item, str):
            return item
        if item is None or isinstance(item, (dict, list)):
            raise invalid(
                "has a value that is not text, a number or a boolean", "write text, or a list of texts"
            )
        return json.dumps(item)

    if not isinstance(value, dict):
        raise invalid("is not an object", 'write an object, such as {"since": "{{low}}"}')
    return {
        str(name): tuple(text(each) for each in (item if isinstance(item, list) else [item]))
        for name, item in value.items()
    }


def _body(value: object) -> object:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else value


def _check_headers(headers: dict[str, str]) -> dict[str, str]:
    for name in headers:
        _header_name(name)
    return headers


class HttpKeys(KeyModel):
    """``ms.source.http.*``."""

    http_method: Annotated[Literal["get", "post", "put"], one_of("get", "post", "put")] = Field(
        "get", alias="ms.source.http.method", description="the HTTP method: `get`, `post` or `put`"
    )
    http_headers: Annotated[dict[str, str], AfterValidator(_check_headers), AsObject] = Field(
        default_factory=dict,
        alias="ms.source.http.headers",
        repr=False,
        description="a JSON object of headers; may contain `{{name}}`; never shown",
    )
    http_query: Annotated[dict[str, tuple[str, ...]], PlainValidator(_query), AsObject] = Field(
        default_factory=dict,
        alias="ms.source.http.query",
        repr=False,
        description="a JSON object of further query parameters; may contain `{{name}}`; never shown",
    )
    http_body: Annotated[Text | None, BeforeValidator(_body)] = Field(
        None,
        alias="ms.source.http.body",
        repr=False,
        description="the request body, JSON or a form like `a={{low}}`; may contain `{{name}}`; never shown",
    )
    http_authentication: Annotated[Authentication | None, AsObject] = Field(
        None,
        alias="ms.source.http.authentication",
        repr=False,
        description=(
            'the credentials, a JSON object: `{"method": "bearer", "token"}`, '
            '`{"method": "basic", "user", "password"}`, '
            '`{"method": "header", "name", "value"}` or `{"method": "query", "name", "value"}`, with '
            "`{{name}}` for fields of the authentication record; never shown"
        ),
    )
    http_format: Annotated[Literal["json", "ndjson", "csv"], one_of("json", "ndjson", "csv")] = Field(
        "json",
        alias="ms.source.http.format",
        description="the response format: `json`, `ndjson` (an object per line) or `csv` (with a header)",
    )
    http_records: Text | None = Field(
        None,
        alias="ms.source.http.records",
        description=(
            "the dotted path of the records in a JSON response, or `.` if the response is one record; with "
            "`?` at the end the path may be missing; by default the response is the list of records"
        ),
    )
    http_pagination: Annotated[Pagination | None, AsObject] = Field(
        None,
        alias="ms.source.http.pagination",
        description='the pagination, a JSON object `{"type": "page", "parameter": …}`',
    )
    http_retry: Annotated[HttpRetry, AsObject] = Field(
        HttpRetry(),
        alias="ms.source.http.retry",
        description='retries, a JSON object `{"attempts", "wait_seconds", "longest_seconds", "statuses"}`',
    )
    http_rate: Annotated[int | None, integer(1)] = Field(
        None,
        alias="ms.source.http.requests.per.minute",
        description="the most requests per minute, of all units together",
    )
    http_timeout: Annotated[int, integer(1, 3600)] = Field(
        30, alias="ms.source.http.timeout.seconds", description="the timeout of a request"
    )
    http_largest: Annotated[int, integer(1, 1024)] = Field(
        64,
        alias="ms.source.http.answer.megabytes",
        description="the largest response; a unit with a larger one fails",
    )
