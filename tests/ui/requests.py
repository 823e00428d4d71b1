"""Requests to the console's web application, in process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx

from slackwater.ui.server import create_app
from slackwater.ui.views import Views

LOCAL = "http://127.0.0.1:7373"


def request(app: Any, path: str, *, method: str = "GET", base: str = LOCAL, **options: Any) -> httpx.Response:
    """Send one request to an ASGI application."""

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=base) as client:
            return await client.request(method, path, **options)

    return asyncio.run(send())


def app_of(url: str, *jobs: Path, now: int, token: str | None = None) -> Any:
    """The application of a store, with a clock that stands still."""
    return create_app(Views(url, jobs=jobs, clock=lambda: now), token=token, clock=lambda: now)
