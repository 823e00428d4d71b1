"""Fixtures: a manual clock, and streams on each kind of store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from slackwater.streams.log.catalog import Stream, Streams
from slackwater.time import SECOND


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1_000 * SECOND

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def streams(store_url: str, clock: Clock) -> Iterator[Streams]:
    with Streams.open(store_url, clock=clock) as opened:
        yield opened


@pytest.fixture
def bids(streams: Streams, tmp_path: Path) -> Stream:
    """A stream with two segments and binary events."""
    return streams.create("shop/bids", segments=2, data=str(tmp_path / "data"))
