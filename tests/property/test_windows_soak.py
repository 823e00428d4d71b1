"""The long run tested: it finds what is wrong, makes it small, and stops there."""

from __future__ import annotations

import pytest

from tests.conformance.framework import Difference
from tests.property import soak
from tests.strategies.windows import Scenario


def wrong_for_six(made: Scenario) -> None:
    """A comparison that fails for retracting mode with a value of six."""
    values = [row["value"] for step in made.steps for row in step.rows]
    if made.options.mode == "accumulating_and_retracting" and 6 in values:
        raise Difference("six")


def test_it_stops_at_the_first_difference_and_makes_it_small(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(soak, "compare", wrong_for_six)
    assert soak.main(["--cases", "1000", "--seed", "3"]) == 1
    said = capsys.readouterr().out
    assert "of seed 3 differs" in said
    assert "mode = 'accumulating_and_retracting'" in said
    assert said.count("'value'") == 1
    assert "step 1:" in said
    assert "step 2:" not in said


def test_it_says_how_many_were_without_a_difference(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(soak, "compare", lambda made: None)
    assert soak.main(["--cases", "25", "--first", "100"]) == 0
    assert "25 cases of seed 1 without a difference" in capsys.readouterr().out


def test_a_case_is_made_again_from_its_seed_and_number() -> None:
    assert soak.case(7, 3) == soak.case(7, 3)
    assert soak.case(7, 3) != soak.case(7, 4)
