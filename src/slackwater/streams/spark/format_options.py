"""Options of the data source ``slackwater``, for reads and writes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from slackwater.errors import InvalidArgument, StoreReplaced
from slackwater.streams.log.catalog import Stream, Streams

_READING: Final = ("from", "to", "max_events", "headers")
_WRITING: Final = ("key", "writer")
_LOCATION: Final = ("store", "stream")
_SPARK_OPTIONS: Final = ("checkpointlocation", "queryname")
"""Options of a streaming query that Spark passes to its sink as well."""

_opened: Final[dict[tuple[int, str], Streams]] = {}


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """Validated options. They are sent to the executors, which open the store themselves.

    >>> FormatOptions.of({"store": "sqlite:///s.db", "stream": "shop/bids", "max_events": "1000"}).max_events
    1000
    >>> FormatOptions.of({"store": "sqlite:///s.db", "stream": "shop/bids", "maxevents": "1000"})
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: option = 'maxevents': unknown option; use store, stream, from, to, \
max_events, headers, key, writer
    """

    store: str = field(repr=False)
    stream: str
    start: str = "head"
    end: str = "tail"
    max_events: int | None = None
    headers: bool = False
    key: str | None = None
    writer: str | None = None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> FormatOptions:
        """Validate options given to Spark; ``store`` defaults to the variable SLACKWATER_STORE."""
        known = (*_LOCATION, *_READING, *_WRITING)
        for name in given:
            if name.lower() not in (*known, *_SPARK_OPTIONS):
                raise InvalidArgument("option", name, "unknown option", fix=f"use {', '.join(known)}")
        options = {name.lower(): value for name, value in given.items()}
        store = options.get("store") or os.environ.get("SLACKWATER_STORE")
        if store is None:
            fix = 'write .option("store", "sqlite:////folder/file.db"), or set SLACKWATER_STORE'
            raise InvalidArgument("store", None, "is missing", fix=fix)
        if "stream" not in options:
            raise InvalidArgument("stream", None, "is missing", fix='write .option("stream", "shop/bids")')
        return cls(
            store=store,
            stream=options["stream"],
            start=options.get("from", "head"),
            end=options.get("to", "tail"),
            max_events=_count(options.get("max_events")),
            headers=_flag(options.get("headers", "false")),
            key=options.get("key"),
            writer=options.get("writer"),
        )

    def open(self) -> Stream:
        """Open the stream; connections to its store are kept and reused in this process."""
        # by process id, because a forked process must not use the connections of its parent
        here = (os.getpid(), self.store)
        if here not in _opened:
            _opened[here] = Streams.open(self.store)
        try:
            return _opened[here].get(self.stream)
        except StoreReplaced:
            _opened.pop(here).close()  # a later call opens the store that is there now
            raise


def close_stores() -> None:
    """Close the connections that this process keeps open; they are opened again when needed.

    >>> close_stores()
    """
    for process, store in list(_opened):
        if process == os.getpid():
            _opened.pop((process, store)).close()


def _count(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise InvalidArgument("max_events", text, "is not a positive integer", fix="give 1 or more")
    return int(text)


def _flag(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise InvalidArgument("headers", text, "is not a boolean", fix="give true or false")
    return text.lower() == "true"
