"""`make soak`: rounds with new seeds until the time is up, or until something fails."""

from __future__ import annotations

import sys

import pytest

from tests import soak


@pytest.mark.search
def test_the_search_ends_when_the_time_is_up(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(soak, "commands", lambda seed: [[sys.executable, "-c", f"print('tried {seed}')"]])
    assert soak.main(["--minutes", "0.01", "--seed", "7"]) == 0
    printed = capfd.readouterr().out
    assert "round 1, seed 7" in printed
    assert "tried 7" in printed
    assert "without a failure" in printed


def test_a_failure_ends_the_search_and_names_its_seed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(soak, "commands", lambda seed: [[sys.executable, "-c", "raise SystemExit(3)"]])
    assert soak.main(["--minutes", "5", "--seed", "11"]) == 1
    assert "--seed 11" in capfd.readouterr().out


@pytest.mark.search
def test_a_command_that_outlives_the_deadline_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        soak, "commands", lambda seed: [[sys.executable, "-c", "import time; time.sleep(600)"]]
    )
    assert soak.main(["--minutes", "0.01"]) == 0


def test_a_round_searches_with_its_seed_and_without_derandomizing() -> None:
    searches, scenarios, pipelines, simulations = soak.commands(5)
    assert "--hypothesis-seed=5" in searches
    assert searches[searches.index("--hypothesis-profile") + 1] == "soak"
    assert scenarios[-2:] == pipelines[-2:] == ["--seed", "5"]
    assert simulations[simulations.index("simulate") + 1] == "5"
