"""Origin numbers of a pipeline (S11)."""

from __future__ import annotations

import pytest

from slackwater.progress.pipeline_plan import Kind, PipelinePlan, PlanNode


def test_numbers_run_bottom_up_in_plan_order() -> None:
    left, right = PlanNode("left", Kind.SOURCE), PlanNode("right", Kind.SOURCE)
    windowed = PlanNode("window", Kind.STATEFUL, (left,))
    joined = PlanNode("join", Kind.STATEFUL, (windowed, PlanNode("map", Kind.STATELESS, (right,))))
    plan = PipelinePlan(PlanNode("filter", Kind.STATELESS, (joined,)))
    assert {number: node.name for number, node in plan.origins.items()} == {
        1: "left",
        2: "window",
        3: "right",
        4: "join",
    }
    assert plan.number(joined) == 4


def test_a_source_used_twice_has_one_number() -> None:
    source = PlanNode("bids", Kind.SOURCE)
    one, two = (PlanNode(name, Kind.STATEFUL, (source,)) for name in ("minutes", "hours"))
    plan = PipelinePlan(PlanNode("union", Kind.STATELESS, (one, two)))
    assert [node.name for node in plan.origins.values()] == ["bids", "minutes", "hours"]


def test_equal_names_are_different_origins() -> None:
    plan = PipelinePlan(
        PlanNode("union", Kind.STATELESS, (PlanNode("a", Kind.SOURCE), PlanNode("a", Kind.SOURCE)))
    )
    assert list(plan.origins) == [1, 2]


def test_numbers_are_reused_by_other_pipelines() -> None:
    assert list(PipelinePlan(PlanNode("a", Kind.SOURCE)).origins) == list(
        PipelinePlan(PlanNode("b", Kind.SOURCE)).origins
    )


@pytest.mark.search
def test_a_plan_ten_thousand_steps_deep() -> None:
    node = PlanNode("source", Kind.SOURCE)
    for number in range(10_000):
        node = PlanNode(f"map {number}", Kind.STATELESS, (node,))
    plan = PipelinePlan(PlanNode("window", Kind.STATEFUL, (node,)))
    assert list(plan.origins) == [1, 2]
    assert plan.explain().count("\n") == 10_001


def test_details_are_shown_below_a_step_and_once_for_a_shared_step() -> None:
    source = PlanNode("bids", Kind.SOURCE)
    stage = PlanNode("cheap", Kind.STATELESS, (source,), ("price < 3",))
    plan = PipelinePlan(PlanNode("join", Kind.STATEFUL, (stage, stage), ("key: auction", "inner")))
    assert str(plan).splitlines() == [
        "origin 2  join (stateful)",
        "          key: auction",
        "          inner",
        "  -         cheap (stateless)",
        "            price < 3",
        "    origin 1  bids (source)",
        "  -         cheap (stateless), see above",
    ]
    assert repr(plan) == str(plan)


def test_the_html_is_nested_closed_and_escaped() -> None:
    left, right = PlanNode("<b>", Kind.SOURCE, details=("a & b",)), PlanNode("right", Kind.SOURCE)
    stage = PlanNode("map", Kind.STATELESS, (left,))
    html = PipelinePlan(PlanNode("join", Kind.STATEFUL, (stage, right)))._repr_html_()
    assert html == (
        "<ul><li><b>origin 3</b> join (stateful)"
        "<ul><li>map (stateless)"
        "<ul><li><b>origin 1</b> &lt;b&gt; (source)<br><small>a &amp; b</small></li></ul>"
        "</li><li><b>origin 2</b> right (source)</li></ul></li></ul>"
    )
