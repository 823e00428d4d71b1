"""The bids of the demo: out of order, held back by a silent origin, and one far too late."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq

from slackwater.demo.bids import ORIGINS, SCHEMA, SILENT, Feed
from slackwater.time import SECOND

START = 1_700_000_000 * SECOND


def _fed(folder: Path) -> Feed:
    feed = Feed(folder)
    feed.begin(START)
    for tick in range(1, 121):
        if tick == 40:
            feed.silence()
        if tick == 80:
            feed.resume(START + tick * SECOND // 4)
        feed.send(START + tick * SECOND // 4)
    return feed


def test_the_files_contain_the_sent_bids(tmp_path: Path) -> None:
    feed = _fed(tmp_path)
    rows = [row for path in sorted(feed.arriving.iterdir()) for row in pq.read_table(path).to_pylist()]
    assert pq.read_table(feed.arriving / "00000.parquet").schema.equals(SCHEMA)
    assert [(row["origin"], row["price"], row["file"]) for row in rows] == [
        (bid.origin, bid.price, bid.file) for bid in feed.sent
    ]
    assert len({bid.price for bid in feed.sent}) == len(feed.sent)
    assert not list((tmp_path / "writing").iterdir())


def test_bids_come_out_of_order_and_one_origin_is_silent(tmp_path: Path) -> None:
    feed = _fed(tmp_path)
    assert any(later.at < earlier.at for earlier, later in pairwise(feed.sent))
    assert {bid.origin for bid in feed.sent} == set(ORIGINS)
    silence = (START + 12 * SECOND, START + 20 * SECOND)
    arrived = [bid for bid in feed.sent if silence[0] < bid.arrives < silence[1]]
    assert arrived
    assert not [bid for bid in arrived if bid.origin == SILENT]
    held = [
        bid for bid in feed.sent if bid.origin == SILENT and silence[0] < bid.at < silence[1] - SECOND * 3
    ]
    assert held
    assert all(bid.arrives >= silence[1] for bid in held)


def test_only_one_bid_is_older_than_the_run(tmp_path: Path) -> None:
    feed = _fed(tmp_path)
    (too_late,) = [bid for bid in feed.sent if bid.at < START]
    assert too_late.at == START - 60 * SECOND


def test_held_bids_are_reported_until_they_are_sent(tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    feed.begin(0)
    feed.send(5 * SECOND)
    assert feed.earliest_held() is None
    feed.silence()
    feed.send(20 * SECOND)
    held = feed.earliest_held()
    assert held is not None
    assert 5 * SECOND < held < 20 * SECOND
    feed.resume(20 * SECOND)
    feed.send(20 * SECOND)
    assert feed.earliest_held() is None
    assert held == min(bid.at for bid in feed.sent if bid.origin == SILENT and bid.at > 5 * SECOND)
