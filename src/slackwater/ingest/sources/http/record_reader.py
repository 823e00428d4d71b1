"""Reading a unit over HTTP: its requests, and the lines of JSON that their pages become."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from slackwater.ingest.jobfile.http_keys import Pagination
from slackwater.ingest.jobfile.references import Secrets
from slackwater.ingest.sources.http.client import Answer, Client, Policy
from slackwater.ingest.sources.http.pages import pages
from slackwater.ingest.sources.http.record_types import Seen, look_at
from slackwater.ingest.sources.http.requests import Request
from slackwater.ingest.sources.http.responses import Form, Page, encoded

_NO_CONTENT = 204


@dataclass(frozen=True)
class Part:
    """A request, and the range that it asks for."""

    request: Request
    low: int
    high: int


@dataclass(frozen=True)
class HttpReading:
    """What is asked of which API, and how; no secret is part of the representation."""

    parts: tuple[Part, ...]
    form: Form = field(default_factory=Form)
    pagination: Pagination | None = None
    policy: Policy = field(default_factory=Policy)
    secrets: Secrets = field(default_factory=Secrets, repr=False)

    def read(
        self, part: Part, seen: Seen, client: Callable[[Policy, Secrets], Client] = Client
    ) -> Iterator[list[str]]:
        """The records of a part, a list a page, each a line of JSON; ``seen`` learns what they hold."""
        with client(self.policy, self.secrets) as http:

            def both(answer: Answer) -> tuple[Answer, Page]:
                if answer.status == _NO_CONTENT:
                    return answer, Page([])
                return answer, self.form.parse(answer.body, answer.charset)

            for page in pages(lambda request: http.send(request, both), part.request, self.pagination):
                look_at(seen, page.records)
                yield [encoded(record) for record in page.records]
