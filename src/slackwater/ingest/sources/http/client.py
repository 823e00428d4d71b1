"""An HTTP client with rate limit, retries with exponential backoff, deadlines and size limits.

Temporary errors are retried: too many requests, server errors, timeouts, lost connections and truncated
responses. The wait doubles each time, or is what the Retry-After header says. Permanent errors fail at once.
Clock, sleep and randomness are parameters, so tests do not wait.
"""

from __future__ import annotations

import random
import ssl
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import cache
from types import TracebackType
from typing import Final, Self, TypeVar

import httpx

from slackwater.ingest.redaction import Secrets
from slackwater.ingest.sources.http.deadlines import Deadline
from slackwater.ingest.sources.http.http_errors import (
    InvalidPagination,
    InvalidResponse,
    RequestFailed,
    UnreadableResponse,
)
from slackwater.ingest.sources.http.requests import Request, credentials_of
from slackwater.time import SECOND, instant
from slackwater.time import now as wall_clock

_MEGABYTE: Final = 1_000_000
_GZIP: Final = 16 + zlib.MAX_WBITS
_SHOWN_OF_BODY: Final = 200
_LOOKED_AT: Final = 65_536
_MOST_REDIRECTS: Final = 5
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_HOPELESS: Final = (httpx.UnsupportedProtocol, httpx.LocalProtocolError)
_FIXES: Final = {
    401: "check the credentials, ms.source.http.authentication",
    403: "check the credentials and their permissions",
    404: "check ms.source.url",
    413: "request smaller pages",
    429: "lower ms.source.http.requests.per.minute",
}

Result = TypeVar("Result")


@dataclass(frozen=True)
class Policy:
    """Retries, timeouts, rate limit and the largest response of a client."""

    attempts: int = 5
    wait_seconds: float = 1
    longest_seconds: float = 300
    statuses: tuple[int, ...] = (408, 429, 500, 502, 503, 504)
    timeout_seconds: float = 30
    """Most time for a request: from connecting to the last byte of the response."""
    interval_seconds: float = 0
    """Least time between the starts of two requests."""
    largest_megabytes: int = 64


@dataclass(frozen=True)
class Response:
    """A complete HTTP response."""

    status: int
    headers: httpx.Headers = field(repr=False)
    body: bytes = field(repr=False)
    charset: str | None = None


class Client:
    """Sends requests one at a time.

    >>> from http.server import BaseHTTPRequestHandler, HTTPServer
    >>> from threading import Thread
    >>> class Handler(BaseHTTPRequestHandler):
    ...     def do_GET(self):
    ...         self.send_response(200)
    ...         self.end_headers()
    ...         self.wfile.write(b"[7]")
    ...
    ...     def log_message(self, *_):
    ...         pass
    >>> with HTTPServer(("127.0.0.1", 0), Handler) as server, Client(Policy()) as client:
    ...     Thread(target=server.handle_request).start()
    ...     request = Request("GET", f"http://127.0.0.1:{server.server_port}/")
    ...     client.send(request, lambda response: response.body)
    b'[7]'
    """

    def __init__(
        self,
        policy: Policy,
        secrets: Secrets | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        wall: Callable[[], int] = wall_clock,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._policy = policy
        self._secrets = Secrets() if secrets is None else secrets
        self._clock, self._sleep, self._wall, self._chance = clock, sleep, wall, chance
        self._next_start = clock()
        self._deadline = Deadline()
        self._http = httpx.Client(timeout=policy.timeout_seconds, headers=_OWN_HEADERS, verify=_trusted())

    def __enter__(self) -> Self:
        self._http.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.__exit__(kind, error, trace)

    def send(self, request: Request, read: Callable[[Response], Result]) -> Result:
        """Send a request and return ``read(response)``; a response that ``read`` cannot parse is retried."""
        secrets = Secrets({**credentials_of(request), **self._secrets.values})
        last = self._policy.attempts
        for attempt in range(1, last + 1):
            asked_for = 0.0
            status = None
            try:
                response = self._exchange(request, secrets)
                if response.status < 300:
                    return read(response)
                status = response.status
                trouble = f"returned {_status_text(response, secrets)}"
                if status not in self._policy.statuses:
                    fix = _FIXES.get(status, "correct the request")
                    raise RequestFailed(secrets.mask(f"{request.shown} {trouble}; {fix}"), status)
                asked_for = self._asked_for(response)
            except InvalidResponse as error:
                raise InvalidResponse(secrets.mask(f"{request.shown}: {error.message}")) from None
            except UnreadableResponse as error:
                trouble = f"returned {error.message}"
            except _HOPELESS as error:
                raise RequestFailed(
                    secrets.mask(f"{request.shown} cannot be sent: {error}; check ms.source.url")
                ) from None
            except httpx.HTTPError as error:
                trouble = f"failed: {_error_text(error, self._policy)}"
            fix = _FIXES.get(status or 0, "run the job again: failed units are planned again")
            if attempt == last:
                tried = "" if last == 1 else f" ({last} attempts)"
                raise RequestFailed(secrets.mask(f"{request.shown} {trouble}{tried}; {fix}"), status)
            if asked_for > self._policy.longest_seconds:
                limit = f"longest_seconds = {self._policy.longest_seconds} in ms.source.http.retry"
                reason = (
                    f"{trouble} with a Retry-After of {asked_for:.0f} seconds, longer than {limit}; {fix}"
                )
                raise RequestFailed(secrets.mask(f"{request.shown} {reason}"), status)
            self._sleep(max(asked_for, self._back_off(attempt)))
        raise AssertionError("a policy has at least one attempt")

    def _exchange(self, request: Request, secrets: Secrets) -> Response:
        for _ in range(_MOST_REDIRECTS):
            response = self._once(request)
            if response.status not in _REDIRECTS:
                return response
            request = self._redirected(request, response, secrets)
        reason = f"was redirected {_MOST_REDIRECTS} times; check ms.source.url"
        raise RequestFailed(secrets.mask(f"{request.shown} {reason}"))

    def _once(self, request: Request) -> Response:
        now = self._clock()
        if now < self._next_start:
            self._sleep(self._next_start - now)
        started = max(now, self._next_start)
        self._next_start = started + self._policy.interval_seconds
        content = None if request.body is None else request.body.encode()
        with (
            self._deadline.of(self._policy.timeout_seconds) as trace,
            self._http.stream(
                request.method, request.url, headers=dict(request.headers), content=content,
                extensions={"trace": trace},
            ) as response,
        ):  # fmt: skip
            return Response(
                response.status_code, response.headers, self._body(response), response.charset_encoding
            )

    def _body(self, response: httpx.Response) -> bytes:
        """Read the body within the size limit."""
        largest = self._policy.largest_megabytes
        unpacked = _Unpacking(response.headers.get("content-encoding", ""))
        body = bytearray()
        for piece in response.iter_raw():
            body += unpacked.more(piece, largest * _MEGABYTE + 1 - len(body))
            if len(body) > largest * _MEGABYTE:
                raise InvalidResponse(
                    f"the response is larger than {largest} megabytes; request smaller pages, "
                    f"or raise ms.source.http.answer.megabytes"
                )
        unpacked.end()
        return bytes(body)

    def _redirected(self, request: Request, response: Response, secrets: Secrets) -> Request:
        link = response.headers.get("location", "")
        try:
            near = bool(link) and request.is_same_server(link)
        except httpx.InvalidURL:
            near = False
        if not near:
            raise InvalidPagination(
                secrets.mask(
                    f"{request.shown} is redirected to another server, to which credentials are not sent; "
                    f"if that server is the right one, set ms.source.url to its address"
                )
            )
        if request.method != "GET" and response.status not in (307, 308):
            raise RequestFailed(
                secrets.mask(
                    f"{request.shown} is redirected with {response.status}, which would turn it into a GET; "
                    f"set ms.source.url to the address it is redirected to"
                ),
                response.status,
            )
        return request.at(link)

    def _back_off(self, attempt: int) -> float:
        """The wait after an attempt: exponential backoff, half of it random to spread clients."""
        wait = min(self._policy.wait_seconds * 2.0 ** (attempt - 1), self._policy.longest_seconds)
        return wait * (0.5 + self._chance() / 2)

    def _asked_for(self, response: Response) -> float:
        """The wait that the Retry-After header requests, given in seconds or as a date; 0 without it."""
        text = response.headers.get("retry-after", "").strip()
        if text.isdecimal():
            return float(text)
        try:
            return max(0.0, (instant(parsedate_to_datetime(text)) - self._wall()) / SECOND)
        except (TypeError, ValueError):
            return 0.0


@cache
def _trusted() -> ssl.SSLContext:
    """The trusted certificates, loaded once because loading takes longer than many requests."""
    return httpx.create_ssl_context()


class _Unpacking:
    """Decompresses a body chunk by chunk up to a limit, and detects a truncated one.

    A gzip body may have several members, one after the other, and zeros after the last one.
    """

    def __init__(self, encoding: str) -> None:
        if encoding.lower() not in ("", "identity", "gzip", "x-gzip"):
            raise InvalidResponse(
                f"the response has Content-Encoding {encoding!r}; only gzip and identity are supported"
            )
        self._packed = zlib.decompressobj(_GZIP) if "gzip" in encoding.lower() else None
        self._begun = False

    def more(self, piece: bytes, most: int) -> bytes:
        self._begun = True
        if self._packed is None:
            return piece
        unpacked = b""
        try:
            while piece and len(unpacked) < most:
                if self._packed.eof:
                    piece = piece.lstrip(b"\0")
                    if not piece:
                        break
                    self._packed = zlib.decompressobj(_GZIP)
                unpacked += self._packed.decompress(piece, most - len(unpacked))
                piece = self._packed.unused_data
        except zlib.error as error:
            raise UnreadableResponse(f"a response that is not gzip: {error}") from None
        return unpacked

    def end(self) -> None:
        if self._begun and self._packed is not None and not self._packed.eof:
            raise UnreadableResponse("a truncated response")


def _status_text(response: Response, secrets: Secrets) -> str:
    """The status and the start of the body, redacted before it is cut so that no part of a secret is left."""
    phrase = httpx.codes.get_reason_phrase(response.status)
    start = secrets.mask(response.body[:_LOOKED_AT].decode(errors="replace"))
    text = " ".join("".join(each if each.isprintable() else " " for each in start).split())
    shown = f": {text[:_SHOWN_OF_BODY]}" if text else ""
    return f"{response.status} {phrase}".strip() + shown


def _error_text(error: httpx.HTTPError, policy: Policy) -> str:
    if isinstance(error, httpx.TimeoutException):
        return f"no response within {policy.timeout_seconds:g} seconds"
    return f"{error}".lower() or type(error).__name__


_OWN_HEADERS: Final = {"User-Agent": "slackwater", "Accept": "*/*", "Accept-Encoding": "gzip"}
