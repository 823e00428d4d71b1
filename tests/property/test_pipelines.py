"""Random pipelines in process: no accepted row is lost, and retractions fold to the batch result."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from tests.property.pipeline_soak import difference
from tests.strategies.pipelines import Case, cases

SETTINGS = settings(max_examples=settings().max_examples // 5, suppress_health_check=[HealthCheck.too_slow])


@SETTINGS
@given(cases(4, chains=True))
def test_a_chain_of_windows_folds_to_the_batch_result(made: Case) -> None:
    assert difference(made) is None


@SETTINGS
@given(cases(5))
def test_a_pipeline_folds_to_the_batch_result(made: Case) -> None:
    assert difference(made) is None
