"""Plans: reasons, ranges that are left out, start times, owed reads, and the two abstinent modes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slackwater.ingest import WHOLE, History, InvalidJob, Plan, TooFewUnits, parse_job, plan, unit_of
from slackwater.ingest.job_errors import OverlappingPartitions
from slackwater.ingest.plan.plan_report import plan_as_json, stretches, warnings_of
from slackwater.ingest.runner import run_job
from slackwater.metadata.store import open_store
from slackwater.time import HOUR, SECOND, Range, format_instant, instant
from tests.support.unit_reads import ScriptedReads


def at(text: str) -> int:
    return instant(text if "T" in text else f"{text}T00:00:00Z")


def made(
    now: str,
    *,
    begin: str = "2020-01-01",
    to: str = "P0D",
    units: str = "",
    history: Any = (),
    failed: Any = (),
    only_failed: bool = False,
    **keys: Any,
) -> Plan:
    watermark: list[dict[str, Any]] = [
        {"name": "system", "type": "datetime", "range": {"from": begin, "to": to}}
    ]
    if units:
        watermark.append({"name": "id", "type": "unit", "units": units})
    options = {f"ms.{name.replace('_', '.')}": value for name, value in keys.items()}
    job = parse_job({"ms.watermark": watermark, **options}, environment={})
    rows = [(at(start), unit, at(high)) for start, unit, high in history]
    reads = [(at(start), unit, at(low)) for start, unit, low in failed]
    return plan(job, History(rows, reads), at(now), only_failed=only_failed)


def ranges(shown: Plan) -> list[tuple[str, str]]:
    return [(format_instant(work.low)[:13], format_instant(work.high)[:13]) for work in shown.units]


A, B = unit_of({"id": "a"}).key, unit_of({"id": "b"}).key


def test_each_skipped_unit_has_a_reason() -> None:
    shown = made(
        "2020-01-20",
        units="a,b",
        work_unit_partition="weekly",
        abstinent_period_days=2,
        work_unit_parallelism_max=1,
        history=[
            ("2020-01-01", A, "2020-01-08"),
            ("2020-01-08", A, "2020-01-14"),
            ("2020-01-15", A, "2020-01-16"),
            ("2020-01-01", B, "2020-01-08"),
            ("2020-01-08", B, "2020-01-15"),
            ("2020-01-15", B, "2020-01-19"),
        ],
    )
    assert [(unit.unit.key, format_instant(unit.start)[:10], unit.reason) for unit in shown.skipped] == [
        (A, "2020-01-01", "read"),
        (B, "2020-01-01", "read"),
        (A, "2020-01-08", "left-out"),
        (B, "2020-01-08", "read"),
        (B, "2020-01-15", "abstinent"),
    ]
    [work] = shown.units
    assert (work.unit.key, format_instant(work.low)[:10]) == (A, "2020-01-18")
    assert shown.overall == at("2020-01-19")


def test_a_bound_beyond_the_calendar_is_named() -> None:
    for bounds, bound in (
        ({"from": "P800000DT5H", "to": "-"}, "from"),
        ({"from": "2020-01-01", "to": "P800000D"}, "to"),
    ):
        axis = {"name": "system", "type": "datetime", "range": bounds}
        job = parse_job({"ms.watermark": [{"name": "id", "type": "unit", "units": "a"}, axis]})
        with pytest.raises(InvalidJob) as caught:
            plan(job, History(), at("2020-01-01"))
        [problem] = caught.value.problems
        assert (problem.key, problem.value) == (f"ms.watermark[1].range.{bound}", repr(bounds[bound]))


@pytest.mark.parametrize(
    ("mode", "to", "expected"),
    [("reduce", "P0D", "left-out"), ("reduce", "2020-02-01", "left-out"), ("wait", "2020-02-01", None)],
)
def test_a_range_that_the_abstinent_period_leaves_out_is_never_waited_for(
    mode: str, to: str, expected: str | None
) -> None:
    axis = {"name": "system", "type": "datetime", "range": {"from": "2020-01-01", "to": to}}
    keys = {
        "ms.watermark": [axis], "ms.work.unit.partition": "monthly", "ms.abstinent.period.days": 2,
        "ms.abstinent.mode": mode,
    }  # fmt: skip
    shown = plan(parse_job(keys), History([(at("2020-01-01"), "{}", at("2020-01-31"))]), at("2020-06-10"))
    reasons = [unit.reason for unit in shown.skipped]
    assert reasons == ([] if expected is None else [expected])
    assert len(shown.units) == (5 if to == "P0D" else 0 if mode == "reduce" else 1)
    left_out = [stretch for stretch in stretches(shown) if stretch[2] == "left out"]
    assert left_out == ([] if expected is None else [(at("2020-01-31"), at("2020-02-01"), "left out")])


def test_a_unit_behind_the_overall_cut_off_has_that_reason() -> None:
    history = [("2020-01-01", "{}", "2020-02-01"), ("2020-02-01", "{}", "2020-02-20")]
    shown = made("2020-02-21", work_unit_partition="monthly", grace_period_days=5, history=history)
    assert [(unit.reason, unit.unread) for unit in shown.skipped] == [("cut-off", None)]
    assert shown.skipped[0].own == at("2020-01-27")


def test_the_cap_leaves_the_rest_to_a_later_run() -> None:
    shown = made("2020-01-04", work_unit_partition="daily", work_unit_parallelism_max=1)
    assert len(shown.units) == 1
    assert [unit.reason for unit in shown.skipped] == ["parallelism", "parallelism"]


def test_what_the_abstinent_period_leaves_out_is_in_the_plan() -> None:
    history = [("2020-01-01", "{}", "2020-01-15")]
    [work] = made("2020-01-20", abstinent_period_days=3, history=history).units
    assert str(work.left_out) == "[2020-01-15T00:00:00Z, 2020-01-18T00:00:00Z)"
    [work] = made("2020-01-20", abstinent_period_days=3, grace_period_days=3, history=history).units
    assert work.left_out is None


@pytest.mark.parametrize(
    ("now", "grace", "expected"),
    [
        ("2020-01-16", 0, []),
        ("2020-01-18", 0, []),  # end equals the own cut-off
        ("2020-01-19", 0, [("2020-01-15T00", "2020-01-19T00")]),
        ("2020-01-17", 1, []),
        ("2020-01-18", 1, [("2020-01-15T00", "2020-01-18T00")]),
        ("2020-01-16", 5, [("2020-01-13T00", "2020-01-16T00")]),  # own lies before the high watermark
    ],
)
def test_a_unit_that_waits_reads_everything_since_its_high_watermark(
    now: str, grace: int, expected: list[tuple[str, str]]
) -> None:
    history = [("2020-01-01", "{}", "2020-01-15")]
    options: dict[str, Any] = {
        "abstinent_period_days": 3,
        "abstinent_mode": "wait",
        "grace_period_days": grace,
    }
    shown = made(now, history=history, **options)
    assert ranges(shown) == expected
    assert all(work.left_out is None for work in shown.units)


def test_a_partition_that_ended_while_its_unit_waited_is_read_to_its_end() -> None:
    history = [("2020-01-01", "{}", "2020-01-31")]
    options: dict[str, Any] = {
        "abstinent_period_days": 3,
        "abstinent_mode": "wait",
        "work_unit_partition": "monthly",
    }
    assert ranges(made("2020-02-03", history=history, **options)) == [("2020-02-01T00", "2020-02-03T00")]
    assert ranges(made("2020-02-04", history=history, **options)) == [
        ("2020-01-31T00", "2020-02-01T00"),
        ("2020-02-01T00", "2020-02-04T00"),
    ]


def test_with_a_fixed_end_a_unit_waits_for_the_clock() -> None:
    options: dict[str, Any] = {
        "to": "2020-01-16", "abstinent_period_days": 3, "abstinent_mode": "wait",
        "history": [("2020-01-01", "{}", "2020-01-15")],
    }  # fmt: skip
    assert ranges(made("2020-01-18", **options)) == []
    assert ranges(made("2020-01-18T00:00:01Z", **options)) == [("2020-01-15T00", "2020-01-16T00")]


@pytest.mark.parametrize(
    ("partition", "to", "expected"),
    [
        ("daily", "P1D", "2020-04-24T15:30:00Z"),
        ("none", "P2DT5H", "2020-04-23T10:30:00Z"),
        ("hourly", "P0DT0H", "2020-04-25T15:30:00Z"),
        ('{"weekly": ["2020-01-01", "-"]}', "P1D", "2020-04-24T15:30:00Z"),
        ("weekly", "P1D", "2020-04-24T00:00:00Z"),
        ("monthly", "P2DT5H", "2020-04-23T10:00:00Z"),
        ("Yearly", "P0DT0H3M", "2020-04-25T15:27:00Z"),
        ("yearly", "-", "2020-04-25T15:30:00Z"),
        ("daily", "2020-04-01 10:11:12", "2020-04-01T10:11:12Z"),
    ],
)
def test_rounding_by_the_partition(partition: str, to: str, expected: str) -> None:
    shown = made("2020-04-25T15:30:45Z", to=to, watermark_rounding="partition", work_unit_partition=partition)
    assert format_instant(shown.end) == expected


def test_gaps_and_incomplete_tails_are_named() -> None:
    composite = {"monthly": ["2020-01-10", "2020-02-20"], "daily": ["2020-03-01", "2020-03-03"]}
    shown = made("2020-03-04", work_unit_partition=composite, work_unit_partial_partition=False)
    assert [
        (format_instant(each.start)[:10], format_instant(each.end)[:10], each.reason)
        for each in shown.omissions
    ] == [
        ("2020-01-01", "2020-01-10", "gap"),
        ("2020-02-10", "2020-02-20", "incomplete"),
        ("2020-02-20", "2020-03-01", "gap"),
        ("2020-03-03", "2020-03-04", "gap"),
    ]


def test_units_start_one_after_the_other() -> None:
    shown = made("2020-01-04", work_unit_partition="daily", work_unit_pacing_seconds=10)
    assert [shown.not_before(index) - shown.now for index in range(3)] == [0, 10 * SECOND, 20 * SECOND]


def test_too_few_units_is_a_failure_of_its_own() -> None:
    with pytest.raises(TooFewUnits) as caught:
        made("2020-01-02", work_unit_min_units=2)
    assert (caught.value.planned, caught.value.wanted) == (1, 2)


def test_backfill_has_no_cut_off() -> None:
    shown = made("2020-01-04", backfill=True, history=[("2020-01-01", "{}", "2020-01-04")])
    assert shown.overall is None
    assert ranges(shown) == [("2020-01-01T00", "2020-01-04T00")]


def test_a_from_before_the_calendar_is_an_error_of_the_job() -> None:
    with pytest.raises(InvalidJob, match=r"ms\.watermark"):
        made("2020-01-01", begin="P800000D")


def test_planning_changes_nothing_and_is_repeatable() -> None:
    job = parse_job({"ms.work.unit.partition": "daily", "ms.grace.period.days": 2}, environment={})
    history = History([(at("2019-01-01"), WHOLE.key, at("2019-01-01") + HOUR)])
    first = plan(job, history, at("2020-01-01"))
    assert list(history.rows()) == [(at("2019-01-01"), WHOLE.key, at("2019-01-01") + HOUR)]
    assert plan(job, history, at("2020-01-01")) == first


# ---- owed re-reads


HISTORY = [("2020-01-01", "{}", "2020-01-10")]
"""Read to the tenth; with two days of grace, a read from the eighth follows."""


def owed(now: str, low: str = "2020-01-05", **options: Any) -> Plan:
    return made(now, history=HISTORY, failed=[("2020-01-01", "{}", low)], **options)


def test_a_failed_read_is_repeated_from_its_low() -> None:
    shown = owed("2020-01-12", grace_period_days=2)
    assert ranges(shown) == [("2020-01-05T00", "2020-01-12T00")]
    assert (shown.units[0].reason, shown.units[0].owed) == ("owed", at("2020-01-05"))


def test_a_failed_read_above_the_cut_off_does_not_raise_the_low() -> None:
    assert ranges(owed("2020-01-12", low="2020-01-09", grace_period_days=2)) == [
        ("2020-01-08T00", "2020-01-12T00")
    ]


def test_a_failed_read_is_repeated_although_nothing_else_asks_for_it() -> None:
    shown = owed("2020-01-20", to="2020-01-10")
    assert ranges(shown) == [("2020-01-05T00", "2020-01-10T00")]
    assert made("2020-01-20", to="2020-01-10", history=HISTORY).units == []


def test_an_owed_read_does_not_wait_for_the_abstinent_period() -> None:
    for mode in ("reduce", "wait"):
        shown = owed("2020-01-12", abstinent_period_days=30, abstinent_mode=mode)
        assert ranges(shown) == [("2020-01-05T00", "2020-01-12T00")]
        assert shown.units[0].left_out is None


def test_an_owed_read_in_wait_mode_begins_at_the_high_watermark_at_the_latest() -> None:
    shown = owed("2020-01-20", low="2020-01-14", abstinent_period_days=30, abstinent_mode="wait")
    assert ranges(shown) == [("2020-01-10T00", "2020-01-20T00")]


def test_an_owed_read_in_reduce_mode_shows_what_lies_before_it_as_left_out() -> None:
    [work] = owed("2020-01-20", low="2020-01-14", abstinent_period_days=30).units
    assert work.left_out == Range(at("2020-01-10"), at("2020-01-14"))


def test_an_owed_read_that_begins_where_the_partition_now_ends_is_not_run() -> None:
    for low, expected in (("2020-01-05", []), ("2020-01-04", [("2020-01-04T00", "2020-01-05T00")])):
        assert ranges(owed("2020-01-20", to="2020-01-05", low=low)) == expected


def test_a_new_unit_that_failed_is_read_from_its_start() -> None:
    shown = made("2020-01-04", failed=[("2020-01-01", "{}", "2020-01-02")])
    assert ranges(shown) == [("2020-01-01T00", "2020-01-04T00")]
    assert (shown.units[0].reason, shown.units[0].owed) == ("new", None)


def test_a_backfill_ignores_failed_reads() -> None:
    shown = owed("2020-01-12", backfill=True)
    assert ranges(shown) == [("2020-01-01T00", "2020-01-12T00")]
    assert shown.units[0].reason == "new"


def test_failed_reads_of_units_that_are_no_longer_configured_are_ignored() -> None:
    shown = made("2020-01-04", units="a", failed=[("2020-01-01", B, "2020-01-01")])
    assert [work.unit.key for work in shown.units] == [A]


def test_only_failed_plans_new_units_that_failed_and_owed_ones_before_the_cap() -> None:
    shown = made(
        "2020-01-06",
        work_unit_partition="daily",
        grace_period_days=1,
        work_unit_parallelism_max=2,
        work_unit_min_units=2,
        history=[(f"2020-01-0{day}", "{}", f"2020-01-0{day + 1}") for day in (1, 2, 3)],
        failed=[("2020-01-02", "{}", "2020-01-02"), ("2020-01-05", "{}", "2020-01-05")],
        only_failed=True,
    )
    assert ranges(shown) == [("2020-01-02T00", "2020-01-03T00"), ("2020-01-05T00", "2020-01-06T00")]
    assert [work.reason for work in shown.units] == ["owed", "new"]
    assert [unit.reason for unit in shown.skipped] == ["cut-off", "not-failed", "not-failed"]


def test_a_cap_leaves_an_owed_read_to_a_later_run() -> None:
    shown = made(
        "2020-01-03",
        work_unit_partition="daily",
        work_unit_parallelism_max=1,
        history=[("2020-01-02", "{}", "2020-01-03")],
        failed=[("2020-01-02", "{}", "2020-01-02")],
    )
    assert ranges(shown) == [("2020-01-01T00", "2020-01-02T00")]
    assert [unit.reason for unit in shown.skipped] == ["parallelism"]


# ---- the abstinent period at equality


def test_what_a_partition_lacks_is_shown_as_left_out_where_it_ends_at_its_own_cut_off() -> None:
    options: dict[str, Any] = {"work_unit_partition": "daily", "abstinent_period": "PT5H"}
    lost = Range(at("2020-01-03T19:00:00Z"), at("2020-01-04"))
    for now, to in (("2020-01-05", "2020-01-04"), ("2020-01-04", "P0D")):
        shown = made(now, to=to, history=[("2020-01-03", "{}", "2020-01-03T19:00:00Z")], **options)
        [skipped] = shown.skipped
        assert skipped.own == skipped.end == at("2020-01-04")
        assert skipped.left_out == skipped.unread == lost
        assert (lost.start, lost.end, "left out") in stretches(shown)


# ---- as JSON, and as stretches


def test_json_shows_owed_reads_with_their_reason() -> None:
    [unit] = plan_as_json(owed("2020-01-12", grace_period_days=2))["units"]
    assert (unit["reason"], unit["owed_from"]) == ("owed", "2020-01-05T00:00:00Z")
    assert unit["why"].startswith("a read failed after its last success")


def test_json_has_ranges_reasons_and_cut_offs() -> None:
    history = [("2020-01-01", "{}", "2020-01-15")]
    shown = plan_as_json(made("2020-01-20", abstinent_period_days=3, history=history))
    [unit] = shown["units"]
    assert unit["own_cut_off"] == unit["low"] == "2020-01-18T00:00:00Z"
    assert unit["left_out"] == ["2020-01-15T00:00:00Z", "2020-01-18T00:00:00Z"]
    assert shown["overall_cut_off"] == unit["high_watermark"] == "2020-01-15T00:00:00Z"
    [skipped] = plan_as_json(made("2020-01-16", abstinent_period_days=3, history=history))["skipped"]
    lost = ["2020-01-15T00:00:00Z", "2020-01-16T00:00:00Z"]
    assert (skipped["reason"], skipped["unread"], skipped["left_out"]) == ("abstinent", lost, lost)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {("2020-01-01", "2020-01-15", "read"), ("2020-01-15", "2020-01-20", "new")}),
        (
            {"grace_period_days": 2},
            {
                ("2020-01-01", "2020-01-13", "read"),
                ("2020-01-13", "2020-01-15", "again"),
                ("2020-01-15", "2020-01-20", "new"),
            },
        ),
        (
            {"abstinent_period_days": 2},
            {
                ("2020-01-01", "2020-01-15", "read"),
                ("2020-01-15", "2020-01-17", "left out"),
                ("2020-01-17", "2020-01-20", "new"),
            },
        ),
        (
            {"abstinent_period_days": 9},
            {("2020-01-01", "2020-01-15", "read"), ("2020-01-15", "2020-01-20", "left out")},
        ),
        (
            {"abstinent_period_days": 9, "abstinent_mode": "wait"},
            {("2020-01-01", "2020-01-15", "read"), ("2020-01-15", "2020-01-20", "waits")},
        ),
        (
            {"failed": [("2020-01-01", "{}", "2020-01-10")]},
            {
                ("2020-01-01", "2020-01-10", "read"),
                ("2020-01-10", "2020-01-15", "again"),
                ("2020-01-15", "2020-01-20", "new"),
            },
        ),
        ({"backfill": True}, {("2020-01-01", "2020-01-20", "new")}),
    ],
)
def test_every_stretch_of_time_has_one_fate(
    options: dict[str, Any], expected: set[tuple[str, str, str]]
) -> None:
    shown = made("2020-01-20", history=[("2020-01-01", "{}", "2020-01-15")], **options)
    found = stretches(shown)
    assert {(format_instant(a)[:10], format_instant(b)[:10], fate) for a, b, fate in found} == expected
    assert set(found.values()) == {1}


# ---- partitions that would be in the target twice

COPY = {"target_type": "parquet", "target_path": "out"}
WEEK = [("2020-01-01", WHOLE.key, "2020-01-08")]


@pytest.mark.parametrize(
    ("options", "overlapping"),
    [
        ({"begin": "P7D"}, True),  # a start that moves
        ({"work_unit_partition": "daily"}, True),  # another kind of partition
        ({"begin": "2019-12-25"}, True),
        ({"begin": "P7D", "backfill": "true"}, True),
        ({}, False),
        ({"begin": "P1D"}, False),
        ({"begin": "P7D", "time_column": "at"}, False),
        ({"begin": "P7D", "target_type": "stream"}, False),
        ({"begin": "P7D", "target_type": "sql", "target_mode": "merge"}, False),
    ],
)
def test_without_a_time_column_partitions_do_not_overlap_earlier_ones(
    options: dict[str, Any], overlapping: bool
) -> None:
    shown = made("2020-01-09", history=WEEK, **{**COPY, **options})
    assert bool(shown.overlaps) == overlapping
    assert any("duplicate rows" in text for text in warnings_of(shown)) == overlapping


def test_a_run_that_would_write_rows_twice_is_refused(tmp_path: Path) -> None:
    keys = {"ms.target.type": "parquet", "ms.target.path": "out"}
    axis = {"name": "system", "type": "datetime", "range": {"from": "P7D", "to": "P0D"}}
    job = parse_job({"ms.watermark": [axis], **keys})
    reads = ScriptedReads(())
    with open_store(f"sqlite:///{tmp_path}/store.db", create=True) as store:
        assert run_job(job, store, reads, now=at("2020-01-08")).succeeded
        with pytest.raises(
            OverlappingPartitions, match="overlaps 2020-01-01T00:00:00Z to 2020-01-08T00:00:00Z"
        ):
            run_job(job, store, reads, now=at("2020-01-09"))
    assert len(reads.good) == 1


@pytest.mark.parametrize(
    ("options", "warned"),
    [
        ({"begin": "P7D"}, True),
        ({"begin": "P7D", "work_unit_partition": "weekly"}, True),
        ({"begin": "P0DT6H"}, True),
        ({"begin": "P7D", "work_unit_partition": "daily"}, False),
        ({"begin": "P1D", "to": "P0D"}, False),
        ({"begin": "P7D", "time_column": "at"}, False),
        ({}, False),
    ],
)
def test_a_plan_warns_of_a_start_that_moves(options: dict[str, Any], warned: bool) -> None:
    shown = made("2020-01-09T12:00:00Z", **{"to": "P0DT0H", **COPY, **options})
    assert any("moves with every run" in text for text in warnings_of(shown)) == warned


@pytest.mark.parametrize(("begin", "warned"), [("2020-01-11", True), ("2020-01-10", False), ("P0D", False)])
def test_a_plan_warns_of_a_start_after_the_end(begin: str, warned: bool) -> None:
    said = "ms.watermark[0].range: 'from' (2020-01-11T00:00:00Z) is after 'to' (2020-01-10T00:00:00Z)"
    texts = warnings_of(made("2020-01-10T05:00:00Z", begin=begin))
    assert [text.partition(", so")[0] for text in texts] == [said] * warned
