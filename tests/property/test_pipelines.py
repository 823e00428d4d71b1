"""Random pipelines in process: no accepted row is lost, and retractions fold to the batch result."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from tests.property.pipeline_soak import difference, numbered_case
from tests.strategies.pipelines import Case, Limits, cases

SETTINGS = settings(max_examples=settings().max_examples // 5, suppress_health_check=[HealthCheck.too_slow])


@SETTINGS
@given(cases(Limits(operators=4, chains=True)))
def test_a_chain_of_windows_folds_to_the_batch_result(made: Case) -> None:
    assert difference(made) is None


@SETTINGS
@given(cases(Limits(operators=5)))
def test_a_pipeline_folds_to_the_batch_result(made: Case) -> None:
    assert difference(made) is None


@pytest.mark.parametrize("seed", range(4))
def test_numbered_pipelines_fold_to_the_batch_result(seed: int) -> None:
    """The first cases of what `python -m tests.property.pipeline_soak` runs for hours."""
    for number in range(settings().max_examples * 2):
        assert difference(numbered_case(seed, number)) is None, f"case {number} of seed {seed}"
