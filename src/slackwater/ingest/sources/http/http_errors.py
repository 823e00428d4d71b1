"""Errors of an HTTP source. Their messages contain neither the query of a URL nor a secret."""

from __future__ import annotations

from slackwater.errors import SlackwaterError


class HttpError(SlackwaterError):
    """A unit could not be read over HTTP."""


class RequestFailed(HttpError):
    """A request was rejected, or no attempt got a usable response."""

    def __init__(self, message: str, status: int | None = None) -> None:
        self.status = status
        super().__init__(message)


class InvalidResponse(HttpError):
    """A response is complete, but not what the job describes."""


class InvalidPagination(HttpError):
    """Pagination that would lose records or never end."""


class UnreadableResponse(HttpError):
    """A response that cannot be parsed; a retry may bring a complete one."""
