"""A driver that is killed in several batches loses and duplicates no row of three joined streams."""

from __future__ import annotations

import sys
from datetime import UTC
from pathlib import Path
from typing import Final

import psycopg
import pytest

from tests.chaos.queries import entries
from tests.chaos.shop import Shop
from tests.spark.postgres import running_server
from tests.support.programs import Program

FILES: Final = 8
SEEDS: Final = (11, 12)
KILLED_IN: Final = (1, 3, 5)
"""The batches in which the driver is killed, or the ones soon after."""
TABLE: Final = "SELECT product, window_start, returns, refunds FROM refunds"


def test_the_history_has_rows_that_match_and_rows_that_do_not() -> None:
    shop = Shop.of(1)
    returned = sum(len(batch) for batch in shop.batches["returns"])
    matched = sum(returns for returns, _ in shop.expected().values())
    assert 50 < matched < returned - 20


@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.proof
@pytest.mark.parametrize("seed", SEEDS)
def test_a_killed_driver_leaves_the_table_equal_to_the_result_over_all_rows(
    tmp_path: Path, seed: int
) -> None:
    shop = Shop.of(seed, batches=FILES)
    shop.write(tmp_path / "in", FILES)
    offsets, commits = (tmp_path / "checkpoint" / name for name in ("offsets", "commits"))
    with running_server() as server:
        url = server.create_database("shop")
        for batch in KILLED_IN:
            with driver(tmp_path, url, "goes-on", f"killed-{batch}.log") as killed:
                killed.wait_until(
                    lambda batch=batch: entries(offsets) > entries(commits) >= batch,  # type: ignore[misc]
                    interval=0.005,
                )
                killed.kill()
            assert batch <= entries(commits) < FILES
        with driver(tmp_path, url, "goes-on", "again.log") as again:
            again.finish()
        with driver(tmp_path, url, "ends", "last.log") as last:
            last.finish()
        with psycopg.connect(url) as connection:
            rows = connection.execute(TABLE).fetchall()
    table = {(product, start.astimezone(UTC)): (count, sum_) for product, start, count, sum_ in rows}
    assert len(table) == len(rows)
    assert table == shop.expected()


def driver(folder: Path, url: str, end: str, log: str) -> Program:
    arguments = [str(folder), url, str(FILES), end]
    return Program([sys.executable, "-m", "tests.chaos.shop_driver", *arguments], folder / log)
