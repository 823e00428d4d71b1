"""Random pipelines in process: no accepted row is lost, and retractions fold to the batch result."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings

from slackwater import windows
from slackwater.spark.wire.wire_columns import TIME
from tests.model.windows import Row
from tests.property import pipeline_soak
from tests.property.pipeline_soak import FAMILY, Family, difference, numbered_family
from tests.strategies.pipelines import Case, Limits, cases
from tests.support.pipeline_nodes import (
    Cogrouped,
    Feed,
    Filtered,
    Windowed,
)
from tests.support.pipelines import Pipeline
from tests.support.sampling import sampled

SETTINGS = settings(max_examples=settings().max_examples // 5, suppress_health_check=[HealthCheck.too_slow])
FAMILIES = 5
"""The families of which the last one has long cases."""


@SETTINGS
@given(cases(Limits(operators=4, chains=True)))
def test_a_chain_of_windows_folds_to_the_batch_result(made: Case) -> None:
    assert difference(made) is None


@SETTINGS
@given(cases(Limits(operators=5)))
def test_a_pipeline_folds_to_the_batch_result(made: Case) -> None:
    assert difference(made) is None


@pytest.mark.parametrize("start", sampled(range(FAMILIES), keep=range(FAMILIES), check=[0, FAMILIES - 1]))
def test_numbered_pipelines_fold_to_the_batch_result(start: int) -> None:
    """The first cases of what `python -m tests.property.pipeline_soak` runs for hours."""
    for index in range(start, FAMILIES * settings().max_examples // 8, FAMILIES):
        number = index * FAMILY
        assert difference(*numbered_family(0, number)) is None, f"case {number}"


EARLY = windows.after_watermark(early=windows.every(count=1), late=windows.every(count=1))


def test_rows_of_an_input_that_was_idle_may_be_late_and_are_counted() -> None:
    """The left side goes on to 19 while the right one is idle, and then has a row at 13."""
    window = windows.Sliding(12, 3)
    panes = Windowed(
        (Filtered(Feed("right", 0, idle_after=4), 2),),
        window,
        "sum",
        trigger=EARLY,
        mode="accumulating_and_retracting",
        lateness=3,
    )
    pairs = Cogrouped(Feed("left", 0), panes, window, "inner", EARLY, "accumulating_and_retracting", 3)
    batches: tuple[dict[str, tuple[Row, ...]], ...] = (
        {"right": ({"key": None, "value": 4, TIME: -5},)},
        {},
        {"left": ({"key": "a", "value": 4, TIME: 19},)},
        {"right": ({"key": "a", "value": -3, TIME: 13},)},
    )
    pipeline = Pipeline(pairs)
    for number, batch in enumerate(batches):
        pipeline.step(batch, 2 * number)
    stage = pipeline.stages[pairs]
    assert (stage.overtaken, stage.reported, stage.dropped) == (True, 1, 0)
    assert difference(Case(pairs, batches, folds=False)) is None


def test_the_search_finds_the_case_of_a_family_that_differs_and_makes_it_small(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def differs_for_joins(made: Family) -> str | None:
        wrong = [each for each in made if "Joined" in type(each.last).__name__]
        return "a join" if wrong and any(made[0].batches) else None

    monkeypatch.setattr(pipeline_soak, "failure", differs_for_joins)
    assert pipeline_soak.main(["--cases", "1000", "--seed", "3"]) == 1
    said = capsys.readouterr().out
    assert "of seed 3 differs" in said
    assert said.splitlines()[1].startswith("Joined(left=Feed(")


def test_the_search_counts_the_cases_of_whole_families(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[int] = []
    family: Callable[[int, int], Family] = numbered_family

    def counted(seed: int, number: int) -> Family:
        seen.append(number)
        return family(seed, number)

    monkeypatch.setattr(pipeline_soak, "failure", lambda made: None)
    monkeypatch.setattr(pipeline_soak, "numbered_family", counted)
    assert pipeline_soak.main(["--cases", "30", "--first", "13"]) == 0
    assert seen == [12, 24, 36]
