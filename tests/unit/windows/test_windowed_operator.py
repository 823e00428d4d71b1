"""The windowed operator beyond the transcripts: invalid input, null keys, late rows, held watermarks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from slackwater.errors import IncompatibleState, InvalidArgument, WatermarkRegression
from slackwater.time import END_OF_TIME, to_datetime
from slackwater.windows import (
    AfterAny,
    AfterCount,
    AfterEach,
    AfterEventTime,
    AfterWatermark,
    Always,
    ApproxCountDistinct,
    Calendar,
    CogroupSpec,
    Collect,
    Count,
    Fixed,
    Global,
    Inherited,
    Max,
    Mean,
    Never,
    OrFinally,
    Repeatedly,
    Sessions,
    Sum,
    TopN,
    WindowedOperator,
)

BATCH = pl.DataFrame({"key": ["a", "b"], "ts": [1, 12], "value": [5, 6]})


def make(**options: Any) -> WindowedOperator:
    usual: dict[str, Any] = {
        "window": Fixed(10),
        "accumulations": {"n": Count()},
        "key": ("key",),
        "event_time": "ts",
    }
    return WindowedOperator(**(usual | options))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"mode": "accumulate"}, "use one of discarding, accumulating, accumulating_and_retracting"),
        ({"on_time": "never"}, "on_time = 'never'"),
        ({"timestamp": "first"}, "use one of end_of_window, earliest, latest"),
        ({"allowed_lateness": -1}, "must not be negative"),
        ({"accumulations": {}}, "give at least one"),
        ({"accumulations": {"n": "count"}}, "is not an accumulation"),
        ({"accumulations": {"key": Count()}}, "'key': is already the name of another column of the panes"),
        (
            {"accumulations": {"timing": Count()}},
            "'timing': is already the name of another column of the panes",
        ),
        ({"window": Sessions(5), "key": ()}, "session windows need a key"),
        ({"idle": "wait"}, "use one of hold, close"),
        ({"idle": "close", "window": Global()}, "cannot close windows that stay open until the end of the"),
        ({"idle": "close", "allowed_lateness": None}, "give the window an end and a finite allowed lateness"),
        ({"only_updated": True, "mode": "discarding"}, "cannot compare discarding panes"),
        (
            {"retractions": "back", "accumulations": {"n": ApproxCountDistinct("value")}},
            "n = 'approx_count_distinct': cannot subtract elements.*use count_distinct",
        ),
        ({"trigger": AfterWatermark()}, r"trigger = 'after_watermark\(\)': can finish"),
        ({"trigger": AfterCount(3)}, r"after_count\(3\).*allow_data_loss=True"),
        ({"trigger": AfterEach(AfterCount(1), AfterWatermark())}, "after_each"),
        ({"trigger": OrFinally(Repeatedly(AfterCount(1)), AfterCount(5))}, "or_finally"),
    ],
)
def test_invalid_settings_raise_when_the_operator_is_built(options: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        make(**options)


@pytest.mark.parametrize(
    "trigger",
    [
        Never(),
        Always(),
        Repeatedly(AfterAny(AfterCount(2), AfterWatermark())),
        AfterWatermark(early=AfterCount(1), late=Never()),
        AfterEach(AfterCount(1), Repeatedly(AfterCount(2))),
        OrFinally(Repeatedly(AfterCount(1)), Never()),
    ],
)
def test_triggers_that_cannot_finish_do_not_need_allow_data_loss(trigger: Any) -> None:
    assert make(trigger=trigger).spec.trigger is trigger


@pytest.mark.parametrize(
    ("batch", "text"),
    [
        (BATCH.drop("ts"), "has no column 'ts'"),
        (BATCH.drop("key"), "has no column 'key'"),
        (BATCH.drop("value"), "has no column 'value'"),
        (BATCH.with_columns(ts=pl.Series([1, None])), "'ts': is null in 1 rows"),
        (BATCH.with_columns(ts=pl.Series([1.0, 2.0])), "has type Float64"),
        (BATCH.with_columns(ts=pl.Series([1, 2**63 - 1])), "is too far from 1970"),
    ],
)
def test_an_invalid_batch_raises_and_changes_nothing(batch: pl.DataFrame, text: str) -> None:
    operator = make(accumulations={"total": Sum("value")})
    state, _ = operator.step(operator.initial_state(), BATCH, {"default": 5})
    before = operator.save(state), dict(state.blobs)
    with pytest.raises(InvalidArgument, match=text):
        operator.step(state, batch, {"default": 10})
    assert (operator.save(state), dict(state.blobs)) == before


def test_a_decreasing_watermark_raises() -> None:
    operator = make()
    state, _ = operator.step(operator.initial_state(), BATCH, {"default": 5})
    state, output = operator.step(state, None, {"default": 5})
    assert output.watermarks == {}
    with pytest.raises(WatermarkRegression, match="is lower than the previous watermark 5"):
        operator.step(state, None, {"default": 4})


def test_only_the_watermark_of_the_operators_key_is_used_and_forwarded() -> None:
    operator = make(watermark_key="order")
    state, output = operator.step(operator.initial_state(), BATCH, {"default": 100, "payment": 7})
    assert (output.panes.height, output.watermarks) == (0, {})
    state, output = operator.step(state, None, {"order": 10, "default": 200})
    assert output.panes.height == 1
    assert output.watermarks == {"order": 10}


def test_the_watermark_is_held_at_on_time_panes_still_due() -> None:
    operator = make(timestamp="earliest", allowed_lateness=100)
    state, output = operator.step(operator.initial_state(), BATCH, {"default": 8})
    assert output.watermarks == {"default": 1}
    state, output = operator.step(state, None, {"default": 10})
    assert output.panes["timestamp"].to_list() == [1]
    assert output.watermarks == {"default": 10}


def test_a_count_trigger_holds_the_watermark_until_it_fires() -> None:
    operator = make(trigger=Repeatedly(AfterCount(2)), allowed_lateness=50)
    state, output = operator.step(operator.initial_state(), BATCH, {"default": 30})
    assert output.watermarks == {"default": 9}
    state, output = operator.step(state, None, {"default": 60})
    assert [row[:2] for row in output.panes.select("key", "timing").rows()] == [("a", "ON_TIME")]
    assert output.watermarks == {"default": 19}


def test_without_keys_there_is_one_row_per_window() -> None:
    operator = make(key=(), accumulations={"n": Count(), "total": Sum("value")})
    _state, output = operator.step(operator.initial_state(), BATCH, {"default": END_OF_TIME})
    assert output.panes.select("window_start", "n", "total").rows() == [(0, 1, 5), (10, 1, 6)]
    assert "key:0" not in output.panes.columns


def test_a_key_may_contain_null_and_have_several_columns() -> None:
    operator = make(key=("key", "region"))
    batch = pl.DataFrame({"key": [None, "a", None, "a"], "region": [1, None, 1, None], "ts": [1, 2, 3, 4]})
    for _ in range(2):
        state, _ = operator.step(operator.initial_state(), batch, {})
        state, _ = operator.step(state, batch.with_columns(pl.lit(None).alias("key")), {})
    state, output = operator.step(state, None, {"default": 10})
    assert sorted(output.panes.select("key", "region", "n").rows(), key=str) == [
        ("a", None, 2), (None, 1, 4), (None, None, 2),
    ]  # fmt: skip


def test_late_rows_are_returned_with_the_reason() -> None:
    operator = make(late="emit", trigger=AfterCount(1), allow_data_loss=True)
    state, output = operator.step(operator.initial_state(), BATCH, {"default": 10})
    assert output.late is not None
    assert output.late.is_empty()
    state, output = operator.step(state, BATCH, {})
    assert output.late is not None
    assert output.late.select("key", "value", "reason", "window_start", "window_end").rows() == [
        ("a", 5, "late", 0, 10), ("b", 6, "closed", 10, 20),
    ]  # fmt: skip
    assert (state.dropped_late, state.dropped_closed) == (1, 1)


def test_inherited_windows_are_those_of_the_rows() -> None:
    operator = make(window=Inherited())
    rows = pl.DataFrame(
        {"key": ["a"] * 3, "ts": [9, 14, 9], "window_start": [0, 0, 0], "window_end": [10, 15, 10]}
    )
    state, output = operator.step(operator.initial_state(), rows, {"default": 10})
    assert output.panes.select("window_start", "window_end", "n").rows() == [(0, 10, 2)]
    state, output = operator.step(state, None, {"default": 15})
    assert output.panes.select("window_start", "window_end", "n").rows() == [(0, 15, 1)]
    with pytest.raises(InvalidArgument, match="is not a valid window"):
        operator.step(state, rows.with_columns(window_end=0), {})


def test_retractions_of_an_operator_are_subtracted_by_the_next() -> None:
    first = make(
        trigger=AfterWatermark(early=AfterCount(1), late=AfterCount(1)),
        mode="accumulating_and_retracting",
        accumulations={"total": Sum("value")},
    )
    second = WindowedOperator(
        window=Inherited(),
        accumulations={"n": Count(), "sum": Sum("total"), "mean": Mean("total")},
        key=(),
        event_time="timestamp",
        retractions="retraction",
    )
    upstream, downstream = first.initial_state(), second.initial_state()
    for number in range(5):
        batch = pl.DataFrame({"key": ["a", "b"], "ts": [number, number], "value": [number, 10 * number]})
        upstream, output = first.step(upstream, batch, {})
        downstream, _ = second.step(downstream, output.panes, {})
    upstream, output = first.step(upstream, None, {"default": 10})
    downstream, output = second.step(downstream, output.panes, dict(output.watermarks))
    assert output.panes.select("n", "sum", "mean").rows() == [(2, 110, 55.0)]


def test_a_global_window_ends_with_the_input() -> None:
    operator = make(window=Global())
    state, output = operator.step(operator.initial_state(), BATCH, {"default": 10**15})
    assert output.panes.is_empty()
    state, output = operator.step(state, None, {"default": END_OF_TIME})
    assert sorted(output.panes.select("key", "n", "is_last").rows()) == [("a", 1, True), ("b", 1, True)]
    assert output.watermarks == {"default": END_OF_TIME}
    state, output = operator.step(state, BATCH, {})
    assert output.dropped_late == 2


def test_empty_steps_emit_nothing() -> None:
    operator = make()
    state, output = operator.step(operator.initial_state(), None, {}, now=5)
    for batch in (None, BATCH.clear()):
        state, output = operator.step(state, batch, {}, now=5)
        assert (output.panes.height, output.late, output.watermarks) == (0, None, {})
    assert output.panes.columns == [
        "key", "window_start", "window_end", "n", "timing", "index", "on_time_index", "is_first", "is_last",
        "retraction", "timestamp",
    ]  # fmt: skip


@pytest.mark.parametrize("change", [lambda f: f, lambda f: f.with_columns(pl.col("value").cast(pl.Int32))])
def test_batches_may_differ_in_integer_width(change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    operator = make(accumulations={"best": Max("value"), "total": Sum("value")})
    state, _ = operator.step(operator.initial_state(), BATCH, {})
    state, _ = operator.step(state, change(BATCH), {})
    state, output = operator.step(state, None, {"default": END_OF_TIME})
    assert sorted(output.panes.select("key", "best", "total").rows()) == [("a", 5, 10), ("b", 6, 12)]


class TestBadInput:
    """What is refused, when, and that a refused batch leaves no trace."""

    @pytest.mark.parametrize(
        ("options", "named"),
        [
            ({"window": None}, "window = None"),
            ({"window": "fixed"}, "window = 'fixed'"),
            ({"trigger": None}, "trigger = None"),
            ({"trigger": AfterCount}, "trigger = "),
            ({"accumulations": [Count()]}, "accumulations = "),
            ({"key": None}, "key = None"),
            ({"event_time": None}, "event_time = None"),
        ],
    )
    def test_arguments_of_a_wrong_type_raise(self, options: dict[str, Any], named: str) -> None:
        with pytest.raises(InvalidArgument, match=named):
            make(**options)

    @pytest.mark.parametrize(
        ("first", "second", "named"),
        [
            ({"key": [1], "value": [1]}, {"key": ["1"], "value": [1]}, "key = 'text': had numbers"),
            ({"key": [True], "value": [1]}, {"key": [1], "value": [1]}, "key = 'numbers': had boolean"),
            ({"key": ["a"], "value": [1]}, {"key": ["a"], "value": ["x"]}, "value = 'text': had numbers"),
        ],
    )
    def test_columns_that_change_their_kind_raise(
        self, first: dict[str, list[Any]], second: dict[str, list[Any]], named: str
    ) -> None:
        operator = make(accumulations={"total": Collect("value")})
        state, _ = operator.step(operator.initial_state(), pl.DataFrame({"ts": [1], **first}))
        state = operator.load(operator.save(state), dict(state.blobs))
        before = operator.save(state)
        with pytest.raises(InvalidArgument, match=named):
            operator.step(state, pl.DataFrame({"ts": [2], **second}))
        assert operator.save(state) == before

    def test_numbers_may_widen_and_a_first_batch_may_be_null(self) -> None:
        operator = make(accumulations={"total": Sum("value")})
        state = operator.initial_state()
        for values in ([None], [1], [0.5]):
            state, output = operator.step(state, pl.DataFrame({"key": ["a"], "ts": [1], "value": values}))
        state, output = operator.step(state, None, {"default": 10})
        assert output.panes["total"].to_list() == [1.5]

    @pytest.mark.parametrize("batch", [[1, 2], {"ts": [1]}, pl.LazyFrame({"ts": [1]})], ids=type)
    def test_a_batch_that_is_not_a_frame_raises(self, batch: Any) -> None:
        operator = make(key=())
        with pytest.raises(InvalidArgument, match="is not a Polars DataFrame; convert or collect it"):
            operator.step(operator.initial_state(), batch)

    def test_event_times_too_far_from_1970_raise(self) -> None:
        operator = make(key=())
        batch = pl.DataFrame({"ts": pl.Series([2**64 - 1], dtype=pl.UInt64)})
        with pytest.raises(InvalidArgument, match="is too far from 1970"):
            operator.step(operator.initial_state(), batch)

    def test_panes_of_a_global_window_can_be_the_input_of_another_operator(self) -> None:
        first, second = make(window=Global()), make(window=Inherited(), accumulations={"n": Sum("n")}, key=())
        second = WindowedOperator(replace(second.spec, event_time="timestamp"))
        _, output = first.step(first.initial_state(), BATCH, {"default": END_OF_TIME})
        elements = output.panes.select("n", "timestamp", "window_start", "window_end")
        _, output = second.step(second.initial_state(), elements, {"default": END_OF_TIME})
        assert output.panes["n"].to_list() == [2]

    def test_a_batch_with_a_column_of_late_rows_raises(self) -> None:
        operator = make(key=(), late="emit")
        with pytest.raises(
            InvalidArgument, match="'reason': is the name of a column that is added to late rows"
        ):
            operator.step(operator.initial_state(), pl.DataFrame({"ts": [1], "reason": ["x"]}))

    def test_a_calendar_window_beyond_the_year_9999_raises(self) -> None:
        operator = make(window=Calendar("years", count=1), key=())
        year_9999 = 253_370_764_800_000_000
        with pytest.raises(InvalidArgument, match="is outside of the years 1 to 9999"):
            operator.step(operator.initial_state(), pl.DataFrame({"ts": [year_9999]}))

    @pytest.mark.parametrize("timezone", ["UTC", "Pacific/Kiritimati", "America/New_York", "Etc/GMT+12"])
    @pytest.mark.parametrize("unit", ["days", "weeks", "months", "years"])
    def test_the_limits_of_a_calendar_have_windows(self, unit: Any, timezone: str) -> None:
        window = Calendar(unit, count=3, timezone=timezone)
        operator = make(window=window, key=())
        state, _ = operator.step(operator.initial_state(), pl.DataFrame({"ts": window.limits}))
        _, output = operator.step(state, watermarks={"default": END_OF_TIME})
        bounds = sorted(output.panes.select("window_start", "window_end").rows())
        for at, (start, end) in zip(window.limits, bounds, strict=True):
            assert start <= at < end
        assert (to_datetime(bounds[0][0]).year, to_datetime(bounds[1][1]).year) >= (1, 9997)

    @pytest.mark.parametrize("timezone", [None, ["UTC"], "Mars/Olympus"])
    def test_unknown_timezones_raise(self, timezone: Any) -> None:
        with pytest.raises(InvalidArgument, match="timezone"):
            Calendar("days", timezone=timezone)

    @pytest.mark.parametrize(
        "other",
        [
            {"accumulations": {"top": TopN("value", 5)}},
            {"accumulations": {"top": TopN("other", 2)}},
        ],
    )
    def test_partials_of_another_configuration_are_not_merged(self, other: dict[str, Any]) -> None:
        operator, changed = (make(**given) for given in ({"accumulations": {"top": TopN("value", 2)}}, other))
        rows = pl.DataFrame({"key": ["a"], "ts": [1], "value": [7], "other": [3]})
        state, _ = operator.step(operator.initial_state(), rows)
        state = changed.load(operator.save(state), state.blobs)
        state, output = changed.step(state, rows, {"default": 10})
        assert output.panes["top"].to_list() == [None]

    def test_state_of_another_key_raises(self) -> None:
        operator = make()
        with pytest.raises(IncompatibleState, match=r"key was \(key\) and is now \(other\)"):
            make(key=("other",)).load(operator.save(operator.initial_state()), {})


@pytest.mark.parametrize("window", [Fixed(10), Sessions(10)])
def test_idle_close_fires_and_closes_all_windows(window: Fixed | Sessions) -> None:
    operator = make(window=window, idle="close", allowed_lateness=3)
    state, output = operator.step(operator.initial_state(), BATCH, {"default": 2})
    assert (output.panes.height, output.waiting) == (0, 10 if isinstance(window, Fixed) else 11)
    state, output = operator.step(state, idle=True)
    assert output.panes.select("timing", "is_last").unique().rows() == [("ON_TIME", True)]
    closed = 23 if isinstance(window, Fixed) else 25
    assert (dict(output.watermarks), output.waiting) == ({"default": closed}, None)
    state = operator.load(operator.save(state), dict(state.blobs))
    state, output = operator.step(state, BATCH, {"default": 3}, idle=True)
    assert (output.dropped_late, dict(output.watermarks)) == (2, {}), (
        "the rows are late, time does not go back"
    )


def test_without_idle_close_windows_stay_open() -> None:
    operator = make()
    state, _ = operator.step(operator.initial_state(), BATCH, {"default": 2})
    _, output = operator.step(state, idle=True)
    assert (output.panes.height, output.waiting) == (0, 10)


@pytest.mark.parametrize(
    ("options", "waiting"),
    [
        ({}, None),
        ({"trigger": AfterWatermark(late=Repeatedly(AfterCount(2)))}, 10),
        ({"closing": "always"}, 10),
    ],
    ids=["every late batch is emitted", "a late element waits for another one", "a last pane is owed"],
)
def test_a_complete_window_waits_only_for_what_it_owes(options: dict[str, Any], waiting: int | None) -> None:
    operator = make(allowed_lateness=50, **options)
    state, _ = operator.step(operator.initial_state(), BATCH[:1], {"default": 10})
    _, output = operator.step(state, BATCH[:1])
    assert output.waiting == waiting


def test_a_global_window_never_keeps_its_operator_from_being_idle() -> None:
    operator = make(window=Global())
    _, output = operator.step(operator.initial_state(), BATCH)
    assert output.waiting is None, "its pane at the end of time cannot be late"


def behind(**options: Any) -> WindowedOperator:
    """An operator over panes of `make`, which adds up their counts."""
    usual: dict[str, Any] = {"accumulations": {"n": Sum("n")}, "event_time": "timestamp"}
    return WindowedOperator(**(usual | options), retractions="retraction")


def total_of_a_chain(first: WindowedOperator, second: WindowedOperator, steps: list[tuple[Any, ...]]) -> int:
    """The sum of the panes of the second operator, minus what it retracts."""
    one, two, total = first.initial_state(), second.initial_state(), 0
    for times, watermark in [*steps, ((), END_OF_TIME)]:
        batch = pl.DataFrame({"key": ["a"] * len(times), "ts": times}) if times else None
        one, output = first.step(one, batch, {"default": watermark})
        two, result = second.step(two, output.panes, output.watermarks)
        assert result.dropped_late == 0
        signs = 1 - 2 * result.panes["retraction"].cast(pl.Int64)
        total += int((result.panes["n"] * signs).sum())
    return total


TWO_EARLY = AfterWatermark(early=AfterCount(2), late=AfterCount(1))
RETRACTING = {"trigger": TWO_EARLY, "mode": "accumulating_and_retracting"}


@pytest.mark.parametrize("window", [Inherited(), Fixed(10)])
@pytest.mark.parametrize("lateness", [0, 5])
def test_a_merged_session_holds_the_watermark_until_its_old_pane_is_retracted(
    window: Inherited | Fixed, lateness: int
) -> None:
    first = make(window=Sessions(10), allowed_lateness=lateness, **RETRACTING)
    second = behind(window=window, allowed_lateness=lateness, **RETRACTING)
    steps = [((0, 1), 0), ((8,), 5), ((), 16), ((), 17), ((), 40)]
    assert total_of_a_chain(first, second, steps) == 3


@pytest.mark.parametrize("timestamp", ["earliest", "latest"])
def test_a_pane_that_may_be_retracted_holds_the_watermark_at_its_timestamp(timestamp: str) -> None:
    first = make(window=Fixed(100), timestamp=timestamp, allowed_lateness=20, **RETRACTING)
    second = behind(window=Fixed(10), allowed_lateness=20, **RETRACTING)
    steps = [((3, 5), 0), ((), 80), ((70, 90), 95), ((), 110), ((50,), 119)]
    assert total_of_a_chain(first, second, steps) == 5


EVERY_TEN = AfterWatermark(early=Repeatedly(AfterEventTime(10)), late=AfterCount(1))


def panes_by_watermark(
    operator: WindowedOperator, steps: list[tuple[Any, ...]]
) -> list[tuple[int, str, int]]:
    """The watermark, timing and count of each pane of the key a."""
    state, panes = operator.initial_state(), []
    for times, watermark in steps:
        batch = pl.DataFrame({"key": ["a"] * len(times), "ts": times}) if times else None
        state, output = operator.step(state, batch, {"default": watermark})
        state = operator.load(operator.save(state), state.blobs)
        panes += [(watermark, *row) for row in output.panes.select("timing", "n").rows()]
    return panes


@pytest.mark.parametrize("window", [Fixed(100), Sessions(95)])
def test_early_panes_every_so_much_event_time(window: Fixed | Sessions) -> None:
    steps = [((5,), 3), ((), 9), ((), 10), ((), 20), ((12, 14), 25), ((), 29), ((), 47), ((), 99), ((), 200)]
    assert panes_by_watermark(make(window=window, trigger=EVERY_TEN), steps) == [
        (10, "EARLY", 1),
        (29 + 18, "EARLY", 3),
        (200, "ON_TIME", 3),
    ]


def test_multiples_before_the_start_of_the_window_do_not_fire() -> None:
    steps = [((105,), 20), ((), 90), ((), 100), ((), 109), ((), 110)]
    assert panes_by_watermark(make(window=Fixed(100), trigger=EVERY_TEN), steps) == [(110, "EARLY", 1)]


def test_late_panes_every_so_much_event_time() -> None:
    trigger = AfterWatermark(late=Repeatedly(AfterEventTime(10)))
    steps = [((5,), 100), ((6,), 103), ((7,), 109), ((), 110), ((8,), 115), ((), 125)]
    assert panes_by_watermark(make(window=Fixed(100), trigger=trigger, allowed_lateness=25), steps) == [
        (100, "ON_TIME", 1),
        (110, "LATE", 3),
        (125, "LATE", 4),
    ]


def test_each_element_may_have_its_own_session_gap() -> None:
    operator = make(window=Sessions("gap"))
    batch = pl.DataFrame({"key": ["a"] * 4, "ts": [0, 3, 8, 30], "gap": [20, 1, 2, 5]})
    state, _ = operator.step(operator.initial_state(), batch[1:])
    _, output = operator.step(state, batch[:1], {"default": 100})
    panes = output.panes.select("window_start", "window_end", "n").sort("window_start").rows()
    assert panes == [(0, 20, 3), (30, 35, 1)], "a long interval covers elements with short ones"


def test_gaps_may_be_durations() -> None:
    operator = make(window=Sessions("gap"))
    gaps = pl.Series([5], dtype=pl.Duration("ms"))
    batch = pl.DataFrame({"key": ["a"], "ts": [0]}).with_columns(gaps.alias("gap"))
    _, output = operator.step(operator.initial_state(), batch, {"default": 5000})
    assert output.panes["window_end"].to_list() == [5000]


@pytest.mark.parametrize(
    ("gap", "text"),
    [
        (pl.Series([None], dtype=pl.Int64), "gap = None: is not a positive duration; filter out such rows"),
        (pl.Series([0]), "gap = 0: is not a positive duration"),
        (pl.Series(["5"]), "gap = 'gap': has type String; use durations, or integer microseconds"),
    ],
)
def test_an_invalid_gap_raises(gap: pl.Series, text: str) -> None:
    operator = make(window=Sessions("gap"))
    batch = pl.DataFrame({"key": ["a"], "ts": [0]}).with_columns(gap.alias("gap"))
    with pytest.raises(InvalidArgument, match=text):
        operator.step(operator.initial_state(), batch)


def test_a_gap_per_element_is_rejected_where_it_is_not_known() -> None:
    with pytest.raises(InvalidArgument, match="cannot be a column if the input contains retractions"):
        make(window=Sessions("gap"), retractions="back")
    with pytest.raises(InvalidArgument, match="cannot be a column of a cogroup"):
        CogroupSpec(window=Sessions("gap"), key="k", left=(), right=(), left_time="ts", right_time="ts")
