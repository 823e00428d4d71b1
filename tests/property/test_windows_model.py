"""The columnar operator equals the element-wise model on random scenarios."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from tests.property import soak
from tests.property.comparing import compare
from tests.strategies.windows import Limits, Scenario, scenarios
from tests.support.sampling import sampled

SETTINGS = settings(max_examples=settings().max_examples // 2, suppress_health_check=[HealthCheck.too_slow])


NOT_DISCARDING = ("accumulating_and_retracting", "accumulating")


@SETTINGS
@given(scenarios())
def test_any_scenario(made: Scenario) -> None:
    compare(made)


@SETTINGS
@given(scenarios(Limits(kinds=("sessions",), rows=4)))
def test_sessions(made: Scenario) -> None:
    """Merging has additional rules: retractions of old windows, numbering, rewinding."""
    compare(made)


@SETTINGS
@given(scenarios(Limits(kinds=("sessions", "fixed"), modes=NOT_DISCARDING, retractions=100, rows=4)))
def test_input_with_retractions(made: Scenario) -> None:
    """Every accumulation takes elements back, sessions split, and windows without elements have no pane."""
    compare(made)


@SETTINGS
@given(scenarios(Limits(kinds=("expiring",), keys=4)))
def test_keys_that_expire(made: Scenario) -> None:
    """Each key of a global window with a ttl is purged on its own, and begins anew."""
    compare(made)


@pytest.mark.parametrize("seed", sampled(range(4), keep=range(4), check=[0]))
def test_seeded_scenarios(seed: int) -> None:
    """The first cases of what `python -m tests.property.soak` runs for hours."""
    for number in range(12):
        made = soak.case(seed, number)
        assert soak.difference(made) is None, f"case {number} of seed {seed}"
