"""Seeds of the simulation: every promise holds under faults, and a seed repeats exactly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import pytest
from hypothesis import settings

from slackwater.errors import InvalidArgument
from slackwater.simulation import ingest_scenario
from slackwater.simulation.event_story import format_story
from slackwater.simulation.faults import FaultPlan
from slackwater.simulation.runs import SCENARIOS, Simulated, Simulation
from slackwater.time import SECOND

SHORT = 1
"""Simulated minutes of faults of a short seed."""
SEEDS = 14
"""How many seeds one test runs: a few seconds."""
PARTS = 5
"""How many such tests each scenario has in `make test`."""
QUICK_SEEDS = 2
"""How many seeds each scenario runs in `make check`."""
MORE_SEEDS = 200
LONG_SEEDS = 20
ROOT = Path(__file__).parents[2]


@lru_cache(64)
def first_run(prepared: Simulation, seed: int, scenario: str, minutes: int) -> Simulated:
    """The result of a seed, which several tests compare with others."""
    return prepared.run(seed, scenario=scenario, minutes=minutes)


def run_seeds(prepared: Simulation, scenario: str, seeds: range, minutes: int) -> None:
    for seed in seeds:
        result = first_run(prepared, seed, scenario, minutes)
        assert result.violation is None, f"seed {seed}\n{format_story(result.story[-30:])}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Divide the seeds of a scenario between tests, which run at the same time."""
    if "first" in metafunc.fixturenames:
        parts = PARTS if settings().max_examples >= settings.get_profile("test").max_examples else 1
        metafunc.parametrize("first", [SEEDS * part for part in range(parts)])


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_promise_holds_under_faults(prepared: Simulation, scenario: str, first: int) -> None:
    is_quick = settings().max_examples < settings.get_profile("test").max_examples
    run_seeds(prepared, scenario, range(first, first + (QUICK_SEEDS if is_quick else SEEDS)), SHORT)


def test_the_page_states_how_many_seeds_run() -> None:
    page = (ROOT / "docs" / "operations" / "simulation.md").read_text(encoding="utf-8")
    counts = (PARTS * SEEDS * len(SCENARIOS), (MORE_SEEDS + LONG_SEEDS) * len(SCENARIOS))
    assert "`make test` runs {} seeds, `make proof` {},".format(*counts) in page


@pytest.mark.proof
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_promise_holds_in_many_seeds(prepared: Simulation, scenario: str) -> None:
    run_seeds(prepared, scenario, range(1_000, 1_000 + MORE_SEEDS), SHORT)


@pytest.mark.proof
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_promise_holds_in_long_seeds(prepared: Simulation, scenario: str) -> None:
    run_seeds(prepared, scenario, range(2_000, 2_000 + LONG_SEEDS), 5)


@pytest.mark.search
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_seed_repeats_exactly(prepared: Simulation, scenario: str) -> None:
    assert prepared.run(0, scenario=scenario, minutes=SHORT) == first_run(prepared, 0, scenario, SHORT)


@pytest.mark.search
@pytest.mark.parametrize("kind", ["DELTA", "STREAM"])
def test_a_seed_repeats_exactly_for_a_rare_target(
    prepared: Simulation, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    for each in ("DELTA", "STREAM"):
        monkeypatch.setattr(ingest_scenario, f"_{each}_SHARE", float(each == kind))
    first, second = (prepared.run(20, scenario="ingest", minutes=SHORT) for _ in range(2))
    assert first == second
    assert first.violation is None


@pytest.mark.search
def test_an_error_with_the_address_of_the_store_repeats(prepared: Simulation) -> None:
    # the store is in another folder in every run
    outages = FaultPlan(restart_every=10 * SECOND, longest_outage=30 * SECOND)
    results = [prepared.run(7, scenario="pipeline", faults=outages, minutes=SHORT) for _ in range(2)]
    assert any("the metadata store at" in line.text for line in results[0].story)
    assert results[0] == results[1]


def test_another_seed_takes_other_steps(prepared: Simulation) -> None:
    one, other = (first_run(prepared, seed, "log", SHORT) for seed in (0, 1))
    assert one.trace != other.trace


@pytest.mark.proof
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_seed_repeats_in_a_process_that_orders_sets_differently(scenario: str) -> None:
    def trace(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-m", "slackwater.cli", "simulate", "5", "--seeds", "5"]
        command += ["--scenario", scenario, "--json"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return " ".join(json.loads(line)["trace"] for line in done.stdout.splitlines())

    assert trace("1") == trace("2")


@pytest.mark.proof
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_without_faults_everything_arrives(prepared: Simulation, scenario: str) -> None:
    result = prepared.run(3, scenario=scenario, faults=FaultPlan(), minutes=1)
    assert result.violation is None
    assert result.faults.keys() <= {"failed read"}


def test_an_unknown_scenario_is_refused(prepared: Simulation) -> None:
    with pytest.raises(InvalidArgument, match="use one of log, pipeline, ingest"):
        prepared.run(1, scenario="weather")
