"""Sixty days of runs with failures and kills: every target equals its source, and so does the history."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.ingest.sixty_days import PHASES, live
from tests.spark.postgres import running_server

KILLS: Final = 30


@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.proof
def test_sixty_days_with_thirty_kills_end_with_equal_tables(tmp_path: Path) -> None:
    with running_server() as server:
        lived = live(tmp_path, server, days=60, seed=20_240_101)
    assert lived.kills.total() >= KILLS
    for phase in PHASES:
        if phase != "planned":  # which is over in a moment
            assert lived.died["embedded", phase] + lived.died["served", phase] > 0, (phase, lived.died)
    for job in ("embedded", "served"):
        assert lived.died[job, "written"] > 0, lived.died
    assert all(count > 0 for count in lived.failed.values())
