"""The reader of a unit over HTTP: its requests, and their pages as lines of JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from slackwater.ingest.jobfile.http_keys import Pagination
from slackwater.ingest.redaction import Secrets
from slackwater.ingest.sources.http.client import Client, Policy, Response
from slackwater.ingest.sources.http.pages import pages
from slackwater.ingest.sources.http.record_types import Seen, look_at
from slackwater.ingest.sources.http.requests import Request
from slackwater.ingest.sources.http.responses import Page, ResponseFormat, encoded

_NO_CONTENT = 204


@dataclass(frozen=True)
class RangeRequest:
    """A request and the time range that it reads."""

    request: Request
    low: int
    high: int


@dataclass(frozen=True)
class HttpReading:
    """The requests of a unit and how they are sent; the representation contains no secrets."""

    parts: tuple[RangeRequest, ...]
    form: ResponseFormat = field(default_factory=ResponseFormat)
    pagination: Pagination | None = None
    policy: Policy = field(default_factory=Policy)
    secrets: Secrets = field(default_factory=Secrets, repr=False)

    def read(
        self, part: RangeRequest, seen: Seen, client: Callable[[Policy, Secrets], Client] = Client
    ) -> Iterator[list[str]]:
        """The records of a request as lines of JSON, one list per page; ``seen`` collects their kinds."""
        with client(self.policy, self.secrets) as http:

            def both(response: Response) -> tuple[Response, Page]:
                if response.status == _NO_CONTENT:
                    return response, Page([])
                return response, self.form.parse(response.body, response.charset)

            for page in pages(lambda request: http.send(request, both), part.request, self.pagination):
                look_at(seen, page.records)
                yield [encoded(record) for record in page.records]
