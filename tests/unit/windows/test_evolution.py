"""A query is stopped, changed and started again: what happens to the windows that were open."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

from slackwater.errors import IncompatibleState
from slackwater.time import END_OF_TIME
from slackwater.windows import (
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    Collect,
    ColumnarAccumulation,
    Count,
    First,
    Fixed,
    Max,
    Mean,
    MergeOperator,
    Repeatedly,
    Sessions,
    Sliding,
    Sum,
    Window,
    WindowedOperator,
    WindowOutput,
    sort,
    top_n,
)
from slackwater.windows.accumulations.applied import Applied
from slackwater.windows.engine.blobs import decode
from slackwater.windows.engine.window_state import WindowState
from slackwater.windows.triggers import DEFAULT_TRIGGER, OrFinally, Trigger
from tests.support.sampling import sampled

SAVED = Path(__file__).parent / "saved"
WINDOWS = pytest.mark.parametrize("window", [Fixed(10), Sliding(10, 5), Sessions(4)], ids=str)
COUNT: Mapping[str, ColumnarAccumulation] = {"n": Count()}
LATE = AfterWatermark(late=AfterCount(1))
EARLY = AfterWatermark(early=AfterCount(3), late=AfterCount(1))


def operator(**settings: Any) -> WindowedOperator:
    given: dict[str, Any] = {"window": Fixed(10), "accumulations": COUNT, "allowed_lateness": 100}
    return WindowedOperator(**(given | {"key": ("key",), "event_time": "ts"} | settings))


def batch(*rows: tuple[str, int]) -> pl.DataFrame:
    return pl.DataFrame([(key, at, at) for key, at in rows], schema=["key", "ts", "value"], orient="row")


class Query:
    """A query that can be changed: each step loads the saved state, as a host does."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self.operator = operator(**settings)
        self.blobs: dict[str, bytes] = {}
        self.saved = self.operator.save(self.operator.initial_state(self.blobs))

    def change(self, **settings: Any) -> Query:
        self.settings |= settings
        self.operator = operator(**self.settings)
        return self

    def load(self) -> WindowState:
        return self.operator.load(self.saved, self.blobs)

    def step(self, *rows: tuple[str, int], watermark: int | None = None, now: int = 0) -> WindowOutput:
        marks = {} if watermark is None else {"default": watermark}
        state, output = self.operator.step(self.load(), batch(*rows) if rows else None, marks, now)
        self.saved = self.operator.save(state)
        return output

    def panes(self, *rows: tuple[str, int], watermark: int | None = None, now: int = 0) -> list[Any]:
        output = self.step(*rows, watermark=watermark, now=now).panes
        names = [*self.operator.spec.accumulations]
        return output.sort("key", "window_start").select("key", "window_start", *names).rows()


# ---- accumulations


@WINDOWS
@pytest.mark.parametrize("mode", ["accumulating", "accumulating_and_retracting", "discarding"])
def test_an_added_accumulation_is_null_in_panes_with_elements_from_before(window: Window, mode: str) -> None:
    query = Query(window=window, mode=mode)
    query.step(("a", 1), ("b", 2))
    query.change(accumulations={"n": Count(), "total": Sum("value")})
    output = query.step(("a", 2), ("c", 3), watermark=END_OF_TIME).panes
    found = {(row["key"], row["n"], row["total"]) for row in output.to_dicts()}
    assert found == {("a", 2, None), ("b", 1, None), ("c", 1, 3)}


@WINDOWS
def test_an_added_accumulation_can_count_from_the_change(window: Window) -> None:
    query = Query(window=window, on_change="since_change")
    query.step(("a", 1), ("b", 2))
    query.change(accumulations={"n": Count(), "total": Sum("value"), "later": Count()})
    output = query.step(("a", 2), ("c", 3), watermark=END_OF_TIME).panes
    found = {(row["key"], row["n"], row["total"], row["later"]) for row in output.to_dicts()}
    assert found == {("a", 2, 2, 1), ("b", 1, None, 0), ("c", 1, 3, 1)}


def test_an_added_accumulation_is_complete_in_later_windows_and_after_a_discarded_pane() -> None:
    query = Query(mode="discarding", trigger=AfterWatermark(early=AfterCount(2), late=AfterCount(1)))
    query.step(("a", 1))
    query.change(accumulations={"n": Count(), "total": Sum("value")})
    assert query.panes(("a", 2)) == [("a", 0, 2, None)]
    assert query.panes(("a", 3), ("a", 4), ("a", 12)) == [("a", 0, 2, 7)]
    assert query.panes(("a", 13)) == [("a", 10, 2, 25)]


ADDED: dict[str, ColumnarAccumulation] = {
    "total": Sum("value"),
    "best": Max("value"),
    "mean": Mean("value"),
    "first": First("value"),
    "all": Collect("value"),
    "sorted": sort("value"),
    "top": top_n("value", 2),
}


@WINDOWS
@pytest.mark.parametrize("name", ADDED)
@pytest.mark.parametrize(
    "choice", sampled(["null", "since_change"], keep=["null", "since_change"], check=["null"])
)
def test_every_accumulation_can_be_added_before_and_after_new_elements(
    window: Window, name: str, choice: str
) -> None:
    query = Query(window=window, on_change=choice)
    query.step(("a", 1), ("b", 21))
    query.change(accumulations={"n": Count(), name: ADDED[name]})
    query.step(watermark=15)  # window of "a" fires without an element since the change
    query.step(("b", 22), ("b", 23))
    new = Query(window=window, accumulations={"n": Count(), name: ADDED[name]})
    new.step(("b", 22), ("b", 23))
    output = query.step(watermark=END_OF_TIME).panes.filter(key="b")
    expected = new.step(watermark=END_OF_TIME).panes.filter(key="b")
    if choice == "null":
        assert output[name].null_count() == output.height > 0
    else:
        assert output[name].to_list() == expected[name].to_list()
    assert output["n"].to_list() == [count + 1 for count in expected["n"].to_list()]


@WINDOWS
def test_a_removed_accumulation_leaves_nothing_behind(window: Window) -> None:
    both = {"n": Count(), "total": Sum("value")}
    query = Query(window=window, accumulations=both, mode="accumulating_and_retracting", trigger=LATE)
    query.step(("a", 1), ("b", 2), watermark=30)
    query.change(accumulations=COUNT)
    rows = query.step(("a", 2)).panes.select("n", "retraction").rows()
    assert set(rows) == {(1, True), (2, False)}
    stored = [decode(data, "blob").columns for data in query.blobs.values()]
    assert not [name for columns in stored for name in columns if "total" in name]
    # Added again under the same name, it does not find the former partials.
    query.change(accumulations=both, on_change="since_change")
    totals = query.step(("a", 3)).panes.filter(~pl.col("retraction"))["total"].to_list()
    assert set(totals) == {3}


def test_a_changed_accumulation_counts_as_removed_and_added() -> None:
    query = Query(accumulations={"value": Sum("value")})
    query.step(("a", 1))
    query.change(accumulations={"value": Max("value")})
    assert query.panes(("a", 5), ("b", 6), watermark=10) == [("a", 0, None), ("b", 0, 6)]


def test_a_retraction_after_the_change_repeats_the_old_pane_with_null() -> None:
    query = Query(mode="accumulating_and_retracting", trigger=LATE)
    query.step(("a", 1), watermark=10)
    query.change(accumulations={"n": Count(), "total": Sum("value")})
    rows = query.step(("a", 2)).panes.select("n", "total", "retraction").rows()
    assert rows == [(1, None, True), (2, None, False)]


def test_an_input_column_of_a_removed_accumulation_may_change_its_type() -> None:
    query = Query(accumulations={"n": Count(), "total": Sum("value")})
    query.step(("a", 1))
    query.change(accumulations={"n": Count(), "all": Collect("value")})
    texts = pl.DataFrame({"key": ["a", "b"], "ts": [2, 3], "value": ["x", "y"]})
    _, output = query.operator.step(query.load(), texts, {"default": 10})
    assert output.panes.sort("key").select("n", "all").rows() == [(2, None), (1, ["y"])]


def signed(*rows: tuple[str, int, bool]) -> pl.DataFrame:
    schema = ["key", "ts", "gone"]
    return pl.DataFrame(list(rows), schema=schema, orient="row").with_columns(value=pl.col("ts"))


@pytest.mark.parametrize("window", [Fixed(10), Sliding(10, 5)], ids=str)
def test_an_accumulation_that_keeps_elements_can_be_added_behind_retractions(window: Window) -> None:
    query = Query(window=window, retractions="gone", on_change="since_change")
    state, _ = query.operator.step(query.load(), signed(("a", 1, False), ("b", 2, False)))
    query.saved = query.operator.save(state)
    query.change(accumulations={"n": Count(), "best": Max("value")})
    rows = signed(("a", 3, False), ("a", 4, False), ("a", 4, True))
    state, _ = query.operator.step(query.load(), rows)
    query.saved = query.operator.save(state)
    panes = query.step(watermark=END_OF_TIME).panes
    assert set(panes.select("key", "n", "best").rows()) == {("a", 2, 3), ("b", 1, None)}


def test_sessions_that_may_split_keep_their_accumulations() -> None:
    query = Query(window=Sessions(4), retractions="gone")
    with pytest.raises(IncompatibleState, match="accumulations over retracting sessions was n=count"):
        query.change(accumulations={"n": Count(), "best": Max("value")}).load()


# ---- the trigger


@WINDOWS
def test_elements_since_the_last_firing_count_for_the_new_trigger(window: Window) -> None:
    query = Query(window=window, trigger=Repeatedly(AfterCount(5)))
    query.step(("a", 1), ("a", 2), ("b", 3))
    query.change(trigger=Repeatedly(AfterCount(3)))
    assert query.step().panes.is_empty()
    assert query.step(("a", 3)).panes["n"].unique().to_list() == [3]
    assert query.step(("b", 4), ("b", 4)).panes["n"].unique().to_list() == [3]


@WINDOWS
def test_a_new_trigger_is_evaluated_for_elements_that_were_not_emitted(window: Window) -> None:
    query = Query(window=window, trigger=Repeatedly(AfterCount(5)))
    query.step(("a", 1), ("a", 2), watermark=30)
    query.change(trigger=DEFAULT_TRIGGER)
    assert set(query.step().panes["n"].to_list()) == {2}
    assert query.step().panes.is_empty()


@WINDOWS
def test_windows_that_stored_no_rows_are_known_to_an_early_trigger(window: Window) -> None:
    query = Query(window=window)
    query.step(("a", 1), ("b", 2))
    query.change(trigger=AfterWatermark(early=AfterCount(2), late=AfterCount(1)))
    assert set(query.step(("a", 2)).panes.select("key", "n").rows()) == {("a", 2)}
    assert set(query.step(watermark=30).panes.select("key", "n").rows()) == {("a", 2), ("b", 1)}


def test_sessions_of_which_some_were_deleted_get_a_new_trigger() -> None:
    query = Query(window=Sessions(1_000_000), allowed_lateness=0)
    query.step(*((f"k{number}", number * 10) for number in range(40)))
    query.step(watermark=1_000_015)  # purges two sessions: a delta of deletions
    assert len(query.blobs) == 2
    query.change(trigger=EARLY)
    rows = [("k5", 60), ("k5", 70)]
    assert query.step(*rows).panes.select("key", "n").rows() == [("k5", 3)]
    assert query.step(watermark=END_OF_TIME).panes["n"].sum() == 38 + 2


def test_a_processing_time_trigger_counts_from_the_change_if_no_arrival_was_noted() -> None:
    query = Query()
    query.step(("a", 1), now=100)
    query.change(trigger=AfterWatermark(early=AfterProcessingTime(10), late=AfterCount(1)))
    assert query.panes(now=105) == []
    assert query.panes(now=110) == []
    assert query.panes(now=111) == [("a", 0, 1)]


def test_a_window_after_its_on_time_pane_waits_for_late_elements() -> None:
    query = Query()
    query.step(("a", 1), watermark=10)
    query.change(trigger=AfterWatermark(late=AfterCount(2)))
    assert query.panes(("a", 2)) == []
    output = query.step(("a", 3)).panes
    assert output.select("n", "timing", "index").rows() == [(3, "LATE", 1)]


def test_a_trigger_with_an_end_counts_from_the_last_firing() -> None:
    query = Query(trigger=Repeatedly(AfterCount(2)), allow_data_loss=True)
    query.step(("a", 1), ("a", 2), ("a", 3))
    query.step(("a", 4))
    query.change(trigger=OrFinally(Repeatedly(AfterCount(5)), AfterCount(2)))
    assert query.step(("a", 5)).panes.select("n", "is_last").rows() == [(5, True)]
    assert query.step(("a", 6)).dropped_closed == 1


# ---- allowed lateness


@WINDOWS
def test_with_less_lateness_open_windows_are_purged_in_the_next_step(window: Window) -> None:
    query = Query(window=window, trigger=AfterWatermark(late=AfterCount(5)))
    query.step(("a", 1), ("b", 1), watermark=50)
    query.step(("a", 2))  # one late element, which waits for four others
    query.change(allowed_lateness=0)
    output = query.step(("b", 3))
    assert output.dropped_late > 0
    assert set(output.panes.select("key", "n", "timing", "is_last").rows()) == {("a", 2, "LATE", True)}
    assert query.load().open_windows == 0
    assert query.blobs == {}


@WINDOWS
def test_with_more_lateness_purged_windows_stay_purged(window: Window) -> None:
    query = Query(window=window, allowed_lateness=0)
    query.step(*(("a", 1) for _ in range(100)), watermark=48)
    query.change(allowed_lateness=1000)
    output = query.step(("a", 1), ("a", 49))
    assert output.dropped_late == (2 if isinstance(window, Sliding) else 1)
    output = query.step(watermark=60)
    assert output.panes["n"].unique().to_list() == [1]
    assert query.step(("a", 49)).panes["n"].unique().to_list() == [2]
    # The limit is remembered over further restarts and changes.
    query.change(allowed_lateness=None)
    assert query.step(("a", 1)).dropped_late > 0


def test_with_more_lateness_open_windows_are_kept_for_longer() -> None:
    query = Query(allowed_lateness=10)
    query.step(("a", 1), watermark=15)
    query.change(allowed_lateness=40)
    assert query.panes(watermark=49) == []
    assert query.panes(("a", 2)) == [("a", 0, 2)]
    query.step(watermark=50)
    assert query.load().open_windows == 0


# ---- further settings


def test_unchanged_panes_are_suppressed_from_the_change_on() -> None:
    best: Mapping[str, ColumnarAccumulation] = {"best": Max("value")}
    query = Query(accumulations=best, trigger=LATE)
    query.step(("a", 5), watermark=10)
    query.change(only_updated=True)
    assert query.panes(("a", 1)) == [("a", 0, 5)]  # the pane before the change was not kept
    assert query.panes(("a", 1)) == []
    query.change(only_updated=False)
    assert query.panes(("a", 1)) == [("a", 0, 5)]


@pytest.mark.parametrize("change", [{"on_time": "if_non_empty"}, {"closing": "always"}, {"late": "emit"}])
def test_settings_that_the_state_does_not_depend_on_may_change(change: dict[str, Any]) -> None:
    query = Query()
    query.step(("a", 1))
    query.change(**change)
    assert query.panes(("a", 2), watermark=10) == [("a", 0, 2)]


# ---- any change at any time


@WINDOWS
@pytest.mark.parametrize("seed", sampled([0, 1, 3], keep=[3]))
def test_no_accepted_element_is_lost_or_emitted_twice(window: Window, seed: int) -> None:
    """In discarding mode, the counts of all panes add up to the elements, whatever changes in between."""
    random = Random(seed)
    choices: dict[str, list[Any]] = {
        "trigger": [
            DEFAULT_TRIGGER,
            LATE,
            EARLY,
            Repeatedly(AfterCount(4)),
            Repeatedly(AfterProcessingTime(3)),
        ],
        "allowed_lateness": [0, 3, 20, None],
        "accumulations": [
            COUNT,
            {"n": Count(), "total": Sum("value")},
            {"all": Collect("value"), "n": Count()},
        ],
        "on_time": ["always", "if_non_empty"],
        "closing": ["always", "if_non_empty"],
    }
    query = Query(window=window, mode="discarding")
    accepted = emitted = watermark = 0
    for number in range(12):
        rows = [(random.choice("ab"), random.randint(watermark - 8, watermark + 12)) for _ in range(5)]
        watermark += random.randint(0, 7)
        output = query.step(*rows, watermark=watermark if number < 11 else END_OF_TIME, now=number)
        windows = [2 if isinstance(window, Sliding) else 1] * len(rows)
        accepted += sum(windows) - output.dropped_late - output.dropped_closed
        emitted += sum(output.panes["n"].to_list())
        name = random.choice(list(choices))
        query.change(**{name: random.choice(choices[name])})
    assert emitted == accepted > 20
    assert query.blobs == {}


# ---- refused


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"window": Fixed(20)}, "window was fixed(size=10 µs) and is now fixed(size=20 µs)"),
        ({"window": Sliding(10, 5)}, "is now sliding(size=10 µs, every=5 µs)"),
        ({"key": ("key", "value")}, "key was (key) and is now (key, value)"),
        ({"mode": "discarding"}, "mode was 'accumulating' and is now 'discarding'"),
        ({"timestamp": "latest"}, "timestamp was 'end_of_window' and is now 'latest'"),
        ({"retractions": "gone"}, "the input was without retractions and is now with retractions"),
    ],
)
def test_a_change_that_the_state_cannot_follow_names_the_difference(
    change: dict[str, Any], difference: str
) -> None:
    query = Query()
    query.step(("a", 1))
    with pytest.raises(IncompatibleState) as raised:
        query.change(**change).load()
    assert difference in str(raised.value)
    assert "Use the old setting again, or start with a new checkpoint" in str(raised.value)
    assert query.change(window=Fixed(10), key=("key",), mode="accumulating", timestamp="end_of_window",
                        retractions=None).panes(watermark=10) == [("a", 0, 1)]  # fmt: skip


def test_a_function_over_rows_keeps_its_columns() -> None:
    def function(key: Any, window: Any, rows: Any) -> list[Any]:
        return [{"n": len(rows)}]

    query = Query(accumulations={"rows": Applied(function, ("value",), {"n": pl.Int64()})})
    with pytest.raises(IncompatibleState, match="the function over rows was rows=applied"):
        query.change(accumulations={"rows": Applied(function, ("ts",), {"n": pl.Int64()})}).load()


@pytest.mark.parametrize(
    ("settings", "refused"),
    [({"mode": "accumulating_and_retracting"}, True), ({"only_updated": True}, True), ({}, False)],
)
def test_a_function_that_returns_other_columns_is_refused_if_earlier_results_are_kept(
    settings: dict[str, Any], refused: bool
) -> None:
    def function(key: Any, window: Any, rows: Any) -> list[Any]:
        return [{"n": len(rows)}]

    def renamed(key: Any, window: Any, rows: Any) -> list[Any]:
        return [{"rows": len(rows)}]

    before = Applied(function, ("value",), {"n": pl.Int64()})
    query = Query(accumulations={"made": before}, trigger=EARLY, **settings)
    query.step(("a", 1), ("a", 2), ("a", 3))
    query.change(accumulations={"made": Applied(renamed, ("value",), {"rows": pl.Int64()})})
    if refused:
        message = "the schema of the function was n Int64 and is now rows Int64"
        with pytest.raises(IncompatibleState, match=message):
            query.load()
    else:
        assert query.panes(("a", 4), watermark=10) == [("a", 0, [{"rows": 4}])]


def test_several_differences_are_all_named() -> None:
    query = Query()
    with pytest.raises(IncompatibleState) as raised:
        query.change(window=Fixed(20), mode="discarding").load()
    assert [name for name, _, _ in raised.value.differences] == ["window", "mode"]


def test_a_cogroup_with_other_columns_is_refused() -> None:
    sides: dict[str, Any] = {"window": Fixed(10), "key": ("key",), "left_time": "ts", "right_time": "ts"}
    saved = MergeOperator(left=("value",), right=(), **sides)
    index = saved.save(saved.initial_state())
    with pytest.raises(IncompatibleState, match="cogroup key=\\('key',\\) left=\\('value',\\) right=\\(\\)"):
        MergeOperator(left=(), right=(), **sides).load(index, {})


# ---- state of version 1


def version_1(trigger: Trigger = EARLY, **change: Any) -> tuple[WindowedOperator, WindowState]:
    """The operator of the state in ``saved/windows-1``, changed, with that state."""
    both: Mapping[str, ColumnarAccumulation] = {"n": Count(), "total": Sum("value")}
    settings: dict[str, Any] = {"mode": "accumulating_and_retracting", "accumulations": both}
    changed = operator(**(settings | {"trigger": trigger} | change))
    blobs = {path.stem: path.read_bytes() for path in (SAVED / "windows-1").glob("*.blob")}
    return changed, changed.load((SAVED / "windows-1" / "index").read_bytes(), blobs)


def test_state_of_version_1_can_be_changed() -> None:
    changed, state = version_1(trigger=DEFAULT_TRIGGER, accumulations={"n": Count()}, allowed_lateness=0)
    state, output = changed.step(state, batch(("b", 5)), {"default": 200}, now=10)
    rows = output.panes.select("key", "n", "index", "retraction").rows()
    assert [row for row in rows if row[0] == "b"] == [("b", 3, 0, True), ("b", 4, 1, False)]
    assert state.open_windows == 0


def test_state_of_version_1_names_the_difference() -> None:
    with pytest.raises(IncompatibleState, match=r"window was fixed\(size=10 µs\) and is now fixed\(size=9"):
        version_1(window=Fixed(9))
