"""The testing kit: parsing and comparing tables, the manual clock, scripted streams."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.errors import InvalidArgument, WatermarkRegression
from slackwater.testing import ManualClock, T, TestStream, assert_cleaned_up, assert_rows, table
from slackwater.time import SECOND
from slackwater.windows import (
    DEFAULT_TRIGGER,
    AfterWatermark,
    AsofOperator,
    AsofSpec,
    Count,
    DeduplicateOperator,
    DeduplicateSpec,
    Fixed,
    JoinOperator,
    JoinSpec,
    MergeOperator,
    Sum,
    WindowedOperator,
    after_processing_time,
    every,
)
from slackwater.windows.triggers import Trigger


def summing(trigger: Trigger = DEFAULT_TRIGGER, **options: Any) -> WindowedOperator:
    accumulations = {"total": Sum("price")}
    return WindowedOperator(
        window=Fixed(10),
        trigger=trigger,
        accumulations=accumulations,
        key=("key",),
        event_time="ts",
        **options,
    )


# ---- T


def test_types_are_inferred_from_the_cells() -> None:
    frame = T("""
        integer | float | mixed | flag  | text | list   | number_as_text | nothing
        -1_000  | 1.5   | 1     | true  | a b  | [1, 2] | "1"            |
        2       | .5    | 2.5   | false | b    | []     | x              | null
                |       |       |       |      |        |                |
    """)
    assert frame.schema == {
        "integer": pl.Int64,
        "float": pl.Float64,
        "mixed": pl.Float64,
        "flag": pl.Boolean,
        "text": pl.String,
        "list": pl.List(pl.Int64),
        "number_as_text": pl.String,
        "nothing": pl.Null,
    }
    assert frame.rows() == [
        (-1000, 1.5, 1.0, True, "a b", [1, 2], "1", None),
        (2, 0.5, 2.5, False, "b", [], "x", None),
        (None,) * 8,
    ]


def test_comments_rules_and_outer_bars_are_ignored() -> None:
    frame = T("""
        # 0    10
        # |-a--|
        | key | ts |
        |-----|----|
        | a   | 3  |
        # said in between
        | b   |    |
    """)
    assert frame.rows() == [("a", 3), ("b", None)]


def test_quoted_text_keeps_bars_and_blanks() -> None:
    assert T('a | b\n"x | y" | " z "').rows() == [("x | y", " z ")]


def test_first_cell_may_be_empty_and_a_dash_is_text() -> None:
    assert T("a | b \n | 1 \n - | 2").rows() == [(None, 1), ("-", 2)]
    assert T(table(pl.DataFrame({"a": [1, None]})))["a"].to_list() == [1, None]


def test_units_convert_to_microseconds() -> None:
    frame = T("""
        us[us] | ms[ms] | s[s] | min[min] | h[h]
        1      | 1      | 0.5  | 2        |
    """)
    assert frame.rows() == [(1, 1000, 500_000, 120_000_000, None)]


def test_schema_overrides_a_type_and_rows_may_be_missing() -> None:
    assert T("a | b", schema={"a": pl.Int64}).schema == {"a": pl.Int64, "b": pl.Null}
    assert T("a\n1", schema={"a": pl.Float64})["a"].dtype == pl.Float64


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no line with column names"),
        ("# only a comment", "has no line with column names"),
        ("a | a\n1 | 2", "has an empty or duplicate column name"),
        ("a | \n1 | 2", "has an empty or duplicate column name"),
        ("a | b\n1", "has 1 cells for 2 columns"),
        ("ts[days]\n1", "is not a unit of time"),
        ("ts[s]\nsoon", "use numbers in this column"),
    ],
)
def test_an_invalid_table_raises(text: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        T(text)


def test_the_type_of_an_unknown_column_raises() -> None:
    with pytest.raises(InvalidArgument, match="'b': is not a column"):
        T("a\n1", schema={"b": pl.Int64})


cells = st.none() | st.text(
    st.characters(codec="ascii", exclude_categories=["Cc"], exclude_characters='"'), max_size=5
)
values = st.one_of(
    st.lists(st.none() | st.integers(-(2**40), 2**40)),
    st.lists(st.none() | st.booleans()),
    st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False)),
    st.lists(cells.filter(lambda text: text != "")),
)


@given(values)
def test_a_formatted_table_can_be_parsed(column: list[object]) -> None:
    frame = pl.DataFrame({"key": ["k"] * len(column), "value": column}, strict=False)
    assert T(table(frame))["value"].to_list() == column


# ---- assert_rows


def test_rows_are_compared_on_the_columns_expected_in_any_order() -> None:
    got = T("key | n | more \n a | 1 | x \n b | 2 | y")
    assert_rows(got, T("n | key \n 2.0 | b \n 1.0 | a"))


def test_repeated_rows_count() -> None:
    with pytest.raises(AssertionError, match=r"\+ 1"):
        assert_rows(T("n \n 1 \n 1"), T("n \n 1"))
    with pytest.raises(AssertionError, match="- 1"):
        assert_rows(T("n \n 1"), T("n \n 1 \n 1"))


def test_order_counts_on_request() -> None:
    got, expected = T("n \n 1 \n 2"), T("n \n 2 \n 1")
    assert_rows(got, expected)
    with pytest.raises(AssertionError, match="rows are in a different order"):
        assert_rows(got, expected, ordered=True)
    assert_rows(got, got, ordered=True)


def test_missing_column_is_named() -> None:
    with pytest.raises(AssertionError, match="no column 'total': got n"):
        assert_rows(T("n \n 1"), T("total \n 1"))


def test_the_difference_shows_missing_and_unexpected_rows() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_rows(T("key | list \n a | [1] \n b | [2]"), T("key | list \n a | [1] \n b | [3]"))
    assert str(caught.value).splitlines() == [
        "rows differ (- expected, + got)",
        "  key | list",
        "  a   | [1]",
        "+ b   | [2]",
        "- b   | [3]",
    ]


def test_null_is_not_zero_and_text_is_not_a_number() -> None:
    for got, expected in ((T("n | m \n 0 | 1"), T("n | m \n | 1")), (T('n \n "1"'), T("n \n 1"))):
        with pytest.raises(AssertionError, match="rows differ"):
            assert_rows(got, expected)


# ---- the clock


def test_the_clock_only_advances_when_called() -> None:
    clock = ManualClock(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
    assert clock() == clock() == SECOND
    assert clock.advance(timedelta(seconds=1)) == 2 * SECOND
    assert clock.advance(0) == 2 * SECOND
    assert clock.set("3 seconds") == clock() == 3 * SECOND


def test_the_clock_rejects_an_earlier_time() -> None:
    clock = ManualClock(5)
    with pytest.raises(InvalidArgument, match="by = -1: is negative"):
        clock.advance(-1)
    with pytest.raises(InvalidArgument, match="is before the current time"):
        clock.set(4)
    assert clock.set(5) == 5


# ---- the stream


def test_panes_are_in_the_step_that_emits_them() -> None:
    run = (
        TestStream()
        .add("key | ts | price \n a | 3 | 5")
        .advance_watermark(9)
        .advance_watermark(10)
        .add("key | ts | price \n a | 4 | 1")
        .run(summing(allowed_lateness=5))
    )
    assert [step.output.panes.height for step in run.steps] == [0, 0, 1, 1]
    assert_rows(
        run.panes,
        T("""
            key | window_start | window_end | timing  | total
            a   | 0            | 10         | ON_TIME | 5
            a   | 0            | 10         | LATE    | 6
        """),
        ordered=True,
    )
    assert (run.dropped_late, run.dropped_closed, run.late) == (0, 0, None)


def test_triggers_use_the_clock_of_the_stream() -> None:
    stream = TestStream().add("key | ts | price \n a | 3 | 5").advance_processing_time("5 seconds")
    operator = summing(after_processing_time("5 seconds"), allow_data_loss=True)
    assert stream.run(operator).panes.is_empty()
    run = stream.advance_processing_time(1).run(operator)
    assert run.panes["timing"].to_list() == ["EARLY"]
    assert [step.now for step in run.steps] == [0, 5 * SECOND, 5 * SECOND + 1]


def test_restart_between_steps_changes_nothing() -> None:
    stream = (
        TestStream()
        .add("key | ts | price \n a | 3 | 5 \n b | 4 | 7")
        .add("key | ts | price \n a | 13 | 1")
        .advance_watermark(10)
        .add("key | ts | price \n a | 5 | 2")
        .end()
    )
    operator = summing(allowed_lateness=3, mode="accumulating_and_retracting")
    assert_rows(stream.run(operator, restart=True).panes, stream.run(operator).panes)


def test_stream_is_a_value_that_can_be_continued_twice() -> None:
    start = TestStream().add("key | ts | price \n a | 3 | 5")
    ended, waiting = start.end(), start.advance_watermark(5)
    assert ended.run(summing()).panes.height == 1
    assert waiting.run(summing()).panes.is_empty()
    assert len(start.events) == 1


def test_late_rows_are_collected_over_steps() -> None:
    late = "key | ts | price \n a | {} | 5"
    run = TestStream().advance_watermark(10).add(late.format(3)).add(late.format(4)).run(summing(late="emit"))
    assert run.late is not None
    assert_rows(run.late, T("ts | reason \n 3 | late \n 4 | late"))
    assert run.dropped_late == 2


def test_the_story_shows_drops_clock_firings_and_several_panes() -> None:
    run = (
        TestStream()
        .add("key | ts | price \n a | 3 | 5 \n b | 4 | 7")
        .advance_processing_time("6 seconds")
        .advance_processing_time("1 second")
        .advance_watermark(10)
        .add("key | ts | price \n a | 4 | 1")
        .end()
        .run(summing(AfterWatermark(early=every(duration="5 seconds"), late=every(count=1))))
    )
    assert (
        run.story()
        == """\
clock   | event            | watermark | window  | key | pane      | total
0       | a at 3 (price 5) |           |         |     |           |
        | b at 4 (price 7) |           |         |     |           |
6000000 | clock            |           | [0, 10) | a   | EARLY     | 5
        |                  |           | [0, 10) | b   | EARLY     | 7
7000000 | watermark        | 10        | [0, 10) | a   | ON_TIME   | 5
        |                  |           | [0, 10) | b   | ON_TIME   | 7
7000000 | a at 4 (price 1) | 10        |         |     | dropped 1 |
7000000 | watermark        | ∞         |         |     |           |"""
    )


def test_empty_stream_has_no_panes() -> None:
    assert TestStream().run(summing()).panes.is_empty()


def test_a_decreasing_watermark_raises() -> None:
    with pytest.raises(WatermarkRegression):
        TestStream().advance_watermark(5).advance_watermark(4).run(summing())


def test_two_inputs_have_their_own_watermarks() -> None:
    columns = {"key": pl.String, "ts": pl.Int64}
    join = JoinSpec(on=("key",), before=0, after=5, how="left", late="emit")
    operator = JoinOperator(join, left=columns, right=columns)
    run = (
        TestStream()
        .add("key | ts \n a | 1 \n b | 2", side="left")
        .add("key | ts \n a | 6", side="right")
        .advance_watermark(8, side="right")
        .add("key | ts \n b | 7", side="right")
        .advance_watermark(8, side="left")
        .advance_processing_time(3)
        .run(operator, restart=True)
    )
    assert [step.output.rows.rows() for step in run.steps] == [
        [],
        [("a", 1, 6)],
        [("b", 2, None)],
        [],
        [],
        [],
    ]
    assert [step.watermark for step in run.steps] == [None, None, None, None, 8, 8]
    assert (run.dropped("left"), run.dropped("right")) == (0, 1)
    late = run.late("right")
    assert late is not None
    assert late.rows() == [("b", 7)]
    assert run.rows.height == 2


def test_a_merge_uses_the_minimum_watermark() -> None:
    merge = MergeOperator(
        window=Fixed(10),
        key=("key",),
        left=("price",),
        right=("name",),
        how="inner",
        left_time="ts",
        right_time="at",
    )
    run = (
        TestStream()
        .add("key | ts | price \n a | 1 | 5 \n a | 2 | 6", side="left")
        .add("key | at | name \n a | 3 | lamp", side="right")
        .advance_watermark(10, side="left")
        .advance_watermark(12, side="right")
        .run(merge, restart=True)
    )
    assert [step.output.panes.height for step in run.steps] == [0, 0, 0, 2]
    assert [step.watermark for step in run.steps] == [None, None, None, 10]
    assert_rows(run.panes, T("key | price | name \n a | 5 | lamp \n a | 6 | lamp"))
    assert "right a at 3 (name lamp)" in run.story()


def test_a_side_that_the_operator_does_not_have_raises() -> None:
    columns = {"ts": pl.Int64}
    join = JoinOperator(JoinSpec(on=(), before=0, after=0), left=columns, right=columns)
    with pytest.raises(InvalidArgument, match='add\\(…, side="left"\\)'):
        TestStream().add("ts \n 1").run(join)
    with pytest.raises(InvalidArgument, match="is given for an operator with one input"):
        TestStream().advance_watermark(1, side="left").run(summing())
    with pytest.raises(InvalidArgument, match='use "left" or "right"'):
        TestStream().add("ts \n 1", side="middle")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="by = -1: is negative"):
        TestStream().advance_processing_time(-1)


def test_pytest_does_not_collect_the_stream() -> None:
    # That this module, with warnings as errors, is collected at all shows that it works.
    assert TestStream.__test__ is False


def test_events_can_set_the_clock() -> None:
    run = (
        TestStream()
        .add("key | ts | price \n a | 3 | 5", at="1 second")
        .advance_watermark(5, at="2 seconds")
        .advance_processing_time("1 second")
        .end(at="4 seconds")
        .run(summing())
    )
    assert [step.now for step in run.steps] == [1 * SECOND, 2 * SECOND, 3 * SECOND, 4 * SECOND]
    with pytest.raises(InvalidArgument, match="is before the current time"):
        TestStream().end(at=5).end(at=4).run(summing())


@pytest.mark.parametrize("restart", [False, True])
def test_a_step_with_rows_and_watermarks_of_both_sides_judges_rows_by_the_watermarks_before(
    restart: bool,
) -> None:
    columns = {"key": pl.String, "ts": pl.Int64}
    join = JoinOperator(JoinSpec(on=("key",), before=0, after=5), left=columns, right=columns)
    stream = (
        TestStream()
        .step(left="key | ts \n a | 1", right="key | ts \n a | 3", left_watermark=10, right_watermark=8)
        .step(left="key | ts \n a | 9", right="key | ts \n a | 7", watermark=20)
    )
    run = stream.run(join, restart=restart)
    assert run.rows.rows() == [("a", 1, 3)]
    assert (run.dropped("left"), run.dropped("right")) == (1, 1)
    assert [step.watermark for step in run.steps] == [8, 20]


def test_a_step_appears_in_the_story_line_by_line() -> None:
    operator = WindowedOperator(window=Fixed(10), accumulations={"n": Count()}, event_time="ts")
    run = TestStream().step("ts \n 3 \n 12", watermark=10, at=7).run(operator)
    assert run.story().splitlines() == [
        "clock | event     | watermark | window  | pane    | n",
        "7     | at 3      | 10        | [0, 10) | ON_TIME | 1",
        "      | at 12     |           |         |         |",
        "      | watermark |           |         |         |",
    ]


def test_an_empty_or_contradictory_step_raises() -> None:
    with pytest.raises(InvalidArgument, match=r"step = \(\): is empty; give rows or a watermark"):
        TestStream().step()
    with pytest.raises(InvalidArgument, match="watermark = 5: is given for both sides and for one"):
        TestStream().step(watermark=5, left_watermark=6)


@pytest.mark.parametrize("restart", [False, True])
def test_cleaning_up_is_checked_for_windows_merges_and_joins(restart: bool) -> None:
    windowed = WindowedOperator(window=Fixed(10), accumulations={"n": Count()}, event_time="ts")
    open_windows = TestStream().add("ts \n 3 \n 12")
    with pytest.raises(AssertionError, match="not cleaned up: 2 open windows, 2 blobs"):
        assert_cleaned_up(open_windows.run(windowed, restart=restart))
    assert_cleaned_up(open_windows.advance_watermark(20).run(windowed, restart=restart))
    sides = TestStream().step(left="key | ts \n a | 1", right="key | ts \n b | 3")
    merge = MergeOperator(window=Fixed(10), key=("key",), left=(), right=(), left_time="ts", right_time="ts")
    with pytest.raises(AssertionError, match="1 open window"):
        assert_cleaned_up(sides.run(merge, restart=restart))
    assert_cleaned_up(sides.end().run(merge, restart=restart))
    columns = {"key": pl.String, "ts": pl.Int64}
    join = JoinOperator(JoinSpec(on=("key",), before=0, after=5), left=columns, right=columns)
    with pytest.raises(AssertionError, match="2 buffered rows"):
        assert_cleaned_up(sides.run(join, restart=restart))
    assert_cleaned_up(sides.end().run(join, restart=restart))


@pytest.mark.parametrize("restart", [False, True])
def test_an_as_of_join_and_a_deduplication_run_on_scripts(restart: bool) -> None:
    columns = {"key": pl.String, "ts": pl.Int64}
    asof = AsofOperator(AsofSpec(on=("key",)), left=columns, right=columns)
    stream = TestStream().step(left="key | ts \n a | 5", right="key | ts \n a | 3", watermark=4)
    with pytest.raises(AssertionError, match="not cleaned up: 2 buffered rows"):
        assert_cleaned_up(stream.run(asof, restart=restart))
    run = stream.end().run(asof, restart=restart)
    assert run.rows.rows() == [("a", 5, 3)]
    assert_cleaned_up(run)
    once = DeduplicateOperator(DeduplicateSpec(on=("key",), within=10), schema=columns)
    rows = TestStream().add("key | ts \n a | 1 \n a | 2").step("key | ts \n a | 3", watermark=2)
    found = rows.add("key | ts \n a | 1 \n b | 4").run(once, restart=restart)
    assert (found.rows.rows(), found.duplicates, found.dropped) == ([("a", 1), ("b", 4)], 2, 1)
    with pytest.raises(AssertionError, match="not cleaned up: 2 buffered rows"):
        assert_cleaned_up(found)


def test_an_idle_side_does_not_hold_the_watermark_of_a_cogroup_until_it_sends_again() -> None:
    merge = MergeOperator(window=Fixed(10), key=("key",), left=(), right=(), left_time="ts", right_time="ts")
    stream = (
        TestStream()
        .step(left="key | ts \n a | 1", left_watermark=20, right_watermark=5)
        .idle(side="right")
        .step(right="key | ts \n a | 25", at=3)
        .advance_watermark(30, side="left")
    )
    run = stream.run(merge)
    assert [step.watermark for step in run.steps] == [5, 20, 20, 20]
    assert run.steps[1].output.panes["timing"].to_list() == ["ON_TIME"]
    assert "right idle" in run.story()


def test_all_sides_are_idle_at_the_highest_watermark() -> None:
    merge = MergeOperator(window=Fixed(10), key=("key",), left=(), right=(), left_time="ts", right_time="ts")
    run = TestStream().advance_watermark(20, side="left").idle().run(merge)
    assert [step.watermark for step in run.steps] == [None, 20]
