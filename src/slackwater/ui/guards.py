"""What protects the console: security headers, the check of the host name, and the token."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

from slackwater.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE: Final = "slackwater_token"
_SHORTEST_TOKEN: Final = 16
_LOOPBACK_NAMES: Final = {"localhost", "127.0.0.1", "[::1]", "::1"}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host name or address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def check_exposure(host: str, token: str | None) -> None:
    """Raise unless the console is bound to loopback, or has a token that cannot be guessed.

    >>> check_exposure("127.0.0.1", None)
    >>> check_exposure("0.0.0.0", None)
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: host = '0.0.0.0': is reachable from other machines; set a token in \
SLACKWATER_UI_TOKEN, or use 127.0.0.1
    """
    if token is None and not is_loopback(host):
        fix = "set a token in SLACKWATER_UI_TOKEN, or use 127.0.0.1"
        raise InvalidArgument("host", host, "is reachable from other machines", fix=fix)
    if token is not None and len(token) < _SHORTEST_TOKEN:
        reason = f"is shorter than {_SHORTEST_TOKEN} characters"
        raise InvalidArgument("token", "…", reason, fix="use a long random text")


def content_security_policy(inline_scripts: Iterable[str]) -> str:
    """A policy that allows the console's own files and these inline scripts, and nothing else.

    >>> content_security_policy([]).split("; ")[0]
    "default-src 'none'"
    """
    hashes = [
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in inline_scripts
    ]
    return "; ".join(
        [
            "default-src 'none'",
            " ".join(["script-src 'self'", *hashes]),
            "style-src 'self'",
            "img-src 'self' data:",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        ]
    )


class Guards:
    """ASGI middleware in front of the console.

    Without a token, requests must address this machine by a loopback name: a web page elsewhere could
    otherwise read the console through a host name that resolves to 127.0.0.1. With a token, requests carry it
    as ``Authorization: Bearer``, or in the cookie that the address with ``?token=`` sets.
    """

    def __init__(self, app: ASGIApp, *, policy: str, token: str | None) -> None:
        self._app = app
        self._policy = policy.encode()
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the request, and add the security headers to the response."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *self._security_headers(scope["path"])]
            await send(message)

        if self._token is None:
            if _host_name(headers.get("host", "")) not in _LOOPBACK_NAMES:
                await _refuse(guarded, 403, "use the address http://127.0.0.1 or http://localhost")
                return
        elif not self._has_token(headers):
            given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
            if scope["method"] == "GET" and scope["path"] == "/" and self._matches(given):
                cookie = f"{COOKIE}={given}; HttpOnly; SameSite=Strict; Path=/"
                await _respond(guarded, 303, b"", [(b"location", b"/"), (b"set-cookie", cookie.encode())])
                return
            await _refuse(guarded, 401, "open the console with ?token=, or send Authorization: Bearer")
            return
        await self._app(scope, receive, guarded)

    def _has_token(self, headers: dict[str, str]) -> bool:
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self._matches(given):
            return True
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return found is not None and self._matches(found.value)

    def _matches(self, given: str) -> bool:
        return self._token is not None and hmac.compare_digest(given.encode(), self._token.encode())

    def _security_headers(self, path: str) -> list[tuple[bytes, bytes]]:
        cached = b"no-cache" if path.startswith("/static/") else b"no-store"
        return [
            (b"content-security-policy", self._policy),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
            (b"cross-origin-opener-policy", b"same-origin"),
            (b"cross-origin-resource-policy", b"same-origin"),
            (b"cache-control", cached),
        ]


def _host_name(header: str) -> str:
    """The host without its port, as in ``[::1]:7373``."""
    if header.startswith("["):
        return header.partition("]")[0] + "]"
    return header.partition(":")[0].lower()


async def _refuse(send: Send, status: int, problem: str) -> None:
    await _respond(send, status, f"{problem}\n".encode(), [(b"content-type", b"text/plain; charset=utf-8")])


async def _respond(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
