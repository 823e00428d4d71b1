"""Recommendations of lag and allowed lateness."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from slackwater.errors import InvalidArgument
from slackwater.metadata.store import open_store
from slackwater.monitoring.advice import advised
from slackwater.monitoring.record_tables import RecordTables
from slackwater.progress.delays import DelayHistogram, bound_of
from slackwater.spark.monitor.advise import advise
from slackwater.spark.monitor.reports import BucketReport
from slackwater.time import SECOND
from tests.monitoring.reports import batch, operator
from tests.stores import new_store

DELAYS = {
    "a": DelayHistogram.of([0] * 900 + [3 * SECOND] * 50),
    "b": DelayHistogram.of([8 * SECOND] * 40 + [60 * SECOND] * 10),
}


def test_the_shortest_lag_and_lateness_for_two_shares() -> None:
    advice = advised(DELAYS.values(), on_time=0.95, kept=0.99)
    assert 3 * SECOND <= advice.lag <= 3.3 * SECOND
    assert 8 * SECOND <= advice.lag + advice.allowed_lateness <= 8.8 * SECOND
    assert (advice.rows, advice.on_time, advice.kept, advice.longest) == (1000, 0.95, 0.99, 60 * SECOND)
    everything = advised(DELAYS.values(), on_time=0, kept=1)
    assert (everything.lag, everything.allowed_lateness, everything.kept) == (0, 60 * SECOND, 1.0)


@pytest.mark.parametrize("delay", [0, 1_000, 1_001, 1_100, 5 * SECOND, 10**15])
def test_a_bin_is_at_most_a_tenth_wide(delay: int) -> None:
    (number,) = DelayHistogram.of([delay]).bins
    assert delay <= 1_000 or bound_of(number) / 1.1 - 1 <= delay <= bound_of(number)


def test_a_store_and_a_running_query_give_the_same_recommendation(tmp_path: Path) -> None:
    url = new_store(tmp_path)
    with open_store(url) as store:
        events = [batch(1, operator(1, 3), delays=DELAYS)]
        store.write(lambda connection: RecordTables().write(connection, events, now=SECOND))
    report = BucketReport(3, 1, 3, "…", None, None, "", 0, False, {}, delays=DELAYS)
    texts = {"reports": [msgspec.json.encode(report).decode()]}
    metric = SimpleNamespace(asDict=lambda: texts)
    progress = SimpleNamespace(id="q1", observedMetrics={"slackwater_ab": metric}, stateOperators=[])
    query: Any = SimpleNamespace(id="q1", recentProgress=[progress])
    assert advise(query) == advise("orders", store=url) == advise(query, store=url)
    assert advise("orders", store=url, origin="a").longest == 3 * SECOND
    with pytest.raises(InvalidArgument, match="has no measured delays; wait for a few batches"):
        advise("orders", store=url, origin="c")


@pytest.mark.parametrize("shares", [{"on_time": 0.9, "kept": 0.5}, {"on_time": -1.0}, {"kept": 1.5}])
def test_impossible_shares_raise(shares: dict[str, float]) -> None:
    with pytest.raises(InvalidArgument, match="must be between 0 and 1, and not above kept"):
        advised(DELAYS.values(), **shares)
