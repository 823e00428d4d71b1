"""Every scenario, in every way a query can run, compared with the model batch by batch."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.running import Scenario, as_batch, as_running_query, as_stream, expected, of_kind
from tests.spark.scenarios import SCENARIOS, check, invalid
from tests.support.sampling import sampled

pytestmark = pytest.mark.spark


QUICK = "early, on time, late, retracting"


@pytest.fixture(params=list(SCENARIOS))
def scenario(request: pytest.FixtureRequest) -> Scenario:
    return SCENARIOS[request.param]


@pytest.fixture(params=sampled(SCENARIOS, keep=[QUICK]))
def sampled_scenario(request: pytest.FixtureRequest) -> Scenario:
    return SCENARIOS[request.param]


def test_a_batch_fires_everything(spark: SparkSession, scenario: Scenario, tmp_path: Path) -> None:
    rows = as_batch(spark, scenario, tmp_path)
    check(rows, expected(scenario, [scenario.batches], bounded=True), scenario)
    assert of_kind(rows[0], "invalid") == invalid(scenario.batches)


def test_one_micro_batch_then_the_end(
    spark: SparkSession, sampled_scenario: Scenario, tmp_path: Path
) -> None:
    portions = [sampled_scenario.batches]
    rows = as_stream(spark, sampled_scenario, tmp_path, portions, None)
    check(rows, expected(sampled_scenario, portions), sampled_scenario)


@pytest.mark.proof
def test_many_micro_batches(spark: SparkSession, scenario: Scenario, tmp_path: Path) -> None:
    portions = [[batch] for batch in scenario.batches]
    rows = as_stream(spark, scenario, tmp_path, portions, None)
    check(rows, expected(scenario, portions), scenario)
    assert of_kind([row for batch in rows for row in batch], "invalid") == invalid(scenario.batches)


def test_a_restart_between_two_micro_batches(
    spark: SparkSession, sampled_scenario: Scenario, tmp_path: Path
) -> None:
    portions = [[batch] for batch in sampled_scenario.batches]
    rows = as_stream(spark, sampled_scenario, tmp_path, portions, 2)
    check(rows, expected(sampled_scenario, portions), sampled_scenario)


@pytest.mark.proof
@pytest.mark.parametrize("name", [QUICK, "sessions that merge and take back", "discarding by the clock"])
def test_a_query_that_runs_on(spark: SparkSession, name: str, tmp_path: Path) -> None:
    scenario = SCENARIOS[name]
    portions = [[batch] for batch in scenario.batches]
    rows = as_running_query(spark, scenario, tmp_path, portions)
    check(rows, expected(scenario, portions), scenario)
