"""Pagination: the pages of a unit in order until the last one, and detection of endless pages."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import httpx

from slackwater.ingest.jobfile.http_keys import Pagination
from slackwater.ingest.sources.http.client import Response
from slackwater.ingest.sources.http.http_errors import InvalidPagination, RequestFailed
from slackwater.ingest.sources.http.requests import Request
from slackwater.ingest.sources.http.responses import Page, at_path, encoded

Send = Callable[[Request], tuple[Response, Page]]
_LONGEST_CURSOR: Final = 65_536


def pages(send: Send, request: Request, rule: Pagination | None) -> Iterator[Page]:
    """Fetch all pages, beginning with that of ``request``.

    >>> held = {None: ([1, 2], "b"), "b": ([3], None)}
    >>> def send(request):
    ...     records, cursor = held[httpx.URL(request.url).params.get("cursor")]
    ...     document = {"next": cursor}
    ...     return Response(200, httpx.Headers(), b""), Page([{"value": each} for each in records], document)
    >>> rule = Pagination(type="cursor", cursor="next")
    >>> [page.records for page in pages(send, Request("GET", "http://h/"), rule)]
    [[{'value': 1}, {'value': 2}], [{'value': 3}]]
    """
    if rule is None:
        yield send(request)[1]
        return
    for number, page in enumerate(_all_pages(send, request, rule), 1):
        if number > rule.limit:
            raise InvalidPagination(
                f"{request.shown} has more than {rule.limit} pages; if that is right, raise 'limit' in "
                f"ms.source.http.pagination"
            )
        yield page


def _all_pages(send: Send, request: Request, rule: Pagination) -> Iterator[Page]:
    if rule.size_parameter is not None and rule.size is not None:
        request = request.with_parameters(rule.parameters_in, {rule.size_parameter: rule.size})
    if rule.type == "cursor":
        yield from _by_cursor(send, request, rule)
    elif rule.type == "link":
        yield from _by_link(send, request, rule)
    else:
        yield from _by_number(send, request, rule)


def _by_number(send: Send, request: Request, rule: Pagination) -> Iterator[Page]:
    default = 1 if rule.type == "page" else 0
    position = rule.first if rule.first is not None else default
    cycles = _Cycles()
    counts: list[int] = []
    while True:
        try:
            page = send(request.with_parameters(rule.parameters_in, {rule.name: position}))[1]
        except RequestFailed as error:
            if rule.end == "missing" and error.status == 404 and counts:
                return
            raise
        if not page.records:
            return
        if rule.end == "short" and len(counts) == 1 and counts[0] < (rule.size or 0):
            records = "1 record" if counts[0] == 1 else f"{counts[0]} records"
            raise InvalidPagination(
                f"{request.shown}: the first page has {records}, fewer than 'size' = {rule.size}, "
                f"but another page follows; set 'size' in ms.source.http.pagination to the real page size"
            )
        if length := cycles.add(_digest(page)):
            same = "the same page" if length == 1 else f"the same {length} pages"
            raise InvalidPagination(
                f"{request.shown} returned {same} for {rule.name} = {position} as before; "
                f"check 'parameter' in ms.source.http.pagination"
            )
        yield page
        counts.append(len(page.records))
        if rule.end == "short" and len(counts) > 1 and counts[-1] < (rule.size or 0):
            return
        position += 1 if rule.type == "page" else len(page.records)


def _by_cursor(send: Send, request: Request, rule: Pagination) -> Iterator[Page]:
    seen = _Seen(request)
    asked = request
    while True:
        page = send(asked)[1]
        yield page
        cursor = _next(page, rule)
        if cursor is None:
            return
        seen.add(str(cursor), "cursor")
        asked = request.with_parameters(rule.parameters_in, {rule.name: cursor})


def _by_link(send: Send, request: Request, rule: Pagination) -> Iterator[Page]:
    seen = _Seen(request)
    seen.add(request.url, "link")
    while True:
        response, page = send(request)
        yield page
        link = _next(page, rule) if rule.cursor is not None else _in_header(response)
        if link is None:
            return
        try:
            near = isinstance(link, str) and request.is_same_server(link)
            following = request.at(str(link))
        except httpx.InvalidURL as error:
            raise InvalidPagination(
                f"{request.shown} returned a next link that is not a URL: {error}; check the API"
            ) from None
        if not near:
            raise InvalidPagination(
                f"{request.shown} returned a next link to another server, to which credentials are not sent; "
                f"if that server is the right one, set ms.source.url to its address"
            )
        seen.add(following.url, "link")
        request = following


def _next(page: Page, rule: Pagination) -> str | int | None:
    """The next cursor or link in a response; None at the end."""
    found, value = at_path(page.document, str(rule.cursor))
    if not found or value is None or value is False or value == "":
        return None
    if isinstance(value, (dict, list)):
        fix = "set 'cursor' in ms.source.http.pagination to the path of a text or a number"
        raise InvalidPagination(f"the response has a nested value at {rule.cursor!r}, not a cursor; {fix}")
    text = str(value)
    if len(text) > _LONGEST_CURSOR:
        raise InvalidPagination(
            f"the response has {len(text)} characters at {rule.cursor!r}, but a cursor has at most "
            f"{_LONGEST_CURSOR}; check 'cursor' in ms.source.http.pagination"
        )
    return value if isinstance(value, int) else text


def _in_header(response: Response) -> str | None:
    links = httpx.Response(response.status, headers={"link": response.headers.get("link", "")}).links
    following = [link for link in links.values() if "next" in link.get("rel", "").lower().split()]
    return following[0].get("url") if following else None


def _digest(page: Page) -> bytes:
    content = hashlib.sha256()
    for record in page.records:
        content.update(encoded(record).encode())
    return content.digest()


@dataclass
class _Seen:
    """The cursors or links so far; a repeated one would repeat the pages endlessly."""

    request: Request
    values: set[bytes] = field(default_factory=set)

    def add(self, value: str, what: str) -> None:
        digest = hashlib.sha256(value.encode(errors="surrogatepass")).digest()
        if digest in self.values:
            raise InvalidPagination(
                f"{self.request.shown} returned the same {what} twice, so its pages would never end; "
                f"check ms.source.http.pagination, or report it to the owner of the API"
            )
        self.values.add(digest)


@dataclass
class _Cycles:
    """The pages so far; pages that repeat in the same order would repeat endlessly."""

    digests: list[bytes] = field(default_factory=list)
    last: dict[bytes, int] = field(default_factory=dict)

    def add(self, digest: bytes) -> int:
        """Add a page; return the number of pages that have just been repeated, 0 if there are none.

        >>> cycles = _Cycles()
        >>> [cycles.add(page) for page in (b"a", b"b", b"a", b"c", b"a", b"c")]
        [0, 0, 0, 0, 0, 2]
        """
        self.digests.append(digest)
        here = len(self.digests)
        length = here - 1 - self.last.get(digest, here - 1)
        self.last[digest] = here - 1
        repeated = self.digests[here - length :] == self.digests[here - 2 * length : here - length]
        return length if length and 2 * length <= here and repeated else 0
