"""Code paths for large batches, exercised with small ones by setting every size threshold to a minimum.

Grouping slice by slice, compacting blobs, portions of due windows, several groups of sessions and deltas of
sessions need more data than a random scenario has; the results must equal those of the model.
"""

from __future__ import annotations

from random import Random

import pytest

from slackwater.windows.engine import row_log, session_windows, slice_partials
from tests.property.comparing import compare
from tests.strategies.windows import RandomSource, scenario
from tests.support.sampling import sampled


@pytest.mark.parametrize("seed", sampled(range(40), keep=range(12)))
def test_thresholds_change_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slice_partials, "_ROWS_WORTH_SPLITTING", 2)
    monkeypatch.setattr(slice_partials, "_ROWS_AT_ONCE", 3)
    monkeypatch.setattr(slice_partials, "FAN_IN", 2)
    monkeypatch.setattr(session_windows, "_GAPS_IN_A_GROUP", 1)
    monkeypatch.setattr(session_windows.SessionWindows, "minimum_width", 1)
    monkeypatch.setattr(session_windows, "_WORTH_SPLITTING", seed % 2)
    monkeypatch.setattr(session_windows, "_MANY", seed % 5 % 3)
    monkeypatch.setattr(row_log, "_MAX_CHANGED", (1e9, 3.0, 0.0)[seed % 3])
    monkeypatch.setattr(row_log, "FAN_IN", 2)
    compare(scenario(RandomSource(Random(f"thresholds/{seed}"))))
