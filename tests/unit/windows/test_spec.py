"""Specifications: frozen, validated when built, hashable, picklable, and able to answer questions."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

import slackwater as sw
from slackwater import windows
from slackwater.errors import InvalidArgument
from slackwater.windows import (
    AfterAll,
    AfterCount,
    AfterEach,
    AfterWatermark,
    Always,
    CogroupSpec,
    Fixed,
    Global,
    Inherited,
    JoinSpec,
    MergeOperator,
    Never,
    Repeatedly,
    Sessions,
    Sliding,
    WindowedOperator,
    WindowingStrategy,
    WindowSpec,
    approx_quantile,
    count,
    every,
    first,
    fold,
)
from slackwater.windows import sum as total

Spec = WindowingStrategy | WindowSpec | CogroupSpec | JoinSpec


def window_spec(**settings: Any) -> WindowSpec:
    usual: dict[str, Any] = {
        "window": Fixed(10),
        "accumulations": {"n": count(), "total": total("price")},
        "key": ("auction",),
        "event_time": "ts",
    }
    return WindowSpec(**(usual | settings))


def cogroup_spec(**settings: Any) -> CogroupSpec:
    usual: dict[str, Any] = {
        "window": Fixed(10),
        "key": ("auction",),
        "left": ("price",),
        "right": ("price", "name"),
        "left_time": "ts",
        "right_time": "at",
    }
    return CogroupSpec(**(usual | settings))


def join_spec(**settings: Any) -> JoinSpec:
    usual: dict[str, Any] = {"on": ("auction",), "before": 0, "after": 5}
    return JoinSpec(**(usual | settings))


SPECS = [
    (window_spec, {"mode": "discarding"}),
    (window_spec, {"accumulations": {"n": count()}}),
    (cogroup_spec, {"how": "inner"}),
    (join_spec, {"how": "full"}),
]


@pytest.mark.parametrize(("build", "change"), SPECS)
def test_equal_specs_are_equal_have_one_hash_and_survive_pickling(build: Any, change: dict[str, Any]) -> None:
    spec, same, other = build(), build(), build(**change)
    assert spec == same
    assert len({spec, same, other}) == 2
    for each in (spec, other):
        loaded = pickle.loads(pickle.dumps(each))  # noqa: S301  # made in this line
        assert loaded == each
        assert hash(loaded) == hash(each)
        assert loaded.signature == each.signature


@pytest.mark.parametrize(("build", "change"), SPECS)
def test_a_spec_is_frozen_and_a_changed_copy_is_validated(build: Any, change: dict[str, Any]) -> None:
    spec = build()
    with pytest.raises(FrozenInstanceError):
        spec.late = "emit"
    assert replace(spec, **change) == build(**change)
    with pytest.raises(InvalidArgument, match="late = 'often': is not a valid value of late; use one of"):
        replace(spec, late="often")


def test_names_are_stored_as_tuples_and_accumulations_in_their_order() -> None:
    spec = window_spec(key=["auction", "city"])
    assert spec.key == ("auction", "city")
    assert window_spec(key="auction") == window_spec(key=["auction"])
    assert list(spec.accumulations.items()) == [("n", count()), ("total", total("price"))]
    swapped = window_spec(accumulations={"total": total("price"), "n": count()})
    assert swapped != window_spec()
    assert swapped.pane_columns != window_spec().pane_columns


def test_a_spec_is_hashable_even_if_a_value_in_it_is_not() -> None:
    collected = fold("price", [], lambda a, b: [*a, b], combine=lambda a, b: a + b, dtype=None)  # type: ignore[arg-type]
    assert hash(window_spec(accumulations={"all": collected})) == hash(
        window_spec(accumulations={"all": collected})
    )


@pytest.mark.parametrize(
    ("build", "settings", "problem"),
    [
        (window_spec, {"window": Sessions(10), "key": ()}, "key = .*session windows need a key"),
        (window_spec, {"mode": "discarding", "only_updated": True}, "only_updated = True"),
        (window_spec, {"trigger": AfterCount(2)}, "trigger = 'after_count.*can finish.*allow_data_loss"),
        (
            window_spec,
            {"retractions": "gone", "accumulations": {"q": approx_quantile("x", 0.5)}},
            "cannot subtract elements.*use sort",
        ),
        (
            window_spec,
            {"retractions": "gone", "accumulations": {"f": first("x")}, "mode": "discarding"},
            "f = 'first': cannot process retractions in discarding mode",
        ),
        (window_spec, {"allowed_lateness": -1}, "allowed_lateness = -1: must not be negative"),
        (
            window_spec,
            {"key": ("timing",)},
            "name = 'timing': is already the name of another column of the panes",
        ),
        (window_spec, {"key": (3,)}, "key = 3: is not a column name"),
        (cogroup_spec, {"mode": "discarding", "only_updated": True}, "only_updated = True"),
        (cogroup_spec, {"window": Inherited()}, "the two inputs have no common windows"),
        (cogroup_spec, {"key": ("left",)}, "key = 'left': is used twice in the panes"),
        (join_spec, {"before": -6}, "after = 5: ends before the range begins at 6"),
        (join_spec, {"on": ("ts",)}, "contains an event-time column"),
    ],
)
def test_an_invalid_combination_raises_when_the_spec_is_built(
    build: Any, settings: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        build(**settings)


def test_an_operator_takes_a_spec_or_its_settings_but_not_both() -> None:
    spec = window_spec()
    settings = {"window": Fixed(10), "accumulations": dict(spec.accumulations), "event_time": "ts"}
    assert WindowedOperator(**settings, key="auction").spec == spec
    assert WindowedOperator(spec).spec is spec
    assert MergeOperator(cogroup_spec()).spec == cogroup_spec()
    with pytest.raises(InvalidArgument, match=r"settings = \['key'\]: are given in addition to a spec"):
        WindowedOperator(spec, key="auction")
    with pytest.raises(InvalidArgument, match="has type WindowSpec; give a CogroupSpec"):
        MergeOperator(spec)  # type: ignore[arg-type]


def test_common_settings_are_taken_over_from_a_strategy() -> None:
    strategy = WindowingStrategy(window=Fixed(10), key="auction", allowed_lateness=None, closing="always")
    spec = WindowSpec.from_strategy(strategy, accumulations={"n": count()}, event_time="ts", late="emit")
    assert (spec.key, spec.allowed_lateness, spec.closing, spec.late) == (
        ("auction",),
        None,
        "always",
        "emit",
    )


@pytest.mark.parametrize(
    ("settings", "once"),
    [
        ({}, True),
        ({"window": Sliding(10, 5)}, True),
        ({"window": Sessions(10)}, True),
        ({"window": Global()}, True),
        ({"window": Inherited()}, True),
        ({"on_time": "if_non_empty", "closing": "always"}, True),
        ({"mode": "accumulating_and_retracting"}, True),
        ({"trigger": AfterWatermark(), "allow_data_loss": True}, True),
        ({"trigger": Never(), "allowed_lateness": None}, True),
        ({"trigger": AfterAll(AfterCount(1), Never()), "allowed_lateness": 5}, True),
        ({"allowed_lateness": 1}, False),
        ({"allowed_lateness": None}, False),
        ({"trigger": AfterWatermark(early=AfterCount(1), late=every(count=1))}, False),
        ({"trigger": every(duration="1 second")}, False),
        ({"trigger": Always()}, False),
        ({"trigger": Repeatedly(AfterEach(AfterCount(1), AfterWatermark()))}, False),
    ],
    ids=str,
)
def test_fires_once_unless_a_second_pane_is_possible(settings: dict[str, Any], once: bool) -> None:
    assert window_spec(**settings).fires_once is once
    if settings.get("window") != Inherited():
        assert cogroup_spec(**settings).fires_once is once


def test_questions_about_the_operator_are_answered_by_its_spec() -> None:
    assert window_spec(window=Inherited()).inherits
    assert not window_spec().inherits
    assert window_spec(mode="accumulating_and_retracting").retracts
    assert not cogroup_spec(mode="discarding", how="inner").retracts
    assert window_spec(retractions="gone").takes_retractions
    assert window_spec().can_fold
    assert not cogroup_spec().can_fold
    assert not join_spec().can_fold
    assert window_spec().inputs == ("price",)


def test_pane_columns_are_those_of_the_panes() -> None:
    specs = [cogroup_spec(), cogroup_spec(how="full")]
    assert specs[1].value_columns == ("price", "price_right", "name")
    for spec in specs:
        merge = MergeOperator(spec)
        _, output = merge.step(merge.initial_state())
        assert tuple(output.panes.columns) == spec.pane_columns
    operator = WindowedOperator(window_spec())
    _, output = operator.step(operator.initial_state())
    assert tuple(output.panes.columns) == window_spec().pane_columns


def test_signatures_keep_the_text_that_saved_state_contains() -> None:
    assert window_spec().signature == (
        "Fixed(size=10, offset=0) after_watermark(late=repeatedly(after_count(1))) accumulating "
        "end_of_window updated=False signed=False keys=('auction',) n=count() total=sum(price)"
    )
    assert cogroup_spec().signature == "cogroup key=('auction',) left=('price',) right=('price', 'name')"
    assert join_spec().signature == "inner join on ('auction',), ts - 0 <= ts <= ts + 5"


@pytest.mark.parametrize("module", [windows, sw])
def test_the_former_name_of_join_spec_still_works_with_a_warning(module: Any) -> None:
    with pytest.warns(DeprecationWarning, match="TimeBoundedJoin is deprecated; use .*JoinSpec"):
        assert module.TimeBoundedJoin is JoinSpec


def test_the_former_name_of_the_signature_still_works_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match=r"JoinSpec\.identity\(\) is deprecated"):
        assert join_spec().identity() == join_spec().signature
