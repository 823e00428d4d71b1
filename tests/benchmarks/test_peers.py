"""The truth that other engines are compared with, and the page that shows the comparison."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from benchmarks.environments import REQUIREMENTS
from benchmarks.peers.__main__ import ENGINES, bids, read, truth
from benchmarks.peers.page import NAMES, PAGE, RESULTS, PeerResult, load_results, table
from benchmarks.peers.workloads import COLUMNS, LAG, SECOND, WORKLOADS

ROWS = bids(3_000, 20)


def by_hand(name: str) -> list[tuple[int, ...]]:
    """The result of a workload, one row after the other."""
    window = WORKLOADS[name]
    groups: dict[tuple[int, int], list[int]] = {}
    last: dict[int, tuple[int, int]] = {}
    for auction, price, millis in ROWS.sort("millis").rows():
        if window.sessions:
            start, before = last.get(auction, (millis, millis))
            start = start if millis - before <= window.size else millis
            last[auction] = (start, millis)
            groups.setdefault((auction, start), []).append(price)
        else:
            every = window.every or window.size
            start = millis // every * every
            while start > millis - window.size:
                groups.setdefault((auction, start), []).append(price)
                start -= every
    return sorted((*key, len(prices), sum(prices), max(prices)) for key, prices in groups.items())


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_truth_is_what_a_loop_computes(name: str) -> None:
    assert sorted(truth(ROWS, WORKLOADS[name]).rows()) == by_hand(name)


def test_bids_exactly_the_gap_apart_are_one_session() -> None:
    rows = pl.DataFrame({"auction": [1, 1, 1], "price": [1, 2, 3], "millis": [0, 10_000, 20_001]})
    found = truth(rows, WORKLOADS["sessions"])
    assert sorted(found.rows()) == [(1, 0, 2, 3, 2), (1, 20_001, 1, 3, 3)]


def test_no_row_is_further_behind_than_the_lag() -> None:
    behind = ROWS["millis"].cum_max() - ROWS["millis"]
    assert 0.9 * LAG < int(behind.max()) < LAG  # type: ignore[arg-type]
    assert int(ROWS["millis"].max() - ROWS["millis"].min()) > 0  # type: ignore[operator, arg-type]
    assert SECOND == 1_000


def test_files_that_are_empty_hidden_or_not_results_are_not_read(tmp_path: Path) -> None:
    for name, text in (
        ("0.csv", "1,2,3,4,5\n"),
        ("1.csv", ""),
        ("_SUCCESS", "x"),
        (".2.csv.crc", "x"),
        ("all", "x"),
    ):
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert read(tmp_path).rows() == [(1, 2, 3, 4, 5)]
    assert read(tmp_path / "nothing").columns == list(COLUMNS)


def test_of_several_runs_the_worst_result_counts() -> None:
    one = PeerResult("flink", "tumbling", 10, windows=5, missing=1, seconds=[2.0], cpu_seconds=[3.0])
    two = PeerResult("flink", "tumbling", 10, windows=5, wrong=2, seconds=[1.0], cpu_seconds=[4.0])
    both = one.with_runs([two])
    assert (both.missing, both.wrong, both.seconds, both.cpu_seconds) == (1, 2, [2.0, 1.0], [3.0, 4.0])


def test_every_other_engine_has_pinned_requirements_with_hashes() -> None:
    assert set(ENGINES) == set(NAMES)
    for environment in {environment for _, environment in ENGINES.values() if environment is not None}:
        text = (REQUIREMENTS / f"{environment}.txt").read_text(encoding="utf-8")
        pinned = [line for line in text.splitlines() if line and not line.startswith((" ", "#", "-"))]
        assert pinned
        assert all("==" in line for line in pinned)
        assert text.count("--hash=sha256:") >= len(pinned)


def test_the_page_of_other_engines_shows_the_measurements() -> None:
    assert table(load_results(RESULTS)) in PAGE.read_text(encoding="utf-8")
