"""Laws of the operator, independent of the model: batching, retractions, saving, and what a spec promises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slackwater import windows
from slackwater.time import END_OF_TIME
from tests.model.windows import Drop, Key, Pane, Row, assign
from tests.strategies.windows import Limits, Scenario, Step, scenarios
from tests.support.windowed import ModelSubject, Observed, OperatorSubject, Options, canonical

SETTINGS = settings(max_examples=settings().max_examples // 5, suppress_health_check=[HealthCheck.too_slow])

ORDER_FREE = ("count", "sum", "collect", "min", "max")
UNFIRED_UNTIL_COMPLETE = Limits(
    kinds=("fixed", "sliding", "calendar", "global"),
    trigger=windows.DEFAULT_TRIGGER,
    only_updated=False,
    accumulations=ORDER_FREE,
)
SESSIONS_WITHOUT_LATENESS = Limits(
    kinds=("sessions",),
    trigger=windows.DEFAULT_TRIGGER,
    only_updated=False,
    accumulations=ORDER_FREE,
    lateness=False,
)
KEYS_THAT_EXPIRE = Limits(
    kinds=("expiring",), trigger=windows.DEFAULT_TRIGGER, only_updated=False, accumulations=ORDER_FREE
)
RETRACTING = Limits(
    kinds=("fixed", "sliding", "sessions", "global", "calendar"),
    modes=("accumulating_and_retracting",),
    accumulations=("sum", "count"),
)
Kind = type[ModelSubject] | type[OperatorSubject]
EVERY_ELEMENT = windows.AfterWatermark(early=windows.AfterCount(1), late=windows.AfterCount(1))


BOTH = pytest.mark.parametrize("kind", [ModelSubject, OperatorSubject])
"""The laws must hold for the model too."""


def play(kind: Kind, made: Scenario, steps: Iterable[Step] | None = None) -> list[Observed]:
    subject = kind(made.options) if kind is ModelSubject else OperatorSubject(made.options, made.schema)
    return [subject.step(step.rows, step.watermark, step.now) for step in (steps or made.steps)]


# ---- what the spec promises


@SETTINGS
@given(scenarios())
def test_every_pane_is_the_only_one_if_the_spec_fires_once(made: Scenario) -> None:
    subject = OperatorSubject(made.options, made.schema)
    panes = [
        pane
        for step in made.steps
        for pane in subject.step(step.rows, step.watermark, step.now, idle=step.idle).panes
        if subject.operator.spec.fires_once
    ]
    assert {(pane.index, pane.on_time_index, pane.is_first, pane.is_last) for pane in panes} <= {
        (0, 0, True, True)
    }
    assert not any(pane.retraction for pane in panes)


# ---- splitting


def split(steps: Sequence[Step], data: st.DataObject) -> list[Step]:
    """The same rows between the same watermarks, in different batches and another order."""
    again: list[Step] = []
    waiting: list[Row] = []
    for step in steps:
        waiting += step.rows
        if step.watermark is not None:
            again += batches(waiting, data)
            again.append(Step((), step.watermark, 0))
            waiting = []
    return again + batches(waiting, data)


def batches(rows: list[Row], data: st.DataObject) -> list[Step]:
    shuffled = data.draw(st.permutations(rows))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(rows)), max_size=3)) | {0, len(rows)})
    return [Step(tuple(shuffled[low:high]), None, 0) for low, high in pairwise(cuts)]


def on_time(observed: Iterable[Observed]) -> list[str]:
    return sorted(repr(pane) for step in observed for pane in step.panes if pane.timing == "ON_TIME")


@BOTH
@SETTINGS
@given(scenarios(UNFIRED_UNTIL_COMPLETE), st.data())
def test_on_time_panes_do_not_depend_on_batches(kind: Kind, made: Scenario, data: st.DataObject) -> None:
    assert on_time(play(kind, made)) == on_time(play(kind, made, split(made.steps, data)))


@BOTH
@SETTINGS
@given(scenarios(SESSIONS_WITHOUT_LATENESS), st.data())
def test_on_time_sessions_do_not_depend_on_batches(kind: Kind, made: Scenario, data: st.DataObject) -> None:
    assert on_time(play(kind, made)) == on_time(play(kind, made, split(made.steps, data)))


@BOTH
@SETTINGS
@given(scenarios(KEYS_THAT_EXPIRE), st.data())
def test_panes_of_keys_that_expire_do_not_depend_on_batches(
    kind: Kind, made: Scenario, data: st.DataObject
) -> None:
    several = play(kind, made), play(kind, made, split(made.steps, data))
    one, other = (sorted(repr(pane) for step in steps for pane in step.panes) for steps in several)
    assert one == other


# ---- retracting


def truth(options: Options, rows: Iterable[Row], drops: Iterable[Drop]) -> dict[str, Counter[Key]]:
    """Per key, count and sum over all windows, from the rows and the drops alone."""
    count: Counter[Key] = Counter()
    total: Counter[Key] = Counter()
    taken = [(row, len(assign(options.window, row["ts"], row))) for row in rows]
    for drop in drops:
        all_windows = len(assign(options.window, drop.row["ts"], drop.row))
        taken.append((drop.row, -all_windows if drop.window is None else -1))
    for row, times in taken:
        key = tuple(row[name] for name in options.key)
        count[key] += times
        total[key] += times * (row["value"] or 0)
    return {"count": count, "sum": total}


def net(panes: Iterable[Pane], name: str) -> Counter[Key]:
    """Results minus retractions, per key."""
    total: Counter[Key] = Counter()
    for pane in panes:
        total[pane.key] += (pane.values[name] or 0) * (-1 if pane.retraction else 1)
    return total


@BOTH
@SETTINGS
@given(scenarios(RETRACTING))
def test_results_minus_retractions_are_the_truth_at_the_end(kind: Kind, made: Scenario) -> None:
    steps = (*made.steps, Step((), END_OF_TIME, made.steps[-1].now))
    observed = play(kind, made, steps)
    expected = truth(
        made.options,
        [row for step in steps for row in step.rows],
        [drop for o in observed for drop in o.drops],
    )
    for name, wanted in expected.items():
        assert net((pane for o in observed for pane in o.panes), name) == wanted


@BOTH
@SETTINGS
@given(scenarios(replace(RETRACTING, trigger=EVERY_ELEMENT)))
def test_results_minus_retractions_are_the_truth_whenever_all_is_fired(kind: Kind, made: Scenario) -> None:
    """With this trigger everything is fired after each step, so the law holds after every step."""
    rows: list[Row] = []
    drops: list[Drop] = []
    panes: list[Pane] = []
    for step, observed in zip(made.steps, play(kind, made), strict=True):
        rows += step.rows
        drops += observed.drops
        panes += observed.panes
        for name, wanted in truth(made.options, rows, drops).items():
            assert net(panes, name) == wanted


# ---- saving


@SETTINGS
@given(scenarios())
def test_saving_and_loading_after_every_step_changes_nothing(made: Scenario) -> None:
    saved = OperatorSubject(made.options, made.schema)
    for step, expected in zip(made.steps, play(OperatorSubject, made), strict=True):
        assert canonical(saved.step(step.rows, step.watermark, step.now)) == canonical(expected)
        saved.reload()


@SETTINGS
@given(scenarios())
def test_a_saved_state_can_be_loaded_several_times(made: Scenario) -> None:
    """A batch that is retried after a failure starts from the same bytes and must give the same output."""
    operator = OperatorSubject(made.options, made.schema)
    for step in made.steps:
        saved, blobs = operator.operator.save(operator.state), dict(operator.state.blobs)
        first = operator.step(step.rows, step.watermark, step.now)
        operator.state = operator.operator.load(saved, blobs)
        assert canonical(operator.step(step.rows, step.watermark, step.now)) == canonical(first)


# ---- chains

CHAINED = Limits(
    kinds=("fixed", "sliding", "sessions", "sessions", "calendar"), accumulations=("sum", "count")
)


@BOTH
@SETTINGS
@given(scenarios(CHAINED), st.sampled_from([windows.Inherited(), windows.Fixed(7)]), st.booleans())
def test_no_pane_is_late_for_an_operator_with_the_same_lateness(
    kind: Kind, made: Scenario, window: windows.Window, by_element: bool
) -> None:
    """Late panes and retractions too: what one operator accepted, the next one accepts."""
    subject = kind(made.options) if kind is ModelSubject else OperatorSubject(made.options, made.schema)
    behind = OperatorSubject(
        replace(
            Options(window, accumulations=("sum",), key=(), retractions=True),
            allowed_lateness=made.options.allowed_lateness,
            drop_late="by_element" if by_element else "by_window",
        )
    )
    for step in made.steps:
        seen = subject.step(step.rows, step.watermark, step.now, idle=step.idle)
        rows = [
            {
                "ts": pane.timestamp,
                "value": pane.values["sum"],
                "retraction": pane.retraction,
                "window_start": pane.start,
                "window_end": pane.end,
            }
            for pane in seen.panes
        ]
        if isinstance(window, windows.Fixed):
            rows = [{name: row[name] for name in ("ts", "value", "retraction")} for row in rows]
        assert behind.step(rows, seen.forwarded, step.now).dropped_late == 0
