"""A query with a silent origin, late rows, a chain and a join, as its store describes it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from slackwater.monitoring.monitor import open_monitor
from slackwater.monitoring.sentence import sentence
from slackwater.time import SECOND
from tests.spark.recorded_chain import run_recorded_chain

pytestmark = pytest.mark.spark


@pytest.mark.proof
def test_the_store_describes_a_chain_with_a_join(spark: SparkSession, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    query, heard = run_recorded_chain(spark, tmp_path, url)
    assert heard.recorder is not None
    assert heard.recorder.lost == 0
    with open_monitor(url) as monitor:
        state = monitor.query(query)
        windows = monitor.windows(state.id, operator="0.0")
        late = monitor.late_rows(state.id)
        holders = monitor.holders(state.id, operator="0.0")
        history = monitor.watermark_history(state.id, operator="0.0")
        delays = monitor.delays(state.id, operator="0.0")
    join, window = state.operators
    assert (join.id, window.id, state.running, state.batch) == ("0", "0.0", False, 2)
    assert window.watermark == 26 * SECOND
    assert join.lag is not None
    assert join.inherited_lag == window.lag
    assert {name: size.rows for name, size in join.buffers.items()}["right"] > 0
    assert [(one.name, one.status, one.watermark) for one in window.origins.listed] == [
        ("b", "silent", 26 * SECOND),
        ("a", "active", 40 * SECOND),
    ]
    assert [origin.input for origin in join.origins.listed] == ["input 'deliveries'"]
    assert sentence(state, 16 * SECOND).startswith(f"{state.id}: watermark ")
    assert [(one.end // SECOND, one.on_time) for one in windows if not one.is_open] == [(10, 1)]
    assert [(one.end // SECOND, one.keys, one.owes_pane) for one in windows if one.is_open] == [
        (30, 1, True),
        (50, 1, True),
    ]
    assert window.totals["dropped_late"] == 2
    assert [(row.kind, row.window_end, row.lateness, row.rows, row.values) for row in late] == [
        ("late", 10 * SECOND, 15 * SECOND, 2, None)
    ]
    assert [(span.held_by, span.at // SECOND, span.until // SECOND) for span in holders] == [
        ("partition 'b' of input 'orders'", 16, 16),
        ("partition 'a' of input 'orders'", 0, 16),
    ]
    assert [(span.watermark // SECOND, span.reached // SECOND) for span in history] == [(3, 25), (25, 26)]
    assert {name: found.rows for name, found in delays.items()} == {"a": 4, "b": 1}
    assert delays["a"].highest == pytest.approx(24 * SECOND, rel=0.03)
