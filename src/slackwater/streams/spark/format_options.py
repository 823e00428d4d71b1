"""Options of the data source ``slackwater``, for reads and writes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from slackwater.errors import InvalidArgument, StoreReplaced
from slackwater.sql.database import has_password, resolved_address
from slackwater.streams.log.catalog import Stream, Streams

_READING: Final = ("from", "to", "max_events", "headers")
_WRITING: Final = ("key", "writer", "takeover_from")
_LOCATION: Final = ("store", "stream")
_SPARK_OPTIONS: Final = ("checkpointlocation", "queryname")
"""Options of a streaming query that Spark passes to its sink as well."""

REGISTERED: Final = "registered:"
"""Prefix of a reference to a store that was registered with the session."""

_opened: Final[dict[tuple[int, str], Streams]] = {}
_lock: Final = Lock()
"""Several queries commit to streams at the same time, each in a thread of the driver."""


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """Validated options. They are sent to the executors, which open the store themselves.

    >>> FormatOptions.of({"store": "sqlite:///s.db", "stream": "shop/bids", "max_events": "1000"}).max_events
    1000
    >>> FormatOptions.of({"store": "sqlite:///s.db", "stream": "shop/bids", "maxevents": "1000"})
    Traceback (most recent call last):
    slackwater.errors.InvalidArgument: option = 'maxevents': unknown option; use store, stream, from, to, \
max_events, headers, key, writer, takeover_from
    """

    store: str = field(repr=False)
    stream: str
    start: str = "head"
    end: str = "tail"
    max_events: int | None = None
    headers: bool = False
    key: str | None = None
    writer: str | None = None
    takeover_from: str | None = None

    @classmethod
    def of(cls, given: Mapping[str, str], stores: Mapping[str, str] | None = None) -> FormatOptions:
        """Validate options given to Spark; ``store`` defaults to the variable SLACKWATER_STORE.

        Args:
            given: The options.
            stores: The addresses of stores that were registered with the session, by name.

        Raises:
            InvalidArgument: An option is not valid, or ``store`` contains a password, which Spark would show
                in query plans and error messages.
        """
        known = (*_LOCATION, *_READING, *_WRITING)
        for name in given:
            if name.lower() not in (*known, *_SPARK_OPTIONS):
                raise InvalidArgument("option", name, "unknown option", fix=f"use {', '.join(known)}")
        options = {name.lower(): value for name, value in given.items()}
        store = _store(options.get("store"), stores or {})
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
            takeover_from=options.get("takeover_from"),
        )

    def open(self) -> Stream:
        """Open the stream; connections to its store are kept and reused in this process."""
        # by process id, because a forked process must not use the connections of its parent
        here = (os.getpid(), self.store)
        with _lock:
            if here not in _opened:
                _opened[here] = Streams.open(self.store)
            streams = _opened[here]
        try:
            return streams.get(self.stream)
        except StoreReplaced:
            with _lock:  # a later call opens the store that is there now
                if _opened.get(here) is streams:
                    del _opened[here]
            streams.close()
            raise


def close_stores() -> None:
    """Close the connections that this process keeps open; they are opened again when needed.

    >>> close_stores()
    """
    for process, store in list(_opened):
        if process == os.getpid():
            _opened.pop((process, store)).close()


def _store(option: str | None, stores: Mapping[str, str]) -> str:
    """The address of the store, without it being an option if it contains a password."""
    if not option:
        if not (found := os.environ.get("SLACKWATER_STORE")):
            fix = 'write .option("store", "sqlite:////folder/file.db"), or set SLACKWATER_STORE'
            raise InvalidArgument("store", None, "is missing", fix=fix)
        return resolved_address(found)
    if option.startswith(REGISTERED):
        name = option.removeprefix(REGISTERED)
        if name not in stores:
            known = ", ".join(stores) or "none"
            raise InvalidArgument("store", option, "is not registered", fix=f"registered: {known}")
        return stores[name]
    address = resolved_address(option)
    if address == option and has_password(option):
        raise InvalidArgument(
            "store", "…", "contains a password, which Spark shows in query plans and error messages",
            fix='write "env:NAME" or "file:PATH", where the address is; or call '
            'register(spark, stores={"name": …}) and write "registered:name"; or use sw.read_stream',
        )  # fmt: skip
    return address


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
