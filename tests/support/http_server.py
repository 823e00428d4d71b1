"""A real HTTP API on loopback, with orders in pages of every kind, and faults on demand."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

Fault = Callable[["Handler"], None]


class Asked(NamedTuple):
    """A request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


@dataclass
class Api:
    """What the server holds, what it was asked, and what goes wrong with the next requests."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""
    size: int = 3
    faults: deque[Fault | None] = field(default_factory=deque)
    requests: list[Asked] = field(default_factory=list)
    allowed: Callable[[Asked], bool] = lambda asked: True
    released: threading.Event = field(default_factory=threading.Event)
    turn: Any = field(default_factory=threading.Lock)

    def chosen(self, query: Mapping[str, str]) -> list[dict[str, Any]]:
        """The rows of a range and a shop."""
        return [
            row
            for row in self.rows
            if query.get("since", "") <= row.get("at", "") < query.get("until", "~")
            and row.get("shop") == query.get("shop", row.get("shop"))
        ]


class Handler(BaseHTTPRequestHandler):
    """Answers from the `Api` of its server."""

    protocol_version = "HTTP/1.1"
    wbufsize = 65_536  # headers and body in one packet, or every answer waits for an acknowledgement
    api: Api

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Say nothing."""

    def answer(
        self,
        value: Any,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        kind: str = "application/json",
    ) -> None:
        """Send a whole answer; bytes and text as they are, anything else as JSON."""
        text = value if isinstance(value, (bytes, str)) else json.dumps(value)
        data = text if isinstance(text, bytes) else text.encode()
        self.send_response(status)
        for name, each in {"Content-Type": kind, "Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, each)
        self.end_headers()
        self.wfile.write(data)

    def _serve(self) -> None:
        place = urlsplit(self.path)
        length = int(self.headers.get("content-length", 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(
            self.command, place.path, dict(parse_qsl(place.query, keep_blank_values=True)), headers,
            self.rfile.read(length),
        )  # fmt: skip
        with self.api.turn:
            self.api.requests.append(asked)
            fault = self.api.faults.popleft() if self.api.faults else None
        if fault is not None:
            fault(self)
        elif not self.api.allowed(asked):
            self.answer({"error": "who are you?", "you sent": headers}, 401)
        else:
            self._route(asked)

    def _route(self, asked: Asked) -> None:
        api, query = self.api, dict(asked.query)
        steps = asked.path.split("/")
        if "shops" in steps:
            query["shop"] = unquote(steps[steps.index("shops") + 1])
        rows = api.chosen(query)
        size = min(api.size, int(query.get("limit", api.size)))
        name = asked.path.rsplit("/", 1)[-1]
        start = {
            "page": lambda: (int(query.get("page", 1)) - 1) * size,
            "offset": lambda: int(query.get("offset", 0)),
            "body": lambda: int(json.loads(asked.body).get("from", {}).get("offset", 0)),
        }.get(name, lambda: int(query.get("cursor", 0)))()
        part, following = rows[start : start + size], start + size
        more = following < len(rows)
        if name == "page" and query.get("strict") and start and not part:
            self.answer({"error": "no such page"}, 404)
        elif name in ("cursor", "orders"):
            self.answer({"data": {"items": part}, "meta": {"next": str(following) if more else None}})
        elif name == "next":
            rest = "&".join(f"{key}={value}" for key, value in query.items() if key != "cursor")
            link = f"{asked.path}?{rest}&cursor={following}" if more else None
            self.answer({"items": part, "@odata.nextLink": link})
        elif name == "link":
            rest = "&".join(f"{key}={value}" for key, value in query.items() if key != "cursor")
            link = f'<{asked.path}?cursor={following}&{rest}>; rel="last next", </>; rel="first"'
            self.answer(part, headers={"Link": link} if more else {"Link": '</>; rel="first"'})
        elif name == "ndjson":
            self.answer("\n".join(json.dumps(row) for row in rows), kind="application/x-ndjson")
        elif name == "csv":
            lines = ["id;at;name", *(f'{row["id"]};{row["at"]};"{row["name"]}"' for row in rows)]
            self.answer("\r\n".join(lines), kind="text/csv")
        elif name in ("page", "offset", "body"):
            self.answer(part)
        else:
            self.answer(rows)

    do_GET = do_POST = do_PUT = _serve  # noqa: N815 - the names of the base class


@contextmanager
def serving(rows: Sequence[dict[str, Any]] = ()) -> Iterator[Api]:
    """A running server with these rows.

    >>> import httpx
    >>> with serving([{"id": 1}]) as api:
    ...     httpx.get(f"{api.url}/all").json()
    [{'id': 1}]
    """
    api = Api(list(rows))
    handler = type("Bound", (Handler,), {"api": api})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    api.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield api
    finally:
        api.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


# ---- faults


def status(code: int, body: Any = "trouble", **headers: str) -> Fault:
    """An answer with this status; ``retry_after`` is the header Retry-After."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda handler: handler.answer(body, code, named)


def broken(body: bytes, **headers: str) -> Fault:
    """An answer with these bytes, whatever its headers say, after which the connection is closed."""

    def fault(handler: Handler) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        handler.answer(body, headers={**named, "Connection": "close"})
        handler.close_connection = True

    return fault


def hung_up(handler: Handler) -> None:
    """No answer at all: the connection is closed."""
    handler.close_connection = True


def stuck(handler: Handler) -> None:
    """No answer until the server stops."""
    handler.api.released.wait()
    handler.close_connection = True


def dripping(handler: Handler) -> None:
    """An endless response, one byte at a time."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000000")
    handler.end_headers()
    while not handler.api.released.wait(0.02):
        try:
            handler.wfile.write(b" ")
            handler.wfile.flush()
        except OSError:
            break
    handler.close_connection = True


def dripping_headers(handler: Handler) -> None:
    """Headers that never end, one byte at a time."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
    while not handler.api.released.wait(0.02):
        try:
            handler.wfile.write(b"x")
            handler.wfile.flush()
        except OSError:
            break
    handler.close_connection = True
