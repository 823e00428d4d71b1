"""What is said of a stream in the options of ``spark.readStream.format("slackwater")`` and its kin."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from slackwater.errors import InvalidArgument
from slackwater.streams.log.catalog import Stream, Streams

_READING: Final = ("from", "to", "max_events", "headers")
_WRITING: Final = ("key", "writer")
_PLACE: Final = ("store", "stream")
_OF_SPARK: Final = ("checkpointlocation", "queryname")
"""Options of a query, which Spark shows to its sink as well."""

_opened: Final[dict[tuple[int, str], Streams]] = {}


@dataclass(frozen=True, slots=True)
class Options:
    """The options, checked. Sent to the executors, which open the store themselves.

    >>> Options.of({"store": "sqlite:///s.db", "stream": "shop/bids", "max_events": "1000"}).max_events
    1000
    >>> Options.of({"store": "sqlite:///s.db", "stream": "shop/bids", "maxevents": "1000"})
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: option = 'maxevents': is not known; use store, stream, from, to, \
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
    def of(cls, given: Mapping[str, str]) -> Options:
        """From what was given to Spark; ``store`` may come from the environment."""
        known = (*_PLACE, *_READING, *_WRITING)
        for name in given:
            if name.lower() not in (*known, *_OF_SPARK):
                raise InvalidArgument("option", name, "is not known", fix=f"use {', '.join(known)}")
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
        """The stream; the connection to its store stays open for the next one who asks in this process."""
        # by process, because a connection must not be used by a fork of the process that opened it
        here = (os.getpid(), self.store)
        if here not in _opened:
            _opened[here] = Streams.open(self.store)
        return _opened[here].get(self.stream)


def close_stores() -> None:
    """Closes the connections that this process keeps; they are opened again when they are needed.

    >>> close_stores()
    """
    for process, store in list(_opened):
        if process == os.getpid():
            _opened.pop((process, store)).close()


def _count(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise InvalidArgument("max_events", text, "is not a number of events", fix="give 1 or more")
    return int(text)


def _flag(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise InvalidArgument("headers", text, "is neither true nor false", fix="give one of them")
    return text.lower() == "true"
