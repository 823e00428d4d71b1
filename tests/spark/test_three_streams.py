"""Orders, deliveries and returns, joined and windowed, equal the result over all rows at once."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from slackwater.spark.wire.clock_source import Ticks
from slackwater.time import SECOND
from tests.chaos.shop import Shop, Truth, refunds
from tests.spark.running import run_available

pytestmark = pytest.mark.spark

FILES: Final = 8


def test_a_batch_gives_the_result_over_all_rows(spark: SparkSession, tmp_path: Path) -> None:
    shop = Shop.of(3, batches=2)
    shop.write(tmp_path, 2)
    panes = refunds(spark, tmp_path, clock="1 second", streaming=False)
    assert folded({}, panes.to_df().collect()) == shop.expected()


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(4, 8))
def test_micro_batches_with_a_restart_fold_to_the_result_over_all_rows(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    shop = Shop.of(seed, batches=FILES)
    result: Truth = {}

    def collect(frame: Any, _: int) -> None:
        folded(result, frame.collect())

    for files, ends in ((3, False), (FILES, True)):
        shop.write(tmp_path / "in", files)
        clock = Ticks(tuple(number * SECOND for number in range(1, files + 1 + ends)))
        panes = refunds(spark, tmp_path / "in", clock=clock)
        run_available(panes.to_df(flush=ends), tmp_path / "checkpoint", collect)
    assert result == shop.expected()


def folded(truth: Truth, rows: list[Any]) -> Truth:
    """Apply panes and retractions in order."""
    for row in rows:
        start = row["window"]["start"]
        key = (row["product"], datetime.fromtimestamp(start.timestamp(), UTC))
        if row["pane"]["retraction"]:
            assert truth.pop(key) == (row["returns"], row["refunds"])
        else:
            assert key not in truth
            truth[key] = (row["returns"], row["refunds"])
    return truth
