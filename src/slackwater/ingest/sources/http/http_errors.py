"""What goes wrong with an HTTP source. Messages have no query of a URL in them, and no secret."""

from __future__ import annotations

from slackwater.errors import SlackwaterError


class HttpFailure(SlackwaterError):
    """A unit could not be read over HTTP."""


class RequestFailed(HttpFailure):
    """A request was refused, or nothing usable came back however often it was tried."""

    def __init__(self, message: str, status: int | None = None) -> None:
        self.status = status
        super().__init__(message)


class BadAnswer(HttpFailure):
    """An answer came back whole, and is not what the job says it is."""


class BadPages(HttpFailure):
    """Pages that follow each other in a way that would lose records, or never end."""


class BrokenAnswer(HttpFailure):
    """An answer that cannot be read; the next attempt may bring a whole one."""
