"""Orders, deliveries and returns, joined and windowed, equal the result over all rows at once."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from pyspark.sql import SparkSession

from slackwater.spark.wire.clock_source import Ticks
from slackwater.time import SECOND
from tests.chaos.queries import entries
from tests.chaos.shop import Shop, Truth, refunds
from tests.spark.postgres import running_server
from tests.spark.running import run_available
from tests.support.programs import Program
from tests.support.sampling import sampled

FILES: Final = 8
TABLE: Final = "SELECT product, window_start, returns, refunds FROM refunds"


def test_the_history_has_rows_that_match_and_rows_that_do_not() -> None:
    shop = Shop.of(1)
    returned = sum(len(batch) for batch in shop.batches["returns"])
    matched = sum(returns for returns, _ in shop.expected().values())
    assert 50 < matched < returned - 20


@pytest.mark.spark
def test_a_batch_gives_the_result_over_all_rows(spark: SparkSession, tmp_path: Path) -> None:
    shop = Shop.of(3, batches=2)
    shop.write(tmp_path, 2)
    panes = refunds(spark, tmp_path, clock="1 second", streaming=False)
    assert folded({}, panes.to_df().collect()) == shop.expected()


@pytest.mark.spark
@pytest.mark.parametrize("seed", sampled(range(4, 8), keep=[4]))
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


@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.proof
@pytest.mark.parametrize("seed", [11, 12])
def test_a_killed_driver_leaves_the_table_equal_to_the_result_over_all_rows(
    tmp_path: Path, seed: int
) -> None:
    shop = Shop.of(seed, batches=FILES)
    shop.write(tmp_path / "in", FILES)
    offsets, commits = (tmp_path / "checkpoint" / name for name in ("offsets", "commits"))
    with running_server() as server:
        url = server.create_database("shop")
        with driver(tmp_path, url, "goes-on", "killed.log") as killed:
            killed.wait_until(lambda: entries(offsets) > entries(commits) >= 2)
            killed.kill()
        assert entries(commits) < FILES
        with driver(tmp_path, url, "goes-on", "again.log") as again:
            again.finish()
        with driver(tmp_path, url, "ends", "last.log") as last:
            last.finish()
        with psycopg.connect(url) as connection:
            rows = connection.execute(TABLE).fetchall()
    table = {(product, start.astimezone(UTC)): (count, sum_) for product, start, count, sum_ in rows}
    assert len(table) == len(rows)
    assert table == shop.expected()


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


def driver(folder: Path, url: str, end: str, log: str) -> Program:
    arguments = [str(folder), url, str(FILES), end]
    return Program([sys.executable, "-m", "tests.chaos.shop_driver", *arguments], folder / log)
