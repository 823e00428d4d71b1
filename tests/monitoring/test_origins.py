"""Origins column by column: the same summary as from single origins."""

from __future__ import annotations

import random

import pytest

from slackwater.monitoring import origins
from slackwater.monitoring.origins import OriginColumns, OriginSummary


def columns_of(count: int, seed: int) -> OriginColumns:
    """Origins of which some have the same watermark, and some none."""
    source = random.Random(seed)
    return OriginColumns(
        "default",
        source.sample([f"origin {number}" for number in range(count)], count),
        [source.choice(("active", "idle", "silent")) for _ in range(count)],
        [source.choice((None, source.randrange(50), source.randrange(10**15))) for _ in range(count)],
        [source.choice((None, source.randrange(10**15))) for _ in range(count)],
    )


@pytest.mark.parametrize("count", [0, 1, 2, origins.LISTED, origins.LISTED + 1, 3_000])
@pytest.mark.parametrize("seed", [1, 2])
def test_the_summary_of_columns_is_that_of_origins(count: int, seed: int) -> None:
    columns = columns_of(count, seed)
    assert OriginSummary.of_columns(columns) == OriginSummary.of(columns.states(range(count)))


@pytest.mark.parametrize("name", ["MOST_ORIGINS", "MOST_PACKED"])
def test_limits_hold_for_columns_too(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(origins, name, 1_000)
    columns = columns_of(2_000, 3)
    summary = OriginSummary.of_columns(columns)
    assert summary == OriginSummary.of(columns.states(range(2_000)))
    assert summary.left_out >= 900
    assert summary.total == 2_000
