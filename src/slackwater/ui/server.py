"""The web application of the console: a JSON endpoint for each view, an event stream, and the page.

Every route is a GET that reads; there is no route that changes anything.
"""

from __future__ import annotations

import re
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Final

from fastapi import FastAPI, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel

from slackwater.errors import InvalidArgument, MetadataError, SlackwaterError, UnknownStream
from slackwater.time import BEGINNING_OF_TIME, END_OF_TIME
from slackwater.time import now as wall_clock
from slackwater.ui.change_feed import POLL_SECONDS, ChangeFeed
from slackwater.ui.guards import Guards, content_security_policy
from slackwater.ui.metrics import CONTENT_TYPE, Names
from slackwater.ui.models import (
    ConsoleStatus,
    ErrorAnswer,
    IngestionAnswer,
    JobAnswer,
    LateAnswer,
    NowAnswer,
    OriginsAnswer,
    QueryAnswer,
    StreamAnswer,
    StreamsAnswer,
    WindowsAnswer,
)
from slackwater.ui.views import LISTED_ORIGINS, MOST_LISTED, OriginOrder, Views

STATIC: Final = Path(__file__).parent / "static"
_HEARTBEAT_SECONDS: Final = 5.0
_ANSWER_SECONDS: Final = 1.0
"""How long an answer is served again to other pages that ask for the same."""
_MOST_ANSWERS: Final = 64
_INLINE_SCRIPT: Final = re.compile(r"<script type=\"importmap\">(.*?)</script>", re.DOTALL)
_PROBLEMS: Final[dict[int | str, dict[str, Any]]] = {
    404: {"model": ErrorAnswer, "description": "The query, job or stream does not exist."},
    503: {"model": ErrorAnswer, "description": "The metadata store cannot be read."},
}
Name = Annotated[str, Query(description="Its name.")]
QueryName = Annotated[str, Query(description="The id or name of the query.")]
Operator = Annotated[str | None, Query(description="The id of an operator; by default the last one.")]
Instant = Annotated[int, Query(description="Microseconds since 1970-01-01T00:00:00Z.")]


class _Answers:
    """Answers as JSON, computed once for all pages that ask for the same at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: OrderedDict[tuple[object, ...], threading.Lock] = OrderedDict()
        self._known: OrderedDict[tuple[object, ...], tuple[float, bytes]] = OrderedDict()

    def get(self, key: tuple[object, ...], make: Callable[[], BaseModel]) -> Response:
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
            if len(self._locks) > _MOST_ANSWERS:
                self._locks.popitem(last=False)
        with lock:
            known = self._known.get(key)
            if known is None or time.monotonic() - known[0] > _ANSWER_SECONDS:
                known = time.monotonic(), make().model_dump_json().encode()
                with self._lock:
                    self._known[key] = known
                    while len(self._known) > _MOST_ANSWERS:
                        self._known.popitem(last=False)
        return Response(known[1], media_type="application/json")


def create_app(
    views: Views,
    *,
    token: str | None = None,
    clock: Callable[[], int] = wall_clock,
    poll_seconds: float = POLL_SECONDS,
) -> FastAPI:
    """Make the web application of the console.

    Args:
        views: What the console shows.
        token: The token that requests must carry; None if only this machine can reach the server.
        clock: Returns the current time in microseconds.
        poll_seconds: How often the store is checked for changes while a page is open.

    Returns:
        The application, an ASGI app.
    """
    feed = ChangeFeed(views.url, views.problem, poll_seconds=poll_seconds)
    answers = _Answers()
    started_at = clock()
    page = (STATIC / "index.html").read_text(encoding="utf-8")

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with feed.polling():
            yield

    app = FastAPI(
        title="Slackwater console",
        description="What the metadata store knows, one endpoint per view. All times are microseconds since "
        "1970-01-01T00:00:00Z. No endpoint changes anything.",
        version=_release(),
        lifespan=lifespan,
        docs_url=None,  # would load its scripts from another host
        redoc_url=None,
        openapi_url="/api/openapi.json",
    )
    app.add_middleware(Guards, policy=content_security_policy(_INLINE_SCRIPT.findall(page)), token=token)

    def answer(make: Callable[[], BaseModel], *key: object) -> Response:
        return answers.get((feed.changes, *key), make)

    def status() -> ConsoleStatus:
        return ConsoleStatus(
            now=clock(), started_at=started_at, release=_release(), store=views.address,
            problem=feed.problem, changes=feed.changes,
        )  # fmt: skip

    @app.exception_handler(SlackwaterError)
    def explain(_: Request, error: SlackwaterError) -> JSONResponse:
        code = 404 if isinstance(error, (InvalidArgument, UnknownStream)) else 500
        return JSONResponse({"error": str(error)}, 503 if isinstance(error, MetadataError) else code)

    @app.get("/", include_in_schema=False)
    def index() -> HTMLResponse:
        return HTMLResponse(page)

    @app.get("/api/status", tags=["status"])
    def read_status() -> ConsoleStatus:
        """What the console reads, and whether it can."""
        return status().model_copy(update={"problem": views.problem()})

    @app.get("/api/events", tags=["status"], response_class=EventSourceResponse)
    async def events() -> AsyncIterator[ServerSentEvent]:
        """The status, whenever the store may have changed and every few seconds."""
        while True:
            seen = feed.changes
            yield ServerSentEvent(event="status", data=status(), id=str(seen), retry=2_000)
            await feed.wait(seen, _HEARTBEAT_SECONDS)

    @app.get("/metrics", tags=["metrics"], response_class=PlainTextResponse, responses=_PROBLEMS)
    def metrics(names: Names = "slackwater") -> Response:
        """The metrics of queries, ingestion and streams in the text format of Prometheus."""
        return Response(views.metrics(names), media_type=CONTENT_TYPE)

    @app.get("/api/now", tags=["queries"], response_model=NowAnswer, responses=_PROBLEMS)
    def now() -> Response:
        """All queries, each in a sentence."""
        return answer(views.now, "now")

    @app.get("/api/query", tags=["queries"], response_model=QueryAnswer, responses=_PROBLEMS)
    def query(name: QueryName, operator: Operator = None, key: str | None = None) -> Response:
        """Where the watermark of a query is, what holds it back, and what did so before."""
        chosen = ("query", name, operator, key)
        return answer(lambda: views.query(name, operator=operator, key=key), *chosen)

    @app.get("/api/origins", tags=["queries"], response_model=OriginsAnswer, responses=_PROBLEMS)
    def origins(
        name: QueryName,
        operator: Annotated[
            str | None, Query(description="The id of an operator; by default the one that holds it back.")
        ] = None,
        text: Annotated[str, Query(description="Text in the name, input or status of the origins.")] = "",
        order: Annotated[OriginOrder, Query(description="What they are sorted by.")] = "behind",
        offset: Annotated[int, Query(ge=0, description="How many of them to leave out.")] = 0,
        limit: Annotated[
            int, Query(ge=1, le=MOST_LISTED, description="The largest number.")
        ] = LISTED_ORIGINS,
    ) -> Response:
        """The origins of a query, such as the partitions of a topic: filtered, sorted, page by page."""
        key = ("origins", name, operator, text, order, offset, limit)
        return answer(
            lambda: views.origins(
                name, operator=operator, text=text, order=order, offset=offset, limit=limit
            ),
            *key,
        )

    @app.get("/api/windows", tags=["queries"], response_model=WindowsAnswer, responses=_PROBLEMS)
    def windows(name: QueryName, operator: Operator = None) -> Response:
        """The open windows of a query by end, and those that were closed last."""
        return answer(lambda: views.windows(name, operator=operator), "windows", name, operator)

    @app.get("/api/late", tags=["queries"], response_model=LateAnswer, responses=_PROBLEMS)
    def late(name: QueryName) -> Response:
        """How late rows are, by origin, and a sample of those that were dropped."""
        return answer(lambda: views.late(name), "late", name)

    @app.get("/api/ingestion", tags=["ingestion"], response_model=IngestionAnswer, responses=_PROBLEMS)
    def ingestion() -> Response:
        """All jobs, each in a sentence."""
        return answer(views.ingestion, "ingestion")

    @app.get("/api/job", tags=["ingestion"], response_model=JobAnswer, responses=_PROBLEMS)
    def job(
        name: Name,
        watermark: str | None = None,
        since: Instant = BEGINNING_OF_TIME,
        until: Instant = END_OF_TIME,
    ) -> Response:
        """The calendar of a job: each unit in each partition."""
        key = ("job", name, watermark, since, until)
        return answer(lambda: views.job(name, watermark=watermark, since=since, until=until), *key)

    @app.get("/api/streams", tags=["streams"], response_model=StreamsAnswer, responses=_PROBLEMS)
    def streams() -> Response:
        """All streams, each in a sentence."""
        return answer(views.streams, "streams")

    @app.get("/api/stream", tags=["streams"], response_model=StreamAnswer, responses=_PROBLEMS)
    def stream(name: Name) -> Response:
        """The timeline of a stream: segments, marks, writers and reader groups."""
        return answer(lambda: views.stream(name), "stream", name)

    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    return app


def _release() -> str:
    try:
        return version("slackwater")
    except PackageNotFoundError:  # run from the source tree
        return "unreleased"
